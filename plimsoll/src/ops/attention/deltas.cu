// delta (batch, heads, q_len) = Σ dout · out over a head's dimensions; both (batch, q_len, heads, width). A warp per row.
extern "C" __global__ void deltas(const T* out, const T* dout, float* delta, i64 rows, int q_len, int heads,
                                  int width) {
    i64 row = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int d = threadIdx.x % 32; d < width; d += 32)
        sum += to_float(out[row * width + d]) * to_float(dout[row * width + d]);
    sum = warp_sum(sum);
    i64 h = row % heads, i = row / heads % q_len, b = row / heads / q_len;
    if (threadIdx.x % 32 == 0) delta[(b * heads + h) * q_len + i] = sum;
}
