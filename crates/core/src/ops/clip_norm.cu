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

// Sixty gradients to a launch, as there are hundreds: each has `blocks` blocks from block `first` on, and its sum of
// squares one part per block. One that is not there begins after all blocks.
#define GRADIENT(i) const T *g##i, i64 n##i, u32 first##i, u32 blocks##i
#define PICK(i) \
    if (blockIdx.x >= first##i) g = g##i, n = n##i, first = first##i, blocks = blocks##i;
#define TEN(EACH_OF, i, AND) \
    EACH_OF(i##0) AND EACH_OF(i##1) AND EACH_OF(i##2) AND EACH_OF(i##3) AND EACH_OF(i##4) AND EACH_OF(i##5) AND \
    EACH_OF(i##6) AND EACH_OF(i##7) AND EACH_OF(i##8) AND EACH_OF(i##9)
#define COMMA ,

extern "C" __global__ void squares(double* parts, TEN(GRADIENT, , COMMA), TEN(GRADIENT, 1, COMMA),
                                   TEN(GRADIENT, 2, COMMA), TEN(GRADIENT, 3, COMMA), TEN(GRADIENT, 4, COMMA),
                                   TEN(GRADIENT, 5, COMMA)) {
    const T* g = g0;
    i64 n = n0;
    u32 first = first0, blocks = blocks0;
    TEN(PICK, , ) TEN(PICK, 1, ) TEN(PICK, 2, ) TEN(PICK, 3, ) TEN(PICK, 4, ) TEN(PICK, 5, )
    double sum = 0.0;
    i64 i = ((i64)(blockIdx.x - first) * blockDim.x + threadIdx.x) * WIDTH, step = (i64)blocks * blockDim.x * WIDTH;
    UNROLL4 for (; i + WIDTH <= n; i += step) {
        Raw<T, WIDTH> x = load_raw<WIDTH>(g + i);
        UNROLL for (int k = 0; k < WIDTH; k++) sum += (double)unpacked(x, k) * unpacked(x, k);
    }
    // What is left of the last vector.
    for (; i < n; i++) sum += (double)to_float(g[i]) * to_float(g[i]);
    sum = block_sum_double(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// The norm of all, and min(1, max_norm / (norm + 1e-6)), or 1 if it is not limited.
extern "C" __global__ void clip(const double* parts, i64 count, float* norm, float* factor, u32 limited,
                                float max_norm) {
    double sum = 0.0;
    UNROLL4 for (i64 i = threadIdx.x; i < count; i += blockDim.x) sum += parts[i];
    sum = block_sum_double(sum);
    if (threadIdx.x != 0) return;
    double total = sqrt(sum), by = limited ? max_norm / (total + 1e-6) : 1.0;
    norm[0] = (float)total;
    // A norm that is not a number must not be hidden.
    factor[0] = (float)(total != total ? total : by > 1.0 ? 1.0 : by);
}
