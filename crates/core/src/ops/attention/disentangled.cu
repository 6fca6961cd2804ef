// Attention with a disentangled bias on tensor cores, in half precision: its two products are made and gathered inside a
// tile. The four warps of a block have 16 rows each and go through the other side in tiles of 64.
//
// Tiles (it, jt) of 64 queries and 64 keys meet the 127 distances of band it - jt + key_tiles - 1, counted 0 .. 126 as
// 63 + i - j inside them. Of a band 16 rows meet 79, which are five sixteenths of it: rows · positionsᵀ is (16, 80), and
// every result belongs to one pair of query and key, so it is put at its place among the cells. The tables come packed by
// distance, in the order in which lanes read right operands: `by_query` holds pos_key and `by_key` pos_query.

// Sixteenths of a band that 16 rows meet, and in which of four they begin: of queries, of keys.
#define MET 5
#define FIRST_MET(queries, warp) ((queries) ? (warp) : 3 - (warp))

// A row of cells: what the queries' product adds to 64 scores, then what the keys' does. The gap keeps lanes apart.
#define CELL_PITCH 156
#define BY_KEY 72

// A row of slopes by distance.
#define SHEARED_PITCH 80

// Tiles of gradients of scores, (keys, queries).
#define SLOPES (TILE * TILE)
#define SLOPE_PITCH 72

__device__ __forceinline__ int tiles_of(int len) { return (len + TILE - 1) / TILE; }

// This lane's part of a head's packed positions.
__device__ __forceinline__ const uint4* packed(const T* positions, int h, Sizes s) {
    i64 sixteenths = 4 * (tiles_of(s.q_len) + tiles_of(s.k_len));
    return (const uint4*)positions + h * sixteenths * DEEP * 32 + threadIdx.x % 32;
}

__device__ __forceinline__ void put_bits(T* to, u32 bits) { *(unsigned short*)to = (unsigned short)bits; }

// Where rows g and g + 8 meet distance d of their 80: among the keys of queries, or the queries of keys.
template <bool QUERIES> __device__ __forceinline__ int partner(int row, int d) {
    return QUERIES ? row - d + 63 : row + d - 15;
}

// rows (16) · positionsᵀ (80), each result at its place. OWN: cells have the block's own rows; else they are turned.
template <bool QUERIES, bool OWN>
__device__ __forceinline__ void meet(T* cells, const Rows& rows, const uint4* positions, Lane lane) {
#pragma unroll
    for (int m = 0; m < MET; m++) {
        float s[2][4] = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll
        for (int k = 0; k < DEEP; k++) {
            uint4 b = __ldg(positions + (m * DEEP + k) * 32);
            multiply(s[0], rows.at[k], b.x, b.y);
            multiply(s[1], rows.at[k], b.z, b.w);
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            int row = lane.g + n % 2 * 8, d = 16 * m + 4 * lane.t + n / 2 * 2, own = 16 * lane.warp + row;
            u32 both = pair_of(s[n / 2][n % 2 * 2], s[n / 2][n % 2 * 2 + 1]);
#pragma unroll
            for (int c = 0; c < 2; c++) {
                int other = partner<QUERIES>(row, d + c);
                // The outer sixteenths reach beyond the tile.
                if ((m == 0 || m == MET - 1) && (u32)other >= TILE) continue;
                put_bits(cells + (OWN ? own * CELL_PITCH + other : other * CELL_PITCH + own), both >> 16 * c);
            }
        }
    }
}

// The 16 rows of a tile from 16·p on as left operands.
__device__ __forceinline__ void take_from(Rows& rows, const T* tile, int p, Lane lane) {
    const T* from = tile + (16 * p + slot(lane.m % 2 * 8 + lane.r)) * PITCH + lane.m / 2 * 8;
#pragma unroll
    for (int k = 0; k < DEEP; k++) load_matrices(rows.at[k], from + 16 * k);
}

// What both products add to step p of the lane's rows.
__device__ __forceinline__ void start_scores(float s[2][4], const T* cells, int p, Lane lane) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const T* from = cells + (16 * lane.warp + lane.g + 8 * r) * CELL_PITCH + 16 * p + 4 * lane.t;
        uint2 x = *(const uint2*)from, y = *(const uint2*)(from + BY_KEY);
        u32 by_query[2] = {x.x, x.y}, by_key[2] = {y.x, y.y};
