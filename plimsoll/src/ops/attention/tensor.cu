// Attention on tensor cores, sums in f32. A block of four warps computes 64 rows (queries, or keys in the backward
// pass), 16 to a warp, against one tile of 64 rows of the other side after the other. What a product is comes from
// half.cuh or tf32.cuh in front of this file.

// Whether the mask hides the whole tile of keys. Also a barrier.
__device__ __forceinline__ bool is_hidden(const Scores& head, int first) {
    int j = first + threadIdx.x;
    bool seen = !MASKED || (threadIdx.x < TILE && j < head.k_len && head.mask[j] != 0);
    return !__syncthreads_or(seen);
}

// The largest, or the sum, over the four lanes of a row.
__device__ __forceinline__ float across(float x, bool largest) {
#pragma unroll
    for (int lane = 1; lane < 4; lane <<= 1) {
        float y = __shfl_xor_sync(0xffffffffu, x, lane);
        x = largest ? fmaxf(x, y) : x + y;
    }
    return x;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    forward(const T* q, const T* k, const T* v, T* out, float* lse, i64 q_row, i64 kv_row, int batch, int heads,
            int q_len, int k_len, float scale, SCORE_PARAMETERS) {
    extern __shared__ float4 shared[];
    Cell* keys = (Cell*)shared;
    Cell* values = keys + TILE * PITCH;
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_of(sizes);
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    Lane lane;
    int i0 = at.tile * TILE, own = i0 + 16 * lane.warp + lane.g;
    i64 from = (i64)at.b * k_len * kv_row + at.h * D;
    Rows queries;
    load(keys, q + (i64)at.b * q_len * q_row + at.h * D, q_row, i0, q_len);
    __syncthreads();
    take(queries, keys, lane);
    Sums sums;
    clear(sums);
    float top[2] = {NOTHING, NOTHING}, total[2] = {0.0f, 0.0f};
    int end = head.end(min(i0 + TILE, q_len) - 1), whole = MASKED ? 0 : head.end(i0);
    for (int j0 = 0; j0 < end; j0 += TILE) {
        if (is_hidden(head, j0)) continue;
        load(keys, k + from, kv_row, j0, k_len);
        load(values, v + from, kv_row, j0, k_len);
        __syncthreads();
        float s[TILE / 16][2][4], highest[2] = {top[0], top[1]};
        // Where every query sees every key, there is nothing to ask.
        bool all = BIAS == 0 && j0 + TILE <= whole && i0 + TILE <= q_len;
#pragma unroll
        for (int p = 0; p < TILE / 16; p++) {
            score(s[p], queries, keys, p, lane);
#pragma unroll
            for (int n = 0; n < 8; n++) {
                float& x = s[p][n / 4][n % 4];
                x *= scale;
                if (!all) x = head.at(x, own + n % 4 / 2 * 8, j0 + 16 * p + 4 * lane.t + n / 4 * 2 + n % 2);
                highest[n % 4 / 2] = fmaxf(highest[n % 4 / 2], x);
            }
        }
        float shift[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            highest[r] = across(highest[r], true);
            // A query that has seen nothing yet subtracts 0 instead of -∞: its exponentials are 0, not NaN.
            shift[r] = highest[r] == NOTHING ? 0.0f : highest[r];
            float fade = weight_of(top[r], shift[r]);
            top[r] = highest[r];
            total[r] *= fade;
#pragma unroll
            for (int n = 0; n < EIGHTS; n++) sums.of[n][2 * r] *= fade, sums.of[n][2 * r + 1] *= fade;
        }
        float part[2] = {0.0f, 0.0f};
#pragma unroll
        for (int p = 0; p < TILE / 16; p++) {
#pragma unroll
            for (int n = 0; n < 8; n++) {
                float& x = s[p][n / 4][n % 4];
                x = weight_of(x, shift[n % 4 / 2]);
                part[n % 4 / 2] += x;
            }
            if (DROPPED) {
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float4 f = head.factors(own + 8 * r, (j0 + 16 * p) / 4 + lane.t);
                    s[p][0][2 * r] *= f.x, s[p][0][2 * r + 1] *= f.y;
                    s[p][1][2 * r] *= f.z, s[p][1][2 * r + 1] *= f.w;
                }
            }
            mix(sums, s[p], values, p, lane);
        }
        total[0] += across(part[0], false);
        total[1] += across(part[1], false);
    }
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        bool seen = total[r] > 0.0f;
        factor[r] = seen ? 1.0f / total[r] : 0.0f;
        if (lane.t == 0 && own + 8 * r < q_len)
            lse[(i64)(at.b * heads + at.h) * q_len + own + 8 * r] = seen ? top[r] + logf(total[r]) : NOTHING;
    }
    put(out + (i64)at.b * q_len * heads * D + at.h * D, (i64)heads * D, i0, q_len, sums, lane, factor[0], factor[1]);
}

