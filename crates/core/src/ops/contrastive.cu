// The contrastive loss over (n, n) similarities. Pairs of weight 0 are not there.

// Of each row: the largest logit, log Σ exp of the logits less it, and whether its pair is the first of the largest.
// sums (2, n). A block per row.
extern "C" __global__ void along_rows(const T* logits, const float* weights, float* sums, float* found, int n) {
    __shared__ float scratch[33];
    int i = blockIdx.x;
    const T* row = logits + (i64)i * n;
    float largest = -INFINITY, pair = to_float(row[i]), missed = 0.0f;
    for (int j = threadIdx.x; j < n; j += blockDim.x) {
        if (weights[j] == 0.0f) continue;
        float x = to_float(row[j]);
        largest = fmaxf(largest, x);
        // Comparisons with NaN are false: a row with one finds nothing.
        if (!(j < i ? x < pair : x <= pair)) missed = 1.0f;
    }
    largest = block_max(largest, scratch);
    missed = block_max(missed, scratch);
    float sum = 0.0f;
    for (int j = threadIdx.x; j < n; j += blockDim.x)
        if (weights[j] != 0.0f) sum += expf(to_float(row[j]) - largest);
    sum = block_sum(sum, scratch);
    if (threadIdx.x != 0) return;
    sums[i] = largest, sums[n + i] = logf(sum), found[i] = 1.0f - missed;
}

#define LANES 8

// The same of each column: 32 columns to a block of 32 × 8 threads.
extern "C" __global__ void down_columns(const T* logits, const float* weights, float* sums, float* found, int n) {
    __shared__ float top[LANES][32], missed[LANES][32], total[LANES][32];
    int j = blockIdx.x * 32 + threadIdx.x;
    bool there = j < n;
    float largest = -INFINITY, pair = there ? to_float(logits[(i64)j * n + j]) : 0.0f, miss = 0.0f, sum = 0.0f;
    for (int i = threadIdx.y; there && i < n; i += LANES) {
        if (weights[i] == 0.0f) continue;
        float x = to_float(logits[(i64)i * n + j]);
        largest = fmaxf(largest, x);
        if (!(i < j ? x < pair : x <= pair)) miss = 1.0f;
    }
    top[threadIdx.y][threadIdx.x] = largest, missed[threadIdx.y][threadIdx.x] = miss;
    __syncthreads();
    for (int lane = 0; lane < LANES; lane++) {
        largest = fmaxf(largest, top[lane][threadIdx.x]);
        miss = fmaxf(miss, missed[lane][threadIdx.x]);
    }
    for (int i = threadIdx.y; there && i < n; i += LANES)
        if (weights[i] != 0.0f) sum += expf(to_float(logits[(i64)i * n + j]) - largest);
    total[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || !there) return;
    sum = 0.0f;
    for (int lane = 0; lane < LANES; lane++) sum += total[lane][threadIdx.x];
    sums[j] = largest, sums[n + j] = logf(sum), found[j] = 1.0f - miss;
}

// Loss and hits of all pairs, in f64. One block of 256.
extern "C" __global__ void add_pairs(const T* logits, const float* weights, const float* rows, const float* columns,
                                     const float* found, float* loss, float* hits, int n) {
    __shared__ double losses[256], founds[256];
    double own_loss = 0.0, own_found = 0.0;
    for (int i = threadIdx.x; i < n; i += 256) {
        if (weights[i] == 0.0f) continue;
        double weight = 0.5 * weights[i], pair = to_float(logits[(i64)i * n + i]);
        double by_row = ((double)rows[i] - pair) + rows[n + i], by_column = ((double)columns[i] - pair) + columns[n + i];
        own_loss += weight * (by_row + by_column);
        own_found += weight * (found[i] + found[n + i]);
    }
    losses[threadIdx.x] = own_loss, founds[threadIdx.x] = own_found;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int lane = 1; lane < 256; lane++) own_loss += losses[lane], own_found += founds[lane];
    *loss = (float)own_loss, *hits = (float)own_found;
}

// ½ dloss · (weight[i] · (p(j | i) − [i = j]) + weight[j] · (p(i | j) − [i = j])); `gradient` may be `logits`.
extern "C" __global__ void backward(const T* logits, const float* weights, const float* rows, const float* columns,
                                    const float* dloss, T* gradient, int n) {
    i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (i64)n * n) return;
    int i = (int)(at / n), j = (int)(at % n);
    float x = to_float(logits[at]), half_loss = 0.5f * *dloss, value = 0.0f;
    if (weights[i] != 0.0f && weights[j] != 0.0f) {
        float by_row = half_loss * weights[i], by_column = half_loss * weights[j];
        value = by_row * expf(x - rows[i] - rows[n + i]) + by_column * expf(x - columns[j] - columns[n + j]);
        if (i == j) value -= by_row + by_row;
    }
    gradient[at] = from_float<T>(value);
}
