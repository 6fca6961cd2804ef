// LOSS 0 is binary cross-entropy with logits, 1 the squared error.

__device__ __forceinline__ float value(float x, float y) {
    if (LOSS == 0) return fmaxf(x, 0.0f) - x * y + log1pf(expf(-fabsf(x)));
    return (x - y) * (x - y);
}
__device__ __forceinline__ float slope(float x, float y) {
    if (LOSS == 0) return 1.0f / (1.0f + expf(-x)) - y;
    return 2.0f * (x - y);
}

// A block per row: weight · mean of its losses; 0 where the weight is 0, whatever the labels.
extern "C" __global__ void label_loss(const T* outputs, const W* labels, const W* weights, float* losses, i64 width) {
    __shared__ float scratch[33];
    i64 row = blockIdx.x;
    float sum = 0.0f, weight = to_float(weights[row]);
    for (i64 i = threadIdx.x; i < width; i += blockDim.x) {
        sum += value(to_float(outputs[row * width + i]), to_float(labels[row * width + i]));
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) losses[row] = weight == 0.0f ? 0.0f : sum * weight / width;
}

extern "C" __global__ void label_loss_grad(const T* outputs, const W* labels, const W* weights, const D* dloss,
                                           T* grads, i64 n, i64 width) {
    i64 i = thread_index();
    if (i >= n) return;
    float weight = to_float(weights[i / width]);
    float factor = weight * to_float(dloss[0]) / width;
    float grad = factor * slope(to_float(outputs[i]), to_float(labels[i]));
    grads[i] = from_float<T>(weight == 0.0f ? 0.0f : grad);
}
