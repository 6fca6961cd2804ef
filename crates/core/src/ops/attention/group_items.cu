// Attention by groups of four warps: the forward pass by large blocks, one to a multiprocessor, each of which computes one
// item after the other. One group brings tiles; the others' exponentials are computed while their own products of the tile
// before run, and each other's.

// Of heads so short that few groups have one, SIDES neighbours are an item, as many groups to each.
#define GROUPS_OF_HEAD (GROUPS / SIDES)
#define ROWS_OF_HEAD (64 * GROUPS_OF_HEAD)
static_assert(GROUPS % SIDES == 0 && (SIDES == 1 || D == 64 && !BIAS), "whose tiles lie side by side");

#define PLACES (D == 64 ? 3 : 2)

// Whether draws of a tile find registers while its products run.
#define DRAWN_EARLY (GROUP_REGISTERS >= 144)

// Queries of a head, or of neighbours from `at.h` on, which see keys in `count` tiles from `first` on. A count below 0: there
// are none left.
struct Item {
    Place at;
    int i0, first, count;
};

struct Notes {
    Places<2> queries;
    Places<PLACES> keys, values;
    int number[4];
    Item item[2];
    Shown<FAR> shown[PLACES];
    uint4 round_keys[2];
    Near<OWN, FAR> near[PLACES];
};

// A warp's 16 rows, times a factor each, leave by way of where its queries were in their tile, whose products are done: a lane
// then has eight neighbours. A factor of 0 makes 0 out of anything.
__device__ __forceinline__ void put_by_tile(T* to, i64 row, int first, int len, u32 queries, const float (&sums)[D / 2],
                                            Lane lane, Factors factors) {
    int at = lane.m % 2 * 8 + lane.r;
    auto cell = [&](int r, int vector) {
        return queries + vector / 8 * SLAB_BYTES(OWN) + r * 128 + ((vector ^ r) % 8 << 4);
    };
    __syncwarp();
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
        u32 x[4];
#pragma unroll
        for (int m = 0; m < 4; m++) {
            float f = factors.of[m % 2];
            const float* sum = sums + (n + m / 2) * 4 + m % 2 * 2;
            x[m] = f != 0.0f ? pair_of(sum[0] * f, sum[1] * f) : 0;
        }
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(cell(at, n + lane.m / 2)),
                     "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                     : "memory");
    }
    __syncwarp();
    const int VECTORS = D / 8, AT_A_TIME = 32 / VECTORS;
    int r = threadIdx.x % 32 / VECTORS, vector = threadIdx.x % VECTORS;
#pragma unroll
    for (int n = 0; n < 16; n += AT_A_TIME) {
        uint4 x = read_shared(cell(r + n, vector));
        if (first + r + n < len) *(uint4*)(to + (i64)(first + r + n) * row + vector * 8) = x;
    }
}

