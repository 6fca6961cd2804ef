// Attention by groups of four warps: the gradients of whole heads of 64 in one pass. A block computes one head after the
// other; of a head one tile of 128 keys after the other, 64 to a group, and for these all queries and their gradients in
// tiles; scores come turned. What keys add to the gradients of queries is added up in shared memory, by the same thread in
// the order of the keys. One more group brings tiles, and another draws which weights fall.

// PLACES: for tiles of queries, and of values, which go through the same places to registers; KEY_PLACES: for tiles of keys;
// DRAWN_PLACES: for draws of a tile. SUMMED: tiles of queries that have sums; none where all keys are one tile.
#define PLACE_BYTES (2 * TILE_BYTES(FAR))
#define SLOPE_BYTES (OWN * 2 * FAR)
#define SUM_BYTES (FAR * 64 * 4)
// One more group draws, if weights fall. What those that bring, or draw, leave of their registers, the others take.
#define DRAWERS (DROPPED ? 128 : 0)
#define LEFT_REGISTERS 56
#define TAKEN_REGISTERS (DROPPED ? 200 : 224)
static_assert((BRINGERS + DRAWERS) * LEFT_REGISTERS + THREADS * TAKEN_REGISTERS <= 65536, "all registers");
static_assert(D == 64 && FAR == 64 && GROUPS == 2, "how the work is divided: a tile of values is as large as one of queries");
static_assert(!LIMITED && !BIAS, "what is computed in two passes");

// What belongs to a tile of queries: the logarithms of their sums of weights, and Σ dout · out.
struct __align__(16) TileNotes {
    float lse[FAR], delta[FAR];
};

// A tile of keys that has any to compute; no head: there are no more.
struct Work {
    int head, j0;
    // Whether others of the head came before, and come after.
    bool before, after;
    u32 shown[OWN / 32];
};

struct Notes {
    Places<PLACES> tiles;
    Places<KEY_PLACES> keys;
    Places<2> slopes;
    Places<DRAWN_PLACES> drawn;
    Work work[2];
    uint4 round_keys[2];
    TileNotes of_tile[PLACES];
    u32 fallen[DRAWN_PLACES][DROPPED ? THREADS : 4];
};

// Bit n: whether anyone sees a key of tile n. Of a head of which nothing is seen, the first tile counts.
__device__ __forceinline__ u32 visible_tiles(const int* mask, int k_len) {
    int tiles = (k_len + OWN - 1) / OWN;
    if (!MASKED) return (u32)((1ull << tiles) - 1);
    u32 visible = 0;
#pragma unroll 1
    for (int n = 0; n < tiles; n++) {
        bool found = false;
#pragma unroll
        for (int j = n * OWN + threadIdx.x % 32; j < (n + 1) * OWN; j += 32) found |= j < k_len && mask[j] != 0;
        if (together(found)) visible |= 1u << n;
    }
    return max(visible, 1u);
}

// Which weights of a tile fall: a bit for each of a thread's 32. A draw is for four keys of queries i and i + 8, which are in
// eight lanes; a thread here has those of a step p for the same lanes and both of their keys: of each lane's bits a byte, in
// which the bit of query c and key r is 4 r + c.
struct Drawer {
    const Draws& draws;
    u32 threshold;
    int p, t, word;
    QuadDraw quads[2];

    __device__ __forceinline__ Drawer(const Draws& draws, u32 threshold) : draws(draws), threshold(threshold) {
        int n = threadIdx.x % 128;
        p = n % 4, t = n / 4 % 2, word = n / 16 * 32 + n / 8 % 2 * 16 + t;
    }
    __device__ __forceinline__ void move_to(int j0) {
        int quad = (j0 + word / 32 * 16) / 4 + word / 16 % 2;
        quads[0] = draws.quad(quad), quads[1] = draws.quad(quad + 2);
    }
    __device__ __forceinline__ void draw(u32* fallen, int i0) const {
        u32 bits[2] = {0, 0};
#pragma unroll 2
        for (int c = 3; c >= 0; c--) {
            RowDraw row = draws.row(i0 + 16 * p + 4 * t + c);
            uint4 drawn[2];
            draws.words<2>(drawn, {row, row}, quads);
            bits[0] <<= 1, bits[1] <<= 1;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                uint4 half = half_of(drawn[n / 2], n % 2);
                u32 bit = 1u << n / 2 * 4, &all = bits[n % 2];
                if (half.x < threshold) all |= bit;
                if (half.y < threshold) all |= bit << 8;
                if (half.z < threshold) all |= bit << 16;
                if (half.w < threshold) all |= bit << 24;
            }
        }
#pragma unroll
        for (int n = 0; n < 8; n++)
            ((unsigned char*)(fallen + word + n % 4 * 4 + n / 4 * 2))[p] = (unsigned char)(bits[n / 4] >> 8 * (n % 4));
    }
};

