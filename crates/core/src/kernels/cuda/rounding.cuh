// Stores of elements that are rounded stochastically where they are bf16 and ROUNDED says so; see ops/rounding.rs. After
// map.cuh.

#define ROUNDING const i64 *rng, u64 site, i64 first
#define READ_ROUNDING rounding_of(rng, site, first)
// Of a sweep, in which every set has its own site and first element.
#define ROUNDING_OF_SETS const i64* rng
#if ROUNDED
#define READ_ROUNDING_OF(set) rounding_of(rng, set.words[0], (i64)set.words[1])
#else
#define READ_ROUNDING_OF(set) Rounding{}
#endif

struct Rounding {
    Stream stream;
    u32 sample;
    i64 first;
};
__device__ __forceinline__ Rounding rounding_of(const i64* rng, u64 site, i64 first) {
    if (!ROUNDED) return Rounding{};
    return Rounding{stream_of(rng[0], site, rng[1]), (u32)rng[2], first};
}

template <int N, typename Element>
__device__ __forceinline__ void store_rounded(const float (&x)[N], Element* to, i64 i, i64 n, Rounding, u32) {
    store(x, to, i, n);
}

// Eight neighbours share four random words, 16 bits each. A thread's elements never cross such a group: it has one,
// four or eight of them, and `first` is a multiple of eight.
template <int N>
__device__ __forceinline__ void store_rounded(const float (&x)[N], bf16* to, i64 i, i64 n, Rounding r, u32 tensor) {
    if (!ROUNDED) return store(x, to, i, n);
    i64 element = r.first + i;
    uint4 words = stream_eight(r.stream, r.sample, tensor, (u32)(element / 8));
    int start = N == 8 ? 0 : (int)(element % 8);
    float rounded[N];
    UNROLL for (int k = 0; k < N; k++) {
        rounded[k] = to_float(round_stochastically(x[k], bits_of(words, start + k) >> 16));
    }
    store(rounded, to, i, n);
}
