// Heads of at most 16 dimensions without a bias. Here the exponential dominates: a thread has one query (or one key) in
// registers and goes through the other side, which lies in shared memory, so that no sum crosses threads.

#define THREADS 128
#define WIDTH (D <= 2 ? 2 : D <= 4 ? 4 : D <= 8 ? 8 : 16)

// What a row misses up to WIDTH is 0.
__device__ __forceinline__ void read(float to[WIDTH], const T* from, float factor) {
#pragma unroll
    for (int d = 0; d < WIDTH; d++) to[d] = d < D ? to_float(from[d]) * factor : 0.0f;
}
__device__ __forceinline__ void clear(float to[WIDTH]) {
#pragma unroll
    for (int d = 0; d < WIDTH; d++) to[d] = 0.0f;
}
__device__ __forceinline__ void put(T* to, const float from[WIDTH], float factor) {
#pragma unroll
    for (int d = 0; d < D; d++) to[d] = from_float<T>(from[d] * factor);
}

// A row of shared memory, which every thread of a warp reads at once.
struct Row {
    float at[WIDTH];
    __device__ __forceinline__ Row(const float* from) {
        if (WIDTH == 2) {
            float2 x = *(const float2*)from;
            at[0] = x.x, at[1] = x.y;
        } else {
#pragma unroll
            for (int d = 0; d < WIDTH; d += 4) {
                float4 x = *(const float4*)(from + d);
                at[d] = x.x, at[d + 1] = x.y, at[d + 2] = x.z, at[d + 3] = x.w;
            }
        }
    }
};
__device__ __forceinline__ float dot(const float a[WIDTH], const Row& b, float start) {
#pragma unroll
    for (int d = 0; d < WIDTH; d++) start += a[d] * b.at[d];
    return start;
}
__device__ __forceinline__ void add(float to[WIDTH], float x, const Row& row) {
#pragma unroll
    for (int d = 0; d < WIDTH; d++) to[d] += x * row.at[d];
}

struct Keys {
    float keys[THREADS * WIDTH], values[THREADS * WIDTH];
    // 0, or -∞ where the key is hidden or past the last one.
    float mask[THREADS];
};

__device__ __forceinline__ void load(Keys& to, const Scores& head, const T* k, const T* v, i64 row, int first) {
    int j = first + threadIdx.x;
    bool there = j < head.k_len;
    to.mask[threadIdx.x] = there && (!MASKED || head.mask[j] != 0) ? 0.0f : NOTHING;
#pragma unroll
    for (int d = 0; d < WIDTH; d++) {
        bool inside = there && d < D;
        to.keys[threadIdx.x * WIDTH + d] = inside ? to_float(k[(i64)j * row + d]) : 0.0f;
        to.values[threadIdx.x * WIDTH + d] = inside ? to_float(v[(i64)j * row + d]) : 0.0f;
    }
}

__device__ __forceinline__ void quad_factors(float f[4], const Scores& head, int i, int j) {
    float4 x = DROPPED ? head.factors(i, j / 4) : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
    f[0] = x.x, f[1] = x.y, f[2] = x.z, f[3] = x.w;
}

// Keys whose exponentials are taken between two looks at the largest score.
#define STEP 8

