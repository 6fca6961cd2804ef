// A feed-forward y = act(x · Wᵤᵀ + bᵤ) · W_dᵀ + b_d and its gradients, without the hidden values in memory: a block
// computes 32 of them at a time for its tokens, or a tile of tokens at a time for its hidden values, and adds what comes
// of them to sums in registers. Blocks that share a sum write parts, which are added in their order.
//
// Weights: up (hidden, width), down (width, hidden).

#define CHUNK 32

// Sixteens of tokens that a warp has in the forward pass, and eights of a chunk that it computes at once: what registers
// hold.
#define TOKENS (WIDE <= 64 && !EXACT ? 2 : 1)
#define EIGHTHS (EXACT || WIDE > 64 ? 1 : 2)

// Chunk i of the weights: up's as (CHUNK, WIDE), behind it down's as (WIDE, CHUNK), behind that up's bias.
template <bool FOURS> struct Weights {
    const T *up, *bias, *down;
    int width, hidden;
    static constexpr int words = 2 * CHUNK * WIDE + CHUNK;
    static __device__ __forceinline__ u32* down_of(u32* tile) { return tile + CHUNK * WIDE; }
    static __device__ __forceinline__ const float* bias_of(u32* tile) { return (float*)(tile + 2 * CHUNK * WIDE); }
    __device__ __forceinline__ void bring(u32* tile, int i) const {
        int first = i * CHUNK, left = hidden - first;
        fetch<CHUNK, WIDE, FOURS>(tile, up + (i64)first * width, width, left, width);
        fetch<WIDE, CHUNK>(down_of(tile), down + first, hidden, width, left);
        fetch_line(tile + 2 * CHUNK * WIDE, bias + first, CHUNK, left);
    }
    static __device__ __forceinline__ void settle_all(u32* tile) {
        settle<CHUNK, WIDE, FOURS>(tile);
        settle<WIDE, CHUNK>(down_of(tile));
    }
};

// parts (gridDim.y, tokens, width): what this block's chunks add to y. A warp has 16 · TOKENS tokens.
extern "C" __global__ __launch_bounds__(THREADS, RESIDENT)
void forward(const T* x, const T* up, const T* bias, const T* down, float* parts, i64 tokens, int width, int hidden) {
    extern __shared__ float4 shared[];
    Lane lane;
    i64 first = ((i64)blockIdx.x * WARPS + lane.warp) * 16 * TOKENS;
    Rows rows[TOKENS];
    Sums sums[TOKENS];
    UNROLL for (int m = 0; m < TOKENS; m++) {
        i64 row = first + 16 * m;
        take(rows[m], x + row * width, width, 1, tokens - row, width, lane);
        clear(sums[m]);
    }
    using Tile = Weights<false>;
    Tile weights{up, bias, down, width, hidden};
    Part part((hidden + CHUNK - 1) / CHUNK);
    stream((u32*)shared, Tile::words, part.begin, part.end,
        [&](u32* tile, int i) { weights.bring(tile, i); }, [](u32* tile) { Tile::settle_all(tile); },
        [&](u32* tile, int) {
            const float* start = Tile::bias_of(tile) + lane.t;
#pragma unroll 1
            for (int j = 0; j < CHUNK / 8; j += EIGHTHS) {
                float h[EIGHTHS][TOKENS][4];
                UNROLL for (int e = 0; e < EIGHTHS; e++) UNROLL for (int m = 0; m < TOKENS; m++) {
                    h[e][m][0] = h[e][m][2] = start[8 * (j + e)];
                    h[e][m][1] = h[e][m][3] = start[8 * (j + e) + 4];
                }
                add_across<TOKENS, EIGHTHS>(h, rows, tile, j, lane);
                UNROLL for (int e = 0; e < EIGHTHS; e++) {
                    Left left[TOKENS];
                    UNROLL for (int m = 0; m < TOKENS; m++) {
                        UNROLL for (int n = 0; n < 4; n++) h[e][m][n] = ACT(h[e][m][n]);
                        left[m] = Left(h[e][m]);
                    }
                    mix_columns<TOKENS>(sums, left, Tile::down_of(tile), j + e, lane);
                }
            }
        });
    UNROLL for (int m = 0; m < TOKENS; m++) {
        i64 row = first + 16 * m;
        put<false>(parts + (blockIdx.y * tokens + row) * width, width, 1, tokens - row, width, sums[m], lane);
    }
}

