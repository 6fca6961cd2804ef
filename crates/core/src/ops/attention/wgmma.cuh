// Products of half precision by groups of four warps (wgmma, sm_90a), and the tiles in shared memory that they read. BF16:
// whether T is bf16, not half. D is 64 or 128. GROUPS: those of a block.
//
// A tile is made of slabs of 64 columns, one after the other; a row of a slab is 128 bytes, whose eight vectors of 16 bytes
// are turned by the row's number (the 128-byte swizzle), so that neither rows nor columns collide in the banks. Slabs start
// at multiples of 1024 bytes.

#define THREADS (128 * GROUPS)
#define SLABS (D / 64)
#define SLAB_BYTES(rows) ((rows) * 128)
#define TILE_BYTES(rows) (SLABS * SLAB_BYTES(rows))

#if BF16
#define OPERANDS "f32.bf16.bf16 "
#else
#define OPERANDS "f32.f16.f16 "
#endif

__device__ __forceinline__ u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

// Where an operand starts, as products are told: in units of 16 bytes.
__device__ __forceinline__ u32 unit_of(u32 address) { return address >> 4; }
#define UNITS(bytes) ((bytes) / 16)
// What a product reads from there on: eights of rows 1024 bytes apart. `next_slab`: units to the next slab, where the
// operand's columns are those of the result.
__device__ __forceinline__ u64 operand_at(u32 unit, u32 next_slab) {
    return (u64)(unit + (next_slab << 16)) | (u64)(UNITS(1024) | 1u << 30) << 32;
}

// Writes of this thread to shared memory are seen by products that start after the next barrier.
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// In front of products whose registers were written.
__device__ __forceinline__ void open_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void close_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all but the last N batches of products.
template <int N> __device__ __forceinline__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// Registers that products in flight read or write are not to be moved past this point.
template <int N> __device__ __forceinline__ void pin(float (&c)[N]) {
#pragma unroll
    for (int n = 0; n < N; n++) asm volatile("" : "+f"(c[n])::"memory");
}

#define SUMS_4(n) "+f"(c[n]), "+f"(c[n + 1]), "+f"(c[n + 2]), "+f"(c[n + 3])
#define SUMS_16(n) SUMS_4(n), SUMS_4(n + 4), SUMS_4(n + 8), SUMS_4(n + 12)
#define SUMS_32 SUMS_16(0), SUMS_16(16)
#define SUMS_64 SUMS_32, SUMS_16(32), SUMS_16(48)
#define NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_32                                                                                                    \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "    \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_64                                                                                                    \
    NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, "   \
             "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// c (64 × N) = a (64 × 16) · bᵀ (N × 16), or added to it; both in shared memory, rows along the sum.
