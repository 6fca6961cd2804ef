// The feed-forward of feed_forward.cu in half precision: products of 16 × 16 by 16 × 8 values, whose results are the left
// operands of the next ones as they stand. What is kept between two products has half precision, sums are f32.

#define CHUNK 64
#define SIXTEENTHS (WIDE / 16)

// Sixteens of tokens that a warp has: what registers hold.
#define TOKENS (WIDE <= 64 ? 2 : 1)

// The place of eight cells of row r in a tile. Neither eight rows nor eight groups of one row meet in a bank.
template <int PITCH> __device__ __forceinline__ int place(int r, int group) {
    return r * PITCH + (group ^ (PITCH % 64 == 0 ? r % 8 : r / 2 % 4)) * 8;
}

// Starts bringing ROWS × PITCH cells into a tile; zeros beyond `rows` and `columns`.
template <int ROWS, int PITCH>
__device__ __forceinline__ void fetch(T* tile, const T* from, i64 stride, i64 rows, int columns) {
    UNROLL for (int at = threadIdx.x; at < ROWS * PITCH / 8; at += THREADS) {
        int r = at / (PITCH / 8), group = at % (PITCH / 8);
        T* to = tile + place<PITCH>(r, group);
        const T* source = from + r * stride + group * 8;
#if VECTORS
        bool there = r < rows && group * 8 < columns;
        copy_later(to, there ? source : from, there);
#else
        UNROLL for (int i = 0; i < 8; i++) to[i] = r < rows && group * 8 + i < columns ? source[i] : T{0};
#endif
    }
}

// Runs `compute` on the tiles `begin` .. `end`, of so many cells each, while the next one is on its way.
template <typename Bring, typename Compute>
__device__ __forceinline__ void stream(T* tiles, int cells, int begin, int end, Bring bring, Compute compute) {
    if (begin < end) bring(tiles, begin);
#pragma unroll 1
    for (int i = begin; i < end; i++) {
        T* now = tiles + (i - begin) % STAGES * cells;
        arrive();
        __syncthreads();
        if (STAGES == 2 && i + 1 < end) bring(tiles + (i + 1 - begin) % STAGES * cells, i + 1);
        compute(now);
        if (STAGES == 1) {
            __syncthreads();
            if (i + 1 < end) bring(tiles, i + 1);
        }
    }
}

// Four 8 × 8 matrices out of shared memory, as they lie there or turned; every lane gives the address of one of their rows.
template <bool TURNED> __device__ __forceinline__ void load_matrices(u32 r[4], const T* from) {
    u32 at = (u32)__cvta_generic_to_shared(from);
    if (TURNED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
    }
}

// The right operands of two neighbouring products, 16 × 8 each, in a tile whose rows are their columns: `column` and
// `depth` count sixteens.
template <int PITCH>
__device__ __forceinline__ void right_across(u32 b[4], const T* tile, int column, int depth, Lane lane) {
    load_matrices<false>(b, tile + place<PITCH>(16 * column + lane.matrix / 2 * 8 + lane.row, 2 * depth + lane.matrix % 2));
}
// The same in a tile whose rows are theirs.
template <int PITCH>
__device__ __forceinline__ void right_down(u32 b[4], const T* tile, int column, int depth, Lane lane) {
    load_matrices<true>(b, tile + place<PITCH>(16 * depth + lane.matrix % 2 * 8 + lane.row, 2 * column + lane.matrix / 2));
}

// 16 rows as left operands; zeros beyond `rows` and `columns`.
struct Rows { u32 at[SIXTEENTHS][4]; };
__device__ __forceinline__ void take(Rows& to, const T* from, i64 row_stride, i64 column_stride, i64 rows, int columns,
                                     Lane lane) {
    UNROLL for (int k = 0; k < SIXTEENTHS; k++) UNROLL for (int i = 0; i < 4; i++) {
        int r = lane.g + i % 2 * 8, c = 16 * k + i / 2 * 8 + 2 * lane.t;
        const T* cell = from + r * row_stride + c * column_stride;
        u32 low = r < rows && c < columns ? cell[0].bits : 0, high = r < rows && c + 1 < columns ? cell[column_stride].bits : 0;
        to.at[k][i] = low | high << 16;
    }
}

// A (16, 16) result, and the same as the next product's left operand.
typedef float Square[2][4];
struct Left {
    u32 at[4];
    Left() = default;
    __device__ __forceinline__ Left(const Square c)
        : at{pair_of(c[0][0], c[0][1]), pair_of(c[0][2], c[0][3]), pair_of(c[1][0], c[1][1]),
             pair_of(c[1][2], c[1][3])} {}
};

