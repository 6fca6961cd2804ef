// x (samples, steps, width) at one position of each sample, or NaN if there is no such position.
extern "C" __global__ void select_row(const T* x, const i64* position, T* y, i64 n, i64 steps, i64 width) {
    i64 i = thread_index() * WIDTH, at = position[0];
    if (i >= n) return;
    float a[WIDTH];
    if (at >= 0 && at < steps) {
        load(a, x + (i / width * steps + at) * width, i % width, width);
    } else {
        UNROLL for (int k = 0; k < WIDTH; k++) a[k] = NOT_A_NUMBER;
    }
    store(a, y, i, n);
}
