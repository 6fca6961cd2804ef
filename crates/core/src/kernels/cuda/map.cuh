// Loops over elements. A thread handles WIDTH neighbours, moved as one vector where all of them exist; it reads all of
// its elements before it writes any, so that a result may lie over an operand. Names of one letter are left to macros.

#define UNROLL _Pragma("unroll")
#define UNROLL4 _Pragma("unroll 4")
#define NOT_A_NUMBER __int_as_float(0x7fffffff)

template <typename Element, int N> struct alignas(N * sizeof(Element) < 16 ? N * sizeof(Element) : 16) Pack {
    Element at[N];
};

// Elements i .. i + N of n as floats, zeros beyond the end.
template <int N, typename Element>
__device__ __forceinline__ void load(float (&x)[N], const Element* from, i64 i, i64 n) {
    if (i + N <= n) {
        Pack<Element, N> pack = *(const Pack<Element, N>*)(from + i);
        UNROLL for (int k = 0; k < N; k++) x[k] = to_float(pack.at[k]);
    } else {
        UNROLL for (int k = 0; k < N; k++) x[k] = i + k < n ? to_float(from[i + k]) : 0.0f;
    }
}

template <int N, typename Element>
__device__ __forceinline__ void store(const float (&x)[N], Element* to, i64 i, i64 n) {
    if (i + N <= n) {
        Pack<Element, N> pack;
        UNROLL for (int k = 0; k < N; k++) pack.at[k] = from_float<Element>(x[k]);
        *(Pack<Element, N>*)(to + i) = pack;
    } else {
        UNROLL for (int k = 0; k < N; k++) if (i + k < n) to[i + k] = from_float<Element>(x[k]);
    }
}

// N elements as they lie in memory, for loads that are not to be waited for yet: unpacked where they are used.
template <typename Element, int N> struct Raw {
    static constexpr int WORDS = (N * sizeof(Element) + 3) / 4;
    u32 at[WORDS];
};
// A whole vector.
template <int N, typename Element> __device__ __forceinline__ Raw<Element, N> load_raw(const Element* from) {
    Raw<Element, N> raw;
    if constexpr (N * sizeof(Element) == 2) {
        raw.at[0] = *(const unsigned short*)from;
    } else {
        Pack<u32, Raw<Element, N>::WORDS> words = *(const Pack<u32, Raw<Element, N>::WORDS>*)from;
        UNROLL for (int w = 0; w < raw.WORDS; w++) raw.at[w] = words.at[w];
    }
    return raw;
}
template <typename Element, int N> __device__ __forceinline__ float unpacked(const Raw<Element, N>& raw, int k) {
    return to_float(Element{(unsigned short)(raw.at[k / 2] >> k % 2 * 16)});
}
template <int N> __device__ __forceinline__ float unpacked(const Raw<float, N>& raw, int k) {
    return __uint_as_float(raw.at[k]);
}

template <typename Element, int N> __device__ __forceinline__ Raw<Element, N> pack_raw(const float (&x)[N]) {
    Raw<Element, N> raw = {};
    UNROLL for (int k = 0; k < N; k++) {
        if constexpr (sizeof(Element) == 2) raw.at[k / 2] |= (u32)from_float<Element>(x[k]).bits << k % 2 * 16;
        else raw.at[k] = __float_as_uint(x[k]);
    }
    return raw;
}

// This thread's place among all threads of the launch.
__device__ __forceinline__ i64 thread_index() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }

template <typename From, typename To, typename Function>
__device__ __forceinline__ void map1(const From* x, To* y, i64 i, i64 n, Function f) {
    if (i >= n) return;
    float a[WIDTH];
    load(a, x, i, n);
    UNROLL for (int k = 0; k < WIDTH; k++) a[k] = f(a[k]);
    store(a, y, i, n);
}
template <typename From, typename To, typename Function>
__device__ __forceinline__ void map1(const From* x, To* y, i64 n, Function f) {
    map1(x, y, thread_index() * WIDTH, n, f);
}

template <typename From, typename To, typename Function>
__device__ __forceinline__ void map2(const From* x, const From* z, To* y, i64 n, Function f) {
    i64 i = thread_index() * WIDTH;
    if (i >= n) return;
    float a[WIDTH], b[WIDTH];
    load(a, x, i, n);
    load(b, z, i, n);
    UNROLL for (int k = 0; k < WIDTH; k++) a[k] = f(a[k], b[k]);
    store(a, y, i, n);
}