// c[m] += rows[m] (16, WIDE) · the 16 rows of a tile (.., WIDE) from 16·p on, ᵀ; or, DOWN, the 16 columns of a tile (WIDE,
// CHUNK).
template <int MANY, bool DOWN = false>
__device__ __forceinline__ void add_rows(Square* c, const Rows* rows, const T* tile, int p, Lane lane) {
    UNROLL for (int k = 0; k < SIXTEENTHS; k++) {
        u32 b[4];
        if (DOWN) right_down<CHUNK>(b, tile, p, k, lane);
        else right_across<WIDE>(b, tile, p, k, lane);
        UNROLL for (int m = 0; m < MANY; m++) {
            multiply(c[m][0], rows[m].at[k], b[0], b[1]);
            multiply(c[m][1], rows[m].at[k], b[2], b[3]);
        }
    }
}

// sums[m] += left[m] (16, 16) · the 16 rows of a tile (.., WIDE) from 16·p on; or, ACROSS, the 16 columns of a tile (WIDE,
// CHUNK), ᵀ.
template <int MANY, bool ACROSS = false>
__device__ __forceinline__ void mix(Sums* sums, const Left* left, const T* tile, int p, Lane lane) {
    UNROLL for (int n = 0; n < SIXTEENTHS; n++) {
        u32 b[4];
        if (ACROSS) right_across<CHUNK>(b, tile, n, p, lane);
        else right_down<WIDE>(b, tile, n, p, lane);
        UNROLL for (int m = 0; m < MANY; m++) {
            multiply(sums[m].of[2 * n], left[m].at, b[0], b[1]);
            multiply(sums[m].of[2 * n + 1], left[m].at, b[2], b[3]);
        }
    }
}

// Rows g and g + 8 of sums; none beyond `rows` and `columns`.
__device__ __forceinline__ void put(float* to, i64 row_stride, i64 column_stride, i64 rows, int columns,
                                    const Sums& sums, Lane lane) {
    UNROLL for (int n = 0; n < EIGHTS; n++) UNROLL for (int i = 0; i < 4; i++) {
        int r = lane.g + i / 2 * 8, c = 8 * n + 2 * lane.t + i % 2;
        if (r < rows && c < columns) to[r * row_stride + c * column_stride] = sums.of[n][i];
    }
}

// The rows (tokens, width) of this warp's sixteens of tokens.
struct Tokens {
    i64 first, tokens;
    int width;
    __device__ __forceinline__ Tokens(i64 tokens, int width, Lane lane)
        : first(((i64)blockIdx.x * WARPS + lane.warp) * 16 * TOKENS), tokens(tokens), width(width) {}
    __device__ __forceinline__ void take_from(const T* from, Rows& to, int m, Lane lane) const {
        i64 row = first + 16 * m;
        take(to, from + row * width, width, 1, tokens - row, width, lane);
    }
    // Into the part that is this block's.
    __device__ __forceinline__ void put_to(float* parts, const Sums* sums, Lane lane) const {
        UNROLL for (int m = 0; m < TOKENS; m++) {
            i64 row = first + 16 * m;
            put(parts + (blockIdx.y * tokens + row) * width, width, 1, tokens - row, width, sums[m], lane);
        }
    }
};

// Chunk i of the weights: up's as (CHUNK, WIDE), behind it down's as (WIDE, CHUNK), behind that up's bias.
struct Weights {
    const T *up, *bias, *down;
    int width, hidden;
    static constexpr int cells = 2 * CHUNK * WIDE + CHUNK;
    static __device__ __forceinline__ T* down_of(T* tile) { return tile + CHUNK * WIDE; }
    __device__ __forceinline__ void bring(T* tile, int i) const {
        int first = i * CHUNK, left = hidden - first;
        fetch<CHUNK, WIDE>(tile, up + (i64)first * width, width, left, width);
        fetch<WIDE, CHUNK>(down_of(tile), down + first, hidden, width, left);
        fetch<1, CHUNK>(tile + 2 * CHUNK * WIDE, bias + first, 0, 1, left);
    }
    // What the sums of the hidden values from 16·p on start with.
    static __device__ __forceinline__ void start(Square c, const T* tile, int p, Lane lane) {
        const T* bias = tile + 2 * CHUNK * WIDE + 16 * p + 2 * lane.t;
        UNROLL for (int e = 0; e < 2; e++) UNROLL for (int n = 0; n < 4; n++) c[e][n] = to_float(bias[8 * e + n % 2]);
    }
};

