// Sums that end outside a kernel: parts in their order, and f32 rounded to what is stored.

// to (count) = Σ over parts (parts, count), the first one first.
extern "C" __global__ void add_up(const float* parts, T* to, i64 count, i64 many) {
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= count) return;
    float sum = 0.0f;
    for (i64 part = 0; part < many; part++) sum += parts[part * count + n];
    to[n] = from_float<T>(sum);
}

extern "C" __global__ void round_to(const float* from, T* to, i64 count) {
    for (i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x; n < count; n += (i64)gridDim.x * blockDim.x)
        to[n] = from_float<T>(from[n]);
}
