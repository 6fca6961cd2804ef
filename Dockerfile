# plimsoll with what it needs on a GPU and nothing else: the binary, NVRTC and cuBLASLt. The driver comes from the host,
# through NVIDIA's container toolkit. The steps are scripts of container/, which tools/container/prove runs without Docker.
#
#   docker build -t plimsoll .
#   docker run --rm --gpus all -v "$PWD:/workspace" plimsoll train recipe.toml --epochs 5

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked -p plimsoll-cli

FROM python:3.13-slim-bookworm AS libraries
COPY container/cuda-libraries container/cuda-libraries.txt /container/
RUN /container/cuda-libraries /cuda

FROM debian:bookworm-slim
LABEL org.opencontainers.image.title="plimsoll" \
      org.opencontainers.image.description="Trains neural networks inside a memory budget that is known before the first step" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0"
COPY --from=libraries /cuda /usr/local/lib/plimsoll
COPY --from=build /src/target/release/plimsoll /usr/local/bin/plimsoll
COPY container/set-up container/healthy /usr/local/lib/plimsoll/
COPY recipes /usr/local/share/plimsoll/recipes
RUN /usr/local/lib/plimsoll/set-up
USER 1000:1000
WORKDIR /workspace
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    XDG_CACHE_HOME=/workspace/.cache
VOLUME ["/workspace"]
EXPOSE 8642
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 CMD ["/usr/local/lib/plimsoll/healthy"]
ENTRYPOINT ["plimsoll"]
CMD ["train", "/usr/local/share/plimsoll/recipes/quickstart.toml"]
