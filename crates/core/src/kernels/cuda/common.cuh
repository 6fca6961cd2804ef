// In front of every kernel file. No CUDA headers: half-precision types are 16-bit patterns with conversions, sums are
// float, and every reduction has a fixed order.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif

struct bf16 { unsigned short bits; };
struct half { unsigned short bits; };

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
__device__ __forceinline__ float to_float(half x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

template <typename T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) { return x; }
template <> __device__ __forceinline__ bf16 from_float<bf16>(float x) {
#if __CUDA_ARCH__ >= 800
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#else
    u32 u = __float_as_uint(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return bf16{0x7fff};
    return bf16{(unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};  // to nearest, ties to even
#endif
}
template <> __device__ __forceinline__ half from_float<half>(float x) {
    half y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

// Stochastic rounding: one of the two neighbours of x in bf16, each as often as x is near it, so that the mean is x.
// `word` has 16 random bits. Infinities and NaN stay what they are.
__device__ __forceinline__ bf16 round_stochastically(float x, u32 word) {
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7f800000u) == 0x7f800000u) return from_float<bf16>(x);
    return bf16{(unsigned short)((bits + (word & 0xffffu)) >> 16)};
}

__device__ __forceinline__ bool is_finite(float x) { return fabsf(x) < INFINITY; }

// Sum and maximum over a warp; the result is in every lane.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int lane = 16; lane > 0; lane >>= 1) x += __shfl_xor_sync(0xffffffffu, x, lane);
    return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int lane = 16; lane > 0; lane >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lane));
    return x;
}

// Sum over a block of up to 1024 threads (a multiple of 32); the result is in every thread. `scratch` holds 33 floats.
__device__ __forceinline__ float block_sum(float x, float* scratch) {
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x < 32) {
        float y = threadIdx.x < blockDim.x / 32 ? scratch[threadIdx.x] : 0.0f;
        y = warp_sum(y);
        if (threadIdx.x == 0) scratch[32] = y;
    }
    __syncthreads();
    return scratch[32];
}
__device__ __forceinline__ float block_max(float x, float* scratch) {
    x = warp_max(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x < 32) {
        float y = threadIdx.x < blockDim.x / 32 ? scratch[threadIdx.x] : -INFINITY;
        y = warp_max(y);
        if (threadIdx.x == 0) scratch[32] = y;
    }
    __syncthreads();
    return scratch[32];
}

// Counter-based random numbers (Philox 4x32), the same words as base/random.rs.
__device__ __forceinline__ uint4 philox_round(uint4 counter, uint2 key) {
    u64 a = (u64)counter.x * 0xD2511F53u, b = (u64)counter.z * 0xCD9E8D57u;
    return make_uint4((u32)(b >> 32) ^ counter.y ^ key.x, (u32)b, (u32)(a >> 32) ^ counter.w ^ key.y, (u32)a);
}
// The key of round n.
__device__ __forceinline__ uint2 philox_key(uint2 key, u32 n) {
    return make_uint2(key.x + n * 0x9E3779B9u, key.y + n * 0xBB67AE85u);
}
// What masks, and bits to round by, are drawn with.
#define MASK_ROUNDS 7
template <int ROUNDS> __device__ __forceinline__ uint4 philox(uint4 counter, uint2 key) {
#pragma unroll
    for (int n = 0; n < ROUNDS; n++) counter = philox_round(counter, philox_key(key, n));
    return counter;
}
__device__ __forceinline__ u64 mix(u64 x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// The stream of one site (of dropout, or of rounding) in one step, as Stream::new.
struct Stream { uint2 key; u32 step; };
__device__ __forceinline__ Stream stream_of(u64 seed, u64 site, u64 step) {
    u64 turned = ((step >> 32) << 17) | ((step >> 32) >> 47);
    u64 mixed = mix(seed ^ mix(site) ^ turned);
    return Stream{make_uint2((u32)mixed, (u32)(mixed >> 32)), (u32)step};
}
// Sixteen bits for each of eight neighbours, the two of a word in its lower and its upper half.
__device__ __forceinline__ uint4 stream_eight(Stream s, u32 sample, u32 row, u32 group) {
    return philox<MASK_ROUNDS>(make_uint4(s.step, sample, row, group), s.key);
}
// Those of neighbour n in the upper half of a word, with something below it: to be compared with a threshold whose lower
// half is 0.
__device__ __forceinline__ u32 bits_of(uint4 words, int n) {
    u32 word = n < 2 ? words.x : n < 4 ? words.y : n < 6 ? words.z : words.w;
    return n % 2 ? word : word << 16;
}
