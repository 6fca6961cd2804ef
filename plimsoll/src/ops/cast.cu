extern "C" __global__ void cast(const X* x, Y* y, i64 n) {
    map1(x, y, n, [](float x) { return x; });
}
