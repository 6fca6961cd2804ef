// Batch norm over the rows of a channels-last tensor (rows, channels), in f32. Rows of samples of weight 0 neither count
// nor come out. A block goes down one stretch of rows: COLUMNS threads side by side with WIDTH neighbouring channels
// each, and LANES rows at a time. Stretches are put together in their order.
//
// T is the type of x and y, G of gamma and beta, S of the statistics, W of the samples' weights, R of running statistics,
// INDEX one that holds the number of rows.

#define LANES (256 / COLUMNS)
#define CHANNELS UNROLL for (int k = 0; k < WIDTH; k++)

// The rows that belong to this block, and the first channel of this thread.
struct Stretch {
    i64 first, end;
    int index, channel, channels;
    bool there;
    __device__ __forceinline__ Stretch(i64 rows, i64 length, int channels) : channels(channels) {
        int blocks = (channels + COLUMNS * WIDTH - 1) / (COLUMNS * WIDTH);
        index = blockIdx.x / blocks;
        channel = (blockIdx.x % blocks * COLUMNS + threadIdx.x) * WIDTH;
        first = index * length, end = min(first + length, rows);
        there = channel < channels;
    }
    // This thread's channels of a row: whole vectors, for WIDTH divides the number of channels.
    __device__ __forceinline__ void take(float (&x)[WIDTH], const T* from, i64 row) const {
        i64 at = row * channels + channel;
        load(x, from, at, at + WIDTH);
    }
    __device__ __forceinline__ void put(const float (&x)[WIDTH], T* to, i64 row) const {
        i64 at = row * channels + channel;
        store(x, to, at, at + WIDTH);
    }
    // f(row, whether it counts) for the rows of this lane; without weights all count.
    template <typename Function>
    __device__ __forceinline__ void rows(const W* weights, i64 rows_per_weight, Function f) const {
        if (!there) return;
        UNROLL4 for (i64 row = first + threadIdx.y; row < end; row += LANES)
            f(row, weights == nullptr || to_float(weights[(INDEX)row / (INDEX)rows_per_weight]) != 0.0f);
    }
    // A value of each of this thread's channels; 0 where there is none.
    template <typename Element>
    __device__ __forceinline__ void of_channels(float (&x)[WIDTH], const Element* from) const {
        CHANNELS x[k] = there ? to_float(from[channel + k]) : 0.0f;
    }
    // Entry n of the block's part of `parts` (stretches, 3, channels).
    __device__ __forceinline__ void keep(float* parts, int n, const float (&x)[WIDTH]) const {
        if (there && threadIdx.y == 0) store(x, parts + ((i64)index * 3 + n) * channels, channel, channel + WIDTH);
    }
};

// The sums over `DEEP` lanes of a block `ACROSS` wide, in every lane.
template <int DEEP, int ACROSS, int N> __device__ __forceinline__ void down(float (&x)[N]) {
    __shared__ float scratch[N][DEEP][ACROSS];
    __syncthreads();
    UNROLL for (int k = 0; k < N; k++) scratch[k][threadIdx.y][threadIdx.x] = x[k];
    __syncthreads();
    UNROLL for (int k = 0; k < N; k++) {
        float sum = 0.0f;
        UNROLL for (int lane = 0; lane < DEEP; lane++) sum += scratch[k][lane][threadIdx.x];
        x[k] = sum;
    }
}

// parts (stretches, 3, channels): mean, sum of squared deviations from it, and number of the rows that count.
extern "C" __global__ void moments(const T* x, const W* weights, float* parts, i64 rows, i64 length, int channels,
                                   i64 rows_per_weight) {
    Stretch stretch(rows, length, channels);
    float value[WIDTH], mean[WIDTH], squares[WIDTH], count[WIDTH];
    CHANNELS mean[k] = squares[k] = count[k] = 0.0f;
    stretch.rows(weights, rows_per_weight, [&](i64 row, bool counts) {
        stretch.take(value, x, row);
        CHANNELS mean[k] += counts ? value[k] : 0.0f;
        CHANNELS count[k] += counts ? 1.0f : 0.0f;
    });
    down<LANES, COLUMNS>(mean);
    down<LANES, COLUMNS>(count);
    CHANNELS mean[k] /= fmaxf(count[k], 1.0f);
    stretch.rows(weights, rows_per_weight, [&](i64 row, bool counts) {
        stretch.take(value, x, row);
        CHANNELS value[k] = counts ? value[k] - mean[k] : 0.0f;
        CHANNELS squares[k] += value[k] * value[k];
    });
    down<LANES, COLUMNS>(squares);
    stretch.keep(parts, 0, mean);
    stretch.keep(parts, 1, squares);
    stretch.keep(parts, 2, count);
}