// From products and gradients of the dropped weights to dropped weights and gradients of the scores, in place.
__device__ __forceinline__ void differentiate(float& s, float& slope, const Scores& head, float scale, int i, int j,
                                              float factor, float lse, float delta) {
    float weight = weight_of(head.at(s * scale, i, j), lse);
    slope = weight * (slope * factor - delta);
    s = weight * factor;
}

// Gradients of the queries, and of what the bias adds for them. `delta` is Σ dout · out of each query; `bias_sums`
// holds, of a relative bias, every tile's part (batch, tiles, bias_rows, heads), and else what belongs to by_query.
extern "C" __global__ void __launch_bounds__(THREADS)
    backward_queries(const T* q, const T* k, const T* v, const T* dout, const float* lse, const float* delta, T* dq,
                     float* bias_sums, int bias_rows, i64 q_row, i64 kv_row, int batch, int heads, int q_len,
                     int k_len, float scale, SCORE_PARAMETERS) {
    extern __shared__ float4 shared[];
    Cell* keys = (Cell*)shared;
    Cell* values = keys + TILE * PITCH;
    float* slopes = (float*)(values + TILE * PITCH);
    __shared__ float diagonals[2 * TILE];
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_of(sizes);
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    Lane lane;
    int i0 = at.tile * TILE, own = i0 + 16 * lane.warp + lane.g, pair = at.b * heads + at.h;
    i64 from = (i64)at.b * k_len * kv_row + at.h * D, mine = (i64)at.b * q_len * q_row + at.h * D;
    Rows queries, douts;
    load(keys, q + mine, q_row, i0, q_len);
    load(values, dout + (i64)at.b * q_len * heads * D + at.h * D, (i64)heads * D, i0, q_len);
    __syncthreads();
    take(queries, keys, lane);
    take(douts, values, lane);
    if (BIAS == 1) {
        bias_sums += ((i64)at.b * ((q_len + TILE - 1) / TILE) + at.tile) * bias_rows * heads + at.h;
        for (int n = threadIdx.x; n < bias_rows; n += THREADS) bias_sums[(i64)n * heads] = 0.0f;
    }
    if (BIAS == 2) bias_sums += ((i64)(at.h * batch + at.b) * q_len + i0) * pitch;
    float own_lse[2], own_delta[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        bool there = own + 8 * r < q_len;
        own_lse[r] = there ? saved_lse(lse[(i64)pair * q_len + own + 8 * r]) : INFINITY;
        own_delta[r] = there ? delta[(i64)pair * q_len + own + 8 * r] : 0.0f;
    }
    Sums sums;
    clear(sums);
    int end = head.end(min(i0 + TILE, q_len) - 1);
    for (int j0 = 0; j0 < end; j0 += TILE) {
        if (is_hidden(head, j0)) continue;
        load(keys, k + from, kv_row, j0, k_len);
        load(values, v + from, kv_row, j0, k_len);
        __syncthreads();
#pragma unroll 1
        for (int p = 0; p < TILE / 16; p++) {
            float s[2][4], ds[2][4];
            score(s, queries, keys, p, lane);
            score(ds, douts, values, p, lane);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int i = own + 8 * r, j = j0 + 16 * p + 4 * lane.t;
                float4 f = DROPPED ? head.factors(i, j / 4) : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
                float factor[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
                for (int n = 0; n < 4; n++)
                    differentiate(s[n / 2][2 * r + n % 2], ds[n / 2][2 * r + n % 2], head, scale, i, j + n, factor[n],
                                  own_lse[r], own_delta[r]);
                if (BIAS != 0)
                    *(float4*)(slopes + (i - i0) * SCORE_PITCH + 16 * p + 4 * lane.t) =
                        make_float4(ds[0][2 * r], ds[0][2 * r + 1], ds[1][2 * r], ds[1][2 * r + 1]);
            }
            mix(sums, ds, keys, p, lane);
        }
        if (BIAS != 0) __syncthreads();
        if (BIAS == 1) add_relative<TILE, SCORE_PITCH>(bias_sums, heads, slopes, diagonals, i0, j0, head);
        if (BIAS == 2) add_products<TILE, SCORE_PITCH, false>(bias_sums, slopes, i0, j0, head);
    }
    put(dq + mine, q_row, i0, q_len, sums, lane, scale, scale);
}

