// The gradient of a relative bias: gradients of scores added up along diagonals, and diagonals by the row of the table that
// they belong to, which neighbours share. Every warp does so for its own 16 queries, tile after tile of 64 keys that follow
// each other, and in the same order every time.

// Floats in shared memory that a warp writes eight queries to, each moved by its number: then a diagonal is a column. Both
// directions are free of collisions in the banks.
#define SKEWED 540
__device__ __forceinline__ int skew(int g) { return 66 * g + (g < 4 ? 0 : 12); }

// Column c of a tile has the keys c - 7 after the warp's first query and the tile's first key. A lane has columns l and
// l + 32 of every tile; those before and behind are columns of the tiles before and behind, in the same lanes.
struct Diagonals {
    float* skewed;
    // Sums of the warp by row of the table.
    float* sums;
    const u32* rows;
    // Distances that there are, and the one of column 0 of a tile whose first key is 0.
    int count, first;
    // Of column l + 64 of the last tile, and of its column l + 32, to which the next one adds too.
    float ahead, second;

    // `room` holds, for each warp of the block, SKEWED floats and one for each row of the table.
    __device__ __forceinline__ Diagonals(float* room, const u32* rows, int bias_rows, int q_len, int k_len, int i0,
                                         int warp)
        : skewed(room + warp * SKEWED), sums(room + 4 * GROUPS * SKEWED + warp * bias_rows), rows(rows),
          count(q_len + k_len - 1), first(q_len - 1 - (i0 + 16 * warp) - 7), ahead(0.0f), second(0.0f) {
        for (int n = threadIdx.x % 32; n < bias_rows; n += 32) sums[n] = 0.0f;
        __syncwarp();
    }

    // The row of a lane's diagonal, from this distance on; of those that there are not, none.
    __device__ __forceinline__ u32 row_at(int distance) const {
        int at = distance + (int)(threadIdx.x % 32);
        return at >= 0 && at < count ? rows[at] : ~0u;
    }
    // Adds 32 neighbouring diagonals to the sums of their rows: first those of a row to the first lane that has it.
    __device__ __forceinline__ void add_to_rows(float x, u32 row) {
        int lane = threadIdx.x % 32;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            float more = __shfl_down_sync(0xffffffffu, x, step);
            u32 theirs = __shfl_down_sync(0xffffffffu, row, step);
            if (lane + step < 32 && theirs == row) x += more;
        }
        u32 before = __shfl_up_sync(0xffffffffu, row, 1);
        if (row != ~0u && (lane == 0 || before != row)) sums[row] += x;
        __syncwarp();
    }

    // Rows of the table that a tile's first key at j0 completes: of the tile before, and of its own first columns.
    struct Complete { u32 second, own; };
    __device__ __forceinline__ Complete complete(int j0) const {
        return Complete{row_at(first + j0 - 32), row_at(first + j0)};
    }
    // Adds the gradients of a tile's scores.
    __device__ __forceinline__ void add(const float (&slopes)[32], Complete to, Lane lane) {
        int l = threadIdx.x % 32;
        float own = ahead, before = second;
        ahead = second = 0.0f;
        float* mine = skewed + skew(lane.g) + 7 - lane.g + 4 * lane.t;
#pragma unroll
        for (int r = 0; r < 2; r++) {
#pragma unroll
            for (int n = 0; n < 32; n++)
                if (n % 4 / 2 == r) mine[column(n, 0)] = slopes[n];
            __syncwarp();
#pragma unroll
            for (int g = 0; g < 8; g++) {
                const float* row = skewed + skew(g) + l;
                // Of the lower eight queries columns are eight further.
                if (r == 0) {
                    bool here = l >= 7 - g;
                    float x = row[here ? 0 : 64];
                    own += here ? x : 0.0f, ahead += here ? 0.0f : x;
                    second += row[32];
                } else {
                    bool here = l <= 30 - g;
                    float x = row[here ? 40 : -24];
                    own += row[8];
                    second += here ? x : 0.0f, before += here ? 0.0f : x;
                }
            }
            __syncwarp();
        }
        add_to_rows(before, to.second);
        add_to_rows(own, to.own);
    }
    // What is left of the last tile, the next one of which would begin at j0; then a block's sums leave, warp after warp.
    __device__ __forceinline__ void put(float* to, int stride, int bias_rows, int j0) {
        Complete last = complete(j0);
        add_to_rows(second, last.second);
        add_to_rows(ahead, last.own);
        __syncthreads();
        const float* all = sums - threadIdx.x / 32 * bias_rows;
        for (int n = threadIdx.x; n < bias_rows; n += THREADS) {
            float sum = 0.0f;
#pragma unroll
            for (int warp = 0; warp < 4 * GROUPS; warp++) sum += all[warp * bias_rows + n];
            to[(i64)n * stride] = sum;
        }
    }
};

