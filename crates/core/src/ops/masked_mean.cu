// x (samples, time, width); `slices` blocks share a row.

// 1 / the rows of a sample that count; 0 where none does. All threads of the block take part.
__device__ __forceinline__ float share(const int* mask, i64 time) {
    __shared__ float scratch[33];
    float count = 0.0f;
    for (i64 t = threadIdx.x; t < time; t += blockDim.x) count += mask[t] != 0 ? 1.0f : 0.0f;
    count = block_sum(count, scratch);
    return count == 0.0f ? 0.0f : 1.0f / count;
}

extern "C" __global__ void masked_mean(const T* x, const int* mask, T* y, i64 time, i64 width, i64 slices) {
    i64 sample = blockIdx.x / slices, column = (blockIdx.x % slices * blockDim.x + threadIdx.x) * WIDTH;
    mask += sample * time;
    float sum[WIDTH] = {}, factor = share(mask, time);
    if (column >= width) return;
    UNROLL4 for (i64 t = 0; t < time; t++) {
        float a[WIDTH];
        load(a, x + (sample * time + t) * width, column, width);
        UNROLL for (int k = 0; k < WIDTH; k++) sum[k] += mask[t] != 0 ? a[k] : 0.0f;
    }
    UNROLL for (int k = 0; k < WIDTH; k++) sum[k] *= factor;
    store(sum, y + sample * width, column, width);
}

extern "C" __global__ void masked_mean_grad(const int* mask, const T* dy, T* dx, i64 time, i64 width, i64 slices) {
    i64 row = blockIdx.x / slices, column = (blockIdx.x % slices * blockDim.x + threadIdx.x) * WIDTH;
    i64 sample = row / time;
    float d[WIDTH] = {}, factor = share(mask + sample * time, time);
    if (column >= width) return;
    if (mask[row] != 0) load(d, dy + sample * width, column, width);
    UNROLL for (int k = 0; k < WIDTH; k++) d[k] *= factor;
    store(d, dx + row * width, column, width);
}
