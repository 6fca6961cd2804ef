// Attention by groups of four warps: the gradients of keys and values. A group has 64 keys, and goes through queries and
// their gradients in tiles; scores come turned, so that the weights of a key are in one row.

#define STAGES_HERE 2

struct Notes {
    Column columns[2];
    uint4 keys[2];
    Near<FAR, OWN> near[2];
};

// What a thread has read of the next tile's queries and not written yet, so that it does not wait for it: of query
// `threadIdx.x`.
struct Pending {
    float lse, delta;

    __device__ __forceinline__ void read(const float* lses, const float* deltas, int i, int q_len) {
        // Queries past the last one are shifted by ∞: their weights are 0.
        lse = INFINITY, delta = 0.0f;
        if (threadIdx.x < FAR && i < q_len) lse = lses[i], delta = deltas[i];
    }
    __device__ __forceinline__ void write(Column& column, const Draws& draws, int i) const {
        if (threadIdx.x >= FAR) return;
        column.shift[threadIdx.x] = -LOG2E * saved_lse(lse), column.delta[threadIdx.x] = delta;
        if (DROPPED && threadIdx.x % 16 < 8) column.drawn[threadIdx.x / 16 * 8 + threadIdx.x % 8] = draws.row(i);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    backward_keys(const T* q, const T* k, const T* v, const T* dout, const float* lse, const float* delta, T* dk,
                  T* dv, float*, i64 q_row, i64 kv_row, int batch, int heads, int q_len, int k_len, float scale,
                  SCORE_PARAMETERS) {
    extern __shared__ float4 shared[];
    char* room = aligned(shared);
    u32 keys = shared_address(room), tiles = keys + 2 * TILE_BYTES(OWN);
    Notes& notes = *(Notes*)(room + 2 * TILE_BYTES(OWN) + 2 * STAGES_HERE * TILE_BYTES(FAR));
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_near(sizes, q_len);
    // Of a causal head the first keys have most queries.
    if (LIMITED) at.tile = (int)(gridDim.x / (batch * heads)) - 1 - at.tile;
    Lane lane;
    int j0 = at.tile * OWN, own = j0 + 16 * lane.warp + lane.g;
    mask += (i64)at.b * k_len;
    i64 mine = (i64)at.b * k_len * kv_row + at.h * D, statistics = (i64)(at.b * heads + at.h) * q_len;
    q += (i64)at.b * q_len * q_row + at.h * D, dout += (i64)at.b * q_len * heads * D + at.h * D;
    lse += statistics, delta += statistics, by_distance += (i64)at.h * (q_len + k_len - 1);
    auto first_of = [&](int j) { return LIMITED ? min(max(j - first, 0), q_len) : 0; };
    auto is_shown = [&](int j) { return j < k_len && (!MASKED || mask[j] != 0); };
    Draws draws(notes.keys, state, site, sample);
    draws.move_to(at);

    Copier<OWN, false>(k + mine, kv_row).start(keys, j0, k_len);
    Copier<OWN, false>(v + mine, kv_row).start(keys + TILE_BYTES(OWN), j0, k_len);
    Copier<FAR, true> query_copier(q, q_row), dout_copier(dout, (i64)heads * D);
    bool shown[2] = {is_shown(own), is_shown(own + 8)};
    int start = first_of(j0) / FAR * FAR;
    if (MASKED && !__syncthreads_or(shown[0] | shown[1])) start = q_len;
    int count = (q_len - start + FAR - 1) / FAR;
    auto queries_of = [&](int stage) { return tiles + 2 * stage * TILE_BYTES(FAR); };
    static_assert(FAR <= THREADS, "every query of a tile has a thread that reads what belongs to it");
    Pending pending{INFINITY, 0.0f};
    auto bring = [&](int n, int stage) {
        int i0 = start + n * FAR;
        if (n < count) {
            query_copier.start(queries_of(stage), i0, q_len);
            dout_copier.start(queries_of(stage) + TILE_BYTES(FAR), i0, q_len);
            pending.read(lse, delta, i0 + (int)threadIdx.x, q_len);
            if (BIAS == 1) notes.near[n % 2].bring(by_distance, i0, j0, q_len, k_len);
        }
        close_copies();
    };
    auto write = [&](int n) { pending.write(notes.columns[n % 2], draws, start + n * FAR + (int)threadIdx.x); };
    bring(0, 0), write(0);

    u32 own_keys = unit_of(keys) + lane.warp / 4 * UNITS(8192), own_values = own_keys + UNITS(TILE_BYTES(OWN));
    int own_first[2] = {first_of(own), first_of(own + 8)}, latest = first_of(j0 + 16 * lane.warp + 15);
    QuadDraw quads[2];
    if (DROPPED) quads[0] = draws.quad(own / 4), quads[1] = draws.quad(own / 4 + 2);
    float s[FAR / 2], slopes[FAR / 2], dkeys[D / 2], dvalues[D / 2];
    u32 weights[FAR / 16][4], slope_weights[FAR / 16][4];
#pragma unroll
    for (int n = 0; n < D / 2; n++) dkeys[n] = dvalues[n] = 0.0f;
    // With a bias, scores come first and log₂ e after.
    float scale_2 = BIAS ? LOG2E : scale * LOG2E;
    int stage = 0;
#pragma unroll 1
    for (int n = 0; together(n < count); n++) {
        int i0 = start + n * FAR, next = stage == STAGES_HERE - 1 ? 0 : stage + 1;
        wait_copies<0>();
        publish();
        __syncthreads();
        bring(n + 1, next);
        u32 queries = unit_of(tiles) + 2 * stage * UNITS(TILE_BYTES(FAR)), douts = queries + UNITS(TILE_BYTES(FAR));
        open_products();
        start_scores<OWN, FAR>(s, own_keys, queries);
        start_scores<OWN, FAR>(slopes, own_values, douts);
        close_products();
        u32 fallen[FAR / 64][4];
        const Column& column = notes.columns[n % 2];
#pragma unroll
        for (int m = 0; DROPPED && m < FAR / 64; m++)
            draw(fallen[m], draws, quads, column.drawn + 32 * m, lane, threshold);
        wait_products<0>();
        pin(s), pin(slopes), pin(dkeys), pin(dvalues);
        bool limited = LIMITED && together(i0 < latest);
        // The entry of the lane's first query and its upper key.
        const float* near = notes.near[n % 2].entry(4 * lane.t, own - j0);
#pragma unroll
        for (int p = 0; p < FAR / 16; p++) {
            float shift[4], query_delta[4];
            take_four(shift, column.shift, p, lane), take_four(query_delta, column.delta, p, lane);
#pragma unroll
            for (int m = 0; m < 8; m++) {
                int r = m % 4 / 2, c = m / 4 * 2 + m % 2;
                float &x = s[8 * p + m], &slope = slopes[8 * p + m];
                if (BIAS == 1) x = x * scale + near[8 * r - 16 * p - c];
                x = x * scale_2 + shift[c];
                if (limited && i0 + 16 * p + 4 * lane.t + c < own_first[r]) x = NOTHING;
                float weight = power_of_2(x);
                float factor = DROPPED ? (fallen[p / 4][c] & 1u << (p % 4 * 8 + 4 * r) ? 0.0f : keep) : 1.0f;
                slope = weight * (DROPPED ? slope * factor - query_delta[c] : slope - query_delta[c]);
                x = weight * factor;
            }
        }
        hold(weights, s);
        hold(slope_weights, slopes);
        open_products();
        start_mix<FAR>(dvalues, weights, douts);
        start_mix<FAR>(dkeys, slope_weights, queries);
        close_products();
        write(n + 1);
        wait_products<0>();
        pin(dkeys), pin(dvalues);
        stage = next;
    }
    float kept[2] = {shown[0] ? 1.0f : 0.0f, shown[1] ? 1.0f : 0.0f}, factor[2] = {kept[0] * scale, kept[1] * scale};
    put_rows(dk + mine, kv_row, j0, k_len, dkeys, lane, factor);
    put_rows(dv + mine, kv_row, j0, k_len, dvalues, lane, kept);
}