extern "C" __global__ void __launch_bounds__(ALL_THREADS, RESIDENT)
    forward(const T* q, const T* k, const T* v, T* out, float* lse, i64 q_row, i64 kv_row, int batch, int heads,
            int q_len, int k_len, float scale, SCORE_PARAMETERS) {
    // Tiles start at multiples of 1024 bytes.
    extern __shared__ __align__(1024) char room[];
    u32 queries = shared_address(room), key_tiles = queries + 2 * TILE_BYTES(OWN);
    u32 value_tiles = key_tiles + PLACES * SIDES * TILE_BYTES(FAR);
    Notes& notes = *(Notes*)(room + 2 * TILE_BYTES(OWN) + 2 * PLACES * SIDES * TILE_BYTES(FAR));
    Sizes sizes{batch, heads, q_len, k_len};
    auto end_of = [&](int i) { return LIMITED ? min(max(first + i + 1, 0), k_len) : k_len; };
    auto tiles_before = [&](int end, int from) { return (max(end - from, 0) + FAR - 1) / FAR; };
    if (threadIdx.x == 0) notes.queries.open(BRINGERS + 1), notes.keys.open(), notes.values.open();
    __syncthreads();

    // Items so far, and their tiles.
    u32 done = 0, before = 0;
    if (together(threadIdx.x >= THREADS)) {
        leave_registers();
        // One of the threads asks for the next item while tiles of the one before are brought.
        bool asks = threadIdx.x == THREADS;
        int next = blockIdx.x, tiles = (q_len + ROWS_OF_HEAD - 1) / ROWS_OF_HEAD;
        Sizes sides{batch, heads / SIDES, q_len, k_len};
        int items = batch * sides.heads * tiles, section = cached_pairs(SIDES * k_len);
#pragma unroll 1
        for (;; done++) {
            notes.queries.claim(done);
            if (asks) notes.number[done % 2] = next;
            meet_bringers();
            int n = uniform(notes.number[done % 2]);
            if (!together(n < items)) break;
            if (asks) next = gridDim.x + take_number();
            Place at = place_near(sides, section, n, tiles);
            at.h *= SIDES;
            int i0 = at.tile * ROWS_OF_HEAD;
            i64 head = at.h * D, query = (i64)at.b * q_len * q_row + head, key = (i64)at.b * k_len * kv_row + head;
            Copier<ROWS_OF_HEAD, false, BRINGERS> query_copier(q + query, q_row);
            query_copier.template start_heads<SIDES>(queries + done % 2 * TILE_BYTES(OWN), i0, q_len);
            Span span = span_of(mask + (i64)at.b * k_len, end_of(min(i0 + ROWS_OF_HEAD, q_len) - 1), FAR);
            Item item{at, i0, span.first, tiles_before(span.end, span.first)};
            if (asks) {
                notes.item[done % 2] = item;
                notes.queries.hand_over(done);
            }
            notes.queries.hand_over_copies(done);
            Copier<FAR, true, BRINGERS> key_copier(k + key, kv_row), value_copier(v + key, kv_row);
            auto bring_keys = [&](int m) {
                if (m >= item.count) return;
                int place = (before + m) % PLACES, j0 = item.first + m * FAR;
                notes.keys.claim(before + m);
                key_copier.template start_heads<SIDES>(key_tiles + place * SIDES * TILE_BYTES(FAR), j0, k_len);
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
                u32 to = value_tiles + (before + m) % PLACES * SIDES * TILE_BYTES(FAR);
                value_copier.template start_heads<SIDES>(to, item.first + m * FAR, k_len);
                notes.values.hand_over_copies(before + m);
            }
            before += item.count;
        }
        if (asks) {
            notes.item[done % 2].count = -1;
            notes.queries.hand_over(done);
            end_numbers();
        }
        notes.queries.hand_over_copies(done);
        close_copies();
        wait_copies<0>();
        return;
    }

    take_registers();
    Draws draws(notes.round_keys, state, site, sample);
    if (DROPPED) meet_groups();
    Lane lane;
    int group = lane.warp / 4, side = group / GROUPS_OF_HEAD;
    if (group == GROUPS - 1) pass_turn(group);
    // What turns products into scores, unless a bias was added to them already.
    float unit_of_scores = BIAS ? 1.0f : scale;
    auto place_of_tile = [&](u32 tiles, u32 n) {
        return unit_of(tiles) + (n % PLACES * SIDES + side) * UNITS(TILE_BYTES(FAR));
    };
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
        Item item = notes.item[done % 2];
        item.count = uniform(item.count);
        if (!together(item.count >= 0)) break;
        item.at.h += side;
        // The row of the first lane of all, if all had this head.
        int i0 = item.i0 - side * ROWS_OF_HEAD, own = i0 + 16 * lane.warp + lane.g, first_own = i0 + 64 * group;
        draws.move_to(item.at);
        u32 mine = unit_of(queries) + done % 2 * UNITS(TILE_BYTES(OWN)) + group * UNITS(8192);
        int end[2] = {end_of(own), end_of(own + 8)}, least = end_of(i0 + 16 * lane.warp);
        // Tiles that anyone in this group sees; the others' are only given back.
        int count = first_own < q_len ? item.count : 0;
        if (LIMITED) count = min(count, tiles_before(end_of(min(first_own + 64, q_len) - 1), item.first));
        count = uniform(count);
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
            if (BIAS == 1) add_near<FAR>(s, notes.near[place].entry(own - i0, 4 * lane.t), scale);
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
        Factors factors = put_statistics(lse, sizes, item.at, i0, rows_so_far, lane, unit_of_scores, keep);
        int first_row = 16 * lane.warp;
        put_by_tile(outputs_of(out, sizes, item.at), (i64)heads * D, i0 + first_row, q_len,
                    queries + done % 2 * TILE_BYTES(OWN) + first_row * 128, sums, lane, factors);
        notes.queries.give_back_by_warp(done);
    }
}
