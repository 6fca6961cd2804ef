// One launch for many sets of tensors, such as a weight with its moments and its gradient, set after set. The tensors of
// a set have n elements each, and the blocks from `first` on are theirs. SETS is the room for sets, TENSORS how many
// tensors make one, OWN_WORDS how many words belong to one beside them.

struct Set {
    void* at[TENSORS];
#if OWN_WORDS
    u64 words[OWN_WORDS];
#endif
    i64 n, first;
};
struct Sets {
    Set at[SETS];
};
#define MANY const __grid_constant__ Sets sets, u32 count

// The set that this block belongs to: the last one that begins at or before it.
__device__ __forceinline__ const Set& set_of_block(const Sets& sets, u32 count) {
    u32 low = 0, high = count;
    while (SETS > 1 && high - low > 1) {
        u32 middle = (low + high) / 2;
        if (sets.at[middle].first <= blockIdx.x) low = middle;
        else high = middle;
    }
    return sets.at[low];
}
// The first of this thread's WIDTH elements.
__device__ __forceinline__ i64 index_in(const Set& set) {
    return ((blockIdx.x - set.first) * blockDim.x + threadIdx.x) * WIDTH;
}
