// Rows in half precision, and their products.

#define DEEP ((D + 15) / 16)
#define PITCH (16 * DEEP + 8)
// Two tiles of each side, where both fit into the smallest shared memory: one comes in while the other is read.
#define STAGES (D <= 64 ? 2 : 1)
// The most warps of a block, and as many blocks to a multiprocessor as leave the registers that a warp needs.
#define WARPS (D <= 64 ? 6 : 4)
#define BLOCKS (D <= 64 ? 2 : 1)

// What a tile in shared memory consists of.
typedef T Cell;

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

// Starts a copy of eight elements into shared memory: of zeros, where there are none.
__device__ __forceinline__ void copy(T* to, const T* from, bool there) {
#if __CUDA_ARCH__ >= 800
    u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(there ? 16 : 0) : "memory");
#else
    *(uint4*)to = there ? *(const uint4*)from : make_uint4(0, 0, 0, 0);
#endif
}

// Waits for this thread's copies.
__device__ __forceinline__ void finish_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Starts to copy the tile of rows from `first` on; what is not there is 0. A thread has the same eight columns of every row.
__device__ __forceinline__ void fetch(T* to, const T* from, i64 row, int first, int len) {
    const int lanes = DEEP <= 2 ? 4 : DEEP <= 4 ? 8 : 16;
    int d = threadIdx.x % lanes * 8, stride = blockDim.x / lanes, r = threadIdx.x / lanes;
    int rows = d < 16 * DEEP ? 16 * steps_of(len - first) : 0;
    const T* next = from + (i64)(first + r) * row + d;
#pragma unroll 2
    for (; r < rows; r += stride, next += stride * row) {
        bool there = first + r < len && d < D;
        copy(to + slot(r) * PITCH + d, there ? next : from, there);
    }
}

// Four words of each of four lanes t: word n of lane t becomes word t of lane n.
__device__ __forceinline__ void exchange(u32 x[4], int t) {
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
#pragma unroll
        for (int n = 0; n < 4; n++) {
            if (n & bit) continue;
            bool upper = t & bit;
            u32 theirs = __shfl_xor_sync(0xffffffffu, upper ? x[n] : x[n + bit], bit);
            if (upper) x[n] = theirs;
            else x[n + bit] = theirs;
        }
    }
}

// The 16 rows of a warp as left operands. A lane reads every fourth eight columns of its two rows.
struct Rows { u32 at[DEEP][4]; };
__device__ __forceinline__ void take(Rows& rows, const T* from, i64 row, int first, int len, Lane lane) {
    uint4 read[2 * ((EIGHTS + 3) / 4)];
#pragma unroll
    for (int n = 0; n < 2 * ((EIGHTS + 3) / 4); n++) {
        int r = first + 16 * lane.warp + lane.g + n % 2 * 8, d = (n / 2 * 4 + lane.t) * 8;
        read[n] = r < len && d < D ? *(const uint4*)(from + (i64)r * row + d) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int n = 0; n < 2 * ((EIGHTS + 3) / 4); n++) {
        u32 x[4] = {read[n].x, read[n].y, read[n].z, read[n].w};
        exchange(x, lane.t);
#pragma unroll
        for (int m = 0; m < 4; m++)
            if (n / 2 * 2 + m / 2 < DEEP) rows.at[n / 2 * 2 + m / 2][m % 2 * 2 + n % 2] = x[m];
    }
}

// rows · tileᵀ for the 16 rows of the tile from 16·p on: s[n] is of the neighbours 4t + 2n and 4t + 2n + 1.
__device__ __forceinline__ void score(float s[2][4], const Rows& rows, const T* tile, int p, Lane lane) {
#pragma unroll
    for (int n = 0; n < 4; n++) s[0][n] = s[1][n] = 0.0f;
    const T* from = tile + (16 * p + lane.m / 2 * 8 + lane.r) * PITCH + lane.m % 2 * 8;
#pragma unroll
    for (int k = 0; k < DEEP; k++) {
        u32 b[4];
        load_matrices(b, from + 16 * k);
        multiply(s[0], rows.at[k], b[0], b[1]);
        multiply(s[1], rows.at[k], b[2], b[3]);
    }
}

// Adds weights (16, 16) · the same 16 rows of the tile.
__device__ __forceinline__ void mix(Sums& sums, const float s[2][4], const T* tile, int p, Lane lane) {
    u32 a[4] = {pair_of(s[0][0], s[0][1]), pair_of(s[0][2], s[0][3]), pair_of(s[1][0], s[1][1]),
                pair_of(s[1][2], s[1][3])};
    const T* from = tile + (16 * p + lane.m % 2 * 8 + lane.r) * PITCH + lane.m / 2 * 8;
#pragma unroll
    for (int k = 0; k < DEEP; k++) {
        u32 b[4];
        load_turned(b, from + 16 * k);
        multiply(sums.of[2 * k], a, b[0], b[1]);
        if (2 * k + 1 < EIGHTS) multiply(sums.of[2 * k + 1], a, b[2], b[3]);
    }
}

// Rows g and g + 8 of a warp, times a factor each; a factor of 0 makes 0 out of anything.
__device__ __forceinline__ void put(T* to, i64 row, int first, int len, const Sums& sums, Lane lane,
                                    const float factor[2]) {
#pragma unroll
    for (int n = 0; n < 2 * ((EIGHTS + 3) / 4); n++) {
        int r = first + 16 * lane.warp + lane.g + n % 2 * 8, d = (n / 2 * 4 + lane.t) * 8;
        float f = factor[n % 2];
        u32 x[4] = {0, 0, 0, 0};
#pragma unroll
        for (int m = 0; m < 4; m++) {
            if (n / 2 * 4 + m >= EIGHTS) continue;
            const float* sum = sums.of[n / 2 * 4 + m] + n % 2 * 2;
            if (f != 0.0f) x[m] = pair_of(sum[0] * f, sum[1] * f);
        }
        exchange(x, lane.t);
        if (r < len && d < D) *(uint4*)(to + (i64)r * row + d) = make_uint4(x[0], x[1], x[2], x[3]);
    }
}
