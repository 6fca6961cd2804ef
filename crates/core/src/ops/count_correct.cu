// A block per row: its weight if every logit before the target's is smaller and none after it is larger, else 0. The
// logits are compared with the target's instead of searched for the largest, so that a row is left once one has beaten
// it; comparisons with NaN are false.
extern "C" __global__ void STREAMS correct(const T* logits, const int* targets, const W* weights, float* counted,
                                           i64 classes) {
    i64 row = blockIdx.x, target = targets[row];
    bool wins = target >= 0 && target < classes;
    if (wins) {
        logits += row * classes;
        float best = to_float(logits[target]);
        i64 step = blockDim.x * WIDTH;
        // All threads go round equally often: each round ends in a vote. The −∞ around the row beats only a target of −∞
        // behind the first place, which the first logit beats as well.
        for (i64 first = 0; wins && first < classes + WIDTH; first += BATCH * step) {
            i64 i = first + first_vector(logits, threadIdx.x);
            float x[BATCH][WIDTH];
            load_batch(x, logits, i, step, classes, -INFINITY);
            UNROLL for (int b = 0; b < BATCH; b++) {
                // How many of the vector have to be smaller; for the first place not even what lies before the row.
                int ahead = target == 0 ? 0 : (int)min(max(target - i - b * step, 0ll), (i64)WIDTH);
                UNROLL for (int k = 0; k < WIDTH; k++) wins &= k < ahead ? x[b][k] < best : x[b][k] <= best;
            }
            wins = __syncthreads_and(wins);
        }
    }
    if (threadIdx.x == 0) counted[row] = wins ? to_float(weights[row]) : 0.0f;
}
