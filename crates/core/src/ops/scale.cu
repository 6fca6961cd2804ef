extern "C" __global__ void scale(MANY, float factor) {
    const Set& set = set_of_block(sets, count);
    map1((const T*)set.at[0], (T*)set.at[1], index_in(set), set.n, [=](float x) { return x * factor; });
}