#pragma unroll
        for (int n = 0; n < 4; n++) {
            T a, b;
            a.bits = (unsigned short)(by_query[n / 2] >> n % 2 * 16);
            b.bits = (unsigned short)(by_key[n / 2] >> n % 2 * 16);
            s[n / 2][2 * r + n % 2] = to_float(a) + to_float(b);
        }
    }
}

// Adds rows · tileᵀ, as `score`.
__device__ __forceinline__ void add_score(float s[2][4], const Rows& rows, const T* tile, int p, Lane lane) {
    const T* from = tile + (16 * p + lane.m / 2 * 8 + lane.r) * PITCH + lane.m % 2 * 8;
#pragma unroll
    for (int k = 0; k < DEEP; k++) {
        u32 b[4];
        load_matrices(b, from + 16 * k);
        multiply(s[0], rows.at[k], b[0], b[1]);
        multiply(s[1], rows.at[k], b[2], b[3]);
    }
}

extern "C" __global__ void __launch_bounds__(128, 3)
    forward(const T* q, const T* k, const T* v, T* out, float* lse, i64 q_row, i64 kv_row, int batch, int heads,
            int q_len, int k_len, float scale, SCORE_PARAMETERS) {
    extern __shared__ float4 shared[];
    __shared__ Notes notes[STAGES];
    T* cells = (T*)shared + 2 * STAGES * TILE_CELLS;
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_of(sizes);
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    Queries block(head, at.tile);
    Lane lane = block.lane;
    int i0 = block.i0, bands = at.tile + tiles_of(k_len) - 1;
    i64 from = (i64)at.b * k_len * kv_row + at.h * D;
    const uint4 *keys_at = packed(by_query, at.h, sizes), *queries_at = packed(by_key, at.h, sizes);
    KeyNotes pending;
    auto bring = [&](int stage, int j0) {
        T* keys = (T*)shared + 2 * stage * TILE_CELLS;
        fetch(keys, k + from, kv_row, j0, k_len);
        fetch(keys + TILE_CELLS, v + from, kv_row, j0, k_len);
        pending.read(head, i0, j0);
    };
    auto write = [&](int stage, int j0) { pending.write(notes[stage], head, j0); };
    bring(0, 0);
    Rows queries;
    take(queries, q + (i64)at.b * q_len * q_row + at.h * D, q_row, i0, q_len, lane);
    write(0, 0);
    Sums sums;
    clear(sums);
    float top[2] = {NOTHING, NOTHING}, total[2] = {0.0f, 0.0f};
    walk(0, block.end, bring, write, [&](int stage, int j0) {
        const T* keys = (const T*)shared + 2 * stage * TILE_CELLS;
        // All warps of the block say the same: the mask hides the tile from all.
        if (is_hidden(notes[stage])) return;
        int sixteenth = 4 * (bands - j0 / TILE);
        meet<true, true>(cells, queries, keys_at + (i64)(sixteenth + FIRST_MET(true, lane.warp)) * DEEP * 32, lane);
        {
            Rows own_keys;
            take_from(own_keys, keys, lane.warp, lane);
            const uint4* positions = queries_at + (i64)(sixteenth + FIRST_MET(false, lane.warp)) * DEEP * 32;
            meet<false, false>(cells + BY_KEY, own_keys, positions, lane);
        }
        __syncthreads();
        float s[TILE / 16][2][4], highest[2] = {top[0], top[1]};
#pragma unroll
        for (int p = 0; p < TILE / 16; p++) {
            start_scores(s[p], cells, p, lane);
            add_score(s[p], queries, keys, p, lane);
            block.exponents(s[p], notes[stage], head, scale * LOG2E, j0, p);
#pragma unroll
            for (int n = 0; n < 8; n++) highest[n % 4 / 2] = fmaxf(highest[n % 4 / 2], s[p][n / 4][n % 4]);
        }
        float shift[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            highest[r] = across(highest[r], true);
            // A query that has seen nothing yet subtracts 0 instead of -∞: its exponentials are 0, not NaN.
            shift[r] = highest[r] == NOTHING ? 0.0f : highest[r];
            float fade = power_of_2(top[r] - shift[r]);
            top[r] = highest[r];
            total[r] *= fade;
#pragma unroll
            for (int n = 0; n < EIGHTS; n++) sums.of[n][2 * r] *= fade, sums.of[n][2 * r + 1] *= fade;
        }
#pragma unroll
        for (int p = 0; p < TILE / 16; p++) {
            uint4 drawn;
            if (DROPPED) drawn = head.draw(block.own, (j0 + 16 * p) / 4 + lane.t);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float* weights[2] = {s[p][0] + 2 * r, s[p][1] + 2 * r};
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    float& x = weights[c / 2][c % 2];
                    x = power_of_2(x - shift[r]);
                    total[r] += x;
                }
                if (DROPPED) head.drop(weights[0], weights[1], half_of(drawn, r));
            }
            mix(sums, s[p], keys + TILE_CELLS, p, lane);
        }
    });
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        total[r] = across(total[r], false);
        bool seen = total[r] > 0.0f;
        factor[r] = seen ? (DROPPED ? head.keep : 1.0f) / total[r] : 0.0f;
        if (lane.t == 0 && block.own + 8 * r < q_len)
            lse[(i64)(at.b * heads + at.h) * q_len + block.own + 8 * r] =
                seen ? top[r] * LN2 + logf(total[r]) : NOTHING;
    }
    put(out + (i64)at.b * q_len * heads * D + at.h * D, (i64)heads * D, i0, q_len, sums, lane, factor);
}

