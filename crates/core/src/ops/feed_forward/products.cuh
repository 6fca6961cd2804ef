// Products of 16 × 8 by 8 × 8 values on tensor cores, out of tiles in shared memory.
//
// EXACT: whether products keep the precision of f32 instead of tf32.
//
// Lane (g, t) = (lane / 4, lane % 4) holds rows g and g + 8 of a result and columns 2t, 2t + 1. The right side's rows are
// fed in an order (`turned`) in which these two are its rows t and t + 4: so a result is the left operand of the next
// product as it stands.

// A value as an operand.
__device__ __forceinline__ u32 operand(float x) { return EXACT ? __float_as_uint(x) : to_tf32(x); }

// c (16 × 8) += a (16 × 8) · b (8 × 8)
__device__ __forceinline__ void multiply(float c[4], const u32 a[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ < 800 || EXACT
    hand_round(c, a[0], a[1], a[2], a[3], b0, b1);
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// The place of row r in the order that makes a result a left operand.
__device__ __forceinline__ int turned(int r) { return r % 2 * 4 + r / 2; }

// A tile's row r has its groups of four words in an order of its own: neither eight rows read as matrices nor four rows
// read by groups meet in a bank. FOURS: those eight rows are every fourth one, not neighbours.
template <bool FOURS = false> __device__ __forceinline__ int shuffle_of(int r) {
    return FOURS ? r / 4 % 8 : r % 4 * 2 + r / 4 % 2;
}

// 16 rows as left operands; zeros beyond `rows` and `columns`.
struct Rows { u32 at[EIGHTS][4]; };
__device__ __forceinline__ void take(Rows& to, const T* from, i64 row_stride, i64 column_stride, i64 rows, int columns,
                                     Lane lane) {
    UNROLL for (int k = 0; k < EIGHTS; k++) UNROLL for (int i = 0; i < 4; i++) {
        int r = lane.g + i % 2 * 8, c = 8 * k + lane.t + i / 2 * 4;
        float x = r < rows && c < columns ? to_float(from[r * row_stride + c * column_stride]) : 0.0f;
        to.at[k][i] = operand(x);
    }
}

// Starts bringing `many` values as they are; zeros beyond `there`.
__device__ __forceinline__ void fetch_line(u32* to, const T* from, int many, int there) {
#if VECTORS && __CUDA_ARCH__ >= 800
    int at = threadIdx.x * 4;
    if (at < many) copy_later(to + at, at < there ? from + at : from, at < there);
#else
    int at = threadIdx.x;
    if (at < many) to[at] = __float_as_uint(at < there ? to_float(from[at]) : 0.0f);
#endif
}

// Starts bringing ROWS × PITCH values into a tile; zeros beyond `rows` and `columns`.
template <int ROWS, int PITCH, bool FOURS = false>
__device__ __forceinline__ void fetch(u32* tile, const T* from, i64 stride, i64 rows, int columns) {
    UNROLL for (int at = threadIdx.x; at < ROWS * PITCH / 4; at += THREADS) {
        int r = at / (PITCH / 4), group = at % (PITCH / 4);
        u32* to = tile + r * PITCH + (group ^ shuffle_of<FOURS>(r)) * 4;
        const T* source = from + r * stride + group * 4;
#if VECTORS && __CUDA_ARCH__ >= 800
        bool there = r < rows && group * 4 < columns;
        copy_later(to, there ? source : from, there);
#else
        UNROLL for (int i = 0; i < 4; i++)
            to[i] = operand(r < rows && group * 4 + i < columns ? to_float(source[i]) : 0.0f);
#endif
    }
}

// Makes what this thread fetched operands.
template <int ROWS, int PITCH, bool FOURS = false> __device__ __forceinline__ void settle(u32* tile) {
#if VECTORS && !EXACT && __CUDA_ARCH__ >= 800
    UNROLL for (int at = threadIdx.x; at < ROWS * PITCH / 4; at += THREADS) {
        int r = at / (PITCH / 4);
        float4* cell = (float4*)(tile + r * PITCH + (at % (PITCH / 4) ^ shuffle_of<FOURS>(r)) * 4);
        float4 x = *cell;
        *(uint4*)cell = make_uint4(to_tf32(x.x), to_tf32(x.y), to_tf32(x.z), to_tf32(x.w));
    }
#endif
}

// Runs `compute` on the tiles `begin` .. `end`, `words` large each, while the next one is on its way.
template <typename Fetch, typename Settle, typename Compute>
__device__ __forceinline__ void stream(u32* tiles, int words, int begin, int end, Fetch bring, Settle settle_all,
                                       Compute compute) {
    if (begin < end) bring(tiles, begin);
#pragma unroll 1
    for (int i = begin; i < end; i++) {
        u32* now = tiles + (i - begin) % STAGES * words;
        arrive();
        settle_all(now);
        __syncthreads();
        if (STAGES == 2 && i + 1 < end) bring(tiles + (i + 1 - begin) % STAGES * words, i + 1);
        compute(now, i);
        if (STAGES == 1) {
            __syncthreads();
            if (i + 1 < end) bring(tiles, i + 1);
        }
    }
}

// Four 8 × 4 matrices out of shared memory; every lane gives the address of one of their rows.
__device__ __forceinline__ void load_matrices(u32 r[4], const u32* from) {
    u32 at = (u32)__cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

// c[e][m] += rows[m] (16, WIDE) · the eight rows (8, WIDE) of a tile from 8·(j + e) on, turned, ᵀ. Several sums at once:
// one alone would wait for each of its products.
template <int MANY, int EIGHTHS>
__device__ __forceinline__ void add_across(float (*c)[MANY][4], const Rows* rows, const u32* tile, int j, Lane lane) {
    const u32* from = tile + (8 * j + turned(lane.row)) * WIDE;
    UNROLL for (int k = 0; k < EIGHTS / 2; k++) UNROLL for (int e = 0; e < EIGHTHS; e++) {
        u32 b[4];
        load_matrices(b, from + 8 * e * WIDE + ((4 * k + lane.matrix) ^ lane.row) * 4);  // shuffle_of(turned(r)) is r
        UNROLL for (int m = 0; m < MANY; m++) multiply(c[e][m], rows[m].at[2 * k], b[0], b[1]);
        UNROLL for (int m = 0; m < MANY; m++) multiply(c[e][m], rows[m].at[2 * k + 1], b[2], b[3]);
    }
}

// c[j] += rows (16, WIDE) · the rows j, j + 4, .. of a tile (32, WIDE) shuffled in fours, ᵀ: column n is of row 4n + j.
__device__ __forceinline__ void add_across_fours(float (*c)[4], const Rows& rows, const u32* tile, Lane lane) {
    const u32* from = tile + 4 * lane.row * WIDE;
    UNROLL for (int k = 0; k < EIGHTS / 2; k++) UNROLL for (int j = 0; j < 4; j++) {
        u32 b[4];
        load_matrices(b, from + j * WIDE + ((4 * k + lane.matrix) ^ lane.row) * 4);
        multiply(c[j], rows.at[2 * k], b[0], b[1]);
        multiply(c[j], rows.at[2 * k + 1], b[2], b[3]);
    }
}

// The four words of group g of row r, a row whose place in its eight is t or t + 4.
__device__ __forceinline__ uint4 group_of(const u32* row, int place, Lane lane) {
    return *(const uint4*)(row + (lane.g ^ place) * 4);
}

// c[j] += rows (16, WIDE) · the columns j, j + 4, .. of a tile (WIDE, 32): column n is 4n + j.
__device__ __forceinline__ void add_down_fours(float (*c)[4], const Rows& rows, const u32* tile, Lane lane) {
    UNROLL for (int k = 0; k < EIGHTS; k++) {
        const u32* row = tile + (8 * k + lane.t) * 32;
        uint4 x = group_of(row, 2 * lane.t, lane), y = group_of(row + 4 * 32, 2 * lane.t + 1, lane);
        multiply(c[0], rows.at[k], x.x, y.x);
        multiply(c[1], rows.at[k], x.y, y.y);
        multiply(c[2], rows.at[k], x.z, y.z);
        multiply(c[3], rows.at[k], x.w, y.w);
    }
}

// A result as the next product's left operand.
struct Left {
    u32 at[4];
    Left() = default;
    __device__ __forceinline__ Left(const float c[4])
        : at{operand(c[0]), operand(c[2]), operand(c[1]), operand(c[3])} {}
};

// sums += left (16, 8) · eight rows (8, WIDE), of which this lane reads two. It takes groups of four words: the result's
// columns are turned too, see put.
__device__ __forceinline__ void mix_rows(Sums& sums, const Left& left, const u32* upper, const u32* lower, Lane lane) {
    UNROLL for (int n = 0; n < EIGHTS; n += 4) {
        uint4 x = group_of(upper + 8 * n, 2 * lane.t, lane), y = group_of(lower + 8 * n, 2 * lane.t + 1, lane);
        multiply(sums.of[n], left.at, x.x, y.x);
        multiply(sums.of[n + 1], left.at, x.y, y.y);
        multiply(sums.of[n + 2], left.at, x.z, y.z);
        multiply(sums.of[n + 3], left.at, x.w, y.w);
    }
}

// sums += left (16, 8) · the eight columns of a tile (WIDE, 32) from 8·j on, ᵀ.
template <int MANY>
__device__ __forceinline__ void mix_columns(Sums* sums, const Left* left, const u32* tile, int j, Lane lane) {
    const u32* from = tile + (lane.matrix / 2 * 8 + lane.row) * 32 + ((2 * j + lane.matrix % 2) ^ shuffle_of(lane.row)) * 4;
    UNROLL for (int n = 0; n < EIGHTS; n += 2) {
        u32 b[4];
        load_matrices(b, from + 256 * n);
        UNROLL for (int m = 0; m < MANY; m++) {
            multiply(sums[m].of[n], left[m].at, b[0], b[1]);
            multiply(sums[m].of[n + 1], left[m].at, b[2], b[3]);
        }
    }
}

// Rows g and g + 8 of sums; none beyond `rows` and `columns`. TURNED: as mix_rows leaves them.
template <bool TURNED>
__device__ __forceinline__ void put(float* to, i64 row_stride, i64 column_stride, i64 rows, int columns,
                                    const Sums& sums, Lane lane) {
    UNROLL for (int n = 0; n < EIGHTS; n++) UNROLL for (int i = 0; i < 4; i++) {
        int r = lane.g + i / 2 * 8, place = 2 * lane.t + i % 2;
        int c = TURNED ? n / 4 * 32 + 4 * place + n % 4 : 8 * n + place;
        if (r < rows && c < columns) to[r * row_stride + c * column_stride] = sums.of[n][i];
    }
}
