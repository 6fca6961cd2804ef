// What the kernels of a feed-forward have in common, whatever their precision.
//
// WIDE: elements of a token up to a multiple of 32; those that are not there are zeros. VECTORS: whether rows come as 16
// bytes at a time. ACT, SLOPE: the activation.

#define UNROLL _Pragma("unroll")
#define THREADS (32 * WARPS)
#define EIGHTS (WIDE / 8)
#define STAGES (WIDE <= 64 ? 2 : 1)

// Φ, the normal distribution, within 1e-7 (Abramowitz and Stegun 7.1.26), and its density: neither tf32
// nor half precision sees a difference.
struct Normal {
    float tail, density;  // tail: what lies beyond |x|
    __device__ __forceinline__ Normal(float x) {
        float t, e, squared = x * x * -0.72134752044448170f;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(fmaf(fabsf(x), 0.23164189f, 1.0f)));
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(squared));
        float p = fmaf(fmaf(fmaf(fmaf(0.5307027145f, t, -0.7265760135f), t, 0.7107068705f), t, -0.142248368f), t,
                       0.127414796f);
        tail = p * t * e;
        density = 0.39894228040143268f * e;
    }
};
__device__ __forceinline__ float quick_erf_gelu(float x) { return fmaf(-fabsf(x), Normal(x).tail, fmaxf(x, 0.0f)); }
__device__ __forceinline__ float quick_erf_gelu_slope(float x) {
    Normal normal(x);
    return fmaf(x, normal.density, x < 0.0f ? normal.tail : 1.0f - normal.tail);
}

struct Lane {
    int warp, g, t, matrix, row;
    __device__ __forceinline__ Lane()
        : warp(threadIdx.x / 32), g(threadIdx.x % 32 / 4), t(threadIdx.x % 4), matrix(threadIdx.x % 32 / 8),
          row(threadIdx.x % 8) {}
};

// The chunks of hidden values, or tiles of tokens, that are this block's: blockIdx.y of gridDim.y parts.
struct Part {
    int begin, end;
    __device__ __forceinline__ Part(i64 many)
        : begin((int)(many * blockIdx.y / gridDim.y)), end((int)(many * (blockIdx.y + 1) / gridDim.y)) {}
};

// Starts copying 16 bytes into shared memory, or zeros instead.
__device__ __forceinline__ void copy_later(void* to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
    u32 address = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(address), "l"(from), "r"(there ? 16 : 0));
#else
    *(uint4*)to = there ? *(const uint4*)from : make_uint4(0, 0, 0, 0);
#endif
}

// Until everything that this thread began to copy is there.
__device__ __forceinline__ void arrive() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// A (16, WIDE) result.
struct Sums { float of[EIGHTS][4]; };
__device__ __forceinline__ void clear(Sums& sums) {
    UNROLL for (int n = 0; n < EIGHTS; n++) UNROLL for (int i = 0; i < 4; i++) sums.of[n][i] = 0.0f;
}

// The sum of `many` parts (count) at n, the first one first.
__device__ __forceinline__ float total(const float* parts, i64 count, int many, i64 n) {
    float sum = 0.0f;
    for (int part = 0; part < many; part++) sum += parts[part * count + n];
    return sum;
}

// y (count) = the sum of its parts + bias.
extern "C" __global__ void finish(const float* parts, const T* bias, T* y, i64 count, int many, int width) {
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (n < count) y[n] = from_float<T>(total(parts, count, many, n) + to_float(bias[n % width]));
}

// The gradients of up and down (weight) and of up's bias (hidden) out of their parts.
extern "C" __global__ void finish_weights(const float* up_parts, const float* bias_parts, const float* down_parts, T* up,
                                          T* bias, T* down, i64 weight, i64 hidden, int many) {
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (n < weight) up[n] = from_float<T>(total(up_parts, weight, many, n));
    else if ((n -= weight) < weight) down[n] = from_float<T>(total(down_parts, weight, many, n));
    else if ((n -= weight) < hidden) bias[n] = from_float<T>(total(bias_parts, hidden, many, n));
}