// The backward pass runs on some pairs of sample and head at a time, the first of which is `first_pair`: what it keeps of
// their scores, `slopes` (pairs, query tiles, key tiles, 64 keys, 64 queries), is as large as they are.
__device__ __forceinline__ Place place_in(Sizes s, int first_pair, int tiles) {
    int pairs = gridDim.x / tiles, pair = first_pair + (int)blockIdx.x % pairs;
    return Place{tiles - 1 - (int)blockIdx.x / pairs, pair / s.heads, pair % s.heads};
}
__device__ __forceinline__ i64 slopes_at(Sizes s, int pair, int it, int jt) {
    return (((i64)pair * tiles_of(s.q_len) + it) * tiles_of(s.k_len) + jt) * SLOPES;
}

// Slopes (16, 80) by distance, as left operands · positions (80, D): the other half of the gradients of a warp's rows.
// Positions are turned: distances are summed over.
__device__ __forceinline__ void mix_positions(Sums& sums, const T* sheared, const uint4* positions, Lane lane) {
#pragma unroll
    for (int m = 0; m < MET; m++) {
        const T* from = sheared + lane.g * SHEARED_PITCH + 16 * m + 4 * lane.t;
        uint2 x = *(const uint2*)from, y = *(const uint2*)(from + 8 * SHEARED_PITCH);
        u32 a[4] = {x.x, y.x, x.y, y.y};
#pragma unroll
        for (int k = 0; k < DEEP; k++) {
            uint4 b = __ldg(positions + (m * DEEP + k) * 32);
            multiply(sums.of[2 * k], a, b.x, b.y);
            if (2 * k + 1 < EIGHTS) multiply(sums.of[2 * k + 1], a, b.z, b.w);
        }
    }
}

// Zeros where 16 rows and 80 distances do not meet in a tile, and where they might not.
__device__ __forceinline__ void clear_ends(T* sheared) {
#pragma unroll
    for (int n = 0; n < 4; n++) {
        int at = 32 * n + threadIdx.x % 32, row = at / 8, part = at % 8;
        *(uint2*)(sheared + row * SHEARED_PITCH + (part < 4 ? 0 : 48) + 4 * part) = make_uint2(0, 0);
    }
}

