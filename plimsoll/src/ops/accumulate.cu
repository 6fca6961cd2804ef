extern "C" __global__ void accumulate(const T* part, T* total, i64 n, ROUNDING) {
    i64 i = thread_index() * WIDTH;
    if (i >= n) return;
    float a[WIDTH], sum[WIDTH];
    load(a, part, i, n);
    load(sum, total, i, n);
    UNROLL for (int k = 0; k < WIDTH; k++) sum[k] += a[k];
    store_rounded(sum, total, i, n, READ_ROUNDING, 0);
}
