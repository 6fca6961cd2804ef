// Rows that are read once from end to end, wherever in memory they begin. Vectors keep their own boundaries, so that the
// first and the last of a row may reach beyond it; BATCH of them are on their way to a thread at a time.

#define BATCH 4

// Of kernels that stream, in blocks of up to 512 threads: so few registers that another reads while one computes.
#define STREAMS __launch_bounds__(512, 2)

// Where the first vector of a thread begins, perhaps before the row; `place` is the thread's among those of the row.
template <typename Element> __device__ __forceinline__ i64 first_vector(const Element* row, i64 place) {
    return place * WIDTH - (i64)((u64)row / sizeof(Element) % WIDTH);
}

__device__ __forceinline__ bool is_inside(i64 i, i64 n) { return i >= 0 && i + WIDTH <= n; }

// Vectors at i, i + step, … of a row of n elements; `fill` stands where the row is not.
template <typename Element>
__device__ __forceinline__ void load_batch(float (&x)[BATCH][WIDTH], const Element* row, i64 i, i64 step, i64 n,
                                           float fill) {
    if (i >= 0 && is_inside(i + (BATCH - 1) * step, n)) {
        // No branch in between: the loads are all under way before one is waited for.
        UNROLL for (int b = 0; b < BATCH; b++) load(x[b], row, i + b * step, i + b * step + WIDTH);
        return;
    }
    UNROLL for (int b = 0; b < BATCH; b++) {
        i64 at = i + b * step;
        if (is_inside(at, n)) load(x[b], row, at, n);
        else UNROLL for (int k = 0; k < WIDTH; k++) x[b][k] = at + k >= 0 && at + k < n ? to_float(row[at + k]) : fill;
    }
}

template <typename Element>
__device__ __forceinline__ void store_batch(const float (&x)[BATCH][WIDTH], Element* row, i64 i, i64 step, i64 n) {
    UNROLL for (int b = 0; b < BATCH; b++) {
        i64 at = i + b * step;
        if (is_inside(at, n)) store(x[b], row, at, n);
        else UNROLL for (int k = 0; k < WIDTH; k++)
            if (at + k >= 0 && at + k < n) row[at + k] = from_float<Element>(x[b][k]);
    }
}
