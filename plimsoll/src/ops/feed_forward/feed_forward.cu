// A feed-forward y = act(x · Wᵤᵀ + bᵤ) · W_dᵀ + b_d and its gradients, without the hidden values in memory: a block
// computes 32 of them at a time for its tokens, or a tile of tokens at a time for its hidden values, and adds what comes
// of them to sums in registers. Blocks that share a sum write parts, which are added in their order.
//
// Weights: up (hidden, D), down (D, hidden). ACT, SLOPE: the activation.

#define CHUNK 32

// Sixteens of tokens that a warp has in the forward pass, and eights of a chunk at once: what registers hold.
#define TOKENS (WIDE <= 64 && !EXACT ? 2 : 1)
#define AT_ONCE (EXACT ? 1 : 2)

// Φ, the normal distribution, within 1e-7 (Abramowitz and Stegun 7.1.26), and its density: tf32 sees no difference.
struct Normal {
    float below, density;
    __device__ __forceinline__ Normal(float x) {
        float t, e, squared = x * x * -0.72134752044448170f;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(fmaf(fabsf(x), 0.23164189f, 1.0f)));
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(squared));
        float p = fmaf(fmaf(fmaf(fmaf(0.5307027145f, t, -0.7265760135f), t, 0.7107068705f), t, -0.142248368f), t,
                       0.127414796f);
        float tail = p * t * e;
        below = x < 0.0f ? tail : 1.0f - tail;
        density = 0.39894228040143268f * e;
    }
};
__device__ __forceinline__ float quick_erf_gelu(float x) { return x * Normal(x).below; }
__device__ __forceinline__ float quick_erf_gelu_slope(float x) {
    Normal normal(x);
    return fmaf(x, normal.density, normal.below);
}

// The chunks of hidden values, or tiles of tokens, that are this block's: blockIdx.y of gridDim.y parts.
struct Part {
    int begin, end;
    __device__ __forceinline__ Part(i64 many)
        : begin((int)(many * blockIdx.y / gridDim.y)), end((int)(many * (blockIdx.y + 1) / gridDim.y)) {}
};

// The biases of the hidden values t and t + 4 of eight.
__device__ __forceinline__ void begin_with_bias(float c[4], const T* bias, int first, int hidden, Lane lane) {
    int i = first + lane.t;
    c[0] = c[2] = i < hidden ? to_float(bias[i]) : 0.0f;
    c[1] = c[3] = i + 4 < hidden ? to_float(bias[i + 4]) : 0.0f;
}

// Chunk i of both weights: up's as (CHUNK, WIDE), behind it down's as (WIDE, CHUNK).
struct Weights {
    const T *up, *down;
    int hidden;
    static constexpr int words = 2 * CHUNK * WIDE;
    __device__ __forceinline__ void bring(u32* tile, int i) const {
        fetch<CHUNK, WIDE>(tile, up + (i64)i * CHUNK * D, D, hidden - i * CHUNK, D);
        fetch<WIDE, CHUNK>(tile + CHUNK * WIDE, down + (i64)i * CHUNK, hidden, D, hidden - i * CHUNK);
    }
    static __device__ __forceinline__ void settle_all(u32* tile) {
        settle<CHUNK, WIDE>(tile);
        settle<WIDE, CHUNK>(tile + CHUNK * WIDE);
    }
};

// parts (gridDim.y, tokens, D): what this block's chunks add to y. A warp has 16 · TOKENS tokens.
extern "C" __global__ __launch_bounds__(THREADS) void forward(const T* x, const T* up, const T* bias, const T* down,
                                                              float* parts, i64 tokens, int hidden) {
    extern __shared__ float4 shared[];
    Lane lane;
    i64 first = ((i64)blockIdx.x * WARPS + lane.warp) * 16 * TOKENS;
    Rows rows[TOKENS];
    Sums sums[TOKENS];
    UNROLL for (int m = 0; m < TOKENS; m++) {
        i64 row = first + 16 * m;
        take(rows[m], x + row * D, D, 1, tokens - row, lane);
        clear(sums[m]);
    }
    Weights weights{up, down, hidden};
    Part part((hidden + CHUNK - 1) / CHUNK);
    stream((u32*)shared, Weights::words, part.begin, part.end,
        [&](u32* tile, int i) { weights.bring(tile, i); }, [](u32* tile) { Weights::settle_all(tile); },
        [&](u32* tile, int i) {
#pragma unroll AT_ONCE
            for (int j = 0; j < CHUNK / 8; j++) {
                float h[TOKENS][4];
                UNROLL for (int m = 0; m < TOKENS; m++) begin_with_bias(h[m], bias, i * CHUNK + 8 * j, hidden, lane);
                add_across<TOKENS>(h, rows, tile, j, lane);
                UNROLL for (int m = 0; m < TOKENS; m++) UNROLL for (int n = 0; n < 4; n++) h[m][n] = ACT(h[m][n]);
#if WIDE <= 64 && !EXACT
                Left left[TOKENS] = {h[0], h[1]};
#else
                Left left[TOKENS] = {h[0]};
#endif
                mix_columns<TOKENS>(sums, left, tile + CHUNK * WIDE, j, lane);
            }
        });
    UNROLL for (int m = 0; m < TOKENS; m++) {
        i64 row = first + 16 * m;
        put(parts + (blockIdx.y * tokens + row) * D, D, 1, tokens - row, sums[m], lane);
    }
}

