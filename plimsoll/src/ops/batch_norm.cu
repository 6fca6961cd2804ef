// Batch norm over the rows of a channels-last tensor (rows, channels), in f32. Rows of samples of weight 0 neither count
// nor come out. A block of 32 × 8 threads goes down one stretch of rows in 32 channels; stretches are put together in
// their order.
//
// T is the type of x and y, G of gamma and beta, S of the statistics, W of the samples' weights, R of running statistics.

#define LANES 8

// The rows that belong to this block, and its channel.
struct Stretch { i64 first, end; int channel, index; };
__device__ __forceinline__ Stretch stretch_of(i64 rows, i64 length, int channels) {
    int blocks = (channels + 31) / 32, index = blockIdx.x / blocks;
    return Stretch{index * length, min((index + 1) * length, rows), (int)(blockIdx.x % blocks * 32 + threadIdx.x), index};
}

__device__ __forceinline__ bool counts(const W* weights, i64 row, i64 rows_per_weight) {
    return to_float(weights[row / rows_per_weight]) != 0.0f;
}

// The sum of the lanes of a channel, in every lane.
__device__ __forceinline__ float down(float x, float (*scratch)[32]) {
    __syncthreads();
    scratch[threadIdx.y][threadIdx.x] = x;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) sum += scratch[lane][threadIdx.x];
    return sum;
}

// parts (stretches, 3, channels): mean, sum of squared deviations from it, and number of the rows that count.
extern "C" __global__ void moments(const T* x, const W* weights, float* parts, i64 rows, i64 length, int channels,
                                   i64 rows_per_weight) {
    __shared__ float scratch[LANES][32];
    Stretch at = stretch_of(rows, length, channels);
    bool there = at.channel < channels;
    float sum = 0.0f, count = 0.0f;
    for (i64 row = at.first + threadIdx.y; row < at.end; row += LANES) {
        if (!there || !counts(weights, row, rows_per_weight)) continue;
        sum += to_float(x[row * channels + at.channel]);
        count += 1.0f;
    }
    count = down(count, scratch);
    float mean = down(sum, scratch) / fmaxf(count, 1.0f), squares = 0.0f;
    for (i64 row = at.first + threadIdx.y; row < at.end; row += LANES) {
        if (!there || !counts(weights, row, rows_per_weight)) continue;
        float apart = to_float(x[row * channels + at.channel]) - mean;
        squares += apart * apart;
    }
    squares = down(squares, scratch);
    if (!there || threadIdx.y != 0) return;
    float* part = parts + (i64)at.index * 3 * channels + at.channel;
    part[0] = mean, part[channels] = squares, part[2 * channels] = count;
}

// Squared deviations are moved from each stretch's mean to the common one.
extern "C" __global__ void combine_moments(const float* parts, S* mean, S* var, S* rstd, int stretches, int channels,
                                           float eps) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    parts += channel;
    float count = 0.0f, common = 0.0f, squares = 0.0f;
    for (int i = 0; i < stretches; i++) count += parts[(i64)(3 * i + 2) * channels];
    float share = 1.0f / fmaxf(count, 1.0f);
    for (int i = 0; i < stretches; i++)
        common += parts[(i64)(3 * i + 2) * channels] * share * parts[(i64)3 * i * channels];
    for (int i = 0; i < stretches; i++) {
        float apart = parts[(i64)3 * i * channels] - common, weight = parts[(i64)(3 * i + 2) * channels] * share;
        squares += parts[(i64)(3 * i + 1) * channels] * share + weight * apart * apart;
    }
    mean[channel] = from_float<S>(common);
    var[channel] = from_float<S>(squares);
    rstd[channel] = from_float<S>(1.0f / sqrtf(squares + eps));
}

extern "C" __global__ void normalize(const T* x, const G* gamma, const G* beta, const W* weights, const S* mean,
                                     const S* rstd, T* y, i64 count, int channels, i64 rows_per_weight) {
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= count) return;
    int c = (int)(n % channels);
    float value = 0.0f;
    if (counts(weights, n / channels, rows_per_weight)) {
        float normal = (to_float(x[n]) - to_float(mean[c])) * to_float(rstd[c]);
        value = normal * to_float(gamma[c]) + to_float(beta[c]);
    }
    y[n] = from_float<T>(value);
}

// parts (stretches, 3, channels): Σ dy, Σ dy · normalized x, and the number of the rows that count.
extern "C" __global__ void slopes(const T* dy, const T* x, const W* weights, const S* mean, const S* rstd, float* parts,
                                  i64 rows, i64 length, int channels, i64 rows_per_weight) {
    __shared__ float scratch[LANES][32];
    Stretch at = stretch_of(rows, length, channels);
    bool there = at.channel < channels;
    float own_mean = there ? to_float(mean[at.channel]) : 0.0f, own_rstd = there ? to_float(rstd[at.channel]) : 0.0f;
    float sum = 0.0f, product = 0.0f, count = 0.0f;
    for (i64 row = at.first + threadIdx.y; row < at.end; row += LANES) {
        if (!there || !counts(weights, row, rows_per_weight)) continue;
        float slope = to_float(dy[row * channels + at.channel]);
        sum += slope;
        product += slope * (to_float(x[row * channels + at.channel]) - own_mean);
        count += 1.0f;
    }
    sum = down(sum, scratch);
    product = down(product, scratch) * own_rstd;
    count = down(count, scratch);
    if (!there || threadIdx.y != 0) return;
    float* part = parts + (i64)at.index * 3 * channels + at.channel;
    part[0] = sum, part[channels] = product, part[2 * channels] = count;
}

// sums (3, channels): dbeta and dgamma before they are rounded, and 1 / the number of rows.
extern "C" __global__ void combine_slopes(const float* parts, G* dgamma, G* dbeta, float* sums, int stretches,
                                          int channels) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    float total[3] = {0.0f, 0.0f, 0.0f};
    for (int i = 0; i < stretches; i++)
#pragma unroll
        for (int n = 0; n < 3; n++) total[n] += parts[(i64)(3 * i + n) * channels + channel];
    sums[channel] = total[0], sums[channels + channel] = total[1];
    sums[2 * channels + channel] = 1.0f / fmaxf(total[2], 1.0f);
    dbeta[channel] = from_float<G>(total[0]);
    dgamma[channel] = from_float<G>(total[1]);
}

extern "C" __global__ void input_gradient(const T* dy, const T* x, const G* gamma, const W* weights, const S* mean,
                                          const S* rstd, const float* sums, T* dx, i64 count, int channels,
                                          i64 rows_per_weight) {
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= count) return;
    int c = (int)(n % channels);
    float value = 0.0f;
    if (counts(weights, n / channels, rows_per_weight)) {
        float normal = (to_float(x[n]) - to_float(mean[c])) * to_float(rstd[c]);
        float common = (normal * sums[channels + c] + sums[c]) * sums[2 * channels + c];
        value = to_float(gamma[c]) * to_float(rstd[c]) * (to_float(dy[n]) - common);
    }
    dx[n] = from_float<T>(value);
}

extern "C" __global__ void normalize_fixed(const T* x, const G* gamma, const G* beta, const R* mean, const R* var, T* y,
                                           i64 count, int channels, float eps) {
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= count) return;
    int c = (int)(n % channels);
    float normal = (to_float(x[n]) - to_float(mean[c])) / sqrtf(to_float(var[c]) + eps);
    y[n] = from_float<T>(normal * to_float(gamma[c]) + to_float(beta[c]));
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
