// Products of half precision: m16n8k16. BF16: whether T is bf16, not half. D is a multiple of 8.
//
// Lane (g, t) = (lane / 4, lane % 4) holds rows g and g + 8 of a result and columns 2t, 2t + 1 of every eight. The other
// side's rows are fed in an order in which these are, over two products, its four neighbours 4t .. 4t + 4: one quad of
// the random stream. The same order makes a result the left operand of the next product.

#define TILE 64
#define THREADS 128
#define SCORE_PITCH (TILE + 4)
#define DEEP ((D + 15) / 16)
#define EIGHTS (2 * DEEP)
#define PITCH (16 * DEEP + 8)

// What a tile in shared memory consists of.
typedef T Cell;

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
struct Sums { float of[EIGHTS][4]; };
__device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
    for (int n = 0; n < EIGHTS; n++) sums.of[n][0] = sums.of[n][1] = sums.of[n][2] = sums.of[n][3] = 0.0f;
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
    for (int n = 0; n < EIGHTS; n++) {
        int d = 8 * n + 2 * lane.t;
        if (d >= D) continue;
        const float* x = sums.of[n];
        if (at < len) *(u32*)(to + (i64)at * row + d) = pair_of(x[0] * upper, x[1] * upper);
        if (at + 8 < len) *(u32*)(to + (i64)(at + 8) * row + d) = pair_of(x[2] * lower, x[3] * lower);
    }
}
