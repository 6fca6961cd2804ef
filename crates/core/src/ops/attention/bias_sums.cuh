// Gradients of what a bias adds to a tile of SIDE × SIDE scores, out of those of the scores (SIDE, PITCH): query i of the
// tile has row i. Nothing is added by two threads, so the order of every sum is fixed.

// What belongs to one row of a relative bias's table lies on neighbouring diagonals. `sums` holds the rows of this block's
// part, `stride` apart; `diagonals` 2 · SIDE - 1 floats of scratch. Holds a barrier.
template <int SIDE, int PITCH>
__device__ __forceinline__ void add_relative(float* sums, int stride, const float* slopes, float* diagonals, int i0,
                                             int j0, const Scores& head) {
    int n = threadIdx.x, at = head.q_len - 1 - i0 + j0 + n - (SIDE - 1), distances = head.q_len + head.k_len - 1;
    if (n < 2 * SIDE - 1) {
        float sum = 0.0f;
        for (int i = max(0, SIDE - 1 - n); i < min(SIDE, 2 * SIDE - 1 - n); i++)
            sum += slopes[i * PITCH + i + n - (SIDE - 1)];
        diagonals[n] = sum;
    }
    __syncthreads();
    if (n >= 2 * SIDE - 1 || at < 0 || at >= distances) return;
    u32 row = head.rows[at];
    if (n > 0 && at > 0 && head.rows[at - 1] == row) return;
    float sum = 0.0f;
    for (int m = n; m < 2 * SIDE - 1 && at + m - n < distances && head.rows[at + m - n] == row; m++)
        sum += diagonals[m];
    sums[(i64)row * stride] += sum;
}

// Of the products of a disentangled bias every query (TURNED: every key) has its own, `sums` from the tile's first on: what
// several neighbouring keys (queries) share is added up by the thread of the first.
template <int SIDE, int PITCH, bool TURNED>
__device__ __forceinline__ void add_products(float* sums, const float* slopes, int i0, int j0, const Scores& head) {
    for (int at = threadIdx.x; at < SIDE * SIDE; at += blockDim.x) {
        int own = at / SIDE, other = at % SIDE;
        int i = TURNED ? other : own, j = TURNED ? own : other;
        if (i0 + i >= head.q_len || j0 + j >= head.k_len) continue;
        const u32* rows = head.rows + head.q_len - 1 - i0 + j0;
        int limit = min(SIDE, TURNED ? head.q_len - i0 : head.k_len - j0);
        u32 row = rows[j - i];
        if (other > 0 && rows[TURNED ? j - i + 1 : j - i - 1] == row) continue;
        float sum = 0.0f;
        for (int m = other; m < limit && rows[TURNED ? j - m : m - i] == row; m++)
            sum += slopes[TURNED ? m * PITCH + j : i * PITCH + m];
        sums[(i64)own * head.pitch + row] += sum;
    }
}