// A group's 64 rows of a tile of 128 as left operands.
__device__ __forceinline__ void take_rows(u32 (&rows)[D / 16][4], u32 tile, Lane lane) {
    u32 row = tile + (16 * lane.warp + lane.m % 2 * 8 + lane.r) * 128;
#pragma unroll
    for (int k = 0; k < D / 16; k++)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(rows[k][0]), "=r"(rows[k][1]), "=r"(rows[k][2]), "=r"(rows[k][3])
                     : "r"(row + ((2 * k + lane.m / 2 ^ lane.r) << 4))
                     : "memory");
}

// Element n of a thread's weights, less than 0 if it falls.
__device__ __forceinline__ float marked(float weight, u32 fallen, int n) {
    int bit = n / 8 * 8 + n % 4 / 2 * 4 + n % 8 / 4 * 2 + n % 2;
    return DROPPED ? __uint_as_float(__float_as_uint(weight) ^ (fallen << (31 - bit) & 1u << 31)) : weight;
}
// Weights as left operands, 0 where they are marked.
__device__ __forceinline__ void hold_marked(u32 (&to)[FAR / 16][4], const float (&s)[FAR / 2]) {
#pragma unroll
    for (int n = 0; n < FAR / 2; n += 2) {
        u32& pair = to[n / 8][n % 8 / 2];
#if !DROPPED
        pair = pair_of(s[n], s[n + 1]);
#elif BF16
        asm("cvt.rn.relu.bf16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(s[n]), "f"(s[n + 1]));
#else
        asm("cvt.rn.relu.f16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(s[n]), "f"(s[n + 1]));
#endif
    }
}
// The gradient of a score, from that of the weight after dropout, and Σ dout · out, both without what weights that do not fall
// are multiplied by.
__device__ __forceinline__ float slope_of(float weight, float slope, float delta) {
    return DROPPED ? fmaxf(weight, 0.0f) * slope - fabsf(weight) * delta : weight * (slope - delta);
}

// What a thread has of a tile's sums, between shared memory and registers.
__device__ __forceinline__ void take_sums(float (&sums)[16], u32 from) {
#pragma unroll
    for (int n = 0; n < 16; n += 4)
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(sums[n]), "=f"(sums[n + 1]), "=f"(sums[n + 2]), "=f"(sums[n + 3])
                     : "r"(from + n * 512)
                     : "memory");
}
__device__ __forceinline__ void keep_sums(u32 to, const float (&sums)[16]) {
#pragma unroll
    for (int n = 0; n < 16; n += 4)
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + n * 512), "f"(sums[n]), "f"(sums[n + 1]),
                     "f"(sums[n + 2]), "f"(sums[n + 3])
                     : "memory");
}

