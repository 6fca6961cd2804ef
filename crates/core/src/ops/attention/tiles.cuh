// What products on tensor cores have in common, whatever their precision: where a warp's operands and results lie. D is a
// multiple of 8.
//
// Lane (g, t) = (lane / 4, lane % 4) holds rows g and g + 8 of a result and columns 2t, 2t + 1 of every eight. The other
// side's rows are fed in an order in which these are, over two products, its four neighbours 4t .. 4t + 4: one quad of
// the random stream. The same order makes a result the left operand of the next product.

#define TILE 64
#define SCORE_PITCH (TILE + 4)
#define EIGHTS (D / 8)

// What is the same in all lanes, handed round so that the compiler knows: a branch on it then keeps the warp together.
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

struct Lane {
    int warp, g, t, m, r;
    __device__ __forceinline__ Lane()
        : warp(uniform(threadIdx.x / 32)), g(threadIdx.x % 32 / 4), t(threadIdx.x % 4), m(threadIdx.x % 32 / 8),
          r(threadIdx.x % 8) {}
};

// Where row r of a tile lies: of 16 rows, the first halves of the quads and then the second ones, each read as eight
// neighbours, which are in different banks.
__device__ __forceinline__ int slot(int r) { return r & ~15 | (r & 2) << 2 | (r & 12) >> 1 | r & 1; }

// Rows of a tile that there are, in steps of 16. A bias asks for whole tiles.
__device__ __forceinline__ int steps_of(int rows) { return BIAS ? TILE / 16 : (min(rows, TILE) + 15) / 16; }

// A warp's (16, D) result.
struct Sums { float of[EIGHTS][4]; };
__device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
    for (int n = 0; n < EIGHTS; n++) sums.of[n][0] = sums.of[n][1] = sums.of[n][2] = sums.of[n][3] = 0.0f;
}
