// Activation functions and their slopes, as ops/activation.rs has them.

// Loops over activations are bound by arithmetic unless exponentials and quotients are the card's own, which are off by two
// units in the last place at most.
__device__ __forceinline__ float exp_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float inverse(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float sigmoid(float x) { return inverse(1.0f + exp_2(-1.44269504088896341f * x)); }

__device__ __forceinline__ float identity(float x) { return x; }
__device__ __forceinline__ float identity_slope(float) { return 1.0f; }

// Not fmaxf: NaN stays NaN.
__device__ __forceinline__ float relu(float x) { return x < 0.0f ? 0.0f : x; }
__device__ __forceinline__ float relu_slope(float x) { return x > 0.0f ? 1.0f : 0.0f; }

// The normal distribution: Φ(x), and φ(x) · √(2π). What lies beyond |x| is a polynomial in 1 / (1 + p · |x| / √2) times the
// density (Abramowitz and Stegun 7.1.26): off by 8e-8, as 1 + erf(x / √2) in f32 is.
struct Gaussian { float below, density; };
__device__ __forceinline__ Gaussian gaussian(float x) {
    float density = exp_2(-0.72134752044448170f * x * x);
    float t = inverse(fmaf(0.23164189f, fabsf(x), 1.0f));
    float beyond = fmaf(t, 0.53070271f, -0.72657601f);
    beyond = fmaf(t, beyond, 0.71070687f);
    beyond = fmaf(t, beyond, -0.14224837f);
    beyond = fmaf(t, beyond, 0.12741479f) * t * density;
    return Gaussian{x < 0.0f ? beyond : 1.0f - beyond, density};
}
__device__ __forceinline__ float gelu(float x) { return x * gaussian(x).below; }
__device__ __forceinline__ float gelu_slope(float x) {
    Gaussian at = gaussian(x);
    return fmaf(0.39894228040143268f * x, at.density, at.below);
}

// (1 + tanh(u)) / 2 is the sigmoid of 2u: of 2 √(2/π) · (x + 0.044715 x³).
__device__ __forceinline__ float gelu_gate(float x) {
    return sigmoid(1.59576912160573071f * fmaf(0.044715f * x * x, x, x));
}
__device__ __forceinline__ float gelu_tanh(float x) { return x * gelu_gate(x); }
__device__ __forceinline__ float gelu_tanh_slope(float x) {
    float s = gelu_gate(x);
    return fmaf(x * s * (1.0f - s), 1.59576912160573071f * fmaf(0.134145f * x, x, 1.0f), s);
}

__device__ __forceinline__ float tanh_slope(float x) {
    float y = tanhf(x);
    return 1.0f - y * y;
}
__device__ __forceinline__ float sigmoid_slope(float x) {
    float y = sigmoid(x);
    return y * (1.0f - y);
}

__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }
__device__ __forceinline__ float silu_slope(float x) {
    float s = sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}

__device__ __forceinline__ float quick_gelu(float x) { return x * sigmoid(1.702f * x); }
__device__ __forceinline__ float quick_gelu_slope(float x) {
    float s = sigmoid(1.702f * x);
    return s * (1.0f + 1.702f * x * (1.0f - s));
}
