// Rounding to tf32, and what stands in for tensor cores where none take it, or it is too coarse.

__device__ __forceinline__ u32 to_tf32(float x) {
    u32 y;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
#else
    y = __float_as_uint(x);
#endif
    return y;
}

// The same product in f32, where a card has no tf32 or more precision is wanted: lanes hand their operands round.
__device__ __noinline__ void hand_round(float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll 1
    for (int k = 0; k < 8; k++) {
        float x = __uint_as_float(__shfl_sync(0xffffffffu, k < 4 ? a0 : a2, g * 4 + k % 4));
        float y = __uint_as_float(__shfl_sync(0xffffffffu, k < 4 ? a1 : a3, g * 4 + k % 4));
        float z = __uint_as_float(__shfl_sync(0xffffffffu, k < 4 ? b0 : b1, 2 * t * 4 + k % 4));
        float w = __uint_as_float(__shfl_sync(0xffffffffu, k < 4 ? b0 : b1, (2 * t + 1) * 4 + k % 4));
        c[0] += x * z, c[1] += x * w, c[2] += y * z, c[3] += y * w;
    }
}