// parts (gridDim.y, tokens, width): what this block's chunks add to the gradient of x. A warp has 16 tokens.
extern "C" __global__ __launch_bounds__(THREADS, RESIDENT)
void backward_input(const T* x, const T* up, const T* bias, const T* down, const T* dy, float* parts, i64 tokens,
                    int width, int hidden) {
    extern __shared__ float4 shared[];
    Lane lane;
    i64 first = ((i64)blockIdx.x * WARPS + lane.warp) * 16;
    Rows rows, drows;
    Sums sums;
    take(rows, x + first * width, width, 1, tokens - first, width, lane);
    take(drows, dy + first * width, width, 1, tokens - first, width, lane);
    clear(sums);
    using Tile = Weights<true>;
    Tile weights{up, bias, down, width, hidden};
    Part part((hidden + CHUNK - 1) / CHUNK);
    stream((u32*)shared, Tile::words, part.begin, part.end,
        [&](u32* tile, int i) { weights.bring(tile, i); }, [](u32* tile) { Tile::settle_all(tile); },
        [&](u32* tile, int) {
            const float* start = Tile::bias_of(tile) + 8 * lane.t;
            float before[4][4], slope[4][4] = {};
            UNROLL for (int j = 0; j < 4; j++) {
                before[j][0] = before[j][2] = start[j];
                before[j][1] = before[j][3] = start[j + 4];
            }
            add_across_fours(before, rows, tile, lane);
            add_down_fours(slope, drows, Tile::down_of(tile), lane);
            UNROLL for (int j = 0; j < 4; j++) {
                UNROLL for (int n = 0; n < 4; n++) slope[j][n] *= SLOPE(before[j][n]);
                const u32* row = tile + (8 * lane.t + j) * WIDE;
                mix_rows(sums, Left(slope[j]), row, row + 4 * WIDE, lane);
            }
        });
    put<true>(parts + (blockIdx.y * tokens + first) * width, width, 1, tokens - first, width, sums, lane);
}

// Parts of the gradients of up (gridDim.y, hidden, width), its bias (gridDim.y, hidden) and down (gridDim.y, width,
// hidden), over this block's tiles of tokens. A warp has 16 hidden values: rows here, as tokens are columns.
extern "C" __global__ __launch_bounds__(THREADS, RESIDENT)
void backward_weights(const T* x, const T* up, const T* bias, const T* down, const T* dy, float* up_parts,
                      float* bias_parts, float* down_parts, i64 tokens, int width, int hidden) {
    extern __shared__ float4 shared[];
    Lane lane;
    int first = (blockIdx.x * WARPS + lane.warp) * 16, left = hidden - first, own = first + lane.g;
    Rows ups, downs;
    Sums up_sums, down_sums;
    take(ups, up + (i64)first * width, width, 1, left, width, lane);
    take(downs, down + first, 1, hidden, left, width, lane);
    clear(up_sums);
    clear(down_sums);
    float start[2] = {own < hidden ? to_float(bias[own]) : 0.0f, own + 8 < hidden ? to_float(bias[own + 8]) : 0.0f};
    float bias_sums[2] = {0.0f, 0.0f};
    Part part((tokens + CHUNK - 1) / CHUNK);
    stream((u32*)shared, 2 * CHUNK * WIDE, part.begin, part.end,
        [&](u32* tile, int i) {
            i64 row = (i64)i * CHUNK;
            fetch<CHUNK, WIDE>(tile, x + row * width, width, tokens - row, width);
            fetch<CHUNK, WIDE>(tile + CHUNK * WIDE, dy + row * width, width, tokens - row, width);
        },
        [](u32* tile) {
            settle<CHUNK, WIDE>(tile);
            settle<CHUNK, WIDE>(tile + CHUNK * WIDE);
        },
        [&](u32* tile, int) {
            const u32 *xs = tile, *dys = tile + CHUNK * WIDE;
#pragma unroll 1
            for (int j = 0; j < CHUNK / 8; j += EIGHTHS) {
                float before[EIGHTHS][1][4], slope[EIGHTHS][1][4] = {};
                UNROLL for (int e = 0; e < EIGHTHS; e++) UNROLL for (int n = 0; n < 4; n++) {
                    before[e][0][n] = start[n / 2];
                }
                add_across<1, EIGHTHS>(before, &ups, xs, j, lane);
                add_across<1, EIGHTHS>(slope, &downs, dys, j, lane);
                UNROLL for (int e = 0; e < EIGHTHS; e++) {
                    float *value = before[e][0], *gradient = slope[e][0];
                    UNROLL for (int n = 0; n < 4; n++) {
                        gradient[n] *= SLOPE(value[n]);
                        value[n] = ACT(value[n]);
                        bias_sums[n / 2] += gradient[n];
                    }
                    int row = (8 * (j + e) + lane.t) * WIDE;
                    mix_rows(up_sums, Left(gradient), xs + row, xs + row + 4 * WIDE, lane);
                    mix_rows(down_sums, Left(value), dys + row, dys + row + 4 * WIDE, lane);
                }
            }
        });
    i64 done = (i64)blockIdx.y * hidden;
    put<true>(up_parts + (done + first) * width, width, 1, left, width, up_sums, lane);
    put<true>(down_parts + done * width + first, 1, hidden, left, width, down_sums, lane);
    UNROLL for (int r = 0; r < 2; r++) {
        float sum = bias_sums[r];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane.t == 0 && own + 8 * r < hidden) bias_parts[done + own + 8 * r] = sum;
    }
}
