// The part may be narrower than the total.
extern "C" __global__ void accumulate(MANY) {
    const Set& set = set_of_block(sets, count);
    const P* part = (const P*)set.at[0];
    T* total = (T*)set.at[1];
    map2(part, total, total, index_in(set), set.n, [](float part, float total) { return total + part; });
}
