// One pass over weights, moments and gradients; scalars that change from step to step are read from the arena.
extern "C" __global__ void adamw(MANY, const S* rate, const S* correction1, const S* correction2, const C* clip,
                                 float b1, float b2, float b2_rest, float eps, float weight_decay) {
    const Set& set = set_of_block(sets, count);
    i64 i = index_in(set), n = set.n;
    if (i >= n) return;
    T* w = (T*)set.at[0];
    M *m = (M*)set.at[1], *v = (M*)set.at[2];
    G* g = (G*)set.at[3];
    float lr = to_float(*rate), factor = to_float(*clip), decay = 1.0f - lr * weight_decay;
    float step = lr / to_float(*correction1), root = sqrtf(to_float(*correction2));
    float weight[WIDTH], first[WIDTH], second[WIDTH], grad[WIDTH];
    load(weight, w, i, n);
    load(first, m, i, n);
    load(second, v, i, n);
    load(grad, g, i, n);
    UNROLL for (int k = 0; k < WIDTH; k++) {
        grad[k] *= factor;
        first[k] = fmaf(b1, grad[k] - first[k], first[k]);
        second[k] = fmaf(b2_rest * grad[k], grad[k], b2 * second[k]);
        weight[k] = weight[k] * decay - step * first[k] / (sqrtf(second[k]) / root + eps);
        grad[k] = 0.0f;
    }
    store(weight, w, i, n);
    store(first, m, i, n);
    store(second, v, i, n);
    if (ZERO_GRADIENT) store(grad, g, i, n);
}
