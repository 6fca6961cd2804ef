// What all attention kernels share: which keys a query sees, what is added to its scores, which weights fall.
//
// T is the element type and D the head size. LIMITED: a query sees the keys up to its own position, which is known
// before the launch (1) or at run time only (2). MASKED: a mask hides keys. DROPPED: weights fall. BIAS: 0 none, 1 relative,
// 2 disentangled, 3 the same where the kernel adds it to the products by itself.

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f
#define NOTHING (-INFINITY)

// Parameters of every kernel that follow from the op; null or 0 where the op has no such thing.
//   by_distance  (heads, q_len + k_len - 1): a relative bias
//   rows         (q_len + k_len - 1): the row of a disentangled bias's tables, counted from the first one in use
//   by_query     (heads, batch, q_len, pitch): scale · q · pos_key of those rows
//   by_key       (heads, batch, k_len, pitch): scale · k · pos_query
//   mask         (batch, k_len): 0 hides the key
//   position     where query 0 stands, if that is known at run time only; `first` otherwise
//   state        (seed, step, first sample) of the random stream; sample 0 of this launch is `sample` further
#define SCORE_PARAMETERS                                                                                             \
    const float *by_distance, const u32 *rows, const T *by_query, const T *by_key, int pitch, const int *mask,      \
        const i64 *position, int first, const i64 *state, u64 site, int sample, u32 threshold, float keep
#define SCORE_ARGUMENTS by_distance, rows, by_query, by_key, pitch, mask, position, first, state, site, sample, threshold, keep

struct Sizes { int batch, heads, q_len, k_len; };

// The bits of a query in the upper halves of words: of the first of a pair (0), or of the second, eight further (1).
__device__ __forceinline__ uint4 half_of(uint4 words, int second) {
    return second ? words : make_uint4(words.x << 16, words.y << 16, words.z << 16, words.w << 16);
}

// One head of one sample.
struct Scores {
    int q_len, k_len, first, pitch;
    const float* by_distance;
    const u32* rows;
    const T* by_query;
    const T* by_key;
    const int* mask;
    // Of the random stream: the keys of every two rounds, which are in shared memory after the kernel's first barrier.
    const uint4* round_keys;
    u32 step, sample, stream_row, threshold;
    float keep;

    __device__ __forceinline__ Scores(Sizes s, int b, int h, SCORE_PARAMETERS)
        : q_len(s.q_len), k_len(s.k_len), first(first), pitch(pitch), rows(rows), threshold(threshold), keep(keep) {
        this->by_distance = by_distance + (i64)h * (s.q_len + s.k_len - 1);
        this->by_query = by_query + (i64)(h * s.batch + b) * s.q_len * pitch;
        this->by_key = by_key + (i64)(h * s.batch + b) * s.k_len * pitch;
        this->mask = mask + (i64)b * s.k_len;
        if (LIMITED == 2) this->first = (int)min(max(*position, -(i64)s.q_len), (i64)s.k_len);
        if (DROPPED) {
            __shared__ uint4 keys[(MASK_ROUNDS + 1) / 2];
            Stream stream = stream_of((u64)state[0], site, (u64)state[1]);
            if (threadIdx.x < MASK_ROUNDS) ((uint2*)keys)[threadIdx.x] = philox_key(stream.key, threadIdx.x);
            round_keys = keys, step = stream.step;
            this->sample = (u32)state[2] + (u32)sample + (u32)b;
            stream_row = (u32)h << 16;
        }
    }

    // Query i sees the keys before this one, unless the mask hides them.
    __device__ __forceinline__ int end(int i) const {
        return LIMITED ? min(max(first + i + 1, 0), k_len) : k_len;
    }
    // The first query that sees key j.
    __device__ __forceinline__ int first_query(int j) const {
        return LIMITED ? min(max(j - first, 0), q_len) : 0;
    }
    __device__ __forceinline__ bool sees(int i, int j) const {
        return i < q_len && j < end(i) && (!MASKED || mask[j] != 0);
    }
    // The score of key j, given scale · q · k; -∞ if query i does not see it.
    __device__ __forceinline__ float at(float product, int i, int j) const {
        if (!sees(i, j)) return NOTHING;
        if (BIAS == 1) product += by_distance[q_len - 1 - i + j];
        if (BIAS == 2) product += products(i, j);
        return product;
    }
    // What a disentangled bias adds for query i and key j.
    __device__ __forceinline__ float products(int i, int j) const {
        u32 row = rows[q_len - 1 - i + j];
        return to_float(by_query[(i64)i * pitch + row]) + to_float(by_key[(i64)j * pitch + row]);
    }
    // The draw for the keys 4·quad .. 4·quad + 4 that query i shares with the one eight before or after it.
    __device__ __forceinline__ uint4 draw(int i, int quad) const {
        uint4 counter = make_uint4(step, sample, stream_row + ((u32)i / 16 * 8 + i % 8), (u32)quad);
#pragma unroll
        for (int n = 0; n < MASK_ROUNDS; n += 2) {
            uint4 key = round_keys[n / 2];
            counter = philox_round(counter, make_uint2(key.x, key.y));
            if (n + 1 < MASK_ROUNDS) counter = philox_round(counter, make_uint2(key.z, key.w));
        }
        return counter;
    }
    // Of that, the bits of query i.
    __device__ __forceinline__ uint4 bits(int i, int quad) const { return half_of(draw(i, quad), i / 8 % 2); }

    // Takes away the weights of a query on these keys that fall; what is left is still to be multiplied by `keep`.
    __device__ __forceinline__ void drop(float first[2], float second[2], uint4 bits) const {
        if (bits.x < threshold) first[0] = 0.0f;
        if (bits.y < threshold) first[1] = 0.0f;
        if (bits.z < threshold) second[0] = 0.0f;
        if (bits.w < threshold) second[1] = 0.0f;
    }
    // A bit for each of these keys: whether its weight falls.
    __device__ __forceinline__ u32 fallen(uint4 bits) const {
        return (bits.x < threshold ? 1 : 0) | (bits.y < threshold ? 2 : 0) | (bits.z < threshold ? 4 : 0) |
               (bits.w < threshold ? 8 : 0);
    }
    // What the weights of a query on these keys are multiplied by.
    __device__ __forceinline__ float4 factors(uint4 bits) const {
        return make_float4(bits.x < threshold ? 0.0f : keep, bits.y < threshold ? 0.0f : keep,
                           bits.z < threshold ? 0.0f : keep, bits.w < threshold ? 0.0f : keep);
    }
};

// The log-sum-exp to subtract in the backward pass: a row that saw nothing gets +∞, so its weights become 0.
__device__ __forceinline__ float saved_lse(float lse) { return lse == NOTHING ? INFINITY : lse; }

// 2^x, to 2 units in the last place.
__device__ __forceinline__ float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float weight_of(float score, float shift) { return power_of_2((score - shift) * LOG2E); }

// Blocks are handed out pair by pair inside a tile, the last tile first: of a causal head it is the longest.
struct Place { int tile, b, h; };
__device__ __forceinline__ Place place_of(Sizes s) {
    int pairs = s.batch * s.heads, pair = blockIdx.x % pairs, tiles = gridDim.x / pairs;
    return Place{tiles - 1 - (int)(blockIdx.x / pairs), pair / s.heads, pair % s.heads};
}