// parts (stretches, 3, channels): Σ dy, Σ dy · normalized x, and the number of the rows that count.
extern "C" __global__ void slopes(const T* dy, const T* x, const W* weights, const S* mean, const S* rstd, float* parts,
                                  i64 rows, i64 length, int channels, i64 rows_per_weight) {
    Stretch stretch(rows, length, channels);
    float slope[WIDTH], value[WIDTH], center[WIDTH], scale[WIDTH], sum[WIDTH], product[WIDTH], count[WIDTH];
    stretch.of_channels(center, mean);
    stretch.of_channels(scale, rstd);
    CHANNELS sum[k] = product[k] = count[k] = 0.0f;
    stretch.rows(weights, rows_per_weight, [&](i64 row, bool counts) {
        stretch.take(slope, dy, row);
        stretch.take(value, x, row);
        CHANNELS {
            sum[k] += counts ? slope[k] : 0.0f;
            product[k] += counts ? slope[k] * (value[k] - center[k]) : 0.0f;
            count[k] += counts ? 1.0f : 0.0f;
        }
    });
    down<LANES, COLUMNS>(sum);
    down<LANES, COLUMNS>(product);
    down<LANES, COLUMNS>(count);
    CHANNELS product[k] *= scale[k];
    stretch.keep(parts, 0, sum);
    stretch.keep(parts, 1, product);
    stretch.keep(parts, 2, count);
}

// The stretches of a channel are shared by the 32 lanes of a block of 32 × 32; f gets what each of them kept.
template <typename Function>
__device__ __forceinline__ void each_part(const float* parts, int stretches, int channels, int channel, Function f) {
    if (channel >= channels) return;
    UNROLL4 for (int i = threadIdx.y; i < stretches; i += 32) {
        const float* part = parts + (i64)3 * i * channels + channel;
        f(part[0], part[channels], part[2 * channels]);
    }
}

// Squared deviations are moved from each stretch's mean to the common one.
extern "C" __global__ void combine_moments(const float* parts, S* mean, S* var, S* rstd, int stretches, int channels,
                                           float eps) {
    int channel = blockIdx.x * 32 + threadIdx.x;
    float total[2] = {0.0f, 0.0f}, squares[1] = {0.0f};
    each_part(parts, stretches, channels, channel, [&](float own, float, float count) {
        total[0] += count * own;
        total[1] += count;
    });
    down<32, 32>(total);
    float share = 1.0f / fmaxf(total[1], 1.0f), common = total[0] * share;
    each_part(parts, stretches, channels, channel, [&](float own, float within, float count) {
        squares[0] += within + count * (own - common) * (own - common);
    });
    down<32, 32>(squares);
    if (channel >= channels || threadIdx.y != 0) return;
    float variance = squares[0] * share;
    mean[channel] = from_float<S>(common);
    var[channel] = from_float<S>(variance);
    rstd[channel] = from_float<S>(1.0f / sqrtf(variance + eps));
}

// sums (3, channels): dbeta and dgamma before they are rounded, and 1 / the number of rows.
extern "C" __global__ void combine_slopes(const float* parts, G* dgamma, G* dbeta, float* sums, int stretches,
                                          int channels) {
    int channel = blockIdx.x * 32 + threadIdx.x;
    float total[3] = {0.0f, 0.0f, 0.0f};
    each_part(parts, stretches, channels, channel, [&](float sum, float product, float count) {
        total[0] += sum, total[1] += product, total[2] += count;
    });
    down<32, 32>(total);
    if (channel >= channels || threadIdx.y != 0) return;
    sums[channel] = total[0], sums[channels + channel] = total[1];
    sums[2 * channels + channel] = 1.0f / fmaxf(total[2], 1.0f);
    dbeta[channel] = from_float<G>(total[0]);
    dgamma[channel] = from_float<G>(total[1]);
}

