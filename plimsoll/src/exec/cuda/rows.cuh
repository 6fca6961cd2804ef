// Row kernels: GROUP threads share a row and keep it in registers, PACKS vectors of WIDTH elements each. A group is a
// warp, several to a block, or the whole block.

#define EACH UNROLL for (int p = 0; p < PACKS; p++) UNROLL for (int k = 0; k < WIDTH; k++)

struct Row {
    float at[PACKS][WIDTH];
};

// The row of this thread's group; rows of warps beyond the last one do not exist.
__device__ __forceinline__ i64 row_index() {
    return GROUP == 32 ? thread_index() / 32 : (i64)blockIdx.x;
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

__device__ __forceinline__ float group_sum(float x) {
    if (GROUP == 32) return warp_sum(x);
    __shared__ float scratch[33];
    return block_sum(x, scratch);
}
// Two sums for the barriers of one; each warp adds up the warps' parts for itself.
__device__ __forceinline__ float2 group_sums(float x, float y) {
    x = warp_sum(x);
    y = warp_sum(y);
    if (GROUP == 32) return make_float2(x, y);
    __shared__ float2 parts[32];
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = make_float2(x, y);
    __syncthreads();
    float2 part = threadIdx.x % 32 < GROUP / 32 ? parts[threadIdx.x % 32] : make_float2(0.0f, 0.0f);
    return make_float2(warp_sum(part.x), warp_sum(part.y));
}
__device__ __forceinline__ float group_max(float x) {
    if (GROUP == 32) return warp_max(x);
    __shared__ float scratch[33];
    return block_max(x, scratch);
}