__device__ __forceinline__ void multiply_shared(float (&c)[32], u64 a, u64 b, bool add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0; "
                 "wgmma.mma_async.sync.aligned.m64n64k16." OPERANDS "{" NAMES_32 "}, %32, %33, p, 1, 1, 0, 0; }"
                 : SUMS_32 : "l"(a), "l"(b), "r"((int)add));
}
__device__ __forceinline__ void multiply_shared(float (&c)[64], u64 a, u64 b, bool add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0; "
                 "wgmma.mma_async.sync.aligned.m64n128k16." OPERANDS "{" NAMES_64 "}, %64, %65, p, 1, 1, 0, 0; }"
                 : SUMS_64 : "l"(a), "l"(b), "r"((int)add));
}
// The same with a in registers.
__device__ __forceinline__ void multiply_rows(float (&c)[32], const u32 a[4], u64 b, bool add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0; "
                 "wgmma.mma_async.sync.aligned.m64n64k16." OPERANDS "{" NAMES_32
                 "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0; }"
                 : SUMS_32 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add));
}
// c (64 × N) = aᵀ (16 × 64) · b (16 × N), or added to it; both in shared memory, rows along the result.
__device__ __forceinline__ void multiply_turned(float (&c)[16], u64 a, u64 b, bool add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %18, 0; "
                 "wgmma.mma_async.sync.aligned.m64n32k16." OPERANDS "{" NAMES_16 "}, %16, %17, p, 1, 1, 1, 1; }"
                 : SUMS_16(0) : "l"(a), "l"(b), "r"((int)add));
}
__device__ __forceinline__ void multiply_turned(float (&c)[32], u64 a, u64 b, bool add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0; "
                 "wgmma.mma_async.sync.aligned.m64n64k16." OPERANDS "{" NAMES_32 "}, %32, %33, p, 1, 1, 1, 1; }"
                 : SUMS_32 : "l"(a), "l"(b), "r"((int)add));
}
// c (64 × N) += a (64 × 16, rows along the sum) · b (16 × N, rows along the result), both in shared memory.
__device__ __forceinline__ void multiply_mixed(float (&c)[32], u64 a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16." OPERANDS "{" NAMES_32 "}, %32, %33, 1, 1, 1, 0, 1;"
                 : SUMS_32 : "l"(a), "l"(b));
}
// c (64 × N) += a (64 × 16, in registers) · b (16 × N), rows of b along the result.
__device__ __forceinline__ void multiply_held(float (&c)[32], const u32 a[4], u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16." OPERANDS "{" NAMES_32
                 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : SUMS_32 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void multiply_held(float (&c)[64], const u32 a[4], u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16." OPERANDS "{" NAMES_64
                 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                 : SUMS_64 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// A group's 64 rows of one tile times all COLUMNS rows of another.
template <int OWN, int COLUMNS>
__device__ __forceinline__ void start_scores(float (&s)[COLUMNS / 2], u32 own, u32 other) {
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        const u32 within = k % 4 * UNITS(32);
        multiply_shared(s, operand_at(own + k / 4 * UNITS(SLAB_BYTES(OWN)) + within, 1),
                        operand_at(other + k / 4 * UNITS(SLAB_BYTES(COLUMNS)) + within, 1), k > 0);
    }
}
// Adds weights (64, ROWS) · the rows of a tile.
template <int ROWS>
__device__ __forceinline__ void start_mix(float (&sums)[D / 2], const u32 (&weights)[ROWS / 16][4], u32 tile) {
#pragma unroll
    for (int k = 0; k < ROWS / 16; k++)
        multiply_held(sums, weights[k], operand_at(tile + k * UNITS(2048), UNITS(SLAB_BYTES(ROWS))));
}

// Brings tiles of ROWS rows by COUNT threads: each has the same vector of 16 bytes of every STRIDE-th row. Where its places in
// one row and the next that it has are not the same distance apart, they are after a PATTERN of such rows. TURNED: in the
// order of `slot`, which repeats after 16 rows; the swizzle does after 8.
template <int ROWS, bool TURNED, int COUNT = THREADS> struct Copier {
    static const int VECTORS = D / 8, STRIDE = COUNT / VECTORS, STEPS = (ROWS + STRIDE - 1) / STRIDE;
    static const int REPEAT = TURNED ? 16 : 8, PATTERN = STRIDE < REPEAT ? REPEAT / STRIDE : 1;
    u32 cell[PATTERN];
    int r;
    const T* from;
    i64 row;

    __device__ __forceinline__ Copier(const T* rows, i64 row) : r(threadIdx.x % COUNT / VECTORS), row(row) {
        int c = threadIdx.x % VECTORS;
#pragma unroll
        for (int n = 0; n < PATTERN; n++) {
            int at = TURNED ? slot(r + n * STRIDE) : r + n * STRIDE;
            cell[n] = c / 8 * SLAB_BYTES(ROWS) + at * 128 + ((c ^ at) % 8 << 4);
        }
        from = rows + r * row + c * 8;
    }
    // Starts to copy the rows from `first` on to shared memory at `to`, zeros where there are none.
    __device__ __forceinline__ void start(u32 to, int first, int len) const {
        bool whole = first + ROWS <= len;
        start_rows<1>(to, first, [&](int r) { return whole || first + r < len; });
    }
    // The same of HEADS neighbouring heads, one tile behind the other. Whole tiles, of which no row is asked for, are apart:
    // that takes code, but fewer instructions.
    template <int HEADS = 1> __device__ __forceinline__ void start_heads(u32 to, int first, int len) const {
        if (first + ROWS <= len) start_rows<HEADS>(to, first, [](int) { return true; });
        else start_rows<HEADS>(to, first, [&](int r) { return first + r < len; });
    }
    template <int HEADS, typename Is> __device__ __forceinline__ void start_rows(u32 to, int first, Is is_there) const {
        const T* next = from + first * row;
#pragma unroll
        for (int n = 0; n < STEPS; n++, next += STRIDE * row) {
            if (ROWS % STRIDE && r + n * STRIDE >= ROWS) break;
            bool there = is_there(r + n * STRIDE);
            u32 place = to + cell[n % PATTERN] + n / PATTERN * PATTERN * STRIDE * 128;
#pragma unroll
            for (int head = 0; head < HEADS; head++)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place + head * TILE_BYTES(ROWS)),
                             "l"((there ? next : from) + head * D), "r"(there ? 16 : 0)
                             : "memory");
        }
    }
};
// Starts to copy a word, 0 where there is none.
__device__ __forceinline__ void copy_word(void* to, const int* from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 4 : 0)
                 : "memory");
}
__device__ __forceinline__ void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