// The factors of the weights of keys j and j + 8 (rows g and g + 8) for the four queries from i on. The keys of a quad
// are in four lanes, of which each draws the words of one query.
__device__ __forceinline__ void key_factors(float factor[2][4], const Scores& head, int i, int j, Lane lane) {
    int turn = lane.g % 4, self = threadIdx.x % 32;
    u32 fallen = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float4 f = head.factors(i + turn, (j + 8 * r) / 4);
        fallen |= ((f.x == 0.0f) | (f.y == 0.0f) << 1 | (f.z == 0.0f) << 2 | (f.w == 0.0f) << 3) << 4 * r;
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
        u32 theirs = __shfl_sync(0xffffffffu, fallen, (self & ~12) | n << 2);
        factor[0][n] = theirs >> turn & 1 ? 0.0f : head.keep;
        factor[1][n] = theirs >> (turn + 4) & 1 ? 0.0f : head.keep;
    }
}

// Gradients of the keys and values, and of what a disentangled bias adds for the keys.
extern "C" __global__ void __launch_bounds__(THREADS)
    backward_keys(const T* q, const T* k, const T* v, const T* dout, const float* lse, const float* delta, T* dk,
                  T* dv, float* bias_sums, i64 q_row, i64 kv_row, int batch, int heads, int q_len, int k_len,
                  float scale, SCORE_PARAMETERS) {
    extern __shared__ float4 shared[];
    Cell* queries = (Cell*)shared;
    Cell* douts = queries + TILE * PITCH;
    float* slopes = (float*)(douts + TILE * PITCH);
    __shared__ __align__(16) float tile_lse[TILE], tile_delta[TILE];
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_of(sizes);
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    Lane lane;
    int j0 = at.tile * TILE, own = j0 + 16 * lane.warp + lane.g, pair = at.b * heads + at.h;
    i64 mine = (i64)at.b * k_len * kv_row + at.h * D, from = (i64)at.b * q_len * q_row + at.h * D;
    const T* slope_rows = dout + (i64)at.b * q_len * heads * D + at.h * D;
    if (BIAS == 2) bias_sums += ((i64)(at.h * batch + at.b) * k_len + j0) * pitch;
    Sums dkeys, dvalues;
    clear(dkeys);
    clear(dvalues);
    if (!is_hidden(head, j0)) {
        Rows keys, values;
        load(queries, k + mine, kv_row, j0, k_len);
        load(douts, v + mine, kv_row, j0, k_len);
        __syncthreads();
        take(keys, queries, lane);
        take(values, douts, lane);
        for (int i0 = head.first_query(j0) / TILE * TILE; i0 < q_len; i0 += TILE) {
            __syncthreads();
            load(queries, q + from, q_row, i0, q_len);
            load(douts, slope_rows, (i64)heads * D, i0, q_len);
            if (threadIdx.x < TILE) {
                int i = i0 + threadIdx.x;
                tile_lse[threadIdx.x] = i < q_len ? saved_lse(lse[(i64)pair * q_len + i]) : INFINITY;
                tile_delta[threadIdx.x] = i < q_len ? delta[(i64)pair * q_len + i] : 0.0f;
            }
            __syncthreads();
#pragma unroll 1
            for (int p = 0; p < TILE / 16; p++) {
                float s[2][4], ds[2][4], factor[2][4];
                score(s, keys, queries, p, lane);
                score(ds, values, douts, p, lane);
                int i = 16 * p + 4 * lane.t;
                if (DROPPED) key_factors(factor, head, i0 + i, own, lane);
#pragma unroll
                for (int n = 0; n < 8; n++) {
                    // Query n / 4 · 2 + n % 2 of the quad, key of row g or g + 8.
                    int m = n / 4 * 2 + n % 2, r = n % 4 / 2;
                    differentiate(s[n / 4][n % 4], ds[n / 4][n % 4], head, scale, i0 + i + m, own + 8 * r,
                                  DROPPED ? factor[r][m] : 1.0f, tile_lse[i + m], tile_delta[i + m]);
                    if (BIAS == 2) slopes[(i + m) * SCORE_PITCH + own + 8 * r - j0] = ds[n / 4][n % 4];
                }
                mix(dkeys, ds, queries, p, lane);
                mix(dvalues, s, douts, p, lane);
            }
            if (BIAS == 2) {
                __syncthreads();
                add_products<TILE, SCORE_PITCH, true>(bias_sums, slopes, i0, j0, head);
            }
        }
    }
    put(dk + mine, kv_row, j0, k_len, dkeys, lane, scale, scale);
    put(dv + mine, kv_row, j0, k_len, dvalues, lane, 1.0f, 1.0f);
}
