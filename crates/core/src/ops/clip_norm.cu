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

// Many gradients to a launch, as there are hundreds: a block has SHARE elements of one, and its sum of squares is a part.
extern "C" __global__ void squares(MANY, double* parts) {
    const Set& set = set_of_block(sets, count);
    const T* g = (const T*)set.at[0];
    i64 first = (i64)(blockIdx.x - set.first) * SHARE, end = first + SHARE < set.n ? first + SHARE : set.n;
    double sum = 0.0;
    i64 i = first + threadIdx.x * WIDTH;
    UNROLL4 for (; i + WIDTH <= end; i += blockDim.x * WIDTH) {
        Raw<T, WIDTH> x = load_raw<WIDTH>(g + i);
        UNROLL for (int k = 0; k < WIDTH; k++) sum += (double)unpacked(x, k) * unpacked(x, k);
    }
    // What is left of the last vector.
    for (; i < end; i++) sum += (double)to_float(g[i]) * to_float(g[i]);
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
