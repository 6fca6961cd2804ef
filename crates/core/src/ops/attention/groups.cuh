// What the kernels for groups of four warps share: which head a block has, which weights fall, and how rows leave. A group
// has 64 rows of its own (queries, or keys), a block OWN of them, and goes through the other side in tiles of FAR rows.
// RESIDENT: as many blocks to a multiprocessor as leave the registers that a group needs.

#define OWN (64 * GROUPS)

// What all lanes of a warp say alike; a vote on it is what tells the compiler that they stay together.
__device__ __forceinline__ bool together(bool x) { return __any_sync(0xffffffffu, x); }

// Shared memory from the first multiple of 1024 bytes on.
__device__ __forceinline__ char* aligned(void* shared) { return (char*)(((u64)shared + 1023) & ~1023ull); }

// As many pairs of a sample and a head as the second-level cache holds the other side of, as measured.
__device__ __forceinline__ int cached_pairs(int other_len) {
    return max((D == 64 ? 24 << 20 : 16 << 20) / (4 * D) / max(other_len, 1), 1);
}
// Blocks are handed out pair by pair inside a tile, the last tile first, but only among `section` pairs: longer sequences are
// read by many blocks at a time, not one after the other.
__device__ __forceinline__ Place place_near(Sizes s, int section, int n, int tiles) {
    int pairs = s.batch * s.heads;
    section = min(section, pairs);
    int first = n / (section * tiles) * section, at = n - first * tiles;
    int here = min(section, pairs - first), pair = first + at % here;
    return Place{tiles - 1 - at / here, pair / s.heads, pair % s.heads};
}
__device__ __forceinline__ Place place_near(Sizes s, int other_len) {
    return place_near(s, cached_pairs(other_len), blockIdx.x, gridDim.x / (s.batch * s.heads));
}

__device__ __forceinline__ uint4 read_shared(u32 at) {
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(at));
    return x;
}

// The words of a pair of rows (i and i + 8) and a quad of keys, lower halves for the first row: what depends on the rows
// alone, or on the quad alone, is computed once for it.
struct RowDraw { u32 x, y, z, w; };
struct QuadDraw { u32 high, low; };
struct Draws {
    // The keys of rounds 3 to 6, two by two, in shared memory.
    u32 keys;
    uint2 key;
    u32 step, first_sample, sample, head, step_high;

    // `room` holds two vectors, which are there after the next barrier.
    __device__ __forceinline__ Draws(uint4* room, const i64* state, u64 site, int sample) {
        if (!DROPPED) return;
        Stream stream = stream_of((u64)state[0], site, (u64)state[1]);
        if (threadIdx.x < MASK_ROUNDS - 3) ((uint2*)room)[threadIdx.x] = philox_key(stream.key, threadIdx.x + 3);
        keys = shared_address(room), key = stream.key, step = stream.step;
        first_sample = (u32)state[2] + (u32)sample;
        step_high = __umulhi(step, 0xD2511F53u) ^ philox_key(key, 0).y;
    }
    __device__ __forceinline__ void move_to(Place at) { sample = first_sample + (u32)at.b, head = (u32)at.h << 16; }
    __device__ __forceinline__ RowDraw row(int i) const {
        uint2 first = philox_key(key, 0), second = philox_key(key, 1), third = philox_key(key, 2);
        u64 b = (u64)(head + ((u32)i / 16 * 8 + (u32)i % 8)) * 0xCD9E8D57u;
        u64 a = (u64)((u32)(b >> 32) ^ sample ^ first.x) * 0xD2511F53u;
        u64 c = (u64)((u32)(a >> 32) ^ step * 0xD2511F53u ^ second.y) * 0xCD9E8D57u;
        return RowDraw{(u32)b ^ second.x, (u32)(c >> 32) ^ third.x, (u32)a ^ third.y, (u32)c};
    }
    __device__ __forceinline__ QuadDraw quad(int quad) const {
        u64 b = (u64)(step_high ^ (u32)quad) * 0xCD9E8D57u;
        return QuadDraw{(u32)(b >> 32), (u32)b};
    }
    // The words of N of them, round by round, so that a key is read once for all.
    template <int N>
    __device__ __forceinline__ void words(uint4 (&word)[N], const RowDraw (&row)[N], const QuadDraw (&quad)[N]) const {
#pragma unroll
        for (int n = 0; n < N; n++) {
            u64 a = (u64)(quad[n].high ^ row[n].x) * 0xD2511F53u;
            word[n] = make_uint4(quad[n].low ^ row[n].y, row[n].w, (u32)(a >> 32) ^ row[n].z, (u32)a);
        }
#pragma unroll
        for (int r = 0; r < (MASK_ROUNDS - 3) / 2; r++) {
            uint4 two = read_shared(keys + 16 * r);
#pragma unroll
            for (int n = 0; n < N; n++) {
                word[n] = philox_round(word[n], make_uint2(two.x, two.y));
                word[n] = philox_round(word[n], make_uint2(two.z, two.w));
            }
        }
    }
};

