// Rows of a table by index; `slices` blocks share a row. An id outside the table gives NaN.
extern "C" __global__ void embedding(const T* table, const int* ids, T* y, i64 vocabulary, i64 width, i64 slices) {
    i64 row = blockIdx.x / slices, i = (blockIdx.x % slices * blockDim.x + threadIdx.x) * WIDTH, id = ids[row];
    if (i >= width) return;
    float x[WIDTH];
    if (id >= 0 && id < vocabulary) {
        load(x, table + id * width, i, width);
    } else {
        UNROLL for (int k = 0; k < WIDTH; k++) x[k] = NOT_A_NUMBER;
    }
    store(x, y + row * width, i, width);
}

// The gradient adds up rows of dy with equal ids, in the order of the tokens. Tokens are sorted by (id, position):
// first inside runs of RUN in shared memory, then by merging neighbouring runs until one is left.

#define RUN 1024

// A key holds the id above the position. Ids outside the table come after all others.
extern "C" __global__ void sort_runs(const int* ids, u64* keys, i64 n) {
    __shared__ u64 run[RUN];
    i64 at = (i64)blockIdx.x * RUN + threadIdx.x;
    run[threadIdx.x] = at < n ? (u64)(u32)ids[at] << 32 | (u64)at : ~0ull;
    for (u32 size = 2; size <= RUN; size *= 2) {
        for (u32 step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            u32 other = threadIdx.x ^ step;
            bool ascending = (threadIdx.x & size) == 0;
            if (other > threadIdx.x && (run[threadIdx.x] > run[other]) == ascending) {
                u64 key = run[threadIdx.x];
                run[threadIdx.x] = run[other];
                run[other] = key;
            }
        }
    }
    __syncthreads();
    if (at < n) keys[at] = run[threadIdx.x];
}

// How many of the sorted keys [first, end) are smaller.
__device__ __forceinline__ i64 smaller(const u64* keys, i64 first, i64 end, u64 key) {
    i64 low = first;
    while (low < end) {
        i64 middle = (low + end) / 2;
        if (keys[middle] < key) low = middle + 1;
        else end = middle;
    }
    return low - first;
}

// Each key goes to its place among those of its own run and the neighbour. Keys differ, as positions do.
extern "C" __global__ void merge_runs(const u64* from, u64* to, i64 n, i64 run) {
    i64 i = thread_index();
    if (i >= n) return;
    i64 own = i / run * run, pair = i / (2 * run) * 2 * run, other = own == pair ? pair + run : pair;
    i64 first = other < n ? other : n, end = other + run < n ? other + run : n;
    u64 key = from[i];
    to[pair + (i - own) + smaller(from, first, end, key)] = key;
}

// Tokens that a block adds up; what begins in an earlier tile is added by the block it begins in.
#define TILE 32

__device__ __forceinline__ u32 id_of(u64 key) { return (u32)(key >> 32); }

// The sum of dy over the sorted tokens [first, end), in their order.
__device__ __forceinline__ void add_tokens(float (&sum)[WIDTH], const u64* keys, const T* dy, i64 first, i64 end,
                                           i64 width, i64 column) {
    UNROLL4 for (i64 i = first; i < end; i++) {
        float x[WIDTH];
        load(x, dy + (i64)(u32)keys[i] * width, column, width);
        UNROLL for (int k = 0; k < WIDTH; k++) sum[k] += x[k];
    }
}

// The end of the tokens from `first` on that have its id.
__device__ __forceinline__ i64 end_of(const u64* keys, i64 first, i64 n) {
    return first + smaller(keys, first, n, (u64)(id_of(keys[first]) + 1ull) << 32);
}

// For tiles that begin with tokens of the id the tile before ends with: the sum of those tokens.
extern "C" __global__ void sum_leading(const u64* keys, const T* dy, float* parts, i64 n, i64 width, i64 slices) {
    i64 tile = blockIdx.x / slices, column = (blockIdx.x % slices * blockDim.x + threadIdx.x) * WIDTH;
    i64 first = tile * TILE, last = first + TILE < n ? first + TILE : n;
    if (column >= width || tile == 0 || id_of(keys[first - 1]) != id_of(keys[first])) return;
    i64 end = first;
    while (end < last && id_of(keys[end]) == id_of(keys[first])) end++;
    float sum[WIDTH] = {};
    add_tokens(sum, keys, dy, first, end, width, column);
    store(sum, parts + tile * width, column, width);
}

// The rows of the table whose tokens begin in a tile: those in it, then the leading sums of the tiles they go on in.
extern "C" __global__ void embedding_grad(const u64* keys, const T* dy, const float* parts, T* table, i64 n,
                                          i64 vocabulary, i64 width, i64 slices) {
    i64 tile = blockIdx.x / slices, column = (blockIdx.x % slices * blockDim.x + threadIdx.x) * WIDTH;
    i64 first = tile * TILE, last = first + TILE < n ? first + TILE : n;
    if (column >= width) return;
    if (tile > 0) {
        u32 before = id_of(keys[first - 1]);
        while (first < last && id_of(keys[first]) == before) first++;
    }
    while (first < last) {
        u32 id = id_of(keys[first]);
        if (id >= vocabulary) return;
        i64 end = first;
        while (end < last && id_of(keys[end]) == id) end++;
        T* row = table + id * width;
        float sum[WIDTH] = {}, part[WIDTH];
        if (ACCUMULATE) load(sum, row, column, width);
        add_tokens(sum, keys, dy, first, end, width, column);
        if (end == last && end < n) {
            i64 next = tile + 1, stop = (end_of(keys, first, n) + TILE - 1) / TILE;
            UNROLL4 for (; next < stop; next++) {
                load(part, parts + next * width, column, width);
                UNROLL for (int k = 0; k < WIDTH; k++) sum[k] += part[k];
            }
        }
        store(sum, row, column, width);
        first = end;
    }
}
