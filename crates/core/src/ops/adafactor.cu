// Adafactor in passes: weights' squares; moments of rows and columns (or of elements, for a vector); the mean of each
// matrix's row moments; updates' squares; the update. Matrices of `rows` × `columns` lie one after the other. A clip
// factor that is not finite skips the step: moments and weight stay as they are.

__device__ __forceinline__ float lerp(float from, float to, float rate) { return fmaf(rate, to - from, from); }

// What a step sets, read from the arena.
struct Step {
    float lr, number, clip;
};
#define STEP const S *rate, const S *step, const C *clip
#define READ_STEP Step{to_float(*rate), to_float(*step), to_float(*clip)}
// How far the moments move: step^beta2_decay.
__device__ __forceinline__ float moment_rate(Step s, float decay) { return powf(s.number, decay); }

// Σ w², one part per block.
extern "C" __global__ void weight_squares(const T* w, i64 n, float* parts) {
    __shared__ float scratch[33];
    float sum = 0.0f;
    for (i64 i = thread_index() * WIDTH; i < n; i += (i64)gridDim.x * blockDim.x * WIDTH) {
        float x[WIDTH];
        load(x, w, i, n);
        UNROLL for (int k = 0; k < WIDTH; k++) sum += x[k] * x[k];
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

extern "C" __global__ void vector_moments(const G* g, M* moments, i64 n, STEP, float decay, ROUNDING) {
    i64 i = thread_index() * WIDTH;
    Step s = READ_STEP;
    if (i >= n || !is_finite(s.clip)) return;
    float x[WIDTH], moment[WIDTH], speed = moment_rate(s, decay);
    load(x, g, i, n);
    load(moment, moments, i, n);
    UNROLL for (int k = 0; k < WIDTH; k++) moment[k] = lerp(moment[k], x[k] * s.clip * (x[k] * s.clip), speed);
    store_rounded(moment, moments, i, n, READ_ROUNDING, 1);
}

// Moves one moment towards the mean of squares.
__device__ __forceinline__ void move_moment(M* moments, i64 i, float mean, Step s, float decay, Rounding r, u32 tensor) {
    if (!is_finite(s.clip)) return;
    float moved[1] = {lerp(to_float(moments[i]), mean, moment_rate(s, decay))};
    store_rounded(moved, moments, i, i + 1, r, tensor);
}

// A block per row: its mean square.
extern "C" __global__ void row_moments(const G* g, M* moments, i64 columns, STEP, float decay, ROUNDING) {
    __shared__ float scratch[33];
    Step s = READ_STEP;
    const G* row = g + blockIdx.x * columns;
    float sum = 0.0f;
    for (i64 i = threadIdx.x * WIDTH; i < columns; i += blockDim.x * WIDTH) {
        float x[WIDTH];
        load(x, row, i, columns);
        UNROLL for (int k = 0; k < WIDTH; k++) sum += x[k] * s.clip * (x[k] * s.clip);
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) move_moment(moments, blockIdx.x, sum / columns, s, decay, READ_ROUNDING, 1);
}

// The squares of a stretch of rows, column by column: parts (matrices, chunks, columns). As sum_columns of reduce.cu,
// eight threads take turns with the rows.
extern "C" __global__ void column_squares(const G* g, float* parts, i64 rows, i64 columns, i64 chunks, i64 stretch,
                                          STEP) {
    __shared__ float scratch[8][32 * WIDTH];
    Step s = READ_STEP;
    int side = threadIdx.x % 32, turn = threadIdx.x / 32;
    i64 tiles = (columns + 32 * WIDTH - 1) / (32 * WIDTH);
    i64 part = blockIdx.x / tiles, column = (blockIdx.x % tiles * 32 + side) * WIDTH;
    i64 first = part % chunks * stretch, end = first + stretch < rows ? first + stretch : rows;
    const G* matrix = g + part / chunks * rows * columns;
    float sum[WIDTH] = {};
    if (column < columns) {
        UNROLL4 for (i64 row = first + turn; row < end; row += 8) {
            float x[WIDTH];
            load(x, matrix + row * columns, column, columns);
            UNROLL for (int k = 0; k < WIDTH; k++) sum[k] = fmaf(x[k] * s.clip, x[k] * s.clip, sum[k]);
        }
    }
    UNROLL for (int k = 0; k < WIDTH; k++) scratch[turn][side * WIDTH + k] = sum[k];
    __syncthreads();
    if (turn != 0 || column >= columns) return;
    for (int t = 1; t < 8; t++) {
        UNROLL for (int k = 0; k < WIDTH; k++) sum[k] += scratch[t][side * WIDTH + k];
    }
    store(sum, parts + part * columns, column, columns);
}

// A thread per column: the mean of its parts over the rows.
extern "C" __global__ void column_moments(const float* parts, M* moments, i64 n, i64 rows, i64 columns, i64 chunks,
                                          STEP, float decay, ROUNDING) {
    i64 i = thread_index();
    if (i >= n) return;
    Step s = READ_STEP;
    float sum = 0.0f;
    UNROLL4 for (i64 c = 0; c < chunks; c++) sum += parts[(i / columns * chunks + c) * columns + i % columns];
    move_moment(moments, i, sum / rows, s, decay, READ_ROUNDING, 2);
}

// A block per matrix: one over the mean of its rows' moments.
extern "C" __global__ void row_scales(const M* moments, float* scales, i64 rows, float eps) {
    __shared__ float scratch[33];
    float sum = 0.0f;
    for (i64 i = threadIdx.x; i < rows; i += blockDim.x) sum += to_float(moments[blockIdx.x * rows + i]);
    float mean = block_sum(sum, scratch) / rows;
    if (threadIdx.x == 0) scales[blockIdx.x] = 1.0f / fmaxf(mean, eps);
}

// The update before it is scaled: g / √max(row · column, eps²), rows relative to their matrix's mean. A vector is one
// row whose columns are its own second moment.
__device__ __forceinline__ void updates(float (&u)[WIDTH], const G* g, const M* row_moments, const float* scales,
                                        const M* column_moments, i64 i, i64 rows, i64 columns, float clip,
                                        float least, i64 n) {
    INDEX row = (INDEX)i / (INDEX)columns, matrix = row / (INDEX)rows;
    i64 column = i - (i64)row * columns;
    float scale = MATRIX ? to_float(row_moments[row]) * scales[matrix] : 1.0f, moment[WIDTH];
    load(moment, column_moments + matrix * columns, column, columns);
    load(u, g, i, n);
    UNROLL for (int k = 0; k < WIDTH; k++) u[k] = u[k] * clip / sqrtf(fmaxf(scale * moment[k], least));
}

extern "C" __global__ void update_squares(const G* g, const M* row_moments, const float* scales,
                                          const M* column_moments, i64 n, i64 rows, i64 columns, STEP, float least,
                                          float* parts) {
    __shared__ float scratch[33];
    Step s = READ_STEP;
    float sum = 0.0f;
    for (i64 i = thread_index() * WIDTH; i < n; i += (i64)gridDim.x * blockDim.x * WIDTH) {
        float u[WIDTH];
        updates(u, g, row_moments, scales, column_moments, i, rows, columns, s.clip, least, n);
        UNROLL for (int k = 0; k < WIDTH; k++) sum += u[k] * u[k];
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// One block: what the update is multiplied by, from the root mean squares of weight and update.
extern "C" __global__ void update_factor(const float* weight_parts, const float* update_parts, i64 count, i64 n, STEP,
                                         float eps_weight, float limit, float* factor) {
    __shared__ float scratch[33];
    Step s = READ_STEP;
    float weights = 0.0f, moves = 0.0f;
    for (i64 i = threadIdx.x; i < count; i += blockDim.x) {
        weights += weight_parts[i];
        moves += update_parts[i];
    }
    weights = block_sum(weights, scratch);
    moves = block_sum(moves, scratch);
    float alpha = fmaxf(sqrtf(weights / n), eps_weight) * fminf(s.lr, 1.0f / sqrtf(s.number));
    if (threadIdx.x == 0) factor[0] = alpha / fmaxf(sqrtf(moves / n) / limit, 1.0f);
}

// w · keep − factor · update
extern "C" __global__ void update(T* w, G* g, const M* row_moments, const float* scales, const M* column_moments,
                                  i64 n, i64 rows, i64 columns, STEP, float least, const float* factor,
                                  float weight_decay, ROUNDING) {
    i64 i = thread_index() * WIDTH;
    if (i >= n) return;
    Step s = READ_STEP;
    float u[WIDTH] = {}, weight[WIDTH], keep = 1.0f - s.lr * weight_decay, by = factor[0];
    if (!is_finite(s.clip)) {
        if (ZERO_GRADIENT) store(u, g, i, n);
        return;
    }
    updates(u, g, row_moments, scales, column_moments, i, rows, columns, s.clip, least, n);
    load(weight, w, i, n);
    UNROLL for (int k = 0; k < WIDTH; k++) {
        weight[k] = weight[k] * keep - by * u[k];
        u[k] = 0.0f;
    }
    store_rounded(weight, w, i, n, READ_ROUNDING, 0);
    if (ZERO_GRADIENT) store(u, g, i, n);
}