// Gradients of the keys and values, and the slopes.
extern "C" __global__ void __launch_bounds__(128, 2)
    backward_keys(const T* q, const T* k, const T* v, const T* dout, const float* lse, const float* delta, T* dk,
                  T* dv, T* slopes, const T* turned, int first_pair, i64 q_row, i64 kv_row, int batch, int heads,
                  int q_len, int k_len, float scale, SCORE_PARAMETERS) {
    extern __shared__ float4 shared[];
    __shared__ Notes notes[STAGES];
    T* cells = (T*)shared + 2 * STAGES * TILE_CELLS;
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_in(sizes, first_pair, tiles_of(k_len));
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    Lane lane;
    int j0 = at.tile * TILE, own = j0 + 16 * lane.warp + lane.g, bands = tiles_of(k_len) - 1 - at.tile;
    i64 mine = (i64)at.b * k_len * kv_row + at.h * D, from = (i64)at.b * q_len * q_row + at.h * D;
    i64 statistics = (i64)(at.b * heads + at.h) * q_len;
    const T* slope_rows = dout + (i64)at.b * q_len * heads * D + at.h * D;
    const uint4 *keys_at = packed(by_query, at.h, sizes), *queries_at = packed(by_key, at.h, sizes);
    const uint4* turned_at = packed(turned, at.h, sizes);
    int pair = at.b * heads + at.h - first_pair;
    // A warp's own rows of cells hold its slopes by distance, once their scores are read.
    T* sheared = cells + 16 * lane.warp * CELL_PITCH;
    QueryNotes pending;
    auto bring = [&](int stage, int i0) {
        T* queries = (T*)shared + 2 * stage * TILE_CELLS;
        fetch(queries, q + from, q_row, i0, q_len);
        fetch(queries + TILE_CELLS, slope_rows, (i64)heads * D, i0, q_len);
        pending.read(head, lse + statistics, delta + statistics, i0, j0);
    };
    auto write = [&](int stage, int) { pending.write(notes[stage]); };
    bool shown[2] = {is_shown(head, own), is_shown(head, own + 8)};
    int own_first[2] = {head.first_query(own), head.first_query(own + 8)};
    bool any = !MASKED || __syncthreads_or(shown[0] | shown[1]);
    int first_tile = any ? head.first_query(j0) / TILE * TILE : q_len;
    bring(0, first_tile);
    Rows keys, values;
    take(keys, k + mine, kv_row, j0, k_len, lane);
    take(values, v + mine, kv_row, j0, k_len, lane);
    write(0, first_tile);
    Sums dkeys, dvalues;
    clear(dkeys);
    clear(dvalues);
    walk(first_tile, q_len, bring, write, [&](int stage, int i0) {
        const T* queries = (const T*)shared + 2 * stage * TILE_CELLS;
        const T* douts = queries + TILE_CELLS;
        const Notes& note = notes[stage];
        i64 sixteenth = 4 * (bands + i0 / TILE);
        const uint4* met = queries_at + (sixteenth + FIRST_MET(false, lane.warp)) * DEEP * 32;
        meet<false, true>(cells + BY_KEY, keys, met, lane);
        {
            Rows own_queries;
            take_from(own_queries, queries, lane.warp, lane);
            const uint4* positions = keys_at + (sixteenth + FIRST_MET(true, lane.warp)) * DEEP * 32;
            meet<true, false>(cells, own_queries, positions, lane);
        }
        __syncthreads();
        float scores[TILE / 16][2][4];
#pragma unroll
        for (int p = 0; p < TILE / 16; p++) start_scores(scores[p], cells, p, lane);
        __syncwarp();
        clear_ends(sheared);
        __syncwarp();
        T* tile = slopes + slopes_at(sizes, pair, i0 / TILE, at.tile) + (16 * lane.warp + lane.g) * TILE + 4 * lane.t;
#pragma unroll
        for (int p = 0; p < TILE / 16; p++) {
            float(&s)[2][4] = scores[p];
            float ds[2][4], factor[2][4];
            add_score(s, keys, queries, p, lane);
            score(ds, values, douts, p, lane);
            int i = 16 * p + 4 * lane.t;
            if (DROPPED) key_factors(factor, head, i0 + i, own, lane);
            float4 shifts = *(const float4*)(note.shift + i), deltas = *(const float4*)(note.delta + i);
            float shift[4] = {shifts.x, shifts.y, shifts.z, shifts.w};
            float query_delta[4] = {deltas.x, deltas.y, deltas.z, deltas.w};
#pragma unroll
            for (int n = 0; n < 8; n++) {
                // Query m of the quad, key of row g or g + 8.
                int m = n / 4 * 2 + n % 2, r = n % 4 / 2;
                float &x = s[n / 4][n % 4], &slope = ds[n / 4][n % 4];
                x = x * (scale * LOG2E) + shift[m];
                if (LIMITED) x = i0 + i + m < own_first[r] ? NOTHING : x;
                if (!shown[r]) x = NOTHING;
                differentiate(x, slope, DROPPED ? factor[r][m] : 1.0f, query_delta[m]);
            }
#pragma unroll
            for (int r = 0; r < 2; r++) {
                u32 pairs[2] = {pair_of(ds[0][2 * r], ds[0][2 * r + 1]), pair_of(ds[1][2 * r], ds[1][2 * r + 1])};
                *(uint2*)(tile + 8 * r * TILE + 16 * p) = make_uint2(pairs[0], pairs[1]);
                // Query i of key row meets it at distance i - row + 15 of its 80.
                T* to = sheared + (lane.g + 8 * r) * SHEARED_PITCH + i - (lane.g + 8 * r) + 15;
#pragma unroll
                for (int n = 0; n < 4; n++) put_bits(to + n, pairs[n / 2] >> n % 2 * 16);
            }
            mix(dkeys, ds, queries, p, lane);
            mix(dvalues, s, douts, p, lane);
        }
        __syncwarp();
        mix_positions(dkeys, sheared, turned_at + (sixteenth + FIRST_MET(false, lane.warp)) * DEEP * 32, lane);
    });
    float kept[2] = {shown[0] ? 1.0f : 0.0f, shown[1] ? 1.0f : 0.0f}, factor[2] = {kept[0] * scale, kept[1] * scale};
    put(dk + mine, kv_row, j0, k_len, dkeys, lane, factor);
    put(dv + mine, kv_row, j0, k_len, dvalues, lane, kept);
}

