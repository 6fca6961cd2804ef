// A cache (rows, time, width): steps of every row written at a position, and rows put in another order.

// `from` (rows · steps, width), its rows `stride` apart. Steps outside the cache are dropped.
extern "C" __global__ void write_steps(const T* from, T* cache, const i64* position, i64 rows, i64 steps, i64 time,
                                 i64 width, i64 stride) {
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x, step = n / width % steps, row = n / width / steps;
    if (row >= rows) return;
    i64 at = (position ? min(max(*position, -steps), time) : 0) + step;
    if (at >= 0 && at < time) cache[(row * time + at) * width + n % width] = from[n / width * stride + n % width];
}

// The steps before the position: row r takes what row order[r] had, or keeps its own if there is no such row. A thread
// has one column of some steps: it saves the column of all rows and puts it back in order. `lanes` steps go at a time.
extern "C" __global__ void reorder(T* cache, const int* order, const i64* position, T* scratch, i64 rows, i64 time,
                                   i64 width, i64 lanes) {
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x, lane = n / width, column = n % width;
    if (lane >= lanes) return;
    i64 steps = min(max(*position, (i64)0), time);
    T* saved = scratch + lane * rows * width + column;
    for (i64 step = lane; step < steps; step += lanes) {
        T* place = cache + step * width + column;
        for (i64 row = 0; row < rows; row++) saved[row * width] = place[row * time * width];
        for (i64 row = 0; row < rows; row++) {
            i64 from = order[row];
            if (from >= 0 && from < rows && from != row) place[row * time * width] = saved[from * width];
        }
    }
}
