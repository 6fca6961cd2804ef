// Rows of x are (gate, linear), `half_row` elements each; a thread handles WIDTH elements of both halves.

struct Halves {
    float gate[WIDTH], linear[WIDTH];
    i64 at;
};
__device__ __forceinline__ Halves halves(const T* x, i64 i, i64 half_row, i64 n) {
    Halves h;
    h.at = i + (INDEX)i / (INDEX)half_row * half_row;
    load(h.gate, x, h.at, 2 * n);
    load(h.linear, x, h.at + half_row, 2 * n);
    return h;
}

extern "C" __global__ void gated(const T* x, T* y, i64 n, i64 half_row) {
    i64 i = thread_index() * WIDTH;
    if (i >= n) return;
    Halves h = halves(x, i, half_row, n);
    UNROLL for (int k = 0; k < WIDTH; k++) h.gate[k] = ACT(h.gate[k]) * h.linear[k];
    store(h.gate, y, i, n);
}

extern "C" __global__ void gated_grad(const T* x, const T* dy, T* dx, i64 n, i64 half_row) {
    i64 i = thread_index() * WIDTH;
    if (i >= n) return;
    Halves h = halves(x, i, half_row, n);
    float d[WIDTH];
    load(d, dy, i, n);
    UNROLL for (int k = 0; k < WIDTH; k++) {
        float gate = h.gate[k];
        h.gate[k] = SLOPE(gate) * h.linear[k] * d[k];
        h.linear[k] = ACT(gate) * d[k];
    }
    store(h.gate, dx, h.at, 2 * n);
    store(h.linear, dx, h.at + half_row, 2 * n);
}
