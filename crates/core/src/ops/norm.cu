// Layer norm (CENTERED: rows have a mean, and a shift) and RMS norm (neither), over rows of COLUMNS elements, which are a
// multiple of WIDTH. What is done at once here has the bits of the same done one after the other: what would have been
// stored in between is rounded as if it were.

// A row as it lies in memory.
struct RawRow {
    Raw<T, WIDTH> at[PACKS];
};
__device__ __forceinline__ RawRow load_raw_row(const T* row) {
    RawRow raw = {};
    UNROLL for (int p = 0; p < PACKS; p++) if (column(p) < COLUMNS) raw.at[p] = load_raw<WIDTH>(row + column(p));
    return raw;
}
__device__ __forceinline__ RawRow packed(const Row& x) {
    RawRow raw = {};
    UNROLL for (int p = 0; p < PACKS; p++) if (column(p) < COLUMNS) raw.at[p] = pack_raw<T>(x.at[p]);
    return raw;
}
__device__ __forceinline__ float at(const RawRow& row, int p, int k) { return unpacked(row.at[p], k); }
// x − mean, and zeros beyond the row's end.
__device__ __forceinline__ float apart(const RawRow& row, int p, int k, float mean) {
    return column(p) < COLUMNS ? at(row, p, k) - mean : 0.0f;
}

// y = (x − mean) · rstd · gamma + beta; the variance comes from differences to the mean, so that a large mean cancels
// nothing.
struct Statistics { float mean, rstd; };
__device__ __forceinline__ Statistics statistics_of(const RawRow& r, float eps) {
    float mean = 0.0f, square = 0.0f;
    if (CENTERED) {
        EACH mean += at(r, p, k);
        mean = group_sum(mean) / COLUMNS;
    }
    EACH square = fmaf(apart(r, p, k, mean), apart(r, p, k, mean), square);
    return Statistics{mean, 1.0f / sqrtf(group_sum(square) / COLUMNS + eps)};
}
__device__ __forceinline__ void put_normalized(const RawRow& r, Statistics of, const T* gamma, const T* beta, T* y,
                                               float* means, float* rstds, i64 row) {
    RawRow g = load_raw_row(gamma), b = {};
    if (CENTERED) b = load_raw_row(beta);
    Row normal;
    EACH normal.at[p][k] = fmaf(apart(r, p, k, of.mean) * of.rstd, at(g, p, k), at(b, p, k));
    store_row(normal, y + row * COLUMNS, COLUMNS);
    if (lane() != 0) return;
    if (CENTERED) means[row] = of.mean;
    rstds[row] = of.rstd;
}

extern "C" __global__ void normalize(const T* x, const T* gamma, const T* beta, T* y, float* means, float* rstds,
                                     i64 rows, float eps) {
    i64 row = row_index();
    if (row >= rows) return;
    RawRow r = load_raw_row(x + row * COLUMNS);
    put_normalized(r, statistics_of(r, eps), gamma, beta, y, means, rstds, row);
}

// Drops from a row of a sample, as dropout.cu does.
__device__ __forceinline__ void drop_row(Row& x, Stream stream, u32 sample, i64 row, u32 threshold, float scale) {
    UNROLL for (int p = 0; p < PACKS; p++) {
        i64 element = row * COLUMNS + column(p);
        uint4 words = stream_eight(stream, sample, (u32)(element >> 16), (u32)(element & 0xffff) / 8);
        int start = WIDTH == 8 ? 0 : (int)(element % 8);
        UNROLL for (int k = 0; k < WIDTH; k++)
            x.at[p][k] = bits_of(words, start + k) < threshold ? 0.0f : x.at[p][k] * scale;
    }
}

// As it will be read: with no more digits than T has.
__device__ __forceinline__ void round_row(Row& x) { EACH x.at[p][k] = to_float(from_float<T>(x.at[p][k])); }

