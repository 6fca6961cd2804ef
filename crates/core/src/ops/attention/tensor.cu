// Attention on tensor cores, sums in f32. The warps of a block have 16 rows each (queries, or keys in the backward pass)
// and go through the other side in tiles of 64 rows, of which the next one comes in meanwhile. What a product is comes
// from half.cuh or tf32.cuh in front of this file. Exponentials are powers of 2: scores have log₂ e in them.

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    forward(const T* q, const T* k, const T* v, T* out, float* lse, i64 q_row, i64 kv_row, int batch, int heads,
            int q_len, int k_len, float scale, SCORE_PARAMETERS) {
    extern __shared__ float4 shared[];
    __shared__ Notes notes[STAGES];
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_of(sizes);
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    Queries block(head, at.tile);
    Lane lane = block.lane;
    int i0 = block.i0;
    i64 from = (i64)at.b * k_len * kv_row + at.h * D;
    KeyNotes pending;
    auto bring = [&](int stage, int j0) {
        Cell* keys = (Cell*)shared + 2 * stage * TILE_CELLS;
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
        const Cell* keys = (const Cell*)shared + 2 * stage * TILE_CELLS;
        float s[TILE / 16][2][4], highest[2] = {top[0], top[1]};
        int steps = block.steps(notes[stage], j0);
#pragma unroll
        for (int p = 0; p < TILE / 16; p++) {
            if (p >= steps) break;
            score(s[p], queries, keys, p, lane);
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
            if (p >= steps) break;
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

// Gradients of the queries, and of what the bias adds for them. `delta` is Σ dout · out of each query; `bias_sums`
// holds, of a relative bias, every tile's part (batch, tiles, bias_rows, heads), and else what belongs to by_query.
extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    backward_queries(const T* q, const T* k, const T* v, const T* dout, const float* lse, const float* delta, T* dq,
                     float* bias_sums, int bias_rows, i64 q_row, i64 kv_row, int batch, int heads, int q_len,
                     int k_len, float scale, SCORE_PARAMETERS) {
    extern __shared__ float4 shared[];
    __shared__ Notes notes[STAGES];
    __shared__ float diagonals[2 * TILE];
    float* slopes = (float*)((Cell*)shared + 2 * STAGES * TILE_CELLS);
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_of(sizes);
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    Queries block(head, at.tile);
    Lane lane = block.lane;
    int i0 = block.i0;
    i64 from = (i64)at.b * k_len * kv_row + at.h * D, mine = (i64)at.b * q_len * q_row + at.h * D;
    i64 statistics = (i64)(at.b * heads + at.h) * q_len;
    KeyNotes pending;
    auto bring = [&](int stage, int j0) {
        Cell* keys = (Cell*)shared + 2 * stage * TILE_CELLS;
        fetch(keys, k + from, kv_row, j0, k_len);
        fetch(keys + TILE_CELLS, v + from, kv_row, j0, k_len);
        pending.read(head, i0, j0);
    };
    auto write = [&](int stage, int j0) { pending.write(notes[stage], head, j0); };
    bring(0, 0);
    float shift[2], own_delta[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int i = block.own + 8 * r;
        shift[r] = i < q_len ? LOG2E * saved_lse(lse[statistics + i]) : INFINITY;
        own_delta[r] = i < q_len ? delta[statistics + i] : 0.0f;
    }
    Rows queries, douts;
    take(queries, q + mine, q_row, i0, q_len, lane);
    take(douts, dout + (i64)at.b * q_len * heads * D + at.h * D, (i64)heads * D, i0, q_len, lane);
    write(0, 0);
    if (BIAS == 1) {
        bias_sums += ((i64)at.b * ((q_len + TILE - 1) / TILE) + at.tile) * bias_rows * heads + at.h;
        for (int n = threadIdx.x; n < bias_rows; n += blockDim.x) bias_sums[(i64)n * heads] = 0.0f;
    }
    if (BIAS == 2) bias_sums += ((i64)(at.h * batch + at.b) * q_len + i0) * pitch;
    Sums sums;
    clear(sums);
    walk(0, block.end, bring, write, [&](int stage, int j0) {
        const Cell* keys = (const Cell*)shared + 2 * stage * TILE_CELLS;
        int steps = block.steps(notes[stage], j0);
#pragma unroll 1
        for (int p = 0; p < steps; p++) {
            float s[2][4], ds[2][4];
            score(s, queries, keys, p, lane);
            score(ds, douts, keys + TILE_CELLS, p, lane);
            block.exponents(s, notes[stage], head, scale * LOG2E, j0, p);
            int j = 16 * p + 4 * lane.t;
            uint4 drawn;
            if (DROPPED) drawn = head.draw(block.own, (j0 + j) / 4);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int i = block.own + 8 * r;
                float4 f = DROPPED ? head.factors(half_of(drawn, r)) : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
                float factor[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    float& x = s[n / 2][2 * r + n % 2];
                    x -= shift[r];
                    differentiate(x, ds[n / 2][2 * r + n % 2], factor[n], own_delta[r]);
                }
                if (BIAS)
                    *(float4*)(slopes + (i - i0) * SCORE_PITCH + j) =
                        make_float4(ds[0][2 * r], ds[0][2 * r + 1], ds[1][2 * r], ds[1][2 * r + 1]);
            }
            mix(sums, ds, keys, p, lane);
        }
        if (!BIAS || steps == 0) return;
        __syncthreads();
        if (BIAS == 1) add_relative<TILE, SCORE_PITCH>(bias_sums, heads, slopes, diagonals, i0, j0, head);
        if (BIAS == 2) add_products<TILE, SCORE_PITCH, false>(bias_sums, slopes, i0, j0, head);
    });
    float factor[2] = {scale, scale};
    put(dq + mine, q_row, i0, q_len, sums, lane, factor);
}

// Gradients of the keys and values, and of what a disentangled bias adds for the keys.
extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    backward_keys(const T* q, const T* k, const T* v, const T* dout, const float* lse, const float* delta, T* dk,
                  T* dv, float* bias_sums, i64 q_row, i64 kv_row, int batch, int heads, int q_len, int k_len,
                  float scale, SCORE_PARAMETERS) {
    extern __shared__ float4 shared[];
    __shared__ Notes notes[STAGES];
    float* slopes = (float*)((Cell*)shared + 2 * STAGES * TILE_CELLS);
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_of(sizes);
    Scores head(sizes, at.b, at.h, SCORE_ARGUMENTS);
    Lane lane;
    int j0 = at.tile * (int)(blockDim.x / 2), first_own = j0 + 16 * lane.warp, own = first_own + lane.g;
    i64 mine = (i64)at.b * k_len * kv_row + at.h * D, from = (i64)at.b * q_len * q_row + at.h * D;
    i64 statistics = (i64)(at.b * heads + at.h) * q_len;
    const T* slope_rows = dout + (i64)at.b * q_len * heads * D + at.h * D;
    if (BIAS == 2) bias_sums += ((i64)(at.h * batch + at.b) * k_len + j0) * pitch;
    QueryNotes pending;
    auto bring = [&](int stage, int i0) {
        Cell* queries = (Cell*)shared + 2 * stage * TILE_CELLS;
        fetch(queries, q + from, q_row, i0, q_len);
        fetch(queries + TILE_CELLS, slope_rows, (i64)heads * D, i0, q_len);
        pending.read(head, lse + statistics, delta + statistics, i0, j0);
    };
    auto write = [&](int stage, int) { pending.write(notes[stage]); };
    bool shown[2] = {is_shown(head, own), is_shown(head, own + 8)};
    int own_first[2] = {head.first_query(own), head.first_query(own + 8)};
    int warp_first = uniform(head.first_query(first_own));
    bool idle = !BIAS && !__any_sync(0xffffffffu, shown[0] | shown[1]);
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
        const Cell* queries = (const Cell*)shared + 2 * stage * TILE_CELLS;
        const Cell* douts = queries + TILE_CELLS;
        const Notes& note = notes[stage];
        int steps = idle ? 0 : steps_of(q_len - i0);
#pragma unroll 1
        for (int p = BIAS ? 0 : max(warp_first - i0, 0) / 16; p < steps; p++) {
            float s[2][4], ds[2][4], factor[2][4];
            score(s, keys, queries, p, lane);
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
                if (BIAS) x += added(note, head, i0, j0, i + m, own + 8 * r - j0);
                if (LIMITED) x = i0 + i + m < own_first[r] ? NOTHING : x;
                // Of keys that nobody sees nothing is kept, unless a sum over keys would take it in.
                if (BIAS == 2 && !shown[r]) x = NOTHING;
                differentiate(x, slope, DROPPED ? factor[r][m] : 1.0f, query_delta[m]);
                if (BIAS == 2) slopes[(i + m) * SCORE_PITCH + own + 8 * r - j0] = slope;
            }
            mix(dkeys, ds, queries, p, lane);
            mix(dvalues, s, douts, p, lane);
        }
        if (BIAS != 2) return;
        __syncthreads();
        add_products<TILE, SCORE_PITCH, true>(bias_sums, slopes, i0, j0, head);
    });
    float kept[2] = {shown[0] ? 1.0f : 0.0f, shown[1] ? 1.0f : 0.0f}, factor[2] = {kept[0] * scale, kept[1] * scale};
    put(dk + mine, kv_row, j0, k_len, dkeys, lane, factor);
    put(dv + mine, kv_row, j0, k_len, dvalues, lane, kept);
}
