// Attention for any head size and element type, in f32: a block computes 32 queries (or keys) against one tile of 32
// keys (or queries) after the other. Scores exist for one tile only.
//
// A thread (ty, tx) holds the scores of every eighth query from ty on, on the four keys from 4·tx on: one quad of the
// random stream. The eight threads of a query are neighbours in a warp. VECTOR: how many elements of a row are read at
// once. What is unrolled is bounded by what a thread holds, not by D: the compiler takes its time over long stretches.

#define TILE 32
#define THREADS 64
#define ROWS (TILE / (THREADS / 8))
#define PADDED ((D + 3) / 4 * 4)
#define PITCH (PADDED + 4)
#define COLUMNS ((PADDED + 31) / 32)
#define SCORE_PITCH (TILE + 4)

// Rows of keys and values lie so that the four rows of a thread's quad are eight apart: eight threads then read eight
// neighbouring rows, which are in different banks.
__device__ __forceinline__ int slot(int j) { return j % 4 * 8 + j / 4; }

struct __align__(VECTOR * sizeof(T)) Vector {
    T at[VECTOR];
};
template <bool KEYS> __device__ __forceinline__ void load(float* to, const T* from, i64 row, int first, int len) {
#pragma unroll 2
    for (int at = threadIdx.x; at < TILE * PADDED / VECTOR; at += THREADS) {
        int r = at / (PADDED / VECTOR), d = at % (PADDED / VECTOR) * VECTOR;
        bool there = first + r < len && d < D;
        Vector x;
        if (there) x = *(const Vector*)(from + (i64)(first + r) * row + d);
#pragma unroll
        for (int n = 0; n < VECTOR; n++)
            to[(KEYS ? slot(r) : r) * PITCH + d + n] = there ? to_float(x.at[n]) : 0.0f;
    }
}

// s[r][c] = a[ty + 8 r] · b[4 tx + c]
__device__ __forceinline__ void dots(float s[ROWS][4], const float* a, const float* b, int ty, int tx) {
#pragma unroll
    for (int n = 0; n < 4 * ROWS; n++) s[n / 4][n % 4] = 0.0f;
#pragma unroll 1
    for (int d = 0; d < PADDED; d += 4) {
        float4 x[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) x[r] = *(const float4*)(a + (ty + 8 * r) * PITCH + d);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            float4 z = *(const float4*)(b + (c * 8 + tx) * PITCH + d);
#pragma unroll
            for (int r = 0; r < ROWS; r++) s[r][c] += x[r].x * z.x + x[r].y * z.y + x[r].z * z.z + x[r].w * z.w;
        }
    }
}

// A thread's share of a (32, D) result: every eighth row from ty on, four columns out of every 32.
struct Sums { float4 of[ROWS][COLUMNS]; };

__device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
    for (int n = 0; n < ROWS * COLUMNS; n++) sums.of[n / COLUMNS][n % COLUMNS] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

__device__ __forceinline__ void add(float4& to, float x, float4 y) {
    to.x += x * y.x, to.y += x * y.y, to.z += x * y.z, to.w += x * y.w;
}

// Adds weights (32 queries, 32) · rows: over keys, each query's own; TURNED, over queries, each key's own.
template <bool TURNED>
__device__ __forceinline__ void mix(Sums& sums, const float* weights, const float* rows, int ty, int tx) {
#pragma unroll 2
    for (int j = 0; j < TILE; j++) {
        float x[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            x[r] = TURNED ? weights[j * SCORE_PITCH + ty + 8 * r] : weights[(ty + 8 * r) * SCORE_PITCH + j];
        const float* row = rows + (TURNED ? j : slot(j)) * PITCH;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            if (tx * 4 + 32 * c >= PADDED) continue;
            float4 z = *(const float4*)(row + tx * 4 + 32 * c);
#pragma unroll
            for (int r = 0; r < ROWS; r++) add(sums.of[r][c], x[r], z);
        }
    }
}