// y = (x - mean) · rstd · gamma + beta for the rows of a stretch that count, 0 for the others.
__device__ __forceinline__ void normalize_rows(const Stretch& stretch, const T* x, const G* gamma, const G* beta,
                                               const W* weights, i64 rows_per_weight, const float (&mean)[WIDTH],
                                               const float (&rstd)[WIDTH], T* y) {
    float value[WIDTH], scale[WIDTH], shift[WIDTH];
    stretch.of_channels(scale, gamma);
    stretch.of_channels(shift, beta);
    stretch.rows(weights, rows_per_weight, [&](i64 row, bool counts) {
        stretch.take(value, x, row);
        CHANNELS value[k] = counts ? (value[k] - mean[k]) * rstd[k] * scale[k] + shift[k] : 0.0f;
        stretch.put(value, y, row);
    });
}

extern "C" __global__ void normalize(const T* x, const G* gamma, const G* beta, const W* weights, const S* mean,
                                     const S* rstd, T* y, i64 rows, i64 length, int channels, i64 rows_per_weight) {
    Stretch stretch(rows, length, channels);
    float center[WIDTH], scale[WIDTH];
    stretch.of_channels(center, mean);
    stretch.of_channels(scale, rstd);
    normalize_rows(stretch, x, gamma, beta, weights, rows_per_weight, center, scale, y);
}

extern "C" __global__ void normalize_fixed(const T* x, const G* gamma, const G* beta, const R* mean, const R* var, T* y,
                                           i64 rows, i64 length, int channels, float eps) {
    Stretch stretch(rows, length, channels);
    float center[WIDTH], scale[WIDTH];
    stretch.of_channels(center, mean);
    stretch.of_channels(scale, var);
    CHANNELS scale[k] = 1.0f / sqrtf(scale[k] + eps);
    normalize_rows(stretch, x, gamma, beta, nullptr, 1, center, scale, y);
}

extern "C" __global__ void input_gradient(const T* dy, const T* x, const G* gamma, const W* weights, const S* mean,
                                          const S* rstd, const float* sums, T* dx, i64 rows, i64 length, int channels,
                                          i64 rows_per_weight) {
    Stretch stretch(rows, length, channels);
    float slope[WIDTH], value[WIDTH], center[WIDTH], scale[WIDTH], weight[WIDTH];
    float sum[WIDTH], product[WIDTH], share[WIDTH];
    stretch.of_channels(center, mean);
    stretch.of_channels(scale, rstd);
    stretch.of_channels(weight, gamma);
    stretch.of_channels(sum, sums);
    stretch.of_channels(product, sums + channels);
    stretch.of_channels(share, sums + 2 * channels);
    stretch.rows(weights, rows_per_weight, [&](i64 row, bool counts) {
        stretch.take(slope, dy, row);
        stretch.take(value, x, row);
        CHANNELS {
            float normal = (value[k] - center[k]) * scale[k];
            float common = (normal * product[k] + sum[k]) * share[k];
            slope[k] = counts ? weight[k] * scale[k] * (slope[k] - common) : 0.0f;
        }
        stretch.put(slope, dx, row);
    });
}

// Towards a batch's statistics, by the unbiased variance; one row enters with its biased one, 0. A block of 256.
extern "C" __global__ void move_running(const S* mean, const S* var, const W* weights, R* running_mean, R* running_var,
                                        int samples, int channels, i64 rows_per_sample, float momentum) {
    __shared__ float scratch[33];
    float own = 0.0f;
    for (int i = threadIdx.x; i < samples; i += blockDim.x) own += to_float(weights[i]) != 0.0f ? 1.0f : 0.0f;
    double count = (double)block_sum(own, scratch) * (double)rows_per_sample;
    if (count == 0.0) return;
    float unbiased = (float)(count / (fmax(count, 2.0) - 1.0));
    for (int c = threadIdx.x; c < channels; c += blockDim.x) {
        float m = to_float(running_mean[c]), v = to_float(running_var[c]);
        running_mean[c] = from_float<R>(m + momentum * (to_float(mean[c]) - m));
        running_var[c] = from_float<R>(v + momentum * (to_float(var[c]) * unbiased - v));
    }
}
