extern "C" __global__ void normalize_rows(const T* x, T* y, float* inverses, i64 rows, i64 width) {
    i64 row = row_index();
    if (row >= rows) return;
    Row r = load_row(x + row * width, width);
    float square = 0.0f;
    EACH square += r.at[p][k] * r.at[p][k];
    square = group_sum(square);
    float inverse = square == 0.0f ? 0.0f : 1.0f / sqrtf(square);
    EACH r.at[p][k] *= inverse;
    store_row(r, y + row * width, width);
    if (lane() == 0) inverses[row] = inverse;
}

extern "C" __global__ void normalize_rows_grad(const T* dy, const T* y, const float* inverses, T* dx, i64 rows,
                                               i64 width) {
    i64 row = row_index();
    if (row >= rows) return;
    Row d = load_row(dy + row * width, width), n = load_row(y + row * width, width);
    float along = 0.0f;
    EACH along += d.at[p][k] * n.at[p][k];
    along = group_sum(along);
    float inverse = inverses[row];
    EACH d.at[p][k] = inverse * (d.at[p][k] - n.at[p][k] * along);
    store_row(d, dx + row * width, width);
}
