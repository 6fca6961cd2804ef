// log Σ exp(x) of a row, which a block reads once: each thread keeps its largest logit and the sum relative to it.
extern "C" __global__ void log_sum_exp(const T* logits, float* lse, i64 classes) {
    __shared__ float scratch[33];
    const T* row = logits + blockIdx.x * classes;
    float highest = -INFINITY, sum = 0.0f;
    for (i64 i = threadIdx.x * WIDTH; i < classes; i += blockDim.x * WIDTH) {
        float x[WIDTH], before = highest;
        load(x, row, i, classes);
        UNROLL for (int k = 0; k < WIDTH; k++) highest = fmaxf(highest, x[k]);
        // Relative to 0 while there is nothing above −∞: what a NaN adds is NaN then, too.
        float shift = highest == -INFINITY ? 0.0f : highest;
        sum *= before == -INFINITY ? 1.0f : expf(before - shift);
        UNROLL for (int k = 0; k < WIDTH; k++) sum += expf(x[k] - shift);
    }
    float top = block_max(highest, scratch);
    float total = block_sum(highest == -INFINITY ? sum : sum * expf(highest - top), scratch);
    if (threadIdx.x == 0) lse[blockIdx.x] = top == -INFINITY && total == 0.0f ? top : top + logf(total);
}

// Σ weight · (lse − logit of the target), by one block; rows of weight 0 count nothing, whatever their target.
extern "C" __global__ void cross_entropy(const T* logits, const int* targets, const W* weights, const float* lse,
                                         float* loss, i64 rows, i64 classes) {
    __shared__ float scratch[33];
    float sum = 0.0f;
    for (i64 row = threadIdx.x; row < rows; row += blockDim.x) {
        float weight = to_float(weights[row]);
        if (weight == 0.0f) continue;
        i64 target = targets[row];
        bool exists = target >= 0 && target < classes;
        sum += exists ? weight * (lse[row] - to_float(logits[row * classes + target])) : NOT_A_NUMBER;
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) loss[0] = sum;
}

// (softmax − onehot) · weight · dloss; `slices` blocks share a row.
extern "C" __global__ void cross_entropy_grad(const T* logits, const float* lse, const int* targets, const W* weights,
                                              const D* dloss, T* grads, i64 classes, i64 slices) {
    i64 row = blockIdx.x / slices, i = (blockIdx.x % slices * blockDim.x + threadIdx.x) * WIDTH;
    if (i >= classes) return;
    float factor = to_float(weights[row]) * to_float(dloss[0]), x[WIDTH] = {};
    if (factor != 0.0f) {
        i64 target = targets[row];
        float shift = lse[row];
        load(x, logits + row * classes, i, classes);
        UNROLL for (int k = 0; k < WIDTH; k++) {
            x[k] = factor * expf(x[k] - shift);
            if (i + k == target) x[k] -= factor;
        }
    }
    store(x, grads + row * classes, i, classes);
}