// Starts to copy a tile of slopes, if it is there. SLOTTED: its keys in the order of a tile's rows.
template <bool SLOTTED> __device__ __forceinline__ void fetch_slopes(T* to, const T* from, bool there) {
    for (int at = threadIdx.x; at < SLOPES / 8; at += blockDim.x) {
        int row = at / 8, column = at % 8 * 8;
        copy(to + (SLOTTED ? slot(row) : row) * SLOPE_PITCH + column, from + 8 * at, there);
    }
}

// Gradients of the queries, out of the slopes. `turned` is pos_key.
extern "C" __global__ void __launch_bounds__(128, 3)
    backward_queries(const T* k, const T* slopes, const T* turned, T* dq, int first_pair, i64 q_row, i64 kv_row,
                     int batch, int heads, int q_len, int k_len, float scale, SCORE_PARAMETERS) {
    extern __shared__ float4 shared[];
    __shared__ Notes notes[STAGES];
    const int stage_cells = TILE_CELLS + TILE * SLOPE_PITCH;
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_in(sizes, first_pair, tiles_of(q_len));
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    Queries block(head, at.tile);
    Lane lane = block.lane;
    int i0 = block.i0, bands = at.tile + tiles_of(k_len) - 1, pair = at.b * heads + at.h - first_pair;
    i64 from = (i64)at.b * k_len * kv_row + at.h * D, mine = (i64)at.b * q_len * q_row + at.h * D;
    const uint4* turned_at = packed(turned, at.h, sizes);
    T* sheared = (T*)shared + STAGES * stage_cells + 16 * lane.warp * SHEARED_PITCH;
    KeyNotes pending;
    auto bring = [&](int stage, int j0) {
        T* keys = (T*)shared + stage * stage_cells;
        fetch(keys, k + from, kv_row, j0, k_len);
        fetch_slopes<true>(keys + TILE_CELLS, slopes + slopes_at(sizes, pair, at.tile, j0 / TILE), j0 < k_len);
        pending.read(head, i0, j0);
    };
    auto write = [&](int stage, int j0) { pending.write(notes[stage], head, j0); };
    bring(0, 0);
    // What no tile writes stays 0.
    clear_ends(sheared);
    write(0, 0);
    Sums sums;
    clear(sums);
    walk(0, block.end, bring, write, [&](int stage, int j0) {
        // Of keys that nobody sees there are no slopes.
        if (is_hidden(notes[stage])) return;
        const T *keys = (const T*)shared + stage * stage_cells, *tile = keys + TILE_CELLS;
#pragma unroll
        for (int p = 0; p < TILE / 16; p++) {
            u32 a[4];
            const T* from = tile + (16 * p + lane.m / 2 * 8 + lane.r) * SLOPE_PITCH;
            load_turned(a, from + 16 * lane.warp + lane.m % 2 * 8);
            const T* rows = keys + (16 * p + lane.m % 2 * 8 + lane.r) * PITCH + lane.m / 2 * 8;
#pragma unroll
            for (int n = 0; n < DEEP; n++) {
                u32 b[4];
                load_turned(b, rows + 16 * n);
                multiply(sums.of[2 * n], a, b[0], b[1]);
                if (2 * n + 1 < EIGHTS) multiply(sums.of[2 * n + 1], a, b[2], b[3]);
            }
#pragma unroll
            for (int n = 0; n < 8; n++) {
                // Key j of query row meets it at distance row - j + 63 of its 80.
                int row = lane.g + n / 4 * 8, j = 16 * p + 4 * lane.t + n % 4;
                put_bits(sheared + row * SHEARED_PITCH + row - j + 63, a[n % 4 / 2 * 2 + n / 4] >> n % 2 * 16);
            }
        }
        __syncwarp();
        i64 sixteenth = 4 * (bands - j0 / TILE) + FIRST_MET(true, lane.warp);
        mix_positions(sums, sheared, turned_at + sixteenth * DEEP * 32, lane);
        __syncwarp();
    });
    float factor[2] = {scale, scale};
    put(dq + mine, q_row, i0, q_len, sums, lane, factor);
}

