// The part may be narrower than the total.
extern "C" __global__ void accumulate(MANY, ROUNDING_OF_SETS) {
    const Set& set = set_of_block(sets, count);
    i64 i = index_in(set), n = set.n;
    if (i >= n) return;
    const P* part = (const P*)set.at[0];
    T* total = (T*)set.at[1];
    float a[WIDTH], sum[WIDTH];
    load(a, part, i, n);
    load(sum, total, i, n);
    UNROLL for (int k = 0; k < WIDTH; k++) sum[k] += a[k];
    store_rounded(sum, total, i, n, READ_ROUNDING_OF(set), 0);
}
