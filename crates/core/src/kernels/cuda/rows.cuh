// Row kernels: GROUP threads share a row and keep it in registers, PACKS vectors of WIDTH elements each. A group is a
// warp or a part of one, several to a block, or the whole block.

#define EACH UNROLL for (int p = 0; p < PACKS; p++) UNROLL for (int k = 0; k < WIDTH; k++)
// Lanes of a warp that are in the same group.
#define LANES (GROUP < 32 ? GROUP : 32)

struct Row {
    float at[PACKS][WIDTH];
};

// The row of this thread's group; rows of groups beyond the last one do not exist.
__device__ __forceinline__ i64 row_index() {
    return GROUP <= 32 ? thread_index() / GROUP : (i64)blockIdx.x;
}
__device__ __forceinline__ int lane() { return threadIdx.x % GROUP; }
__device__ __forceinline__ int column(int pack) { return (pack * GROUP + lane()) * WIDTH; }

template <typename Element> __device__ __forceinline__ Row load_row(const Element* row, int width) {
    Row x;
    UNROLL for (int p = 0; p < PACKS; p++) {
        UNROLL for (int k = 0; k < WIDTH; k++) x.at[p][k] = 0.0f;
        if (column(p) < width) load(x.at[p], row, column(p), width);
    }
    return x;
}
template <typename Element> __device__ __forceinline__ void store_row(const Row& x, Element* row, int width) {
    UNROLL for (int p = 0; p < PACKS; p++) if (column(p) < width) store(x.at[p], row, column(p), width);
}
// Whether element k of a pack lies inside the row.
__device__ __forceinline__ bool inside(int pack, int k, int width) { return column(pack) + k < width; }

// The lanes of this thread's warp that share its row, and sum and maximum over them.
__device__ __forceinline__ u32 lanes() {
    return GROUP < 32 ? ((1u << GROUP % 32) - 1) << (threadIdx.x % 32 / LANES * LANES) : 0xffffffffu;
}
__device__ __forceinline__ float lanes_sum(float x) {
    UNROLL for (int step = LANES / 2; step > 0; step /= 2) x += __shfl_xor_sync(lanes(), x, step);
    return x;
}
__device__ __forceinline__ float lanes_max(float x) {
    UNROLL for (int step = LANES / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(lanes(), x, step));
    return x;
}

__device__ __forceinline__ float group_sum(float x) {
    if (GROUP <= 32) return lanes_sum(x);
    __shared__ float scratch[33];
    return block_sum(x, scratch);
}
__device__ __forceinline__ float group_max(float x) {
    if (GROUP <= 32) return lanes_max(x);
    __shared__ float scratch[33];
    return block_max(x, scratch);
}
// Two sums for one barrier; each warp adds up the warps' parts for itself. Of two calls in a row one is `odd`: a warp may
// still be reading the parts of the other.
__device__ __forceinline__ float2 group_sums(float x, float y, bool odd) {
    x = lanes_sum(x);
    y = lanes_sum(y);
    if (GROUP <= 32) return make_float2(x, y);
    __shared__ float2 parts[2][32];
    if (threadIdx.x % 32 == 0) parts[odd][threadIdx.x / 32] = make_float2(x, y);
    __syncthreads();
    float2 part = threadIdx.x % 32 < GROUP / 32 ? parts[odd][threadIdx.x % 32] : make_float2(0.0f, 0.0f);
    return make_float2(warp_sum(part.x), warp_sum(part.y));
}