// The largest, or the sum, over the four lanes of a row.
__device__ __forceinline__ float across(float x, bool largest) {
#pragma unroll
    for (int lane = 1; lane < 4; lane <<= 1) {
        float y = __shfl_xor_sync(0xffffffffu, x, lane);
        x = largest ? fmaxf(x, y) : x + y;
    }
    return x;
}

// Key of the tile that belongs to element n of a lane's scores: four neighbours over two products, as `slot` has them.
__device__ __forceinline__ int column(int n, int t) { return n / 8 * 16 + 4 * t + n % 8 / 4 * 2 + n % 2; }

// Which keys of a tile the mask shows: not 0.
template <int TILE_ROWS> struct Shown {
    int key[TILE_ROWS];

    // Starts to bring what belongs to the keys from j0 on; those past the last one are hidden.
    template <int COUNT = THREADS> __device__ __forceinline__ void bring(const int* mask, int j0, int k_len) {
#pragma unroll
        for (int n = threadIdx.x % COUNT; n < TILE_ROWS; n += COUNT) copy_word(key + n, mask + j0 + n, j0 + n < k_len);
    }
};

// Whether all rows of a warp, of which the first sees the keys before `least`, see the whole tile from j0 on. The lanes look
// at the mask together; the vote is what tells the compiler that they stay together.
template <int TILE_ROWS> __device__ __forceinline__ bool sees_all(const Shown<TILE_ROWS>& shown, int j0, int least) {
    bool whole = j0 + TILE_ROWS <= least;
#pragma unroll
    for (int n = 0; MASKED && n < TILE_ROWS; n += 32) whole = whole & (shown.key[n + threadIdx.x % 32] != 0);
    return __all_sync(0xffffffffu, whole);
}

// Hides the scores of keys that the rows of this lane do not see: those past `end`, and those that the mask hides.
template <int TILE_ROWS>
__device__ __forceinline__ void hide(float (&s)[TILE_ROWS / 2], const Shown<TILE_ROWS>& shown, const int end[2], int j0,
                                     int t) {
#pragma unroll
    for (int n = 0; n < TILE_ROWS / 2; n += 8) {
        int4 seen = make_int4(1, 1, 1, 1);
        if (MASKED) seen = *(const int4*)(shown.key + column(n, t));
        int keys[4] = {seen.x, seen.y, seen.z, seen.w};
#pragma unroll
        for (int m = 0; m < 8; m++) {
            int c = m / 4 * 2 + m % 2;
            if (j0 + column(n + m, t) >= end[m % 4 / 2] || (MASKED && keys[c] == 0)) s[n + m] = NOTHING;
        }
    }
}

