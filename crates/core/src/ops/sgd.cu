// MOMENTUM: whether there is a buffer; without one `buffer` is the weight's own address and not touched. A factor that
// is not finite skips the step.
extern "C" __global__ void sgd(MANY, const S* rate, const C* clip, float momentum, float weight_decay, ROUNDING_OF_SETS) {
    const Set& set = set_of_block(sets, count);
    i64 i = index_in(set), n = set.n;
    if (i >= n) return;
    T* w = (T*)set.at[0];
    M* buffer = (M*)set.at[1];
    G* g = (G*)set.at[2];
    float lr = to_float(*rate), factor = to_float(*clip);
    float weight[WIDTH], moving[WIDTH] = {}, grad[WIDTH] = {};
    if (!is_finite(factor)) {
        if (ZERO_GRADIENT) store(grad, g, i, n);
        return;
    }
    load(weight, w, i, n);
    load(grad, g, i, n);
    if (MOMENTUM) load(moving, buffer, i, n);
    UNROLL for (int k = 0; k < WIDTH; k++) {
        float slope = fmaf(weight_decay, weight[k], grad[k] * factor);
        moving[k] = MOMENTUM ? fmaf(momentum, moving[k], slope) : slope;
        weight[k] -= lr * moving[k];
        grad[k] = 0.0f;
    }
    Rounding rounding = READ_ROUNDING_OF(set);
    store_rounded(weight, w, i, n, rounding, 0);
    if (MOMENTUM) store_rounded(moving, buffer, i, n, rounding, 1);
    if (ZERO_GRADIENT) store(grad, g, i, n);
}
