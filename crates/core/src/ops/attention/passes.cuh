// What passes over tiles on tensor cores share: what is known of a tile's columns, how a block goes through the other side,
// and the step from scores to their gradients.

#define TILE_CELLS (TILE * PITCH)

// What belongs to the columns of a tile. Of keys: 0, or -∞ where nobody sees the key. Of queries: the logarithm that their
// scores are shifted by, negated, and Σ dout · out. Of a relative bias, what it adds by distance.
struct __align__(16) Notes {
    float shift[TILE], delta[TILE], near[BIAS == 1 ? 2 * TILE : 1];
};

// Whether somebody sees key j, as far as the mask goes.
__device__ __forceinline__ bool is_shown(const Scores& head, int j) {
    return j < head.k_len && (!MASKED || head.mask[j] != 0);
}

// What the relative bias adds on diagonal `threadIdx.x` of the tiles at (i0, j0); a bias has blocks of 2 · TILE threads.
__device__ __forceinline__ float read_near(const Scores& head, int i0, int j0) {
    int at = head.q_len - TILE - i0 + j0 + (int)threadIdx.x;
    return BIAS == 1 && at >= 0 && at < head.q_len + head.k_len - 1 ? head.by_distance[at] * LOG2E : 0.0f;
}

// What a thread has read of the next tile's notes and not written yet, so that it does not wait for it: of column
// `threadIdx.x`, and, if the block has one warp only, of the one 32 further.
__device__ __forceinline__ bool has_column(int r) {
    return r == 0 ? threadIdx.x < TILE : blockDim.x == 32;
}
struct KeyNotes {
    int mask[2];
    float near;

    __device__ __forceinline__ void read(const Scores& head, int i0, int j0) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int j = j0 + threadIdx.x + 32 * r;
            mask[r] = 1;
            if (MASKED && has_column(r) && j < head.k_len) mask[r] = head.mask[j];
        }
        near = read_near(head, i0, j0);
    }
    __device__ __forceinline__ void write(Notes& notes, const Scores& head, int j0) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int n = threadIdx.x + 32 * r;
            if (has_column(r)) notes.shift[n] = j0 + n < head.k_len && mask[r] != 0 ? 0.0f : NOTHING;
        }
        if (BIAS == 1) notes.near[threadIdx.x] = near;
    }
};
struct QueryNotes {
    float lse[2], delta[2], near;

    __device__ __forceinline__ void read(const Scores& head, const float* lses, const float* deltas, int i0, int j0) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int i = i0 + threadIdx.x + 32 * r;
            // Queries past the last one are shifted by ∞: their weights are 0.
            lse[r] = INFINITY, delta[r] = 0.0f;
            if (has_column(r) && i < head.q_len) lse[r] = lses[i], delta[r] = deltas[i];
        }
        near = read_near(head, i0, j0);
    }
    __device__ __forceinline__ void write(Notes& notes) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int n = threadIdx.x + 32 * r;
            if (has_column(r)) notes.shift[n] = -LOG2E * saved_lse(lse[r]), notes.delta[n] = delta[r];
        }
        if (BIAS == 1) notes.near[threadIdx.x] = near;
    }
};

// What the bias adds to the score of query i on key j of these tiles.
__device__ __forceinline__ float added(const Notes& notes, const Scores& head, int i0, int j0, int i, int j) {
    if (BIAS == 1) return notes.near[TILE - 1 - i + j];
    return BIAS == 2 && head.sees(i0 + i, j0 + j) ? head.products(i0 + i, j0 + j) * LOG2E : 0.0f;
}

// Whether the mask hides the whole tile of keys. Every warp finds out by itself.
__device__ __forceinline__ bool is_hidden(const Notes& notes) {
    int n = threadIdx.x % 32;
    return MASKED && !__any_sync(0xffffffffu, notes.shift[n] == 0.0f || notes.shift[n + 32] == 0.0f);
}

// The largest, or the sum, over the four lanes of a row.
__device__ __forceinline__ float across(float x, bool largest) {
#pragma unroll
    for (int lane = 1; lane < 4; lane <<= 1) {
        float y = __shfl_xor_sync(0xffffffffu, x, lane);
        x = largest ? fmaxf(x, y) : x + y;
    }
    return x;
}

