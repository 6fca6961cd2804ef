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

// The words that a lane's weights on a tile fall by: of every 16 keys four, for both of its queries. `quad`: the first four.
__device__ __forceinline__ void draw(uint4 (&words)[FAR / 16], const Draws& draws, RowDraw rows, int quad) {
#pragma unroll
    for (int p = 0; p < FAR / 16; p += 2) {
        uint4 two[2];
        draws.words<2>(two, {rows, rows}, {draws.quad(quad + 4 * p), draws.quad(quad + 4 * p + 4)});
        words[p] = two[0], words[p + 1] = two[1];
    }
}
// Takes away the weights that fall; what is left is still to be multiplied by `keep`.
__device__ __forceinline__ void drop(float (&s)[FAR / 2], const uint4 (&words)[FAR / 16], u32 threshold) {
#pragma unroll
    for (int n = 0; n < FAR / 8; n++) {
        uint4 bits = half_of(words[n / 2], n % 2);
        float* x = s + n / 2 * 8 + n % 2 * 2;
        if (bits.x < threshold) x[0] = 0.0f;
        if (bits.y < threshold) x[1] = 0.0f;
        if (bits.z < threshold) x[4] = 0.0f;
        if (bits.w < threshold) x[5] = 0.0f;
    }
}

// A group's rows leave for `out`, divided by the sums of their weights, and the logarithms of these sums for `lse`. i0 and own:
// the first row of the block, and of the lane. `unit`: what turns products into scores.
__device__ __forceinline__ void put_outputs(T* out, float* lse, Sizes s, Place at, int i0, int own, const Softmax& rows,
                                            const float (&sums)[D / 2], Lane lane, float unit, float keep) {
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float total = across(rows.total[r], false);
        bool seen = total > 0.0f;
        factor[r] = seen ? (DROPPED ? keep : 1.0f) / total : 0.0f;
        if (lane.t == 0 && own + 8 * r < s.q_len)
            lse[(i64)(at.b * s.heads + at.h) * s.q_len + own + 8 * r] =
                seen ? rows.top[r] * unit + logf(total) : NOTHING;
    }
    T* to = out + (i64)at.b * s.q_len * s.heads * D + at.h * D;
    put_rows(to, (i64)s.heads * D, i0, s.q_len, sums, lane, factor);
}
