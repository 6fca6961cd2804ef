// Activation functions and their slopes, as ops/activation.rs has them.

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ __forceinline__ float identity(float x) { return x; }
__device__ __forceinline__ float identity_slope(float) { return 1.0f; }

// Not fmaxf: NaN stays NaN.
__device__ __forceinline__ float relu(float x) { return x < 0.0f ? 0.0f : x; }
__device__ __forceinline__ float relu_slope(float x) { return x > 0.0f ? 1.0f : 0.0f; }

__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f)); }
__device__ __forceinline__ float gelu_slope(float x) {
    float cdf = 0.5f * (1.0f + erff(x * 0.70710678118654752f));
    return cdf + x * (0.39894228040143268f * expf(-0.5f * x * x));
}

__device__ __forceinline__ float gelu_inner(float x) {
    return 0.79788456080286536f * (x + 0.044715f * x * x * x);  // √(2/π) · (x + 0.044715 x³)
}
__device__ __forceinline__ float gelu_tanh(float x) { return 0.5f * x * (1.0f + tanhf(gelu_inner(x))); }
__device__ __forceinline__ float gelu_tanh_slope(float x) {
    float t = tanhf(gelu_inner(x));
    float inner_slope = 0.79788456080286536f * (1.0f + 0.134145f * x * x);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner_slope;
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
