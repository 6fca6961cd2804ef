// Attention by groups of four warps: the forward pass by large blocks, one to a multiprocessor, each of which computes one
// item after the other. One group brings tiles; the others' exponentials are computed while their own products of the tile
// before run, and each other's.

#define PLACES (D == 64 ? 3 : 2)

// Whether draws of a tile find registers while its products run.
#define DRAWN_EARLY (GROUP_REGISTERS >= 144)

struct Notes {
    Places<2> queries;
    Places<PLACES> keys, values;
    int item[4];
    Shown<FAR> shown[PLACES];
    uint4 round_keys[2];
    Near<OWN, FAR> near[PLACES];
};

// OWN queries of a head, which see keys in `count` tiles from `first` on.
struct Item {
    Place at;
    int i0, first, count;
};

extern "C" __global__ void __launch_bounds__(ALL_THREADS, RESIDENT)
    forward(const T* q, const T* k, const T* v, T* out, float* lse, i64 q_row, i64 kv_row, int batch, int heads,
            int q_len, int k_len, float scale, SCORE_PARAMETERS) {
    extern __shared__ float4 shared[];
    char* room = aligned(shared);
    u32 queries = shared_address(room), key_tiles = queries + 2 * TILE_BYTES(OWN);
    u32 value_tiles = key_tiles + PLACES * TILE_BYTES(FAR);
    Notes& notes = *(Notes*)(room + 2 * TILE_BYTES(OWN) + 2 * PLACES * TILE_BYTES(FAR));
    Sizes sizes{batch, heads, q_len, k_len};
    int tiles = (q_len + OWN - 1) / OWN, items = batch * heads * tiles;
    auto end_of = [&](int i) { return LIMITED ? min(max(first + i + 1, 0), k_len) : k_len; };
    auto tiles_before = [&](int end, int from) { return (max(end - from, 0) + FAR - 1) / FAR; };
    auto item_of = [&](int n) {
        Place at = place_near(sizes, cached_pairs(k_len), n, tiles);
        int i0 = at.tile * OWN;
        Span span = span_of(mask + (i64)at.b * k_len, end_of(min(i0 + OWN, q_len) - 1), FAR);
        return Item{at, i0, span.first, tiles_before(span.end, span.first)};
    };
    Draws draws(notes.round_keys, state, site, sample);
    if (threadIdx.x == 0) notes.queries.open(BRINGERS + 1), notes.keys.open(), notes.values.open();
    __syncthreads();

    // Items so far, and their tiles.
    u32 done = 0, before = 0;
    if (together(threadIdx.x >= THREADS)) {
        leave_registers();
        // One of the threads asks for the next item while tiles of the one before are brought.
        bool asks = threadIdx.x == THREADS;
        int next = blockIdx.x;
#pragma unroll 1
        for (;; done++) {
            notes.queries.claim(done);
            if (asks) {
                notes.item[done % 2] = next;
                notes.queries.hand_over(done);
            }
            meet_bringers();
            int n = uniform(notes.item[done % 2]);
            if (!together(n < items)) break;
            if (asks) next = gridDim.x + take_number();
            Item item = item_of(n);
            i64 head = item.at.h * D, query = (i64)item.at.b * q_len * q_row + head;
            i64 key = (i64)item.at.b * k_len * kv_row + head;
            Copier<OWN, false, BRINGERS>(q + query, q_row).start(queries + done % 2 * TILE_BYTES(OWN), item.i0, q_len);
            notes.queries.hand_over_copies(done);
            Copier<FAR, true, BRINGERS> key_copier(k + key, kv_row), value_copier(v + key, kv_row);
            auto bring_keys = [&](int m) {
                if (m >= item.count) return;
                int place = (before + m) % PLACES, j0 = item.first + m * FAR;
                notes.keys.claim(before + m);
                key_copier.start(key_tiles + place * TILE_BYTES(FAR), j0, k_len);
                if (MASKED) notes.shown[place].bring<BRINGERS>(mask + (i64)item.at.b * k_len, j0, k_len);
                const float* near = by_distance + (i64)item.at.h * (q_len + k_len - 1);
                if (BIAS == 1) notes.near[place].bring<BRINGERS>(near, item.i0, j0, q_len, k_len);
                notes.keys.hand_over_copies(before + m);
            };
            bring_keys(0);
#pragma unroll 1
            for (int m = 0; m < item.count; m++) {
                bring_keys(m + 1);
                notes.values.claim(before + m);
                u32 to = value_tiles + (before + m) % PLACES * TILE_BYTES(FAR);
                value_copier.start(to, item.first + m * FAR, k_len);
                notes.values.hand_over_copies(before + m);
            }
            before += item.count;
        }
        notes.queries.hand_over_copies(done);
        if (asks) end_numbers();
        close_copies();
        wait_copies<0>();
        return;
    }

    take_registers();
    Lane lane;
    int group = lane.warp / 4;
    if (group == GROUPS - 1) pass_turn(group);
    // What turns products into scores, unless a bias was added to them already.
    float unit_of_scores = BIAS ? 1.0f : scale;
    auto place_of_tile = [&](u32 tiles, u32 n) { return unit_of(tiles) + n % PLACES * UNITS(TILE_BYTES(FAR)); };
    float s[FAR / 2], sums[D / 2], fade[2];
    u32 weights[FAR / 16][4], staying[FAR / 16][4];
    // Adds what the weights of tile n take of its values.
    auto mix = [&](u32 n) {
        notes.values.await(n);
        open_products();
        start_mix<FAR>(sums, weights, place_of_tile(value_tiles, n));
        close_products();
    };
    auto end_mix = [&](u32 n) {
        wait_products<0>();
        pin(sums);
        notes.values.give_back_by_warp(n);
    };
#pragma unroll 1
    for (;; done++) {
        notes.queries.await(done);
        int number = uniform(notes.item[done % 2]);
        if (!together(number < items)) break;
        Item item = item_of(number);
        int own = item.i0 + 16 * lane.warp + lane.g, first_own = item.i0 + 64 * group;
        draws.move_to(item.at);
        u32 mine = unit_of(queries) + done % 2 * UNITS(TILE_BYTES(OWN)) + group * UNITS(8192);
        int end[2] = {end_of(own), end_of(own + 8)}, least = end_of(item.i0 + 16 * lane.warp);
        // Tiles that anyone in this group sees; the others' are only given back.
        int count = min(item.count, tiles_before(end_of(min(first_own + 64, q_len) - 1), item.first));
        count = uniform(first_own < q_len ? count : 0);
        RowDraw drawn;
        if (DROPPED) drawn = draws.row(own);
#pragma unroll
        for (int n = 0; n < D / 2; n++) sums[n] = 0.0f;
        Softmax rows_so_far{{NOTHING, NOTHING}, {0.0f, 0.0f}};
        auto start = [&](int n) {
            notes.keys.await(before + n);
            await_turn(group);
            open_products();
            start_scores<OWN, FAR>(s, mine, place_of_tile(key_tiles, before + n));
            close_products();
        };
        // What weights on tile n fall by, early or when these are there.
        auto draw_tile = [&](int n, bool early) {
            if (!DROPPED || early != DRAWN_EARLY) return;
            draw(staying, draws, drawn, (item.first + n * FAR) / 4 + lane.t, threshold);
        };
        // The products of tile n have come: to weights.
        auto weigh = [&](int n) {
            int j0 = item.first + n * FAR, place = (before + n) % PLACES;
            const Shown<FAR>& shown = notes.shown[place];
            if (BIAS == 1) add_near<FAR>(s, notes.near[place].entry(own - item.i0, 4 * lane.t), scale);
            if (!sees_all(shown, j0, least)) hide(s, shown, end, j0, lane.t);
            notes.keys.give_back_by_warp(before + n);
            bool grown = rows_so_far.weigh(s, unit_of_scores * LOG2E, fade);
            draw_tile(n, false);
            return grown;
        };
        if (together(count > 0)) {
            start(0);
            pass_turn(group);
            draw_tile(0, true);
            wait_products<0>();
            pin(s);
            weigh(0);
            hold_staying(weights, s, staying);
        }
#pragma unroll 1
        for (int n = 1; together(n < count); n++) {
            start(n);
            mix(before + n - 1);
            pass_turn(group);
            draw_tile(n, true);
            wait_products<1>();
            pin(s);
            bool grown = weigh(n);
            end_mix(before + n - 1);
            if (grown) {
#pragma unroll
                for (int m = 0; m < D / 2; m++) sums[m] *= fade[m % 4 / 2];
            }
            hold_staying(weights, s, staying);
        }
        notes.queries.give_back_by_warp(done);
        if (together(count > 0)) {
            mix(before + count - 1);
            end_mix(before + count - 1);
        }
#pragma unroll 1
        for (int n = count; together(n < item.count); n++) {
            notes.keys.await(before + n);
            await_turn(group);
            pass_turn(group);
            notes.keys.give_back_by_warp(before + n);
            notes.values.await(before + n);
            notes.values.give_back_by_warp(before + n);
        }
        before += item.count;
        put_outputs(out, lse, sizes, item.at, item.i0, own, rows_so_far, sums, lane, unit_of_scores, keep);
    }
}