__device__ __forceinline__ void put(T* to, i64 row, int at, int len, const float4* sums, int tx, float factor) {
    if (at >= len) return;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        int d = tx * 4 + 32 * c;
        T* cell = to + (i64)at * row + d;
        if (d < D) cell[0] = from_float<T>(sums[c].x * factor);
        if (d + 1 < D) cell[1] = from_float<T>(sums[c].y * factor);
        if (d + 2 < D) cell[2] = from_float<T>(sums[c].z * factor);
        if (d + 3 < D) cell[3] = from_float<T>(sums[c].w * factor);
    }
}

// Whether the mask hides the whole tile of keys. Also a barrier.
__device__ __forceinline__ bool is_hidden(const Scores& head, int first) {
    int j = first + threadIdx.x;
    bool seen = !MASKED || (threadIdx.x < TILE && j < head.k_len && head.mask[j] != 0);
    return !__syncthreads_or(seen);
}

__device__ __forceinline__ float across(float x, bool largest) {
#pragma unroll
    for (int lane = 1; lane < 8; lane <<= 1) {
        float y = __shfl_xor_sync(0xffffffffu, x, lane);
        x = largest ? fmaxf(x, y) : x + y;
    }
    return x;
}

__device__ __forceinline__ void scale4(float s[4], float4 factors) {
    s[0] *= factors.x, s[1] *= factors.y, s[2] *= factors.z, s[3] *= factors.w;
}

__device__ __forceinline__ void keep4(float* weights, int row, int tx, const float s[4]) {
    *(float4*)(weights + row * SCORE_PITCH + 4 * tx) = make_float4(s[0], s[1], s[2], s[3]);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    forward(const T* q, const T* k, const T* v, T* out, float* lse, i64 q_row, i64 kv_row, int batch, int heads,
            int q_len, int k_len, float scale, SCORE_PARAMETERS) {
    extern __shared__ float4 shared[];
    float* queries = (float*)shared;
    float* keys = queries + TILE * PITCH;
    float* weights = keys + TILE * PITCH;
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_of(sizes);
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    int ty = threadIdx.x / 8, tx = threadIdx.x % 8, i0 = at.tile * TILE;
    i64 from = (i64)at.b * k_len * kv_row + at.h * D;
    load<false>(queries, q + (i64)at.b * q_len * q_row + at.h * D, q_row, i0, q_len);
    Sums sums;
    clear(sums);
    float top[ROWS], total[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) top[r] = NOTHING, total[r] = 0.0f;
    int end = head.end(min(i0 + TILE, q_len) - 1);
    for (int j0 = 0; j0 < end; j0 += TILE) {
        if (is_hidden(head, j0)) continue;
        load<true>(keys, k + from, kv_row, j0, k_len);
        __syncthreads();
        float s[ROWS][4];
        dots(s, queries, keys, ty, tx);
        __syncthreads();
        load<true>(keys, v + from, kv_row, j0, k_len);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int i = i0 + ty + 8 * r;
#pragma unroll
            for (int c = 0; c < 4; c++) s[r][c] = head.at(s[r][c] * scale, i, j0 + 4 * tx + c);
            float highest = fmaxf(top[r], across(fmaxf(fmaxf(s[r][0], s[r][1]), fmaxf(s[r][2], s[r][3])), true));
            // A query that has seen nothing yet subtracts 0 instead of -∞: its exponentials are 0, not NaN.
            float shift = highest == NOTHING ? 0.0f : highest, fade = weight_of(top[r], shift);
#pragma unroll
            for (int c = 0; c < 4; c++) s[r][c] = weight_of(s[r][c], shift);
            total[r] = total[r] * fade + across(s[r][0] + s[r][1] + s[r][2] + s[r][3], false);
            top[r] = highest;
            if (DROPPED) scale4(s[r], head.factors(head.bits(i, j0 / 4 + tx)));
            keep4(weights, ty + 8 * r, tx, s[r]);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                float4& sum = sums.of[r][c];
                sum.x *= fade, sum.y *= fade, sum.z *= fade, sum.w *= fade;
            }
        }
        __syncthreads();
        mix<false>(sums, weights, keys, ty, tx);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int i = i0 + ty + 8 * r;
        bool seen = total[r] > 0.0f;
        T* to = out + (i64)at.b * q_len * heads * D + at.h * D;
        put(to, (i64)heads * D, i, q_len, sums.of[r], tx, seen ? 1.0f / total[r] : 0.0f);
        if (tx == 0 && i < q_len)
            lse[(i64)(at.b * heads + at.h) * q_len + i] = seen ? top[r] + logf(total[r]) : NOTHING;
    }
}

