// Products of half precision on tensor cores, m16n8k16, and their operands. BF16: whether T is bf16, not half.

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
