extern "C" __global__ void activate(const T* x, T* y, i64 n) {
    map1(x, y, n, [](float x) { return ACT(x); });
}

extern "C" __global__ void activate_grad(const T* x, const T* dy, T* dx, i64 n) {
    map2(x, dy, dx, n, [](float x, float dy) { return dy * SLOPE(x); });
}