// From products and gradients of the dropped weights to dropped weights and gradients of the scores, in place.
__device__ __forceinline__ void differentiate(float s[4], float ds[4], const Scores& head, float scale, int i, int j,
                                              float lse, float delta) {
    float4 factors = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
    if (DROPPED) factors = head.factors(head.bits(i, j / 4));
#pragma unroll
    for (int c = 0; c < 4; c++) s[c] = weight_of(head.at(s[c] * scale, i, j + c), lse);
    ds[0] = s[0] * (ds[0] * factors.x - delta), ds[1] = s[1] * (ds[1] * factors.y - delta);
    ds[2] = s[2] * (ds[2] * factors.z - delta), ds[3] = s[3] * (ds[3] * factors.w - delta);
    scale4(s, factors);
}

// Gradients of the queries, and of what the bias adds for them. `delta` is Σ dout · out of each query; `bias_sums`
// holds, of a relative bias, every tile's part (batch, tiles, bias_rows, heads), and else what belongs to by_query.
extern "C" __global__ void __launch_bounds__(THREADS)
    backward_queries(const T* q, const T* k, const T* v, const T* dout, const float* lse, const float* delta, T* dq,
                     float* bias_sums, int bias_rows, i64 q_row, i64 kv_row, int batch, int heads, int q_len,
                     int k_len, float scale, SCORE_PARAMETERS) {
    extern __shared__ float4 shared[];
    float* queries = (float*)shared;
    float* douts = queries + TILE * PITCH;
    float* keys = douts + TILE * PITCH;
    float* weights = keys + TILE * PITCH;
    __shared__ float diagonals[2 * TILE];
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_of(sizes);
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    int ty = threadIdx.x / 8, tx = threadIdx.x % 8, i0 = at.tile * TILE, pair = at.b * heads + at.h;
    i64 from = (i64)at.b * k_len * kv_row + at.h * D, mine = (i64)at.b * q_len * q_row + at.h * D;
    load<false>(queries, q + mine, q_row, i0, q_len);
    load<false>(douts, dout + (i64)at.b * q_len * heads * D + at.h * D, (i64)heads * D, i0, q_len);
    if (BIAS == 1) {
        bias_sums += ((i64)at.b * ((q_len + TILE - 1) / TILE) + at.tile) * bias_rows * heads + at.h;
        for (int n = threadIdx.x; n < bias_rows; n += THREADS) bias_sums[(i64)n * heads] = 0.0f;
    }
    if (BIAS == 2) bias_sums += ((i64)(at.h * batch + at.b) * q_len + i0) * pitch;
    float own_lse[ROWS], own_delta[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int i = i0 + ty + 8 * r;
        own_lse[r] = i < q_len ? saved_lse(lse[(i64)pair * q_len + i]) : INFINITY;
        own_delta[r] = i < q_len ? delta[(i64)pair * q_len + i] : 0.0f;
    }
    Sums sums;
    clear(sums);
    int end = head.end(min(i0 + TILE, q_len) - 1);
    for (int j0 = 0; j0 < end; j0 += TILE) {
        if (is_hidden(head, j0)) continue;
        load<true>(keys, v + from, kv_row, j0, k_len);
        __syncthreads();
        float s[ROWS][4], ds[ROWS][4];
        dots(ds, douts, keys, ty, tx);
        __syncthreads();
        load<true>(keys, k + from, kv_row, j0, k_len);
        __syncthreads();
        dots(s, queries, keys, ty, tx);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            differentiate(s[r], ds[r], head, scale, i0 + ty + 8 * r, j0 + 4 * tx, own_lse[r], own_delta[r]);
            keep4(weights, ty + 8 * r, tx, ds[r]);
        }
        __syncthreads();
        mix<false>(sums, weights, keys, ty, tx);
        if (BIAS == 1) add_relative<TILE, SCORE_PITCH>(bias_sums, heads, weights, diagonals, i0, j0, head);
        if (BIAS == 2) add_products<TILE, SCORE_PITCH, false>(bias_sums, weights, i0, j0, head);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) put(dq + mine, q_row, i0 + ty + 8 * r, q_len, sums.of[r], tx, scale);
}