// y = the sum of its parts (many, count), the first one first, + bias.
extern "C" __global__ void finish(const float* parts, const T* bias, T* y, i64 count, int many) {
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= count) return;
    float sum = 0.0f;
    for (int part = 0; part < many; part++) sum += parts[part * count + n];
    y[n] = from_float<T>(sum + to_float(bias[n % D]));
}

// parts (gridDim.y, tokens, D): what this block's chunks add to the gradient of x. A warp has 16 tokens.
extern "C" __global__ __launch_bounds__(THREADS) void backward_input(const T* x, const T* up, const T* bias,
                                                                     const T* down, const T* dy, float* parts,
                                                                     i64 tokens, int hidden) {
    extern __shared__ float4 shared[];
    Lane lane;
    i64 first = ((i64)blockIdx.x * WARPS + lane.warp) * 16;
    Rows rows, drows;
    Sums sums;
    take(rows, x + first * D, D, 1, tokens - first, lane);
    take(drows, dy + first * D, D, 1, tokens - first, lane);
    clear(sums);
    Weights weights{up, down, hidden};
    Part part((hidden + CHUNK - 1) / CHUNK);
    stream((u32*)shared, Weights::words, part.begin, part.end,
        [&](u32* tile, int i) { weights.bring(tile, i); }, [](u32* tile) { Weights::settle_all(tile); },
        [&](u32* tile, int i) {
#pragma unroll AT_ONCE
            for (int j = 0; j < CHUNK / 8; j++) {
                float before[1][4], slope[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                begin_with_bias(before[0], bias, i * CHUNK + 8 * j, hidden, lane);
                add_across<1>(before, &rows, tile, j, lane);
                add_down(slope, drows, tile + CHUNK * WIDE, j, lane);
                UNROLL for (int n = 0; n < 4; n++) slope[n] *= SLOPE(before[0][n]);
                mix_rows(sums, Left(slope), tile, j, lane);
            }
        });
    put(parts + (blockIdx.y * tokens + first) * D, D, 1, tokens - first, sums, lane);
}

// Parts of the gradients of up (gridDim.y, hidden, D), its bias (gridDim.y, hidden) and down (gridDim.y, D, hidden), over
// this block's tiles of tokens. A warp has 16 hidden values: rows here, as tokens are columns.
extern "C" __global__ __launch_bounds__(THREADS) void backward_weights(const T* x, const T* up, const T* bias,
                                                                       const T* down, const T* dy, float* up_parts,
                                                                       float* bias_parts, float* down_parts,
                                                                       i64 tokens, int hidden) {
    extern __shared__ float4 shared[];
    Lane lane;
    int first = (blockIdx.x * WARPS + lane.warp) * 16, left = hidden - first, own = first + lane.g;
    Rows ups, downs;
    Sums up_sums, down_sums;
    take(ups, up + (i64)first * D, D, 1, left, lane);
    take(downs, down + first, 1, hidden, left, lane);
    clear(up_sums);
    clear(down_sums);
    float start[2] = {own < hidden ? to_float(bias[own]) : 0.0f, own + 8 < hidden ? to_float(bias[own + 8]) : 0.0f};
    float bias_sums[2] = {0.0f, 0.0f};
    Part part((tokens + CHUNK - 1) / CHUNK);
    stream((u32*)shared, 2 * CHUNK * WIDE, part.begin, part.end,
        [&](u32* tile, int i) {
            i64 row = (i64)i * CHUNK;
            fetch<CHUNK, WIDE>(tile, x + row * D, D, tokens - row, D);
            fetch<CHUNK, WIDE>(tile + CHUNK * WIDE, dy + row * D, D, tokens - row, D);
        },
        [](u32* tile) {
            settle<CHUNK, WIDE>(tile);
            settle<CHUNK, WIDE>(tile + CHUNK * WIDE);
        },
        [&](u32* tile, int) {
            const u32 *xs = tile, *dys = tile + CHUNK * WIDE;
#pragma unroll AT_ONCE
            for (int j = 0; j < CHUNK / 8; j++) {
                float before[1][4] = {{start[0], start[0], start[1], start[1]}}, slope[1][4] = {};
                add_across<1>(before, &ups, xs, j, lane);
                add_across<1>(slope, &downs, dys, j, lane);
                UNROLL for (int n = 0; n < 4; n++) {
                    slope[0][n] *= SLOPE(before[0][n]);
                    before[0][n] = ACT(before[0][n]);
                    bias_sums[n / 2] += slope[0][n];
                }
                mix_rows(up_sums, Left(slope[0]), xs, j, lane);
                mix_rows(down_sums, Left(before[0]), dys, j, lane);
            }
        });
    i64 done = (i64)blockIdx.y * hidden;
    put(up_parts + (done + first) * D, D, 1, left, up_sums, lane);
    put(down_parts + done * D + first, 1, hidden, left, down_sums, lane);
    UNROLL for (int r = 0; r < 2; r++) {
        float sum = bias_sums[r];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane.t == 0 && own + 8 * r < hidden) bias_parts[done + own + 8 * r] = sum;
    }
}