// A block's queries against its keys: what the forward pass and the gradients of queries share.
struct Queries {
    Lane lane;
    // The block's first query and the lane's upper one.
    int i0, own;
    // Past the last key that a query sees: of the block's, the warp's, and the lane's two.
    int end, warp_end, row_end[2];

    __device__ __forceinline__ Queries(const Scores& head, int tile) {
        int rows = blockDim.x / 2, q_len = head.q_len;
        i0 = tile * rows;
        int first = i0 + 16 * lane.warp;
        own = first + lane.g;
        end = head.end(min(i0 + rows, q_len) - 1);
        warp_end = first < q_len ? head.end(min(first + 16, q_len) - 1) : 0;
        row_end[0] = head.end(own), row_end[1] = head.end(own + 8);
    }
    // Steps of 16 keys that the warp takes in the tile from j0 on.
    __device__ __forceinline__ int steps(const Notes& notes, int j0) const {
        return is_hidden(notes) ? 0 : steps_of(warp_end - j0);
    }
    // From products to exponents of 2, in step p of the tile from j0 on.
    __device__ __forceinline__ void exponents(float s[2][4], const Notes& notes, const Scores& head, float scale,
                                              int j0, int p) const {
        int j = 16 * p + 4 * lane.t;
        float4 shown = *(const float4*)(notes.shift + j);
        float shift[4] = {shown.x, shown.y, shown.z, shown.w};
#pragma unroll
        for (int n = 0; n < 8; n++) {
            int c = n / 4 * 2 + n % 2, r = n % 4 / 2;
            float& x = s[n / 4][n % 4];
            x = x * scale + shift[c];
            if (BIAS == 1 || BIAS == 2) x += added(notes, head, i0, j0, own + 8 * r - i0, j + c);
            if (LIMITED) x = j0 + j + c < row_end[r] ? x : NOTHING;
        }
    }
};

// Goes through the other side from `first` on. bring(stage, at) starts to copy the tile from row `at` on and reads its
// notes, write(stage, at) writes them, body(stage, at) works on it. The caller has brought and written the first one,
// even if there is none: a branch there would part the lanes, and the exchange of rows that follows wants them together.
template <typename Bring, typename Write, typename Body>
__device__ __forceinline__ void walk(int first, int end, Bring bring, Write write, Body body) {
    // All lanes say the same; a vote on it is what tells the compiler that they stay together.
    for (int at = first, stage = 0; __any_sync(0xffffffffu, at < end); at += TILE, stage = (stage + 1) % STAGES) {
        int next = (stage + 1) % STAGES;
        bool more = __any_sync(0xffffffffu, at + TILE < end);
        finish_copies();
        __syncthreads();
        if (STAGES == 2 && more) bring(next, at + TILE);
        body(stage, at);
        if (STAGES == 1) {
            __syncthreads();
            if (more) bring(next, at + TILE);
        }
        if (more) write(next, at + TILE);
    }
}

// From exponents and gradients of the dropped weights to dropped weights and gradients of the scores, in place.
__device__ __forceinline__ void differentiate(float& s, float& slope, float factor, float delta) {
    float weight = power_of_2(s);
    slope = weight * (slope * factor - delta);
    s = weight * factor;
}

// The factors of the weights of keys j and j + 8 (rows g and g + 8) for the four queries from i on. The keys of a quad
// are in four lanes, of which each draws for one query and the one eight further; that is the query of the lane two
// further, and each of the two draws for one of the two quads.
__device__ __forceinline__ void key_factors(float factor[2][4], const Scores& head, int i, int j, Lane lane) {
    int turn = lane.g % 4, self = threadIdx.x % 32, second = lane.t / 2;
    uint4 drawn = head.draw(i + turn, (j + 8 * second) / 4);
    u32 own = head.fallen(half_of(drawn, second)), other = head.fallen(half_of(drawn, 1 - second));
    other = __shfl_xor_sync(0xffffffffu, other, 2);
    u32 fallen = second ? own << 4 | other : other << 4 | own;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        u32 theirs = __shfl_sync(0xffffffffu, fallen, (self & ~12) | n << 2);
        factor[0][n] = theirs & 1u << turn ? 0.0f : head.keep;
        factor[1][n] = theirs & 16u << turn ? 0.0f : head.keep;
    }
}