extern "C" __global__ void __launch_bounds__(THREADS)
    forward(const T* q, const T* k, const T* v, T* out, float* lse, i64 q_row, i64 kv_row, int batch, int heads,
            int q_len, int k_len, float scale, SCORE_PARAMETERS) {
    __shared__ __align__(16) Keys shared;
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_of(sizes);
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    int i0 = at.tile * THREADS, i = i0 + threadIdx.x;
    i64 from = (i64)at.b * k_len * kv_row + at.h * D;
    float query[WIDTH], sums[WIDTH], top = NOTHING, total = 0.0f;
    clear(query);
    clear(sums);
    // In powers of 2: the scale has log₂ e in it.
    if (i < q_len) read(query, q + ((i64)at.b * q_len + i) * q_row + at.h * D, scale * LOG2E);
    int own_end = i < q_len ? head.end(i) : 0, end = head.end(min(i0 + THREADS, q_len) - 1);
    for (int j0 = 0; j0 < end; j0 += THREADS) {
        __syncthreads();
        load(shared, head, k + from, v + from, kv_row, j0);
        __syncthreads();
        for (int j = 0; j < THREADS && j0 + j < own_end; j += STEP) {
            float s[STEP], highest = top;
#pragma unroll
            for (int c = 0; c < STEP; c++) {
                s[c] = dot(query, Row(shared.keys + (j + c) * WIDTH), shared.mask[j + c]);
                if (LIMITED && j0 + j + c >= own_end) s[c] = NOTHING;
                highest = fmaxf(highest, s[c]);
            }
            float shift = highest == NOTHING ? 0.0f : highest, fade = power_of_2(top - shift);
            top = highest;
            total *= fade;
#pragma unroll
            for (int d = 0; d < WIDTH; d++) sums[d] *= fade;
#pragma unroll
            for (int c = 0; c < STEP; c += 4) {
                float f[4];
                quad_factors(f, head, i, j0 + j + c);
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    float weight = power_of_2(s[c + n] - shift);
                    total += weight;
                    add(sums, weight * f[n], Row(shared.values + (j + c + n) * WIDTH));
                }
            }
        }
    }
    if (i >= q_len) return;
    bool seen = total > 0.0f;
    put(out + (((i64)at.b * q_len + i) * heads + at.h) * D, sums, seen ? 1.0f / total : 0.0f);
    lse[(i64)(at.b * heads + at.h) * q_len + i] = seen ? top * LN2 + logf(total) : NOTHING;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    backward_queries(const T* q, const T* k, const T* v, const T* dout, const float* lse, const float* delta, T* dq,
                     float* bias_sums, int bias_rows, i64 q_row, i64 kv_row, int batch, int heads, int q_len,
                     int k_len, float scale, SCORE_PARAMETERS) {
    __shared__ __align__(16) Keys shared;
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_of(sizes);
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    int i0 = at.tile * THREADS, i = i0 + threadIdx.x, pair = at.b * heads + at.h;
    i64 from = (i64)at.b * k_len * kv_row + at.h * D, mine = ((i64)at.b * q_len + i) * q_row + at.h * D;
    float query[WIDTH], gradient[WIDTH], sums[WIDTH], own_lse = 0.0f, own_delta = 0.0f;
    clear(query);
    clear(gradient);
    clear(sums);
    if (i < q_len) {
        read(query, q + mine, scale * LOG2E);
        read(gradient, dout + (((i64)at.b * q_len + i) * heads + at.h) * D, 1.0f);
        own_lse = saved_lse(lse[(i64)pair * q_len + i]) * LOG2E;
        own_delta = delta[(i64)pair * q_len + i];
    }
    int own_end = i < q_len ? head.end(i) : 0, end = head.end(min(i0 + THREADS, q_len) - 1);
    for (int j0 = 0; j0 < end; j0 += THREADS) {
        __syncthreads();
        load(shared, head, k + from, v + from, kv_row, j0);
        __syncthreads();
        for (int j = 0; j < THREADS && j0 + j < own_end; j += 4) {
            float f[4];
            quad_factors(f, head, i, j0 + j);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                Row key(shared.keys + (j + n) * WIDTH);
                float weight = power_of_2(dot(query, key, shared.mask[j + n]) - own_lse);
                if (LIMITED && j0 + j + n >= own_end) weight = 0.0f;
                float slope = dot(gradient, Row(shared.values + (j + n) * WIDTH), 0.0f) * f[n];
                add(sums, weight * (slope - own_delta), key);
            }
        }
    }
    if (i < q_len) put(dq + mine, sums, scale);
}

struct Queries { float queries[THREADS * WIDTH], gradients[THREADS * WIDTH], lse[THREADS], delta[THREADS]; };

extern "C" __global__ void __launch_bounds__(THREADS)
    backward_keys(const T* q, const T* k, const T* v, const T* dout, const float* lse, const float* delta, T* dk,
                  T* dv, float* bias_sums, i64 q_row, i64 kv_row, int batch, int heads, int q_len, int k_len,
                  float scale, SCORE_PARAMETERS) {
    __shared__ __align__(16) Queries shared;
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_of(sizes);
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    int j0 = at.tile * THREADS, j = j0 + threadIdx.x, pair = at.b * heads + at.h;
    i64 mine = ((i64)at.b * k_len + j) * kv_row + at.h * D;
    float key[WIDTH], value[WIDTH], dkey[WIDTH], dvalue[WIDTH];
    clear(key);
    clear(value);
    clear(dkey);
    clear(dvalue);
    bool seen = j < k_len && (!MASKED || head.mask[j] != 0);
    if (seen) {
        read(key, k + mine, scale * LOG2E);
        read(value, v + mine, 1.0f);
    }
    int own_first = seen ? head.first_query(j) : q_len;
    for (int i0 = head.first_query(j0) / THREADS * THREADS; i0 < q_len; i0 += THREADS) {
        __syncthreads();
        int at_query = i0 + threadIdx.x;
        bool there = at_query < q_len;
        // Queries past the last one subtract +∞: their weights are 0.
        shared.lse[threadIdx.x] = there ? saved_lse(lse[(i64)pair * q_len + at_query]) * LOG2E : INFINITY;
        shared.delta[threadIdx.x] = there ? delta[(i64)pair * q_len + at_query] : 0.0f;
        const T* query = q + ((i64)at.b * q_len + at_query) * q_row + at.h * D;
        const T* gradient = dout + (((i64)at.b * q_len + at_query) * heads + at.h) * D;
#pragma unroll
        for (int d = 0; d < WIDTH; d++) {
            shared.queries[threadIdx.x * WIDTH + d] = there && d < D ? to_float(query[d]) : 0.0f;
            shared.gradients[threadIdx.x * WIDTH + d] = there && d < D ? to_float(gradient[d]) : 0.0f;
        }
        __syncthreads();
        for (int n = max(own_first - i0, 0); n < THREADS; n++) {
            Row row(shared.queries + n * WIDTH), slope_row(shared.gradients + n * WIDTH);
            float weight = power_of_2(dot(key, row, 0.0f) - shared.lse[n]);
            float f[4];
            quad_factors(f, head, i0 + n, j);
            float factor = j % 4 == 0 ? f[0] : j % 4 == 1 ? f[1] : j % 4 == 2 ? f[2] : f[3];
            float slope = dot(value, slope_row, 0.0f) * factor;
            add(dkey, weight * (slope - shared.delta[n]), row);
            add(dvalue, weight * factor, slope_row);
        }
    }
    if (j >= k_len) return;
    put(dk + mine, dkey, scale);
    put(dv + mine, dvalue, 1.0f);
}