// What a relative bias adds on the diagonals of QUERIES and KEYS, of which one are a block's own and the others a tile: query i
// and key j of them have entry QUERIES - 1 - i + j.
template <int QUERIES, int KEYS> struct Near {
    float at[BIAS == 1 ? QUERIES + KEYS : 4];

    __device__ __forceinline__ const float* entry(int i, int j) const { return at + (QUERIES - 1 - i + j); }

    // Starts to bring what belongs to the queries from i0 on and the keys from j0 on; 0 where there are none.
    template <int COUNT = THREADS>
    __device__ __forceinline__ void bring(const float* by_distance, int i0, int j0, int q_len, int k_len) {
        int first = q_len - QUERIES - i0 + j0, count = q_len + k_len - 1;
#pragma unroll
        for (int n = threadIdx.x % COUNT; n < QUERIES + KEYS; n += COUNT) {
            bool there = first + n >= 0 && first + n < count;
            copy_word(at + n, (const int*)by_distance + (there ? first + n : 0), there);
        }
    }
};

// From products to scores of a relative bias; `near` is the entry of the lane's upper row and its first key.
template <int TILE_ROWS>
__device__ __forceinline__ void add_near(float (&s)[TILE_ROWS / 2], const float* near, float scale) {
#pragma unroll
    for (int n = 0; n < TILE_ROWS / 2; n++) s[n] = s[n] * scale + near[column(n, 0) - n % 4 / 2 * 8];
}

// Weights as left operands.
template <int N> __device__ __forceinline__ void hold(u32 (&to)[N / 8][4], const float (&s)[N]) {
#pragma unroll
    for (int n = 0; n < N; n += 2) to[n / 8][n % 8 / 2] = pair_of(s[n], s[n + 1]);
}

// Eight neighbours leave in one piece: as an assignment, some of them would be written one by one.
__device__ __forceinline__ void put_vector(T* to, const u32 (&x)[4]) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

// A group's (64, 2 N) sums leave as rows, times a factor each; a factor of 0 makes 0 out of anything. TURNED: they are in the
// order of `slot`. All are exchanged before the first is written, so that no exchange waits for another.
template <bool TURNED = false, int N>
__device__ __forceinline__ void put_rows(T* to, i64 row, int first, int len, const float (&sums)[N], Lane lane,
                                         const float factor[2]) {
    u32 x[N / 8][4];
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
#pragma unroll
        for (int m = 0; m < 4; m++) {
            float f = factor[n % 2];
            const float* sum = sums + (n / 2 * 4 + m) * 4 + n % 2 * 2;
            x[n][m] = f != 0.0f ? pair_of(sum[0] * f, sum[1] * f) : 0;
        }
        exchange(x[n], lane.t);
    }
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        int at = 16 * lane.warp + lane.g + n % 2 * 8, d = (n / 2 * 4 + lane.t) * 8;
        int r = first + (TURNED ? at & ~15 | (at & 8) >> 2 | (at & 6) << 1 | at & 1 : at);
        if (r < len) put_vector(to + (i64)r * row + d, x[n]);
    }
}

// The keys that anyone sees, in whole tiles, of the first `end`: a mask may hide the last ones, and the first. Every warp
// looks for itself.
struct Span { int first, end; };
__device__ __forceinline__ Span span_of(const int* mask, int end, int tile) {
    if (!MASKED) return Span{0, end};
    const int AT_A_TIME = 128;
    int first = 0, last = end, lane = threadIdx.x % 32;
    auto any = [&](int from) {
        bool found = false;
#pragma unroll
        for (int n = 0; n < AT_A_TIME; n += 32) {
            int j = from + n + lane;
            found |= j >= 0 && j < last && mask[j] != 0;
        }
        return together(found);
    };
    while (end > 0 && !any(end - AT_A_TIME)) end -= AT_A_TIME;
    // What is left at last has a key that is seen.
    while (first + AT_A_TIME < end && !any(first)) first += AT_A_TIME;
    return Span{first / tile * tile, max(end, 0)};
}
