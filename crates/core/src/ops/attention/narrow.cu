// Heads of at most 16 dimensions without a bias. Here the exponential dominates: a thread has ROWS neighbouring queries
// (or keys), one or two, in registers and goes through the other side, which lies in shared memory; what it reads there
// serves all its rows. Where there are too few rows for that to fill a card, LANES neighbouring threads have the same
// rows and share the other side; what each of them added up is added in a fixed order at the end. Exponentials are
// powers of 2: scores have log₂ e in them.
//
// Rows of memory are read VECTOR elements at a time.

#define THREADS 128
#define WIDTH (D <= 2 ? 2 : D <= 4 ? 4 : D <= 8 ? 8 : 16)
#define BLOCK_ROWS (THREADS / LANES * ROWS)
// Rows of the other side that are in shared memory at a time. With few warps about, each wait for memory shows.
#define TILE (LANES > 1 ? 2 * THREADS : THREADS)
// Of half precision `out` is rounded. A query then sums Σ dout · out up over its weights, which are not.
#define ROUNDED (sizeof(T) < 4)
// Keys whose exponentials a thread takes between two looks at the largest score, and those of all lanes of its rows.
#define STEP (LANES < 8 ? 8 : 4)
#define SPAN (STEP * LANES)

struct __align__(VECTOR * sizeof(T)) Vector {
    T at[VECTOR];
};

// What a row misses up to WIDTH is 0, and so is a row that is not there.
__device__ __forceinline__ void read(float to[WIDTH], const T* from, bool there, float factor) {
#pragma unroll
    for (int d = 0; d < WIDTH; d += VECTOR) {
        Vector x;
        if (there && d < D) x = *(const Vector*)(from + d);
#pragma unroll
        for (int n = 0; n < VECTOR; n++) to[d + n] = there && d < D ? to_float(x.at[n]) * factor : 0.0f;
    }
}
__device__ __forceinline__ void clear(float to[WIDTH]) {
#pragma unroll
    for (int d = 0; d < WIDTH; d++) to[d] = 0.0f;
}
__device__ __forceinline__ void put(T* to, const float from[WIDTH], float factor) {
#pragma unroll
    for (int d = 0; d < D; d += VECTOR) {
        Vector x;
#pragma unroll
        for (int n = 0; n < VECTOR; n++) x.at[n] = from_float<T>(from[d + n] * factor);
        *(Vector*)(to + d) = x;
    }
}
__device__ __forceinline__ float dot(const float a[WIDTH], const float b[WIDTH], float start) {
#pragma unroll
    for (int d = 0; d < WIDTH; d++) start += a[d] * b[d];
    return start;
}
__device__ __forceinline__ void add(float to[WIDTH], float x, const float row[WIDTH]) {
#pragma unroll
    for (int d = 0; d < WIDTH; d++) to[d] += x * row[d];
}

