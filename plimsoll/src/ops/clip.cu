// Squares are added in double: a gradient may be too large or too small for the square of a float.

__device__ __forceinline__ double block_sum_double(double x) {
    __shared__ double parts[32];
    for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    double sum = 0.0;
    if (threadIdx.x == 0) for (int i = 0; i < blockDim.x / 32; i++) sum += parts[i];
    return sum;  // in thread 0
}

// A gradient's sum of squares, one part per block.
extern "C" __global__ void squares(const T* g, i64 n, double* parts) {
    double sum = 0.0;
    for (i64 i = thread_index() * WIDTH; i < n; i += (i64)gridDim.x * blockDim.x * WIDTH) {
        float x[WIDTH];
        load(x, g, i, n);
        UNROLL for (int k = 0; k < WIDTH; k++) sum += (double)x[k] * x[k];
    }
    sum = block_sum_double(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// The norm of all, and min(1, max_norm / (norm + 1e-6)), or 1 if it is not limited.
extern "C" __global__ void clip(const double* parts, i64 count, float* norm, float* factor, u32 limited,
                                float max_norm) {
    double sum = 0.0;
    for (i64 i = threadIdx.x; i < count; i += blockDim.x) sum += parts[i];
    sum = block_sum_double(sum);
    if (threadIdx.x != 0) return;
    double total = sqrt(sum), by = limited ? max_norm / (total + 1e-6) : 1.0;
    norm[0] = (float)total;
    // A norm that is not a number must not be hidden.
    factor[0] = (float)(total != total ? total : by > 1.0 ? 1.0 : by);
}