// 16 distances (from 16·m on) × 16 rows of a tile of slopes as left operands. KEYS: the rows are keys, else queries. EDGE:
// some of the distances lead out of the tile.
template <bool KEYS, bool EDGE>
__device__ __forceinline__ void take_slopes(u32 a[4], const T* slopes, int m, int p, Lane lane) {
    u32 x[2][4];
    int own = 16 * p + 4 * lane.t, d = 16 * m + lane.g - 63, other = KEYS ? own + d : own - d;
    const T* from = slopes + (KEYS ? own * SLOPE_PITCH + other : other * SLOPE_PITCH + own);
#pragma unroll
    for (int n = 0; n < 8; n++) {
        int c = n % 4, away = KEYS ? n / 4 * 8 : -(n / 4 * 8);
        const T* at = from + (SLOPE_PITCH + 1) * c + (KEYS ? away : away * SLOPE_PITCH);
        x[n / 4][c] = !EDGE || (u32)(other + c + away) < TILE ? *(const unsigned short*)at : 0;
    }
#pragma unroll
    for (int n = 0; n < 4; n++) a[n] = x[n % 2][n / 2 * 2] | x[n % 2][n / 2 * 2 + 1] << 16;
}

// Adds slopes by distance (16, 16) · the rows that they belong to.
template <bool KEYS, bool EDGE>
__device__ __forceinline__ void add_distances(Sums& sums, const T* slopes, const T* rows, int m, int p, Lane lane) {
    u32 a[4];
    take_slopes<KEYS, EDGE>(a, slopes, m, p, lane);
    const T* from = rows + (16 * p + lane.m % 2 * 8 + lane.r) * PITCH + lane.m / 2 * 8;
#pragma unroll
    for (int n = 0; n < DEEP; n++) {
        u32 b[4];
        load_turned(b, from + 16 * n);
        multiply(sums.of[2 * n], a, b[0], b[1]);
        if (2 * n + 1 < EIGHTS) multiply(sums.of[2 * n + 1], a, b[2], b[3]);
    }
}

// The sixteenths w and w + 4 of a band, over the rows of a tile that they meet: both end in the same 16.
template <bool KEYS>
__device__ __forceinline__ void add_band(Sums sums[2], const T* slopes, const T* rows, int w, Lane lane) {
    int edge = KEYS ? 3 - w : w;
    add_distances<KEYS, true>(sums[0], slopes, rows, w, edge, lane);
    add_distances<KEYS, true>(sums[1], slopes, rows, w + 4, edge, lane);
#pragma unroll 1
    for (int n = 0; n < w; n++) add_distances<KEYS, false>(sums[0], slopes, rows, w, KEYS ? 3 - n : n, lane);
#pragma unroll 1
    for (int n = w + 1; n < 4; n++) add_distances<KEYS, false>(sums[1], slopes, rows, w + 4, KEYS ? 3 - n : n, lane);
}

