// One pass over weights, moments and gradients; scalars that change from step to step are read from the arena. A factor
// that is not finite skips the step.
extern "C" __global__ void adamw(MANY, const S* rate, const S* correction1, const S* correction2, const C* clip,
                                 float b1, float b2, float b2_rest, float eps, float weight_decay, ROUNDING_OF_SETS) {
    const Set& set = set_of_block(sets, count);
    i64 i = index_in(set), n = set.n;
    if (i >= n) return;
    T* w = (T*)set.at[0];
    M *m = (M*)set.at[1], *v = (M*)set.at[2];
    G* g = (G*)set.at[3];
    float lr = to_float(*rate), factor = to_float(*clip), decay = 1.0f - lr * weight_decay;
    float step = lr / to_float(*correction1), root = sqrtf(to_float(*correction2));
    float weight[WIDTH], moment1[WIDTH], moment2[WIDTH], grad[WIDTH] = {};
    if (!is_finite(factor)) {
        if (ZERO_GRADIENT) store(grad, g, i, n);
        return;
    }
    load(weight, w, i, n);
    load(moment1, m, i, n);
    load(moment2, v, i, n);
    load(grad, g, i, n);
    UNROLL for (int k = 0; k < WIDTH; k++) {
        grad[k] *= factor;
        moment1[k] = fmaf(b1, grad[k] - moment1[k], moment1[k]);
        moment2[k] = fmaf(b2_rest * grad[k], grad[k], b2 * moment2[k]);
        weight[k] = weight[k] * decay - step * moment1[k] / (sqrtf(moment2[k]) / root + eps);
        grad[k] = 0.0f;
    }
    Rounding rounding = READ_ROUNDING_OF(set);
    store_rounded(weight, w, i, n, rounding, 0);
    store_rounded(moment1, m, i, n, rounding, 1);
    store_rounded(moment2, v, i, n, rounding, 2);
    if (ZERO_GRADIENT) store(grad, g, i, n);
}
