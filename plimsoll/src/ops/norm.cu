// Layer norm (CENTERED: rows have a mean, and a shift) and RMS norm (neither).

// y = (x − mean) · rstd · gamma + beta; the variance comes from differences to the mean, so that a large mean cancels
// nothing.
extern "C" __global__ void normalize(const T* x, const T* gamma, const T* beta, T* y, float* means, float* rstds, i64 rows,
                                i64 width, float eps) {
    i64 row = row_index();
    if (row >= rows) return;
    Row r = load_row(x + row * width, width), g = load_row(gamma, width), b = {};
    float mean = 0.0f, square = 0.0f;
    if (CENTERED) {
        b = load_row(beta, width);
        EACH mean += r.at[p][k];
        mean = group_sum(mean) / width;
    }
    EACH square += inside(p, k, width) ? (r.at[p][k] - mean) * (r.at[p][k] - mean) : 0.0f;
    float rstd = 1.0f / sqrtf(group_sum(square) / width + eps);
    EACH r.at[p][k] = fmaf((r.at[p][k] - mean) * rstd, g.at[p][k], b.at[p][k]);
    store_row(r, y + row * width, width);
    if (lane() != 0) return;
    if (CENTERED) means[row] = mean;
    rstds[row] = rstd;
}

// A row of dy and of x as they are in memory, with the row's statistics.
struct Rows {
    Pack<T, WIDTH> d[PACKS], x[PACKS];
    float mean, rstd;
};
__device__ __forceinline__ Pack<T, WIDTH> load_pack(const T* row, int at, int width) {
    Pack<T, WIDTH> pack = {};
    if (at + WIDTH <= width) pack = *(const Pack<T, WIDTH>*)(row + at);
    else UNROLL for (int k = 0; k < WIDTH; k++) if (at + k < width) pack.at[k] = row[at + k];
    return pack;
}
__device__ __forceinline__ Rows load_rows(const T* dy, const T* x, const float* means, const float* rstds, i64 row,
                                          int width) {
    Rows r;
    UNROLL for (int p = 0; p < PACKS; p++) {
        r.d[p] = load_pack(dy + row * width, column(p), width);
        r.x[p] = load_pack(x + row * width, column(p), width);
    }
    r.mean = CENTERED ? means[row] : 0.0f;
    r.rstd = rstds[row];
    return r;
}

// Adds up what the groups of a block have in the same columns, and stores it.
__device__ __forceinline__ void store_sum(Row& x, float* to, int width) {
    if (GROUP > 32) return store_row(x, to, width);
    EACH UNROLL for (int step = LANES; step < 32; step *= 2) x.at[p][k] += __shfl_xor_sync(0xffffffffu, x.at[p][k], step);
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
    for (int c = threadIdx.x; c < width; c += THREADS) {
        float sum = 0.0f;
        UNROLL for (int warp = 0; warp < THREADS / 32; warp++) sum += sums[warp][c / WIDTH].at[c % WIDTH];
        to[c] = sum;
    }
}

// With h = dy · gamma and x̂ the normalized row: dx = rstd · (h − mean(h) − x̂ · mean(h · x̂)), without mean(h) for RMS
// norm. The groups of a block go through a stretch of rows and keep their parts of dgamma and dbeta in registers; the
// next row is on its way meanwhile. The block's sums follow each other in `parts`.
extern "C" __global__ void __launch_bounds__(THREADS)
normalize_grad(const T* dy, const T* x, const T* gamma, const float* means, const float* rstds, T* dx, float* parts, i64 rows,
          i64 width, i64 stretch) {
    Row g = load_row(gamma, width), dgamma = {}, dbeta = {};
    i64 first = blockIdx.x * stretch, end = first + stretch < rows ? first + stretch : rows;
    i64 row = first + threadIdx.x / GROUP;
    bool odd = false;
    Rows next = {};
    if (row < end) next = load_rows(dy, x, means, rstds, row, width);
    for (; row < end; row += THREADS / GROUP, odd = !odd) {
        Rows now = next;
        if (row + THREADS / GROUP < end) next = load_rows(dy, x, means, rstds, row + THREADS / GROUP, width);
        Row d, n;
        float sum_h = 0.0f, sum_hn = 0.0f;
        EACH {
            d.at[p][k] = to_float(now.d[p].at[k]);
            n.at[p][k] = inside(p, k, width) ? (to_float(now.x[p].at[k]) - now.mean) * now.rstd : 0.0f;
            dgamma.at[p][k] = fmaf(d.at[p][k], n.at[p][k], dgamma.at[p][k]);
            dbeta.at[p][k] += d.at[p][k];
            d.at[p][k] *= g.at[p][k];
            sum_h += d.at[p][k];
            sum_hn += d.at[p][k] * n.at[p][k];
        }
        float2 sums = group_sums(sum_h, sum_hn, odd);
        float mean_h = CENTERED ? sums.x / width : 0.0f, slope = sums.y / width;
        EACH d.at[p][k] = now.rstd * (d.at[p][k] - mean_h - n.at[p][k] * slope);
        store_row(d, dx + row * width, width);
    }
    float* to = parts + blockIdx.x * (1 + CENTERED) * width;
    store_sum(dgamma, to, width);
    if (CENTERED) store_sum(dbeta, to + width, width);
}