// Gradients of the keys and values, and of what a disentangled bias adds for the keys.
extern "C" __global__ void __launch_bounds__(THREADS)
    backward_keys(const T* q, const T* k, const T* v, const T* dout, const float* lse, const float* delta, T* dk,
                  T* dv, float* bias_sums, i64 q_row, i64 kv_row, int batch, int heads, int q_len, int k_len,
                  float scale, SCORE_PARAMETERS) {
    extern __shared__ float4 shared[];
    float* keys = (float*)shared;
    float* values = keys + TILE * PITCH;
    float* queries = values + TILE * PITCH;
    float* weights = queries + TILE * PITCH;
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_of(sizes);
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    int ty = threadIdx.x / 8, tx = threadIdx.x % 8, j0 = at.tile * TILE, pair = at.b * heads + at.h;
    i64 mine = (i64)at.b * k_len * kv_row + at.h * D, from = (i64)at.b * q_len * q_row + at.h * D;
    const T* douts = dout + (i64)at.b * q_len * heads * D + at.h * D;
    if (BIAS == 2) bias_sums += ((i64)(at.h * batch + at.b) * k_len + j0) * pitch;
    Sums dkeys, dvalues;
    clear(dkeys);
    clear(dvalues);
    if (!is_hidden(head, j0)) {
        load<true>(keys, k + mine, kv_row, j0, k_len);
        load<true>(values, v + mine, kv_row, j0, k_len);
        for (int i0 = head.first_query(j0) / TILE * TILE; i0 < q_len; i0 += TILE) {
            float s[ROWS][4], ds[ROWS][4];
            __syncthreads();
            load<false>(queries, douts, (i64)heads * D, i0, q_len);
            __syncthreads();
            dots(ds, queries, values, ty, tx);
            __syncthreads();
            load<false>(queries, q + from, q_row, i0, q_len);
            __syncthreads();
            dots(s, queries, keys, ty, tx);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                int i = i0 + ty + 8 * r;
                float own_lse = i < q_len ? saved_lse(lse[(i64)pair * q_len + i]) : INFINITY;
                float own_delta = i < q_len ? delta[(i64)pair * q_len + i] : 0.0f;
                differentiate(s[r], ds[r], head, scale, i, j0 + 4 * tx, own_lse, own_delta);
                keep4(weights, ty + 8 * r, tx, ds[r]);
            }
            __syncthreads();
            mix<true>(dkeys, weights, queries, ty, tx);
            if (BIAS == 2) add_products<TILE, SCORE_PITCH, true>(bias_sums, weights, i0, j0, head);
            __syncthreads();
            load<false>(queries, douts, (i64)heads * D, i0, q_len);
#pragma unroll
            for (int r = 0; r < ROWS; r++) keep4(weights, ty + 8 * r, tx, s[r]);
            __syncthreads();
            mix<true>(dvalues, weights, queries, ty, tx);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        put(dk + mine, kv_row, j0 + ty + 8 * r, k_len, dkeys.of[r], tx, scale);
        put(dv + mine, kv_row, j0 + ty + 8 * r, k_len, dvalues.of[r], tx, 1.0f);
    }
}
