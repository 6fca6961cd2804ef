// Attention in half precision on tensor cores, sums in f32. A block of four warps computes 64 rows (queries, or keys in
// the backward pass), 16 to a warp, against one tile of 64 rows of the other side after the other. BF16: whether T is
// bf16, not half. D is a multiple of 8.
//
// Products are m16n8k16: lane (g, t) = (lane / 4, lane % 4) holds rows g and g + 8 of a result and columns 2t, 2t + 1 of
// every eight. The other side's rows are fed in an order in which these are, over two products, its four neighbours
// 4t .. 4t + 4: one quad of the random stream. The same order makes a result the left operand of the next product.

#define TILE 64
#define THREADS 128
#define DEEP ((D + 15) / 16)
#define PITCH (16 * DEEP + 8)
#define SCORE_PITCH (TILE + 4)

// Two neighbours as one register.
__device__ __forceinline__ u32 pair_of(float x, float y) {
    u32 z;
#if __CUDA_ARCH__ < 800
    z = (u32)from_float<T>(x).bits | (u32)from_float<T>(y).bits << 16;
#elif BF16
    asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(z) : "f"(x), "f"(y));
#else
    asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(z) : "f"(x), "f"(y));
#endif
    return z;
}

// Four 8 × 8 matrices out of shared memory; every lane gives the address of one of their rows.
__device__ __forceinline__ void load_matrices(u32 r[4], const T* from) {
    u32 at = (u32)__cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
__device__ __forceinline__ void load_turned(u32 r[4], const T* from) {
    u32 at = (u32)__cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

#if __CUDA_ARCH__ < 800 && BF16
// Cards before sm_80 have no bf16 products: lanes hand their operands round.
__device__ __noinline__ void hand_round(float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll 1
    for (int k = 0; k < 16; k++) {
        int at = k % 8 / 2, high = k % 2 * 16;
        u32 x = __shfl_sync(0xffffffffu, k < 8 ? a0 : a2, g * 4 + at) >> high << 16;
        u32 y = __shfl_sync(0xffffffffu, k < 8 ? a1 : a3, g * 4 + at) >> high << 16;
        u32 z = __shfl_sync(0xffffffffu, k < 8 ? b0 : b1, 2 * t * 4 + at) >> high << 16;
        u32 w = __shfl_sync(0xffffffffu, k < 8 ? b0 : b1, (2 * t + 1) * 4 + at) >> high << 16;
        c[0] += __uint_as_float(x) * __uint_as_float(z), c[1] += __uint_as_float(x) * __uint_as_float(w);
        c[2] += __uint_as_float(y) * __uint_as_float(z), c[3] += __uint_as_float(y) * __uint_as_float(w);
    }
}
#endif

// c (16 × 8) += a (16 × 16) · b (16 × 8)
__device__ __forceinline__ void multiply(float c[4], const u32 a[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800 && BF16
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif !BF16
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[2]), "r"(a[3]), "r"(b1));
#else
    hand_round(c, a[0], a[1], a[2], a[3], b0, b1);
#endif
}

struct Lane {
    int warp, g, t, m, r;
    __device__ __forceinline__ Lane()
        : warp(threadIdx.x / 32), g(threadIdx.x % 32 / 4), t(threadIdx.x % 4), m(threadIdx.x % 32 / 8),
          r(threadIdx.x % 8) {}
};

// 64 rows from `first` on; what is not there is 0.
__device__ __forceinline__ void load(T* to, const T* from, i64 row, int first, int len) {
    for (int at = threadIdx.x; at < TILE * 2 * DEEP; at += THREADS) {
        int r = at / (2 * DEEP), d = at % (2 * DEEP) * 8;
        uint4 x = make_uint4(0, 0, 0, 0);
        if (first + r < len && d < D) x = *(const uint4*)(from + (i64)(first + r) * row + d);
        *(uint4*)(to + r * PITCH + d) = x;
    }
}

// The 16 rows of a warp as left operands.
struct Rows { u32 at[DEEP][4]; };
__device__ __forceinline__ void take(Rows& rows, const T* tile, Lane lane) {
#pragma unroll
    for (int k = 0; k < DEEP; k++)
        load_matrices(rows.at[k], tile + (16 * lane.warp + lane.r + lane.m % 2 * 8) * PITCH + 16 * k + lane.m / 2 * 8);
}

// rows · tileᵀ for the 16 rows of the tile from 16·p on: s[n] is of the neighbours 4t + 2n and 4t + 2n + 1.
__device__ __forceinline__ void score(float s[2][4], const Rows& rows, const T* tile, int p, Lane lane) {
#pragma unroll
    for (int n = 0; n < 4; n++) s[0][n] = s[1][n] = 0.0f;
    const T* from = tile + (16 * p + lane.r / 2 * 4 + lane.m / 2 * 2 + lane.r % 2) * PITCH + lane.m % 2 * 8;
#pragma unroll
    for (int k = 0; k < DEEP; k++) {
        u32 b[4];
        load_matrices(b, from + 16 * k);
        multiply(s[0], rows.at[k], b[0], b[1]);
        multiply(s[1], rows.at[k], b[2], b[3]);
    }
}

// A warp's (16, D) result.
struct Sums { float of[2 * DEEP][4]; };
__device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
    for (int n = 0; n < 2 * DEEP; n++) sums.of[n][0] = sums.of[n][1] = sums.of[n][2] = sums.of[n][3] = 0.0f;
}

// Adds weights (16, 16) · the same 16 rows of the tile.
__device__ __forceinline__ void mix(Sums& sums, const float s[2][4], const T* tile, int p, Lane lane) {
    u32 a[4] = {pair_of(s[0][0], s[0][1]), pair_of(s[0][2], s[0][3]), pair_of(s[1][0], s[1][1]),
                pair_of(s[1][2], s[1][3])};
    const T* from = tile + (16 * p + lane.r / 2 * 4 + lane.m % 2 * 2 + lane.r % 2) * PITCH + lane.m / 2 * 8;
#pragma unroll
    for (int k = 0; k < DEEP; k++) {
        u32 b[4];
        load_turned(b, from + 16 * k);
        multiply(sums.of[2 * k], a, b[0], b[1]);
        multiply(sums.of[2 * k + 1], a, b[2], b[3]);
    }
}

// Rows g and g + 8 of a warp, times a factor each.
__device__ __forceinline__ void put(T* to, i64 row, int first, int len, const Sums& sums, Lane lane, float upper,
                                    float lower) {
    int at = first + 16 * lane.warp + lane.g;
#pragma unroll
    for (int n = 0; n < 2 * DEEP; n++) {
        int d = 8 * n + 2 * lane.t;
        if (d >= D) continue;
        const float* x = sums.of[n];
        if (at < len) *(u32*)(to + (i64)at * row + d) = pair_of(x[0] * upper, x[1] * upper);
        if (at + 8 < len) *(u32*)(to + (i64)(at + 8) * row + d) = pair_of(x[2] * lower, x[3] * lower);
    }
}

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
    T* keys = (T*)shared;
    T* values = keys + TILE * PITCH;
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
            for (int n = 0; n < 2 * DEEP; n++) sums.of[n][2 * r] *= fade, sums.of[n][2 * r + 1] *= fade;
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
    T* keys = (T*)shared;
    T* values = keys + TILE * PITCH;
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
    T* queries = (T*)shared;
    T* douts = queries + TILE * PITCH;
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
