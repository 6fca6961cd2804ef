// Rows of (…, queries, keys). The query of a row sees its first `visible` keys, of which a mask may hide some.

__device__ __forceinline__ i64 visible(i64 row, i64 queries, i64 keys) {
    if (!CAUSAL) return keys;
    i64 seen = row % queries + 1 + keys - queries;
    return seen < 0 ? 0 : seen < keys ? seen : keys;
}

// `mask` is (samples, keys), 0 hiding a key, or null.
extern "C" __global__ void softmax(const T* x, const int* mask, T* y, i64 rows, i64 queries, i64 keys,
                                   i64 rows_per_sample, float scale) {
    i64 row = row_index();
    if (row >= rows) return;
    i64 seen = visible(row, queries, keys);
    Row r = load_row(x + row * keys, keys);
    float highest = -INFINITY;
    EACH {
        i64 key = column(p) + k;
        bool counts = key < seen && (mask == 0 || mask[row / rows_per_sample * keys + key] != 0);
        r.at[p][k] = counts ? r.at[p][k] * scale : -INFINITY;
        highest = fmaxf(highest, r.at[p][k]);
    }
    highest = group_max(highest);
    // Nothing visible leaves a sum of zero; a NaN, which the maximum misses, reaches the sum in any case.
    float shift = highest == -INFINITY ? 0.0f : highest, sum = 0.0f;
    EACH {
        r.at[p][k] = expf(r.at[p][k] - shift);
        sum += r.at[p][k];
    }
    sum = group_sum(sum);
    float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
    EACH r.at[p][k] = column(p) + k < seen ? r.at[p][k] * factor : 0.0f;
    store_row(r, y + row * keys, keys);
}

// dx = scale · y · (dy − Σ y · dy)
extern "C" __global__ void softmax_grad(const T* dy, const T* y, T* dx, i64 rows, i64 queries, i64 keys, float scale) {
    i64 row = row_index();
    if (row >= rows) return;
    i64 seen = visible(row, queries, keys);
    Row d = load_row(dy + row * keys, keys), r = load_row(y + row * keys, keys);
    float dot = 0.0f;
    EACH dot += column(p) + k < seen ? r.at[p][k] * d.at[p][k] : 0.0f;
    dot = group_sum(dot);
    EACH d.at[p][k] = column(p) + k < seen ? scale * r.at[p][k] * (d.at[p][k] - dot) : 0.0f;
    store_row(d, dx + row * keys, keys);
}