// Over the lanes that have the same rows.
__device__ __forceinline__ float largest(float x) {
#pragma unroll
    for (int step = 1; step < LANES; step *= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}
__device__ __forceinline__ float summed(float x) {
#pragma unroll
    for (int step = 1; step < LANES; step *= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
__device__ __forceinline__ void sum(float row[WIDTH]) {
#pragma unroll
    for (int d = 0; d < WIDTH; d++) row[d] = summed(row[d]);
}

// Which of the lanes that have the same rows this one is: the first writes what they found.
__device__ __forceinline__ int share() { return threadIdx.x % LANES; }

// Which of SPAN keys is the nth of this lane. Lanes take turns; where weights fall, at every four keys: one draw of the
// random stream is for so many.
__device__ __forceinline__ int turn(int n) {
    return DROPPED ? (n / 4 * LANES + share()) * 4 + n % 4 : n * LANES + share();
}

// A key and its value, or a query and the gradient of its output. All threads of a warp read the same one, or LANES
// neighbouring ones: an odd number of 16 bytes apart, those are in different banks.
struct __align__(16) Both {
    float first[WIDTH], second[WIDTH];
#if D > 2
    float gap[4];
#endif
};

// The rows of a thread, and those that its warp has: [begin, end), where there are any.
struct Own {
    int row, begin, end;
    __device__ __forceinline__ Own(int tile, int len) {
        int lane = threadIdx.x % 32;
        begin = (tile * THREADS + threadIdx.x - lane) / LANES * ROWS;
        row = begin + lane / LANES * ROWS;
        end = min(begin + 32 / LANES * ROWS, len);
    }
};

struct Keys {
    Both rows[TILE];
    // 0, or -∞ where the key is hidden.
    float mask[TILE];

    __device__ __forceinline__ void load(const Scores& head, const T* k, const T* v, i64 row, int first, int end) {
#pragma unroll
        for (int at = threadIdx.x; at < TILE; at += THREADS) {
            int j = first + at;
            bool there = j < end;
            if (MASKED) mask[at] = there && head.mask[j] != 0 ? 0.0f : NOTHING;
            read(rows[at].first, k + (i64)j * row, there, 1.0f);
            read(rows[at].second, v + (i64)j * row, there, 1.0f);
        }
    }
};

// Goes through the keys that a warp's queries see: `step.at<EDGE>(keys, j0, j)` for every SPAN of them, where EDGE says
// that some query may not see them all.
template <typename Step>
__device__ __forceinline__ void walk(Step& step, Keys& keys, const Scores& head, const T* k, const T* v, i64 row,
                                     Own own, int block_end) {
    int some = own.begin < own.end ? head.end(own.end - 1) : 0, all = own.begin < own.end ? head.end(own.begin) : 0;
    for (int j0 = 0; j0 < block_end; j0 += TILE) {
        __syncthreads();
        keys.load(head, k, v, row, j0, block_end);
        __syncthreads();
        int j = 0;
        for (int end = min(all - j0, TILE) / SPAN * SPAN; j < end; j += SPAN) step.template at<false>(keys, j0, j);
        for (int end = min(some - j0, TILE); j < end; j += SPAN) step.template at<true>(keys, j0, j);
    }
}

struct Forward {
    const Scores& head;
    int row, ends[ROWS];
    // `shift` is taken off the exponents: it follows the largest one only where that is out of reach.
    float query[ROWS][WIDTH], sums[ROWS][WIDTH], shift[ROWS], total[ROWS];

    template <bool EDGE> __device__ __forceinline__ void at(const Keys& keys, int j0, int j) {
        float s[ROWS][STEP];
#pragma unroll
        for (int c = 0; c < STEP; c++) {
            int at = j + turn(c);
            Both both = keys.rows[at];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                s[r][c] = dot(query[r], both.first, -shift[r]);
                if (MASKED) s[r][c] += keys.mask[at];
                if (EDGE && j0 + at >= ends[r]) s[r][c] = NOTHING;
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            follow(s[r], r);
#pragma unroll
            for (int c = 0; c < STEP; c++) {
                s[r][c] = power_of_2(s[r][c]);
                total[r] += s[r][c];
            }
            if (DROPPED) {
#pragma unroll
                for (int c = 0; c < STEP; c += 4)
                    head.drop(s[r] + c, s[r] + c + 2, head.bits(row + r, (j0 + j + turn(c)) / 4));
            }
        }
#pragma unroll
        for (int c = 0; c < STEP; c++) {
            Both both = keys.rows[j + turn(c)];
#pragma unroll
            for (int r = 0; r < ROWS; r++) add(sums[r], s[r][c], both.second);
        }
    }
    // Sums that begin, or weights that would grow beyond 2⁸, begin anew from the largest exponent.
    __device__ __forceinline__ void follow(float s[STEP], int r) {
        float highest = s[0];
#pragma unroll
        for (int c = 1; c < STEP; c++) highest = fmaxf(highest, s[c]);
        if (highest == NOTHING || (highest <= 8.0f && total[r] > 0.0f)) return;
        float fade = total[r] > 0.0f ? power_of_2(-highest) : 0.0f;
        shift[r] += highest;
        total[r] *= fade;
#pragma unroll
        for (int d = 0; d < WIDTH; d++) sums[r][d] *= fade;
#pragma unroll
        for (int c = 0; c < STEP; c++) s[c] -= highest;
    }
    // What all lanes found, as from the highest of their shifts: a lane that saw nothing has none.
    __device__ __forceinline__ void join(int r) {
        if (LANES == 1) return;
        float highest = largest(total[r] > 0.0f ? shift[r] : NOTHING);
        float fade = total[r] > 0.0f ? power_of_2(shift[r] - highest) : 0.0f;
        shift[r] = highest;
        total[r] = summed(total[r] * fade);
#pragma unroll
        for (int d = 0; d < WIDTH; d++) sums[r][d] = summed(sums[r][d] * fade);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    forward(const T* q, const T* k, const T* v, T* out, float* lse, i64 q_row, i64 kv_row, int batch, int heads,
            int q_len, int k_len, float scale, SCORE_PARAMETERS) {
    __shared__ Keys keys;
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_of(sizes);
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    Own own(at.tile, q_len);
    i64 from = (i64)at.b * k_len * kv_row + at.h * D, queries = (i64)at.b * q_len;
    Forward step{head, own.row};
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int i = own.row + r;
        step.ends[r] = head.end(i);
        read(step.query[r], q + (queries + i) * q_row + at.h * D, i < q_len, scale * LOG2E);
        clear(step.sums[r]);
        step.shift[r] = step.total[r] = 0.0f;
    }
    int block_end = head.end(min((at.tile + 1) * BLOCK_ROWS, q_len) - 1);
    walk(step, keys, head, k + from, v + from, kv_row, own, block_end);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int i = own.row + r;
        step.join(r);
        if (i >= q_len || share() > 0) continue;
        bool seen = step.total[r] > 0.0f;
        put(out + ((queries + i) * heads + at.h) * D, step.sums[r],
            seen ? (DROPPED ? head.keep : 1.0f) / step.total[r] : 0.0f);
        lse[(i64)(at.b * heads + at.h) * q_len + i] = seen ? step.shift[r] * LN2 + logf(step.total[r]) : NOTHING;
    }
}

struct QueryGradients {
    const Scores& head;
    int row, ends[ROWS];
    float query[ROWS][WIDTH], gradient[ROWS][WIDTH], sums[ROWS][WIDTH];
    // Negated: the logarithm that scores are shifted by, and Σ dout · out. ROUNDED: that sum so far, and the weighted keys
    // that it is to be taken off.
    float shift[ROWS], delta[ROWS], weighted[ROWS][WIDTH];

    template <bool EDGE> __device__ __forceinline__ void at(const Keys& keys, int j0, int j) {
#pragma unroll
        for (int c = 0; c < STEP; c += 4) quad<EDGE>(keys, j0, j, c);
    }
    template <bool EDGE> __device__ __forceinline__ void quad(const Keys& keys, int j0, int j, int c) {
        float4 f[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS && DROPPED; r++) f[r] = head.factors(head.bits(row + r, (j0 + j + turn(c)) / 4));
#pragma unroll
        for (int n = 0; n < 4; n++) {
            int at = j + turn(c + n);
            Both both = keys.rows[at];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                float exponent = dot(query[r], both.first, shift[r]);
                if (MASKED) exponent += keys.mask[at];
                float weight = power_of_2(exponent), off = ROUNDED ? 0.0f : delta[r];
                if (EDGE && j0 + at >= ends[r]) weight = 0.0f;
                float slope = dot(gradient[r], both.second, DROPPED ? 0.0f : off);
                if (DROPPED) slope = slope * (n == 0 ? f[r].x : n == 1 ? f[r].y : n == 2 ? f[r].z : f[r].w) + off;
                slope *= weight;
                add(sums[r], slope, both.first);
                if (ROUNDED) {
                    delta[r] += slope;
                    add(weighted[r], weight, both.first);
                }
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    backward_queries(const T* q, const T* k, const T* v, const T* dout, const float* lse, float* delta, T* dq,
                     float* bias_sums, int bias_rows, i64 q_row, i64 kv_row, int batch, int heads, int q_len,
                     int k_len, float scale, SCORE_PARAMETERS) {
    __shared__ Keys keys;
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_of(sizes);
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    Own own(at.tile, q_len);
    i64 from = (i64)at.b * k_len * kv_row + at.h * D, queries = (i64)at.b * q_len;
    i64 statistics = (i64)(at.b * heads + at.h) * q_len;
    QueryGradients step{head, own.row};
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int i = own.row + r;
        bool there = i < q_len;
        step.ends[r] = head.end(i);
        read(step.query[r], q + (queries + i) * q_row + at.h * D, there, scale * LOG2E);
        read(step.gradient[r], dout + ((queries + i) * heads + at.h) * D, there, 1.0f);
        clear(step.sums[r]);
        step.shift[r] = there ? -LOG2E * saved_lse(lse[statistics + i]) : NOTHING;
        step.delta[r] = there && !ROUNDED ? -delta[statistics + i] : 0.0f;
        clear(step.weighted[r]);
    }
    int block_end = head.end(min((at.tile + 1) * BLOCK_ROWS, q_len) - 1);
    walk(step, keys, head, k + from, v + from, kv_row, own, block_end);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int i = own.row + r;
        sum(step.sums[r]);
        if (ROUNDED) {
            step.delta[r] = summed(step.delta[r]);
            sum(step.weighted[r]);
        }
        if (i >= q_len || share() > 0) continue;
        if (ROUNDED) {
            add(step.sums[r], -step.delta[r], step.weighted[r]);
            delta[statistics + i] = step.delta[r];
        }
        put(dq + (queries + i) * q_row + at.h * D, step.sums[r], scale);
    }
}

struct Queries {
    Both rows[TILE];
    // Negated: the logarithm that scores are shifted by, and Σ dout · out.
    float2 shift_and_delta[TILE];
};

struct KeyGradients {
    const Scores& head;
    int row, begins[ROWS];
    float key[ROWS][WIDTH], value[ROWS][WIDTH], dkey[ROWS][WIDTH], dvalue[ROWS][WIDTH];

    // What the weights of query i are multiplied by: the rows of a thread are in one quad.
    __device__ __forceinline__ void factors(float f[ROWS], int i) const {
        float4 all = head.factors(head.bits(i, row / 4));
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int n = row % 4 + r;
            f[r] = n == 0 ? all.x : n == 1 ? all.y : n == 2 ? all.z : all.w;
        }
    }
    template <bool EDGE> __device__ __forceinline__ void at(const Queries& queries, int i0, int n) {
        Both both = queries.rows[n];
        float2 note = queries.shift_and_delta[n];
        float f[ROWS];
        if (DROPPED) factors(f, i0 + n);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float weight = power_of_2(dot(key[r], both.first, note.x));
            if (EDGE && i0 + n < begins[r]) weight = 0.0f;
            float slope = DROPPED ? dot(value[r], both.second, 0.0f) * f[r] + note.y : dot(value[r], both.second, note.y);
            add(dkey[r], weight * slope, both.first);
            add(dvalue[r], DROPPED ? weight * f[r] : weight, both.second);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, D <= 8 && !DROPPED ? 4 : 2)
    backward_keys(const T* q, const T* k, const T* v, const T* dout, const float* lse, const float* delta, T* dk,
                  T* dv, float* bias_sums, i64 q_row, i64 kv_row, int batch, int heads, int q_len, int k_len,
                  float scale, SCORE_PARAMETERS) {
    __shared__ Queries shared;
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_of(sizes);
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    Own own(at.tile, k_len);
    i64 statistics = (i64)(at.b * heads + at.h) * q_len;
    KeyGradients step{head, own.row};
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int j = own.row + r;
        i64 from = ((i64)at.b * k_len + j) * kv_row + at.h * D;
        step.begins[r] = head.first_query(j);
        read(step.key[r], k + from, j < k_len, scale * LOG2E);
        read(step.value[r], v + from, j < k_len, 1.0f);
        clear(step.dkey[r]);
        clear(step.dvalue[r]);
    }
    // From here on some key of the warp is seen, from there on all are.
    int some = own.begin < own.end ? head.first_query(own.begin) : q_len, all = head.first_query(own.end - 1);
    for (int i0 = head.first_query(at.tile * BLOCK_ROWS); i0 < q_len; i0 += TILE) {
        __syncthreads();
#pragma unroll
        for (int n = threadIdx.x; n < TILE; n += THREADS) {
            int i = i0 + n;
            bool there = i < q_len;
            read(shared.rows[n].first, q + ((i64)at.b * q_len + i) * q_row + at.h * D, there, 1.0f);
            read(shared.rows[n].second, dout + (((i64)at.b * q_len + i) * heads + at.h) * D, there, 1.0f);
            // The weights of a query that is not there are 0.
            shared.shift_and_delta[n] =
                there ? make_float2(-LOG2E * saved_lse(lse[statistics + i]), -delta[statistics + i])
                      : make_float2(NOTHING, 0.0f);
        }
        __syncthreads();
        int n = max(some - i0, 0) / LANES * LANES, end = min(q_len - i0, TILE);
#pragma unroll 2
        for (int edge = min(all - i0, end); n < edge; n += LANES) step.at<true>(shared, i0, n + share());
#pragma unroll 4
        for (; n < end; n += LANES) step.at<false>(shared, i0, n + share());
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int j = own.row + r;
        sum(step.dkey[r]), sum(step.dvalue[r]);
        if (j >= k_len || share() > 0) continue;
        i64 to = ((i64)at.b * k_len + j) * kv_row + at.h * D;
        // A key that is hidden has no gradient, whatever its weights would have been.
        if (MASKED && head.mask[j] == 0) clear(step.dkey[r]), clear(step.dvalue[r]);
        put(dk + to, step.dkey[r], scale);
        put(dv + to, step.dvalue[r], 1.0f);
    }
}
