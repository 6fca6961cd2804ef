// y = (x − mean) · rstd · gamma + beta; the variance comes from differences to the mean, so that a large mean cancels
// nothing.
extern "C" __global__ void layer_norm(const T* x, const T* gamma, const T* beta, T* y, float* means, float* rstds,
                                      i64 rows, i64 width, float eps) {
    i64 row = row_index();
    if (row >= rows) return;
    Row r = load_row(x + row * width, width);
    float sum = 0.0f;
    EACH sum += r.at[p][k];
    float mean = group_sum(sum) / width;
    float square = 0.0f;
    EACH square += inside(p, k, width) ? (r.at[p][k] - mean) * (r.at[p][k] - mean) : 0.0f;
    float rstd = 1.0f / sqrtf(group_sum(square) / width + eps);
    Row g = load_row(gamma, width), b = load_row(beta, width);
    EACH r.at[p][k] = fmaf((r.at[p][k] - mean) * rstd, g.at[p][k], b.at[p][k]);
    store_row(r, y + row * width, width);
    if (lane() == 0) {
        means[row] = mean;
        rstds[row] = rstd;
    }
}

// With h = dy · gamma and x̂ the normalized row: dx = rstd · (h − mean(h) − x̂ · mean(h · x̂)). A block goes through a
// stretch of rows and keeps the stretch's part of dgamma and dbeta in registers; the next row is on its way meanwhile.
extern "C" __global__ void layer_norm_grad(const T* dy, const T* x, const T* gamma, const float* means,
                                           const float* rstds, T* dx, float* dgammas, float* dbetas, i64 rows,
                                           i64 width, i64 stretch) {
    Row g = load_row(gamma, width), dgamma = {}, dbeta = {};
    i64 first = blockIdx.x * stretch, end = first + stretch < rows ? first + stretch : rows;
    int loaded = first < end ? width : 0;
    Row next_d = load_row(dy + first * width, loaded), next_x = load_row(x + first * width, loaded);
    for (i64 row = first; row < end; row++) {
        Row d = next_d, n = next_x;
        if (row + 1 < end) {
            next_d = load_row(dy + (row + 1) * width, width);
            next_x = load_row(x + (row + 1) * width, width);
        }
        float mean = means[row], rstd = rstds[row], sum_h = 0.0f, sum_hn = 0.0f;
        EACH {
            n.at[p][k] = inside(p, k, width) ? (n.at[p][k] - mean) * rstd : 0.0f;
            dgamma.at[p][k] = fmaf(d.at[p][k], n.at[p][k], dgamma.at[p][k]);
            dbeta.at[p][k] += d.at[p][k];
            d.at[p][k] *= g.at[p][k];
            sum_h += d.at[p][k];
            sum_hn += d.at[p][k] * n.at[p][k];
        }
        float2 sums = group_sums(sum_h, sum_hn);
        float mean_h = sums.x / width, slope = sums.y / width;
        EACH d.at[p][k] = rstd * (d.at[p][k] - mean_h - n.at[p][k] * slope);
        store_row(d, dx + row * width, width);
    }
    store_row(dgamma, dgammas + blockIdx.x * width, width);
    store_row(dbeta, dbetas + blockIdx.x * width, width);
}
