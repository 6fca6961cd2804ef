// One thread: there is nothing to share. As LossScale::next on the CPU; the norm is that of the scaled gradients.
extern "C" __global__ void loss_scale(const float* scaled, float* norm, float* factor, float* correction1,
                                      float* correction2, float* scale, float* good, float* taken, u32 limited,
                                      float max_norm, float log_beta1, float log_beta2, float grow_after,
                                      float largest) {
    if (threadIdx.x != 0) return;
    float by = *scale, own = *scaled / by;
    *norm = own;
    if (!is_finite(*scaled)) {
        *factor = __int_as_float(0x7fffffff);  // not a number: the optimizer skips the step
        *scale = by / 2.0f;
        *good = 0.0f;
    } else {
        bool grown = *good + 1.0f >= grow_after;
        *factor = (limited ? fminf(max_norm / (own + 1e-6f), 1.0f) : 1.0f) / by;
        *scale = grown ? fminf(2.0f * by, largest) : by;
        *good = grown ? 0.0f : *good + 1.0f;
        *taken += 1.0f;
    }
    float t = fmaxf(*taken, 1.0f);
    *correction1 = -expm1f(t * log_beta1);
    *correction2 = -expm1f(t * log_beta2);
}
