extern "C" __global__ void binary(const T* a, const T* b, T* y, i64 n) {
    map2(a, b, y, n, [](float a, float b) { return a OP b; });
}
