// A block per row: its weight if every logit before the target's is smaller and none after it is larger, else 0. The
// logits are compared with the target's instead of searched for the largest; comparisons with NaN are false.
extern "C" __global__ void correct(const T* logits, const int* targets, const W* weights, float* counted, i64 classes) {
    i64 row = blockIdx.x, target = targets[row];
    bool wins = target >= 0 && target < classes;
    if (wins) {
        logits += row * classes;
        float best = to_float(logits[target]);
        for (i64 i = threadIdx.x * WIDTH; i < classes; i += blockDim.x * WIDTH) {
            float x[WIDTH];
            load(x, logits, i, classes);
            UNROLL for (int k = 0; k < WIDTH; k++) wins &= i + k < target ? x[k] < best : x[k] <= best;
        }
    }
    wins = __syncthreads_and(wins);
    if (threadIdx.x == 0) counted[row] = wins ? to_float(weights[row]) : 0.0f;
}