// Two sixteenths of a band's part, (128, D).
__device__ __forceinline__ void put_part(float* part, const Sums sums[2], int w, bool fresh, Lane lane) {
#pragma unroll
    for (int n = 0; n < 4 * EIGHTS; n++) {
        int d = 16 * w + n % 2 * 64 + lane.g + n / 2 % 2 * 8;
        const float* x = sums[n % 2].of[n / 4] + n / 2 % 2 * 2;
        float2* to = (float2*)(part + d * D + n / 4 * 8 + 2 * lane.t);
        float2 before = fresh ? make_float2(0.0f, 0.0f) : *to;
        *to = make_float2(before.x + x[0], before.y + x[1]);
    }
}

// Gradients of the tables, by distance. A block has bands `unit` and `unit + units`, which together have as many tiles as
// any other two, of one head in a share of the samples; their sum is `parts` (shares, heads, bands, 2, 128, D), which it
// adds to unless they are fresh. Four warps have pos_key's, four pos_query's.
extern "C" __global__ void __launch_bounds__(256, 2)
    backward_tables(const T* q, const T* k, const T* slopes, float* parts, int first_pair, int pairs, int shares,
                    int fresh, i64 q_row, i64 kv_row, int batch, int heads, int q_len, int k_len, float scale,
                    SCORE_PARAMETERS) {
    extern __shared__ float4 shared[];
    const int stage_cells = 2 * TILE_CELLS + TILE * SLOPE_PITCH;
    Sizes sizes{batch, heads, q_len, k_len};
    int q_tiles = tiles_of(q_len), k_tiles = tiles_of(k_len);
    int units = max(q_tiles, k_tiles), bands = q_tiles + k_tiles - 1;
    int h = blockIdx.x % heads, unit = blockIdx.x / heads % units, share = blockIdx.x / (heads * units);
    int first_sample = (first_pair - h + heads - 1) / heads;
    int samples = (first_pair + pairs - h + heads - 1) / heads - first_sample;
    int begin = first_sample + (int)((i64)samples * share / shares);
    int end = first_sample + (int)((i64)samples * (share + 1) / shares);
    Lane lane;
    int w = lane.warp % 4, of_keys = lane.warp / 4;
    for (int band = unit; band < bands; band += units) {
        int first_it = max(0, band - (k_tiles - 1)), count = min(q_tiles - 1, band) - first_it + 1;
        int items = (end - begin) * count;
        // The next tile that has slopes: some query sees some key of it.
        auto next = [&](int item) {
            for (; __any_sync(0xffffffffu, item < items); item++) {
                int b = begin + item / count, it = first_it + item % count, j0 = (it + k_tiles - 1 - band) * TILE;
                int limit = LIMITED ? min(max(first + min(it * TILE + TILE, q_len), 0), k_len) : k_len;
                int j = j0 + threadIdx.x % 32;
                bool there = j < k_len && (!MASKED || mask[(i64)b * k_len + j] != 0);
                there |= j + 32 < k_len && (!MASKED || mask[(i64)b * k_len + j + 32] != 0);
                if (__any_sync(0xffffffffu, there && j0 < limit)) break;
            }
            return item;
        };
        auto bring = [&](int stage, int item) {
            T* to = (T*)shared + stage * stage_cells;
            int b = begin + item / count, it = first_it + item % count, jt = it + k_tiles - 1 - band;
            fetch(to, q + (i64)b * q_len * q_row + h * D, q_row, it * TILE, q_len);
            fetch(to + TILE_CELLS, k + (i64)b * k_len * kv_row + h * D, kv_row, jt * TILE, k_len);
            i64 from = slopes_at(sizes, b * heads + h - first_pair, it, jt);
            fetch_slopes<false>(to + 2 * TILE_CELLS, slopes + from, true);
        };
        Sums sums[2];
        clear(sums[0]);
        clear(sums[1]);
        int item = next(0), stage = 0;
        __syncthreads();
        if (item < items) bring(0, item);
        while (__any_sync(0xffffffffu, item < items)) {
            int following = next(item + 1);
            finish_copies();
            __syncthreads();
            if (following < items) bring(1 - stage, following);
            const T *queries = (const T*)shared + stage * stage_cells, *tile = queries + 2 * TILE_CELLS;
            if (of_keys) add_band<true>(sums, tile, queries + TILE_CELLS, w, lane);
            else add_band<false>(sums, tile, queries, w, lane);
            item = following, stage = 1 - stage;
        }
        i64 part = ((i64)(share * heads + h) * bands + band) * 2 + of_keys;
        put_part(parts + part * 2 * TILE * D, sums, w, fresh, lane);
    }
}