// The same for the sum of a branch, from which is dropped if DROPPED, and a residual; the sum goes to `total` if that is
// somewhere.
extern "C" __global__ void normalize_sum(const T* branch, const T* residual, const T* gamma, const T* beta, T* total, T* y,
                                         float* means, float* rstds, i64 rows, float eps, const i64* rng,
                                         i64 rows_per_sample, u64 site, u32 threshold, float scale, u32 counts_samples) {
    i64 row = row_index();
    if (row >= rows) return;
    RawRow b = load_raw_row(branch + row * COLUMNS), r = load_raw_row(residual + row * COLUMNS);
    Row sum;
    EACH sum.at[p][k] = at(b, p, k);
    if (DROPPED) {
        Stream stream = stream_of(rng[0], site, rng[1]);
        INDEX sample = (INDEX)row / (INDEX)rows_per_sample, inner = (INDEX)row % (INDEX)rows_per_sample;
        drop_row(sum, stream, (counts_samples ? (u32)rng[2] : 0) + (u32)sample, inner, threshold, scale);
        round_row(sum);
    }
    EACH sum.at[p][k] += at(r, p, k);
    if (total) store_row(sum, total + row * COLUMNS, COLUMNS);
    RawRow x = packed(sum);
    put_normalized(x, statistics_of(x, eps), gamma, beta, y, means, rstds, row);
}

// Rows of dy and of x with the row's statistics; SECOND: dy comes in two parts; RESIDUAL: x is read elsewhere, and this is
// what comes back from there.
struct Rows {
    RawRow d, x, second, residual;
    float mean, rstd;
};
__device__ __forceinline__ Rows load_rows(const T* dy, const T* x, const float* means, const float* rstds,
                                          const T* second, const T* residual, i64 row) {
    Rows rows;
    rows.d = load_raw_row(dy + row * COLUMNS), rows.x = load_raw_row(x + row * COLUMNS);
    if (SECOND) rows.second = load_raw_row(second + row * COLUMNS);
    if (RESIDUAL) rows.residual = load_raw_row(residual + row * COLUMNS);
    rows.mean = CENTERED ? means[row] : 0.0f, rows.rstd = rstds[row];
    return rows;
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
// next row is on its way meanwhile. The block's sums follow each other in `parts`. DROPPED: dx is also dropped from, into
// `dropped`; SUMS: the last of the two is also summed over rows.
extern "C" __global__ __launch_bounds__(THREADS) void normalize_grad(
    const T* dy, const T* x, const T* gamma, const float* means, const float* rstds, T* dx, float* parts, i64 rows,
    i64 stretch, const T* second, const T* residual, const i64* rng, T* dropped, i64 rows_per_sample, u64 site,
    u32 threshold, float scale, u32 counts_samples) {
    RawRow g = load_raw_row(gamma);
    Row dgamma = {}, dbeta = {}, sums_over_rows = {};
    Stream stream = {};
    if (DROPPED) stream = stream_of(rng[0], site, rng[1]);
    u32 first_sample = DROPPED && counts_samples ? (u32)rng[2] : 0;
    i64 first = blockIdx.x * stretch, end = first + stretch < rows ? first + stretch : rows;
    i64 row = first + threadIdx.x / GROUP;
    bool odd = false;
    Rows next = {};
    if (row < end) next = load_rows(dy, x, means, rstds, second, residual, row);
    for (; row < end; row += THREADS / GROUP, odd = !odd) {
        Rows now = next;
        i64 after = row + THREADS / GROUP;
        if (after < end) next = load_rows(dy, x, means, rstds, second, residual, after);
        Row h, n;
        float sum_h = 0.0f, sum_hn = 0.0f;
        EACH {
            float d = at(now.d, p, k);
            if (SECOND) d = to_float(from_float<T>(d + at(now.second, p, k)));
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
        if (RESIDUAL) {
            round_row(h);
            EACH h.at[p][k] += at(now.residual, p, k);
        }
        store_row(h, dx + row * COLUMNS, COLUMNS);
        if (DROPPED || SUMS) round_row(h);
        if (DROPPED) {
            INDEX sample = (INDEX)row / (INDEX)rows_per_sample, inner = (INDEX)row % (INDEX)rows_per_sample;
            drop_row(h, stream, first_sample + (u32)sample, inner, threshold, scale);
            store_row(h, dropped + row * COLUMNS, COLUMNS);
            if (SUMS) round_row(h);
        }
        if (SUMS) {
            EACH if (inside(p, k, COLUMNS)) sums_over_rows.at[p][k] += h.at[p][k];
        }
    }
    float* to = parts + blockIdx.x * (1 + CENTERED + SUMS) * COLUMNS;
    store_sum(dgamma, to);
    if (CENTERED) store_sum(dbeta, to + COLUMNS);
    if (SUMS) store_sum(sums_over_rows, to + (1 + CENTERED) * COLUMNS);
}
