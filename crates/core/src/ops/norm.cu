// Layer norm (CENTERED: rows have a mean, and a shift) and RMS norm (neither), over rows of COLUMNS elements, which are a
// multiple of WIDTH.

// A row as it lies in memory.
struct RawRow {
    Raw<T, WIDTH> at[PACKS];
};
__device__ __forceinline__ RawRow load_raw_row(const T* row) {
    RawRow raw = {};
    UNROLL for (int p = 0; p < PACKS; p++) if (column(p) < COLUMNS) raw.at[p] = load_raw<WIDTH>(row + column(p));
    return raw;
}
__device__ __forceinline__ float at(const RawRow& row, int p, int k) { return unpacked(row.at[p], k); }
// x − mean, and zeros beyond the row's end.
__device__ __forceinline__ float apart(const RawRow& row, int p, int k, float mean) {
    return column(p) < COLUMNS ? at(row, p, k) - mean : 0.0f;
}

// y = (x − mean) · rstd · gamma + beta; the variance comes from differences to the mean, so that a large mean cancels
// nothing.
extern "C" __global__ void normalize(const T* x, const T* gamma, const T* beta, T* y, float* means, float* rstds,
                                     i64 rows, float eps) {
    i64 row = row_index();
    if (row >= rows) return;
    RawRow r = load_raw_row(x + row * COLUMNS);
    float mean = 0.0f, square = 0.0f;
    if (CENTERED) {
        EACH mean += at(r, p, k);
        mean = group_sum(mean) / COLUMNS;
    }
    EACH square = fmaf(apart(r, p, k, mean), apart(r, p, k, mean), square);
    float rstd = 1.0f / sqrtf(group_sum(square) / COLUMNS + eps);
    RawRow g = load_raw_row(gamma), b = {};
    if (CENTERED) b = load_raw_row(beta);
    Row normal;
    EACH normal.at[p][k] = fmaf(apart(r, p, k, mean) * rstd, at(g, p, k), at(b, p, k));
    store_row(normal, y + row * COLUMNS, COLUMNS);
    if (lane() != 0) return;
    if (CENTERED) means[row] = mean;
    rstds[row] = rstd;
}

// A row of dy and of x with the row's statistics.
struct Rows {
    RawRow d, x;
    float mean, rstd;
};
__device__ __forceinline__ Rows load_rows(const T* dy, const T* x, const float* means, const float* rstds, i64 row) {
    return Rows{load_raw_row(dy + row * COLUMNS), load_raw_row(x + row * COLUMNS), CENTERED ? means[row] : 0.0f, rstds[row]};
}

// Adds up what the groups of a block have in the same columns, and stores it.
__device__ __forceinline__ void store_sum(Row& x, float* to) {
    if (GROUP > 32) return store_row(x, to, COLUMNS);
    for (int step = LANES; step < 32; step *= 2) EACH x.at[p][k] += __shfl_xor_sync(0xffffffffu, x.at[p][k], step);
    __shared__ Pack<float, WIDTH> sums[GROUP > 32 ? 1 : THREADS / 32][PACKS * LANES];
    __syncthreads();
    if (threadIdx.x % 32 < LANES) {
        UNROLL for (int p = 0; p < PACKS; p++) {
            Pack<float, WIDTH> pack;
            UNROLL for (int k = 0; k < WIDTH; k++) pack.at[k] = x.at[p][k];
            sums[threadIdx.x / 32][p * LANES + lane()] = pack;
        }
    }
    __syncthreads();
    for (int c = threadIdx.x; c < COLUMNS; c += THREADS) {
        float sum = 0.0f;
        UNROLL for (int warp = 0; warp < THREADS / 32; warp++) sum += sums[warp][c / WIDTH].at[c % WIDTH];
        to[c] = sum;
    }
}

// With h = dy · gamma and x̂ the normalized row: dx = rstd · (h − mean(h) − x̂ · mean(h · x̂)), without mean(h) for RMS
// norm. The groups of a block go through a stretch of rows and keep their parts of dgamma and dbeta in registers; the
// next row is on its way meanwhile. The block's sums follow each other in `parts`.
extern "C" __global__ __launch_bounds__(THREADS) void normalize_grad(const T* dy, const T* x, const T* gamma,
                                                                     const float* means, const float* rstds, T* dx,
                                                                     float* parts, i64 rows, i64 stretch) {
    RawRow g = load_raw_row(gamma);
    Row dgamma = {}, dbeta = {};
    i64 first = blockIdx.x * stretch, end = first + stretch < rows ? first + stretch : rows;
    i64 row = first + threadIdx.x / GROUP;
    bool odd = false;
    Rows next = {};
    if (row < end) next = load_rows(dy, x, means, rstds, row);
    for (; row < end; row += THREADS / GROUP, odd = !odd) {
        Rows now = next;
        if (row + THREADS / GROUP < end) next = load_rows(dy, x, means, rstds, row + THREADS / GROUP);
        Row h, n;
        float sum_h = 0.0f, sum_hn = 0.0f;
        EACH {
            float d = at(now.d, p, k);
            n.at[p][k] = apart(now.x, p, k, now.mean) * now.rstd;
            h.at[p][k] = d * at(g, p, k);
            dgamma.at[p][k] = fmaf(d, n.at[p][k], dgamma.at[p][k]);
            dbeta.at[p][k] += d;
            sum_h += h.at[p][k];
            sum_hn = fmaf(h.at[p][k], n.at[p][k], sum_hn);
        }
        float2 sums = group_sums(sum_h, sum_hn, odd);
        float mean_h = CENTERED ? sums.x / COLUMNS : 0.0f, slope = sums.y / COLUMNS;
        EACH h.at[p][k] = now.rstd * (h.at[p][k] - mean_h - n.at[p][k] * slope);
        store_row(h, dx + row * COLUMNS, COLUMNS);
    }
    float* to = parts + blockIdx.x * (1 + CENTERED) * COLUMNS;
    store_sum(dgamma, to);
    if (CENTERED) store_sum(dbeta, to + COLUMNS);
}