extern "C" __global__ void __launch_bounds__(ALL_THREADS + DRAWERS, RESIDENT)
    backward_heads(const T* q, const T* k, const T* v, const T* dout, const float* lse, const float* delta, T* dq, T* dk,
                   T* dv, i64 q_row, i64 kv_row, int batch, int heads, int q_len, int k_len, float scale,
                   SCORE_PARAMETERS) {
    // Tiles start at multiples of 1024 bytes.
    extern __shared__ __align__(1024) char room[];
    u32 keys = shared_address(room), tiles = keys + KEY_PLACES * TILE_BYTES(OWN), slopes_at = tiles + PLACES * PLACE_BYTES;
    u32 sums = slopes_at + 2 * SLOPE_BYTES;
    Notes& notes = *(Notes*)(room + (sums - keys) + SUMMED * SUM_BYTES);
    Draws draws(notes.round_keys, state, site, sample);
    if (threadIdx.x == 0)
        notes.tiles.open(2 * BRINGERS), notes.keys.open(), notes.slopes.open(4 * GROUPS), notes.drawn.open();
    __syncthreads();
    int query_tiles = (q_len + FAR - 1) / FAR;
    i64 out_row = (i64)heads * D;
    // Tiles that went through the places of tiles, and those of keys, so far.
    u32 brought = 0, key_tile = 0;

    if (DROPPED && together(threadIdx.x >= ALL_THREADS)) {
        leave_registers<LEFT_REGISTERS>();
        Drawer drawer(draws, threshold);
        u32 drawn = 0;
#pragma unroll 1
        for (int head = blockIdx.x; together(head < batch * heads); head += gridDim.x) {
            draws.move_to(Place{0, head / heads, head % heads});
            u32 visible = visible_tiles(mask + (i64)(head / heads) * k_len, k_len);
#pragma unroll 1
            for (int j0 = 0; j0 < k_len; j0 += OWN, visible >>= 1) {
                if (!(visible & 1)) continue;
                drawer.move_to(j0);
#pragma unroll 1
                for (int i0 = 0; i0 < q_len; i0 += FAR, drawn++) {
                    notes.drawn.claim(drawn);
                    drawer.draw(notes.fallen[drawn % DRAWN_PLACES], i0);
                    notes.drawn.hand_over(drawn);
                }
            }
        }
        return;
    }
    if (together(threadIdx.x >= THREADS)) {
        leave_registers<LEFT_REGISTERS>();
        int thread = threadIdx.x % BRINGERS;
        // What comes by copies, and what was written before.
        auto hand_over = [&] { notes.tiles.hand_over_copies(brought), notes.tiles.hand_over(brought++); };
#pragma unroll 1
        for (int head = blockIdx.x; together(head < batch * heads); head += gridDim.x) {
            int b = head / heads, h = head % heads;
            i64 key = (i64)b * k_len * kv_row + h * D, statistics = (i64)head * q_len;
            const int* shown = mask + (i64)b * k_len;
            u32 visible = visible_tiles(shown, k_len);
            Copier<FAR, true, BRINGERS> query_copier(q + (i64)b * q_len * q_row + h * D, q_row);
            Copier<FAR, true, BRINGERS> dout_copier(dout + b * q_len * out_row + h * D, out_row);
            auto bring_queries = [&](int i0) {
                u32 to = tiles + brought % PLACES * PLACE_BYTES;
                TileNotes& note = notes.of_tile[brought % PLACES];
                notes.tiles.claim(brought);
                query_copier.start(to, i0, q_len);
                dout_copier.start(to + TILE_BYTES(FAR), i0, q_len);
                // Queries past the last one have products of 0 with everything: their weights do not matter.
                int i = i0 + thread % FAR;
                const float* from = (thread < FAR ? lse : delta) + statistics;
                copy_word((thread < FAR ? note.lse : note.delta) + thread % FAR, (const int*)from + i, i < q_len);
                hand_over();
            };
#pragma unroll 1
            for (int n = 0; n * OWN < k_len; n++) {
                int j0 = n * OWN;
                if (!(visible >> n & 1)) {
#pragma unroll 1
                    for (int j = j0 + thread / 8; j < min(j0 + OWN, k_len); j += BRINGERS / 8) {
                        i64 to = key + j * kv_row + thread % 8 * 8;
                        put_vector(dk + to, {0, 0, 0, 0}), put_vector(dv + to, {0, 0, 0, 0});
                    }
                    continue;
                }
                auto bring_keys = [&] {
                    notes.keys.claim(key_tile);
                    u32 to = keys + key_tile % KEY_PLACES * TILE_BYTES(OWN);
                    Copier<OWN, false, BRINGERS>(k + key, kv_row).start(to, j0, k_len);
                    notes.keys.hand_over_copies(key_tile);
                };
                if (KEY_PLACES > 1) bring_keys();
                notes.tiles.claim(brought);
                u32 to = tiles + brought % PLACES * PLACE_BYTES;
                Copier<OWN, false, BRINGERS>(v + key, kv_row).start(to, j0, k_len);
                int j = j0 + thread;
                u32 seen = __ballot_sync(0xffffffffu, j < k_len && (!MASKED || shown[j] != 0));
                Work& work = notes.work[key_tile % 2];
                if (thread % 32 == 0) work.shown[thread / 32] = seen;
                if (thread == 0)
                    work.head = head, work.j0 = j0, work.before = (visible & ((1u << n) - 1)) != 0,
                    work.after = visible >> n > 1;
                hand_over();
#pragma unroll 1
                for (int i0 = 0; i0 < q_len; i0 += FAR) {
                    bring_queries(i0);
                    // The only place for keys is free when those before are done: the first queries are there by then.
                    if (KEY_PLACES == 1 && i0 == 0) bring_keys();
                }
                key_tile++;
            }
        }
        notes.tiles.claim(brought);
        if (thread == 0) notes.work[key_tile % 2].head = -1;
        hand_over();
        close_copies();
        wait_copies<0>();
        return;
    }

    take_registers<TAKEN_REGISTERS>();
    Lane lane, lane_of_group = lane;
    lane_of_group.warp %= 4;
    int group = lane.warp / 4;
    u32 own_sums = sums + group * (SUM_BYTES / 2) + threadIdx.x % 128 * 16, step = 0;
    float s[FAR / 2], slopes[FAR / 2], dkeys[D / 2], dvalues[D / 2], dqueries[16];
    u32 weights[FAR / 16][4], slope_weights[FAR / 16][4], values[D / 16][4];
    float unit = DROPPED ? keep : 1.0f, kept_share = 1.0f / unit;
    float scale_2 = scale * LOG2E, query_factor[2] = {scale * unit, scale * unit};
#pragma unroll 1
    for (;; key_tile++) {
        notes.tiles.await(brought);
        const Work& work = notes.work[key_tile % 2];
        int head = uniform(work.head), j0 = uniform(work.j0);
        if (!together(head >= 0)) break;
        bool before = together(work.before), after = together(work.after);
        u32 seen = work.shown[lane.warp / 2] >> (lane.warp % 2 * 16 + lane.g);
        bool shown[2] = {(seen & 1) != 0, (seen & 1u << 8) != 0}, all_shown = __all_sync(0xffffffffu, shown[0] & shown[1]);
        take_rows(values, tiles + brought % PLACES * PLACE_BYTES, lane);
        notes.tiles.give_back_by_warp(brought++);
        u32 key_rows = unit_of(keys) + key_tile % KEY_PLACES * UNITS(TILE_BYTES(OWN));
        u32 own_keys = key_rows + group * UNITS(8192), key_columns = key_rows + group * UNITS(64);
        T* to = dq + (i64)(head / heads) * q_len * q_row + head % heads * D + group * 32;
        // The gradients of a tile's queries, the last one of which both groups have the slopes of: from their sums so far, to
        // these or as rows.
        auto start_queries = [&] {
            u32 rows = unit_of(slopes_at) + (step - 1) % 2 * UNITS(SLOPE_BYTES);
            notes.slopes.await_published(step - 1);
            open_products();
#pragma unroll
            for (int m = 0; m < OWN / 16; m++)
                multiply_turned(dqueries, operand_at(rows + m * UNITS(2048), 1),
                                operand_at(key_columns + m * UNITS(2048), 1), m > 0 || (SUMMED && before));
            close_products();
        };
        auto end_queries = [&](u32 at_step, int n) {
            notes.slopes.give_back_by_warp(at_step);
            if (SUMMED && after) keep_sums(own_sums + n * SUM_BYTES, dqueries);
            else put_rows<true>(to, q_row, n * FAR, q_len, dqueries, lane_of_group, query_factor);
        };
#pragma unroll
        for (int n = 0; n < D / 2; n++) dkeys[n] = dvalues[n] = 0.0f;
        notes.keys.await(key_tile);
        // Tile n; if it is not the first, the gradients of the queries before are completed beside it.
        auto compute = [&](bool is_first, int n) __attribute__((always_inline)) {
            u32 queries = unit_of(tiles) + brought % PLACES * UNITS(PLACE_BYTES), douts = queries + UNITS(TILE_BYTES(FAR));
            u32 own_slopes = unit_of(slopes_at) + step % 2 * UNITS(SLOPE_BYTES) + group * UNITS(8192);
            const TileNotes& note = notes.of_tile[brought % PLACES];
            notes.tiles.await(brought);
            open_products();
            start_scores<OWN, FAR>(s, own_keys, queries);
            close_products();
#pragma unroll
            for (int m = 0; m < D / 16; m++)
                multiply_rows(slopes, values[m], operand_at(douts + m * UNITS(32), 1), m > 0);
            close_products();
            u32 fallen = 0;
            if (DROPPED) {
                notes.drawn.await_published(step);
                fallen = notes.fallen[step % DRAWN_PLACES][threadIdx.x];
                notes.drawn.give_back_by_warp(step);
            }
            // With the scores, all products of the tile before have come.
            wait_products<1>();
            pin(s), pin(dkeys);
            if (!is_first) notes.tiles.give_back_by_warp(brought - 1);
            if (!is_first && SUMMED && before) take_sums(dqueries, own_sums + (n - 1) * SUM_BYTES);
#pragma unroll
            for (int p = 0; p < FAR / 16; p++) {
                float query_lse[4];
                take_four(query_lse, note.lse, p, lane);
#pragma unroll
                for (int c = 0; c < 4; c++) query_lse[c] *= -LOG2E;
#pragma unroll
                for (int m = 8 * p; m < 8 * p + 8; m++)
                    s[m] = marked(power_of_2(s[m] * scale_2 + query_lse[m % 8 / 4 * 2 + m % 2]), fallen, m);
            }
            // Of a query that sees nothing, the logarithm is -∞: what it gives to hidden keys is not a number.
            if (!all_shown) {
#pragma unroll
                for (int m = 0; m < FAR / 2; m++)
                    if (!shown[m % 4 / 2]) s[m] = 0.0f;
            }
            if (!is_first) start_queries();
            hold_marked(weights, s);
            open_products();
            start_mix<FAR>(dvalues, weights, douts);
            close_products();
            if (is_first) wait_products<1>();
            else wait_products<2>();
            pin(slopes);
#pragma unroll
            for (int p = 0; p < FAR / 16; p++) {
                float query_delta[4];
                take_four(query_delta, note.delta, p, lane);
#pragma unroll
                for (int c = 0; DROPPED && c < 4; c++) query_delta[c] *= kept_share;
#pragma unroll
                for (int m = 8 * p; m < 8 * p + 8; m++)
                    slopes[m] = slope_of(s[m], slopes[m], query_delta[m % 8 / 4 * 2 + m % 2]);
            }
            hold(slope_weights, slopes);
            // Who gave this place back has computed the gradients of queries two tiles before.
            notes.slopes.claim(step);
            put_turned(slopes_at + step % 2 * SLOPE_BYTES, slope_weights, lane);
            publish();
            asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
            if (threadIdx.x % 32 == 0) notes.slopes.hand_over(step);
            wait_products<0>();
            pin(dvalues), pin(dqueries);
            open_products();
#pragma unroll
            for (int m = 0; m < FAR / 16; m++)
                multiply_mixed(dkeys, operand_at(own_slopes + m * UNITS(32), 1), operand_at(queries + m * UNITS(2048), 1));
            close_products();
            if (!is_first) end_queries(step - 1, n - 1);
            brought++, step++;
        };
        compute(true, 0);
#pragma unroll 1
        for (int n = 1; together(n < query_tiles); n++) compute(false, n);
        if (SUMMED && before) take_sums(dqueries, own_sums + (query_tiles - 1) * SUM_BYTES);
        start_queries();
        float value_factor[2] = {shown[0] ? unit : 0.0f, shown[1] ? unit : 0.0f};
        float key_factor[2] = {value_factor[0] * scale, value_factor[1] * scale};
        i64 mine = (i64)(head / heads) * k_len * kv_row + head % heads * D;
        put_rows(dv + mine, kv_row, j0, k_len, dvalues, lane, value_factor);
        wait_products<0>();
        pin(dkeys), pin(dqueries);
        notes.tiles.give_back_by_warp(brought - 1);
        notes.keys.give_back_by_warp(key_tile);
        end_queries(step - 1, query_tiles - 1);
        put_rows(dk + mine, kv_row, j0, k_len, dkeys, lane, key_factor);
    }
}
