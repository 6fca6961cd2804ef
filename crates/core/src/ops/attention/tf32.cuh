// Products of f32 rounded to tf32: m16n8k8.

#define PITCH (D + 4)
#define STAGES 1
#define WARPS 4
#define BLOCKS 1

// What a tile in shared memory consists of: rounded values.
typedef u32 Cell;

// c (16 × 8) += a (16 × 8) · b (8 × 8)
__device__ __forceinline__ void multiply(float c[4], const u32 a[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    hand_round(c, a[0], a[1], a[2], a[3], b0, b1);
#endif
}

// Rounding is done on the way, so nothing is left to wait for.
__device__ __forceinline__ void finish_copies() {}

// Copies the tile of rows from `first` on; what is not there is 0.
__device__ __forceinline__ void fetch(Cell* to, const T* from, i64 row, int first, int len) {
    int cells = steps_of(len - first) * 16 * (D / 4);
#pragma unroll 4
    for (int at = threadIdx.x; at < cells; at += blockDim.x) {
        int r = at / (D / 4), d = at % (D / 4) * 4;
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (first + r < len) x = *(const float4*)(from + (i64)(first + r) * (int)row + d);
        *(uint4*)(to + slot(r) * PITCH + d) = make_uint4(to_tf32(x.x), to_tf32(x.y), to_tf32(x.z), to_tf32(x.w));
    }
}

// The 16 rows of a warp as left operands.
struct Rows { u32 at[EIGHTS][4]; };
__device__ __forceinline__ void take(Rows& rows, const T* from, i64 row, int first, int len, Lane lane) {
#pragma unroll
    for (int n = 0; n < 4 * EIGHTS; n++) {
        int r = first + 16 * lane.warp + lane.g + n % 2 * 8, d = n / 2 * 4 + lane.t;
        rows.at[n / 4][n % 4] = r < len ? to_tf32(from[(i64)r * row + d]) : 0;
    }
}

// rows · tileᵀ for the 16 rows of the tile from 16·p on: s[n] is of the neighbours 4t + 2n and 4t + 2n + 1.
__device__ __forceinline__ void score(float s[2][4], const Rows& rows, const Cell* tile, int p, Lane lane) {
#pragma unroll
    for (int n = 0; n < 4; n++) s[0][n] = s[1][n] = 0.0f;
    const Cell* from = tile + (16 * p + lane.g) * PITCH + lane.t;
#pragma unroll
    for (int k = 0; k < EIGHTS; k++) {
        multiply(s[0], rows.at[k], from[8 * k], from[8 * k + 4]);
        multiply(s[1], rows.at[k], from[8 * PITCH + 8 * k], from[8 * PITCH + 8 * k + 4]);
    }
}

// Adds weights (16, 16) · the same 16 rows of the tile.
__device__ __forceinline__ void mix(Sums& sums, const float s[2][4], const Cell* tile, int p, Lane lane) {
#pragma unroll
    for (int n = 0; n < 2; n++) {
        u32 a[4] = {to_tf32(s[n][0]), to_tf32(s[n][2]), to_tf32(s[n][1]), to_tf32(s[n][3])};
        const Cell* from = tile + (16 * p + 8 * n + 2 * lane.t) * PITCH + lane.g;
#pragma unroll
        for (int k = 0; k < EIGHTS; k++) multiply(sums.of[k], a, from[8 * k], from[PITCH + 8 * k]);
    }
}

// Rows g and g + 8 of a warp, times a factor each; a factor of 0 makes 0 out of anything.
__device__ __forceinline__ void put(T* to, i64 row, int first, int len, const Sums& sums, Lane lane,
                                    const float factor[2]) {
#pragma unroll
    for (int n = 0; n < 2 * EIGHTS; n++) {
        int r = first + 16 * lane.warp + lane.g + n % 2 * 8;
        const float* x = sums.of[n / 2] + n % 2 * 2;
        float f = factor[n % 2];
        float2 y = f != 0.0f ? make_float2(x[0] * f, x[1] * f) : make_float2(0.0f, 0.0f);
        if (r < len) *(float2*)(to + (i64)r * row + n / 2 * 8 + 2 * lane.t) = y;
    }
}
