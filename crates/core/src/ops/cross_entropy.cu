// log Σ exp(x) of a row, which a block reads once: each thread keeps its largest logit and the sum relative to it. What
// a batch has beyond the row is −∞ and adds nothing.
extern "C" __global__ void STREAMS log_sum_exp(const T* logits, float* lse, i64 classes) {
    __shared__ float scratch[33];
    const T* row = logits + blockIdx.x * classes;
    float highest = -INFINITY, sum = 0.0f;
    i64 step = blockDim.x * WIDTH;
    for (i64 i = first_vector(row, threadIdx.x); i < classes; i += BATCH * step) {
        float x[BATCH][WIDTH], before = highest;
        load_batch(x, row, i, step, classes, -INFINITY);
        UNROLL for (int b = 0; b < BATCH; b++) UNROLL for (int k = 0; k < WIDTH; k++) highest = fmaxf(highest, x[b][k]);
        // Relative to 0 while there is nothing above −∞: what a NaN adds is NaN then, too.
        float shift = highest == -INFINITY ? 0.0f : highest;
        sum *= before == -INFINITY ? 1.0f : expf(before - shift);
        UNROLL for (int b = 0; b < BATCH; b++) UNROLL for (int k = 0; k < WIDTH; k++) sum += expf(x[b][k] - shift);
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

// (softmax − onehot) · weight · dloss; `slices` blocks share a row. Rows of logits and gradients begin equally far from
// the boundaries of vectors.
extern "C" __global__ void STREAMS cross_entropy_grad(const T* logits, const float* lse, const int* targets,
                                                      const W* weights, const D* dloss, T* grads, i64 classes,
                                                      i64 slices) {
    i64 row = blockIdx.x / slices, step = blockDim.x * WIDTH, first = blockIdx.x % slices * BATCH * blockDim.x;
    i64 target = targets[row];
    float factor = to_float(weights[row]) * to_float(dloss[0]), shift = lse[row];
    logits += row * classes;
    grads += row * classes;
    for (i64 i = first_vector(grads, first + threadIdx.x); i < classes; i += slices * BATCH * step) {
        float x[BATCH][WIDTH] = {};
        if (factor != 0.0f) {
            load_batch(x, logits, i, step, classes, 0.0f);
            UNROLL for (int b = 0; b < BATCH; b++) {
                i64 apart = target - i - b * step;
                int hit = apart >= 0 && apart < WIDTH ? (int)apart : -1;
                UNROLL for (int k = 0; k < WIDTH; k++) {
                    x[b][k] = factor * expf(x[b][k] - shift);
                    if (k == hit) x[b][k] -= factor;
                }
            }
        }
        store_batch(x, grads, i, step, classes);
    }
}
