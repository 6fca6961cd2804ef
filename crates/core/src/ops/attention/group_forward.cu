// Attention by groups of four warps: the forward pass by small blocks, of which a multiprocessor has several. While a group's
// exponentials are computed, the products of the tile before run.

struct Notes {
    Shown<FAR> shown[2];
    uint4 keys[2];
    Near<OWN, FAR> near[2];
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    forward(const T* q, const T* k, const T* v, T* out, float* lse, i64 q_row, i64 kv_row, int batch, int heads,
            int q_len, int k_len, float scale, SCORE_PARAMETERS) {
    extern __shared__ float4 shared[];
    char* room = aligned(shared);
    u32 queries = shared_address(room), tiles = queries + TILE_BYTES(OWN);
    Notes& notes = *(Notes*)(room + TILE_BYTES(OWN) + 4 * TILE_BYTES(FAR));
    Sizes sizes{batch, heads, q_len, k_len};
    Place at = place_near(sizes, k_len);
    Lane lane;
    int i0 = at.tile * OWN, own = i0 + 16 * lane.warp + lane.g;
    mask += (i64)at.b * k_len;
    by_distance += (i64)at.h * (q_len + k_len - 1);
    // What turns products into scores, unless a bias was added to them already.
    float unit_of_scores = BIAS ? 1.0f : scale;
    auto end_of = [&](int i) { return LIMITED ? min(max(first + i + 1, 0), k_len) : k_len; };
    Draws draws(notes.keys, state, site, sample);
    draws.move_to(at);

    Copier<OWN, false>(q + (i64)at.b * q_len * q_row + at.h * D, q_row).start(queries, i0, q_len);
    Copier<FAR, true> key_copier(k + (i64)at.b * k_len * kv_row + at.h * D, kv_row);
    Copier<FAR, true> value_copier(v + (i64)at.b * k_len * kv_row + at.h * D, kv_row);
    Span span = span_of(mask, end_of(min(i0 + OWN, q_len) - 1), FAR);
    int count = (max(span.end - span.first, 0) + FAR - 1) / FAR;
    auto tile_of = [&](int n, int value) { return tiles + (value * 2 + n % 2) * TILE_BYTES(FAR); };
    auto start_of = [&](int n) { return span.first + n * FAR; };
    auto bring = [&](int n, int value) {
        if (n < count) (value ? value_copier : key_copier).start(tile_of(n, value), start_of(n), k_len);
    };
    auto bring_notes = [&](int n) {
        if (MASKED && n < count) notes.shown[n % 2].bring(mask, start_of(n), k_len);
        if (BIAS == 1 && n < count) notes.near[n % 2].bring(by_distance, i0, start_of(n), q_len, k_len);
    };
    bring(0, 0), bring_notes(0);
    close_copies();
    bring(1, 0), bring(0, 1), bring_notes(1);
    close_copies();

    u32 mine = unit_of(queries) + lane.warp / 4 * UNITS(8192);
    auto unit = [&](int n, int value) { return unit_of(tiles) + (value * 2 + n % 2) * UNITS(TILE_BYTES(FAR)); };
    int end[2] = {end_of(own), end_of(own + 8)}, least = end_of(i0 + 16 * lane.warp);
    RowDraw drawn;
    if (DROPPED) drawn = draws.row(own);
    float s[FAR / 2], sums[D / 2], fade[2];
    u32 weights[FAR / 16][4], staying[FAR / 16][4];
#pragma unroll
    for (int n = 0; n < D / 2; n++) sums[n] = 0.0f;
    Softmax rows_so_far{{NOTHING, NOTHING}, {0.0f, 0.0f}};
    // The products of tile n have come: to weights.
    auto weigh = [&](int n) {
        int j0 = start_of(n);
        const Shown<FAR>& shown = notes.shown[n % 2];
        if (BIAS == 1) add_near<FAR>(s, notes.near[n % 2].entry(own - i0, 4 * lane.t), scale);
        if (!sees_all(shown, j0, least)) hide(s, shown, end, j0, lane.t);
        bool grown = rows_so_far.weigh(s, unit_of_scores * LOG2E, fade);
        if (DROPPED) draw(staying, draws, drawn, j0 / 4 + lane.t, threshold);
        return grown;
    };
    if (together(count > 0)) {
        wait_copies<1>();
        publish();
        __syncthreads();
        open_products();
        start_scores<OWN, FAR>(s, mine, unit(0, 0));
        close_products();
        wait_products<0>();
        pin(s);
        weigh(0);
        hold_staying(weights, s, staying);
    }
#pragma unroll 1
    for (int n = 0; together(n < count); n++) {
        wait_copies<0>();
        publish();
        __syncthreads();
        bool more = together(n + 1 < count);
        bring(n + 2, 0), bring(n + 1, 1), bring_notes(n + 2);
        close_copies();
        if (more) {
            open_products();
            start_scores<OWN, FAR>(s, mine, unit(n + 1, 0));
            close_products();
            start_mix<FAR>(sums, weights, unit(n, 1));
            close_products();
            wait_products<1>();
            pin(s);
            bool grown = weigh(n + 1);
            wait_products<0>();
            pin(sums);
            if (grown) {
#pragma unroll
                for (int m = 0; m < D / 2; m++) sums[m] *= fade[m % 4 / 2];
            }
            hold_staying(weights, s, staying);
        } else {
            open_products();
            start_mix<FAR>(sums, weights, unit(n, 1));
            close_products();
            wait_products<0>();
            pin(sums);
        }
    }
    Factors factors = put_statistics(lse, sizes, at, i0, rows_so_far, lane, unit_of_scores, keep);
    put_rows(outputs_of(out, sizes, at), (i64)heads * D, i0, q_len, sums, lane, factors.of);
}
