// From the scores of a tile to weights, in the forward pass by groups of four warps. Exponentials are powers of 2: scores have
// log₂ e in them.

// The rows of a lane, as far as they have come.
struct Softmax {
    // The largest product so far, or a little less; the sum of weights in this lane's columns.
    float top[2], total[2];

    // From products to weights. Returns whether sums so far fade, and by what.
    __device__ __forceinline__ bool weigh(float (&s)[FAR / 2], float scale, float fade[2]) {
        float highest[2] = {top[0], top[1]};
#pragma unroll
        for (int n = 0; n < FAR / 2; n++) highest[n % 4 / 2] = fmaxf(highest[n % 4 / 2], s[n]);
        highest[0] = across(highest[0], true), highest[1] = across(highest[1], true);
        // Up to 2⁸ times larger weights are as exact: only then is everything so far made smaller.
        bool grown = (highest[0] - top[0]) * scale > 8.0f || (highest[1] - top[1]) * scale > 8.0f;
        grown = __any_sync(0xffffffffu, grown);
        fade[0] = fade[1] = 1.0f;
        if (grown) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                if (highest[r] != NOTHING) fade[r] = power_of_2((top[r] - highest[r]) * scale);
                top[r] = highest[r], total[r] *= fade[r];
            }
        }
        float shift[2], sum[2] = {0.0f, 0.0f};
        // A query that has seen nothing yet subtracts 0 instead of -∞: its weights are 0, not NaN.
        for (int r = 0; r < 2; r++) shift[r] = top[r] == NOTHING ? 0.0f : -top[r] * scale;
#pragma unroll
        for (int n = 0; n < FAR / 2; n++) {
            s[n] = power_of_2(s[n] * scale + shift[n % 4 / 2]);
            (n % 2 ? sum : total)[n % 4 / 2] += s[n];
        }
        total[0] += sum[0], total[1] += sum[1];
        return grown;
    }
};

// In the uppermost bit of each half of a word: whether it is not less than that of `threshold`, given what is to be added to
// subtract this.
__device__ __forceinline__ u32 not_less(u32 word, u32 threshold, u32 subtracts) {
    u32 rest;
    asm("add.u16x2 %0, %1, %2;" : "=r"(rest) : "r"(word), "r"(subtracts));
    return word & ~threshold | (word | ~threshold) & ~rest;
}
// Bytes of two words, as `prmt` has it: 8 more than a byte's number stands for eight times its uppermost bit.
template <int WHICH> __device__ __forceinline__ u32 bytes_of(u32 x, u32 y) {
    u32 bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(x), "r"(y), "n"(WHICH));
    return bytes;
}
// Which of a lane's weights on a tile stay: all bits of their places in left operands. `quad`: the first four of its keys.
// `threshold` is in the upper half of its word.
__device__ __forceinline__ void draw(u32 (&staying)[FAR / 16][4], const Draws& draws, RowDraw rows, int quad,
                                     u32 threshold) {
    u32 in_halves = threshold | threshold >> 16, subtracts = __vneg2(in_halves);
#pragma unroll
    for (int p = 0; p < FAR / 16; p += 2) {
        uint4 words[2];
        draws.words<2>(words, {rows, rows}, {draws.quad(quad + 4 * p), draws.quad(quad + 4 * p + 4)});
#pragma unroll
        for (int n = 0; n < 2; n++) {
            u32 x = not_less(words[n].x, in_halves, subtracts), y = not_less(words[n].y, in_halves, subtracts);
            u32 z = not_less(words[n].z, in_halves, subtracts), w = not_less(words[n].w, in_halves, subtracts);
            // Words are of two rows each, operands of two keys.
            staying[p + n][0] = bytes_of<0xdd99>(x, y), staying[p + n][1] = bytes_of<0xffbb>(x, y);
            staying[p + n][2] = bytes_of<0xdd99>(z, w), staying[p + n][3] = bytes_of<0xffbb>(z, w);
        }
    }
}
// Weights as left operands, without those that fall; what is left is still to be multiplied by `keep`.
__device__ __forceinline__ void hold_staying(u32 (&to)[FAR / 16][4], const float (&s)[FAR / 2],
                                             const u32 (&staying)[FAR / 16][4]) {
    hold(to, s);
#pragma unroll
    for (int n = 0; DROPPED && n < FAR / 4; n++) to[n / 4][n % 4] &= staying[n / 4][n % 4];
}

// Writes the logarithms of a group's sums of weights to `lse`, and returns what its sums are to be multiplied by. i0: the row
// of the first lane of all. `unit`: what turns products into scores.
struct Factors { float of[2]; };
__device__ __forceinline__ Factors put_statistics(float* lse, Sizes s, Place at, int i0, const Softmax& rows, Lane lane,
                                                  float unit, float keep) {
    // Of the four lanes that have two rows, every other one divides for the first, and for the second.
    int second = lane.t % 2, i = i0 + 16 * lane.warp + lane.g + 8 * second;
    float totals[2] = {across(rows.total[0], false), across(rows.total[1], false)};
    float total = second ? totals[1] : totals[0];
    bool seen = total > 0.0f;
    float quotient = seen ? (DROPPED ? keep : 1.0f) / total : 0.0f;
    if (lane.t < 2 && i < s.q_len)
        lse[(i64)(at.b * s.heads + at.h) * s.q_len + i] =
            seen ? (second ? rows.top[1] : rows.top[0]) * unit + logf(total) : NOTHING;
    int first = threadIdx.x % 32 & ~3;
    return Factors{__shfl_sync(0xffffffffu, quotient, first), __shfl_sync(0xffffffffu, quotient, first + 1)};
}
// Where a head's outputs start.
__device__ __forceinline__ T* outputs_of(T* out, Sizes s, Place at) {
    return out + (i64)at.b * s.q_len * s.heads * D + at.h * D;
}
