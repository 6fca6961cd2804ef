// Attention by groups of four warps: the gradients of queries. A group has 64 queries, and goes through keys and values in
// tiles; the products that add to its gradients run on while the next tile's scores start.

// Of keys, which the products that add to the gradients still read; of values there are two.
#define STAGES_HERE 3

struct Notes {
    Shown<FAR> shown[2];
    uint4 keys[2];
    float delta[OWN];
    Near<OWN, FAR> near[2];
};

// Σ dout · out of a block's queries, to shared memory and, for the gradients of keys, to `to`. Two threads have a row.
__device__ __forceinline__ void add_deltas(float (&delta)[OWN], float* to, const T* out, const T* dout, i64 row, int i0,
                                           int q_len) {
    int n = threadIdx.x / 2;
    float sum = 0.0f;
    if (i0 + n < q_len) {
        i64 at = (i0 + n) * row + threadIdx.x % 2 * (D / 2);
#pragma unroll
        for (int d = 0; d < D / 2; d += 8) {
            uint4 x = *(const uint4*)(out + at + d), y = *(const uint4*)(dout + at + d);
            const T *xs = (const T*)&x, *ys = (const T*)&y;
#pragma unroll
            for (int m = 0; m < 8; m++) sum += to_float(xs[m]) * to_float(ys[m]);
        }
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    if (threadIdx.x % 2) return;
    delta[n] = sum;
    if (i0 + n < q_len) to[i0 + n] = sum;
}

// From products, and gradients of the dropped weights, to gradients of the scores, in place of the latter.
__device__ __forceinline__ void differentiate(const float (&s)[FAR / 2], float (&slope)[FAR / 2], float scale,
                                              const float shift[2], const float delta[2], const Draws& draws,
                                              RowDraw rows, int quad, u32 threshold, float keep) {
#pragma unroll
    for (int n = 0; n < FAR / 2; n += 16) {
        uint4 word[2];
        if (DROPPED)
            draws.words<2>(word, {rows, rows}, {draws.quad(quad + n / 8 * 4), draws.quad(quad + n / 8 * 4 + 4)});
#pragma unroll
        for (int m = 0; m < 16; m++) {
            int r = m % 4 / 2, c = m % 8 / 4 * 2 + m % 2;
            uint4 bits = half_of(word[m / 8], r);
            const u32 words[4] = {bits.x, bits.y, bits.z, bits.w};
            float x = slope[n + m];
            if (DROPPED) x = words[c] < threshold ? -delta[r] : x * keep - delta[r];
            else x -= delta[r];
            slope[n + m] = power_of_2(s[n + m] * scale + shift[r]) * x;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    backward_queries(const T* q, const T* k, const T* v, const T* dout, const float* lse, float* delta, T* dq,
                     const T* out, float* bias_sums, int bias_rows, i64 q_row, i64 kv_row, int batch, int heads,
                     int q_len, int k_len, float scale, SCORE_PARAMETERS) {
    extern __shared__ float4 shared[];
    char* room = aligned(shared);
    u32 queries = shared_address(room), tiles = queries + 2 * TILE_BYTES(OWN);
    Notes& notes = *(Notes*)(room + 2 * TILE_BYTES(OWN) + (STAGES_HERE + 2) * TILE_BYTES(FAR));
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_near(sizes, k_len);
    Lane lane;
    int i0 = at.tile * OWN, own = i0 + 16 * lane.warp + lane.g;
    mask += (i64)at.b * k_len;
    by_distance += (i64)at.h * (q_len + k_len - 1);
    i64 mine = (i64)at.b * q_len * q_row + at.h * D, statistics = (i64)(at.b * heads + at.h) * q_len;
    auto end_of = [&](int i) { return LIMITED ? min(max(first + i + 1, 0), k_len) : k_len; };
    Draws draws(notes.keys, state, site, sample);
    draws.move_to(at);

    Copier<OWN, false>(q + mine, q_row).start(queries, i0, q_len);
    i64 out_row = (i64)heads * D, out_from = at.b * q_len * out_row + at.h * D;
    Copier<OWN, false>(dout + out_from, out_row).start(queries + TILE_BYTES(OWN), i0, q_len);
    Copier<FAR, true> key_copier(k + (i64)at.b * k_len * kv_row + at.h * D, kv_row);
    Copier<FAR, true> value_copier(v + (i64)at.b * k_len * kv_row + at.h * D, kv_row);
    Span span = span_of(mask, end_of(min(i0 + OWN, q_len) - 1), FAR);
    int count = (max(span.end - span.first, 0) + FAR - 1) / FAR;
    auto values_of = [&](int n) { return (STAGES_HERE + n % 2) * TILE_BYTES(FAR); };
    auto bring = [&](int n, int stage) {
        int j0 = span.first + n * FAR;
        if (n < count) {
            key_copier.start(tiles + stage * TILE_BYTES(FAR), j0, k_len);
            value_copier.start(tiles + values_of(n), j0, k_len);
            if (MASKED) notes.shown[n % 2].bring(mask, j0, k_len);
            if (BIAS == 1) notes.near[n % 2].bring(by_distance, i0, j0, q_len, k_len);
        }
        close_copies();
    };
    bring(0, 0);

    u32 own_queries = unit_of(queries) + lane.warp / 4 * UNITS(8192), own_douts = own_queries + UNITS(TILE_BYTES(OWN));
    int end[2] = {end_of(own), end_of(own + 8)}, least = end_of(i0 + 16 * lane.warp);
    add_deltas(notes.delta, delta + statistics, out + out_from, dout + out_from, out_row, i0, q_len);
    __syncthreads();
    float shift[2], own_delta[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int i = own + 8 * r;
        shift[r] = i < q_len ? -LOG2E * saved_lse(lse[statistics + i]) : NOTHING;
        own_delta[r] = notes.delta[i - i0];
    }
    RowDraw drawn;
    if (DROPPED) drawn = draws.row(own);
    float s[FAR / 2], slopes[FAR / 2], sums[D / 2];
    u32 weights[FAR / 16][4];
#pragma unroll
    for (int n = 0; n < D / 2; n++) sums[n] = 0.0f;
    Diagonals diagonals((float*)(&notes + 1), rows, BIAS == 1 ? bias_rows : 0, q_len, k_len, i0, lane.warp);
    // With a bias, scores come first and log₂ e after.
    float scale_2 = BIAS ? LOG2E : scale * LOG2E;
    int stage = 0;
#pragma unroll 1
    for (int n = 0; together(n < count); n++) {
        int j0 = span.first + n * FAR, next = stage == STAGES_HERE - 1 ? 0 : stage + 1;
        wait_copies<0>();
        publish();
        __syncthreads();
        // The stage that is written now was last read by the products of two tiles before, which have come.
        bring(n + 1, next);
        u32 keys = unit_of(tiles) + stage * UNITS(TILE_BYTES(FAR));
        open_products();
        start_scores<OWN, FAR>(s, own_queries, keys);
        start_scores<OWN, FAR>(slopes, own_douts, unit_of(tiles + values_of(n)));
        close_products();
        Diagonals::Complete complete{};
        if (BIAS == 1) complete = diagonals.complete(j0);
        wait_products<0>();
        pin(s), pin(slopes), pin(sums);
        const Shown<FAR>& shown = notes.shown[n % 2];
        if (BIAS == 1) add_near<FAR>(s, notes.near[n % 2].entry(own - i0, 4 * lane.t), scale);
        if (!sees_all(shown, j0, least)) hide(s, shown, end, j0, lane.t);
        differentiate(s, slopes, scale_2, shift, own_delta, draws, drawn, j0 / 4 + lane.t, threshold, keep);
        hold(weights, slopes);
        open_products();
        start_mix<FAR>(sums, weights, keys);
        close_products();
        if (BIAS == 1) diagonals.add(slopes, complete, lane);
        stage = next;
    }
    wait_products<0>();
    pin(sums);
    if (BIAS == 1) {
        int blocks = gridDim.x / (batch * heads);
        float* part = bias_sums + (i64)(at.b * blocks + at.tile) * bias_rows * heads + at.h;
        diagonals.put(part, heads, bias_rows, span.first + count * FAR);
    }
    float factor[2] = {scale, scale};
    put_rows(dq + mine, q_row, i0, q_len, sums, lane, factor);
}
