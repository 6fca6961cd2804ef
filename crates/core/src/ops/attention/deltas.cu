// delta (batch, heads, q_len) = Σ dout · out over a head's dimensions; both (batch, q_len, heads, width). LANES neighbouring
// lanes have a row, and read VECTOR elements at a time.

struct __align__(VECTOR * sizeof(T)) Vector {
    T at[VECTOR];
};

// n / by in 32 bits where they reach; n becomes the rest.
__device__ __forceinline__ i64 divided(i64& n, i64 by) {
    i64 quotient = (n | by) >> 32 ? n / by : (i64)((u32)n / (u32)by);
    n -= quotient * by;
    return quotient;
}

extern "C" __global__ void deltas(const T* out, const T* dout, float* delta, i64 rows, int q_len, int heads,
                                  int width) {
    i64 row = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    bool there = row < rows;
    int lane = threadIdx.x % LANES;
    float sum = 0.0f;
    for (int d = lane * VECTOR; there && d < width; d += LANES * VECTOR) {
        Vector x = *(const Vector*)(out + row * width + d), y = *(const Vector*)(dout + row * width + d);
#pragma unroll
        for (int n = 0; n < VECTOR; n++) sum += to_float(x.at[n]) * to_float(y.at[n]);
    }
#pragma unroll
    for (int step = LANES / 2; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (!there || lane > 0) return;
    i64 h = row, token = divided(h, heads), i = token, b = divided(i, q_len);
    delta[(b * heads + h) * q_len + i] = sum;
}
