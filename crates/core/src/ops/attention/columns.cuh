// Scores that come turned, so that the weights of a key are in one row and those of a query in one column: what the kernels
// that go through queries tile by tile have of these.

// What belongs to the queries of a tile: the logarithm that their scores are shifted by, negated, Σ dout · out, and what
// the weights of two of them are drawn by.
struct __align__(16) Column {
    float shift[FAR], delta[FAR];
    RowDraw drawn[DROPPED ? FAR / 2 : 1];
};
// What belongs to a lane's four queries of step p.
__device__ __forceinline__ void take_four(float (&x)[4], const float (&column)[FAR], int p, Lane lane) {
    float4 four = *(const float4*)(column + 16 * p + 4 * lane.t);
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
}

// A bit for each of a lane's weights on 64 queries that falls, query by query of a quad: of query m of step p and the lane's
// upper or lower key (r), bit 8p + 4r of word m. The keys of a quad are in four lanes, of which each draws the words of one
// query and, with them, of the one eight further, which the lane two further asks for: each of the two has half the steps.
// `drawn` has what belongs to pairs of queries.
template <typename Rows>
__device__ __forceinline__ void draw(u32 (&fallen)[4], const Draws& draws, const QuadDraw (&quads)[2],
                                     const Rows& drawn, Lane lane, u32 threshold) {
    int turn = lane.g % 4, self = threadIdx.x % 32, second = lane.t / 2;
    u32 rows[2] = {0, 0};
#pragma unroll
    for (int q = 0; q < 2; q++) {
        RowDraw row = drawn[8 * (2 * second + q) + lane.t % 2 * 4 + turn];
        uint4 word[2];
        draws.words<2>(word, {row, row}, quads);
#pragma unroll
        for (int m = 0; m < 4; m++) {
            uint4 bits = half_of(word[m / 2], m % 2);
            u32 bit = 1u << (8 * q + m / 2 * 4), &all = rows[m % 2];
            if (bits.x < threshold) all |= bit;
            if (bits.y < threshold) all |= bit << 1;
            if (bits.z < threshold) all |= bit << 2;
            if (bits.w < threshold) all |= bit << 3;
        }
    }
    u32 own = second ? rows[1] : rows[0], other = __shfl_xor_sync(0xffffffffu, second ? rows[0] : rows[1], 2);
    u32 all = second ? own << 16 | other : other << 16 | own;
#pragma unroll
    for (int m = 0; m < 4; m++) fallen[m] = __shfl_sync(0xffffffffu, all, (self & ~12) | m << 2) >> turn;
}

// Weights of a warp's 16 keys, as rows of a swizzled tile.
__device__ __forceinline__ void put_turned(u32 tile, const u32 (&weights)[FAR / 16][4], Lane lane) {
    u32 row = tile + (16 * lane.warp + lane.m % 2 * 8 + lane.r) * 128;
#pragma unroll
    for (int k = 0; k < FAR / 16; k++)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                         row + ((2 * k + lane.m / 2 ^ lane.r) << 4)),
                     "r"(weights[k][0]), "r"(weights[k][1]), "r"(weights[k][2]), "r"(weights[k][3])
                     : "memory");
}