// parts (gridDim.y, tokens, width): what this block's chunks add to y. A warp has 16 · TOKENS tokens.
extern "C" __global__ __launch_bounds__(THREADS, RESIDENT)
void forward(const T* x, const T* up, const T* bias, const T* down, float* parts, i64 tokens, int width, int hidden) {
    extern __shared__ float4 shared[];
    Lane lane;
    Tokens own(tokens, width, lane);
    Rows rows[TOKENS];
    Sums sums[TOKENS];
    UNROLL for (int m = 0; m < TOKENS; m++) {
        own.take_from(x, rows[m], m, lane);
        clear(sums[m]);
    }
    Weights weights{up, bias, down, width, hidden};
    Part part((hidden + CHUNK - 1) / CHUNK);
    stream((T*)shared, Weights::cells, part.begin, part.end, [&](T* tile, int i) { weights.bring(tile, i); },
        [&](T* tile) {
#pragma unroll 1
            for (int p = 0; p < CHUNK / 16; p++) {
                Square h[TOKENS];
                Left left[TOKENS];
                UNROLL for (int m = 0; m < TOKENS; m++) Weights::start(h[m], tile, p, lane);
                add_rows<TOKENS>(h, rows, tile, p, lane);
                UNROLL for (int m = 0; m < TOKENS; m++) {
                    UNROLL for (int n = 0; n < 8; n++) h[m][n / 4][n % 4] = ACT(h[m][n / 4][n % 4]);
                    left[m] = Left(h[m]);
                }
                mix<TOKENS, true>(sums, left, Weights::down_of(tile), p, lane);
            }
        });
    own.put_to(parts, sums, lane);
}

// parts (gridDim.y, tokens, width): what this block's chunks add to the gradient of x. A warp has 16 · TOKENS tokens.
extern "C" __global__ __launch_bounds__(THREADS, RESIDENT)
void backward_input(const T* x, const T* up, const T* bias, const T* down, const T* dy, float* parts, i64 tokens,
                    int width, int hidden) {
    extern __shared__ float4 shared[];
    Lane lane;
    Tokens own(tokens, width, lane);
    Rows rows[TOKENS], drows[TOKENS];
    Sums sums[TOKENS];
    UNROLL for (int m = 0; m < TOKENS; m++) {
        own.take_from(x, rows[m], m, lane);
        own.take_from(dy, drows[m], m, lane);
        clear(sums[m]);
    }
    Weights weights{up, bias, down, width, hidden};
    Part part((hidden + CHUNK - 1) / CHUNK);
    stream((T*)shared, Weights::cells, part.begin, part.end, [&](T* tile, int i) { weights.bring(tile, i); },
        [&](T* tile) {
#pragma unroll 1
            for (int p = 0; p < CHUNK / 16; p++) {
                Square before[TOKENS], slope[TOKENS] = {};
                Left left[TOKENS];
                UNROLL for (int m = 0; m < TOKENS; m++) Weights::start(before[m], tile, p, lane);
                add_rows<TOKENS>(before, rows, tile, p, lane);
                add_rows<TOKENS, true>(slope, drows, Weights::down_of(tile), p, lane);
                UNROLL for (int m = 0; m < TOKENS; m++) {
                    UNROLL for (int n = 0; n < 8; n++) slope[m][n / 4][n % 4] *= SLOPE(before[m][n / 4][n % 4]);
                    left[m] = Left(slope[m]);
                }
                mix<TOKENS>(sums, left, tile, p, lane);
            }
        });
    own.put_to(parts, sums, lane);
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
    stream((T*)shared, 2 * CHUNK * WIDE, part.begin, part.end,
        [&](T* tile, int i) {
            i64 row = (i64)i * CHUNK;
            fetch<CHUNK, WIDE>(tile, x + row * width, width, tokens - row, width);
            fetch<CHUNK, WIDE>(tile + CHUNK * WIDE, dy + row * width, width, tokens - row, width);
        },
        [&](T* xs) {
            T* dys = xs + CHUNK * WIDE;
#pragma unroll 1
            for (int p = 0; p < CHUNK / 16; p++) {
                Square value, gradient = {};
                UNROLL for (int n = 0; n < 8; n++) value[n / 4][n % 4] = start[n % 4 / 2];
                add_rows<1>(&value, &ups, xs, p, lane);
                add_rows<1>(&gradient, &downs, dys, p, lane);
                UNROLL for (int n = 0; n < 8; n++) {
                    float &h = value[n / 4][n % 4], &dh = gradient[n / 4][n % 4];
                    dh *= SLOPE(h);
                    h = ACT(h);
                    bias_sums[n % 4 / 2] += dh;
                }
                Left of_up(gradient), of_down(value);
                mix<1>(&up_sums, &of_up, xs, p, lane);
                mix<1>(&down_sums, &of_down, dys, p, lane);
            }
        });
    i64 done = (i64)blockIdx.y * hidden;
    put(up_parts + (done + first) * width, width, 1, left, width, up_sums, lane);
    put(down_parts + done * width + first, 1, hidden, left, width, down_sums, lane);
    UNROLL for (int r = 0; r < 2; r++) {
        float sum = bias_sums[r];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane.t == 0 && own + 8 * r < hidden) bias_parts[done + own + 8 * r] = sum;
    }
}
