// Sums around attention's backward pass.

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

// The gradient (rows, heads) of a relative bias out of the parts (batch, heads, tiles, rows) of all blocks.
extern "C" __global__ void add_up(const float* parts, T* gradient, int rows, int batch, int heads, int tiles) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= rows * heads) return;
    int row = n / heads, h = n % heads;
    float sum = 0.0f;
    for (int b = 0; b < batch; b++)
        for (int tile = 0; tile < tiles; tile++)
            sum += parts[((i64)(b * heads + h) * tiles + tile) * rows + row];
    gradient[n] = from_float<T>(sum);
}

extern "C" __global__ void round_to(const float* from, T* to, i64 count) {
    for (i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x; n < count; n += (i64)gridDim.x * blockDim.x)
        to[n] = from_float<T>(from[n]);
}
