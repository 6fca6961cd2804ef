extern "C" __global__ void rms_norm(const T* x, const T* gamma, T* y, float* rstds, i64 rows, i64 width, float eps) {
    i64 row = row_index();
    if (row >= rows) return;
    Row r = load_row(x + row * width, width), g = load_row(gamma, width);
    float square = 0.0f;
    EACH square += r.at[p][k] * r.at[p][k];
    float rstd = 1.0f / sqrtf(group_sum(square) / width + eps);
    EACH r.at[p][k] = r.at[p][k] * rstd * g.at[p][k];
    store_row(r, y + row * width, width);
    if (lane() == 0) rstds[row] = rstd;
}

// With h = dy · gamma and x̂ = x · rstd: dx = rstd · (h − x̂ · mean(h · x̂)). A block goes through a stretch of rows and
// keeps the stretch's part of dgamma in registers; the next row is on its way meanwhile.
extern "C" __global__ void rms_norm_grad(const T* dy, const T* x, const T* gamma, const float* rstds, T* dx,
                                         float* dgammas, i64 rows, i64 width, i64 stretch) {
    Row g = load_row(gamma, width), dgamma = {};
    i64 first = blockIdx.x * stretch, end = first + stretch < rows ? first + stretch : rows;
    int loaded = first < end ? width : 0;
    Row next_d = load_row(dy + first * width, loaded), next_x = load_row(x + first * width, loaded);
    for (i64 row = first; row < end; row++) {
        Row d = next_d, n = next_x;
        if (row + 1 < end) {
            next_d = load_row(dy + (row + 1) * width, width);
            next_x = load_row(x + (row + 1) * width, width);
        }
        float rstd = rstds[row], sum = 0.0f;
        EACH {
            n.at[p][k] *= rstd;
            dgamma.at[p][k] = fmaf(d.at[p][k], n.at[p][k], dgamma.at[p][k]);
            d.at[p][k] *= g.at[p][k];
            sum += d.at[p][k] * n.at[p][k];
        }
        float slope = group_sum(sum) / width;
        EACH d.at[p][k] = rstd * (d.at[p][k] - n.at[p][k] * slope);
        store_row(d, dx + row * width, width);
    }
    store_row(dgamma, dgammas + blockIdx.x * width, width);
}
