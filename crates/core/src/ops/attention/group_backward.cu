// Attention by groups of four warps: the gradients of heads of 128 in one pass. A block has 128 keys, 64 to a group, and goes
// through queries and their gradients in tiles, the last one first; scores come turned. What its keys add to the gradients of
// a tile's queries is added to sums in memory after that of the keys before: in the same order every time.
//
// While one group computes weights and slopes, the products of the other run: a group starts all that it can at once, and
// waits for the other's slopes a tile later only. Scores are started in turn, so that neither gets ahead by more than a tile.

#define PLACES 2
// Of the group that brings, the first two warps copy, with a query of a tile to a thread; the others add what was found for
// the queries of a tile, in turn: while one waits until its addition is done, the other starts the next.
#define COPIERS 64
static_assert(FAR == COPIERS && SLABS == GROUPS && GROUPS == 2, "how the work is divided");
static_assert(!DROPPED && !BIAS, "what is computed in two passes");
// Gradients of scores, a row to a key; and those of queries, in the order of the registers of both groups.
#define TURNED_BYTES (OWN * 2 * FAR)
#define STAGED_FLOATS (FAR * D)
#define ADDERS 2
// The most heads whose blocks run at a time, as measured.
#define MOST_PAIRS (LIMITED ? 32 : 16)

struct Notes {
    Places<1> own;
    Places<PLACES> tiles;
    Places<2> slopes;
    Places<ADDERS> staged;
    u32 number[4];
    Column columns[PLACES];
};

// Adds what is staged to sums in memory when `rank` others have done so, and says so. `add` returns when the staged values
// have been read; `finish` when they have been added.
struct Adder {
    u32* turn;
    u32 rank;

    // Between what threads and what bulk copies do to global memory; that of shared memory too would take as long as a tile's
    // products do, while the next block waits.
    static __device__ __forceinline__ void order_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
    __device__ __forceinline__ void await_turn() const {
        u32 done;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(done) : "l"(turn) : "memory");
        while (done != rank);
        order_global();
    }
    __device__ __forceinline__ void add(float* to, u32 staged) const {
        if (rank == 0)
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(staged),
                         "n"(4 * STAGED_FLOATS)
                         : "memory");
        else
            asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
                         "r"(staged), "n"(4 * STAGED_FLOATS)
                         : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
    __device__ __forceinline__ void finish() const {
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        order_global();
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(turn), "r"(rank + 1) : "memory");
    }
};

// `sums` holds what is staged of every head and tile of queries; `turns`, for each of these, how many have added to it: 0
// before the launch.
extern "C" __global__ void __launch_bounds__(ALL_THREADS, RESIDENT)
    backward(const T* q, const T* k, const T* v, const T* dout, const float* lse, const float* delta, T* dk, T* dv,
             float* sums, u32* turns, i64 q_row, i64 kv_row, int batch, int heads, int q_len, int k_len, float scale,
             SCORE_PARAMETERS) {
    // Tiles start at multiples of 1024 bytes.
    extern __shared__ __align__(1024) char room[];
    u32 keys = shared_address(room), tiles = keys + 2 * TILE_BYTES(OWN);
    u32 turned = tiles + 2 * PLACES * TILE_BYTES(FAR), staging = turned + 2 * TURNED_BYTES;
    Notes& notes = *(Notes*)(room + (staging - keys) + ADDERS * 4 * STAGED_FLOATS);
    // A block waits for those with keys before its own: they took their numbers earlier, so that they do run.
    if (threadIdx.x == 0) {
        notes.number[0] = take_number();
        notes.own.open(COPIERS), notes.tiles.open(2 * COPIERS), notes.slopes.open(4 * GROUPS);
        notes.staged.open(4 * GROUPS, 1);
    }
    __syncthreads();
    Sizes sizes{batch, heads, q_len, k_len};
    int key_tiles = gridDim.x / (batch * heads);
    // Of long heads, twice as many as are cached: fewer blocks of each then wait for each other.
    int section = min(2 * cached_pairs(q_len), MOST_PAIRS);
    Place at = place_near(sizes, section, uniform(notes.number[0]), key_tiles);
    at.tile = key_tiles - 1 - at.tile;
    int j0 = at.tile * OWN, pair = at.b * heads + at.h;
    mask += (i64)at.b * k_len;
    auto first_of = [&](int j) { return LIMITED ? min(max(j - first, 0), q_len) : 0; };
    auto is_shown = [&](int j) { return j < k_len && (!MASKED || mask[j] != 0); };
    // Tiles of queries that see any of these keys, and how many tiles of keys before add to them.
    int query_tiles = (q_len + FAR - 1) / FAR, count = query_tiles - first_of(j0) / FAR;
    u32 rank = at.tile;
    if (MASKED) {
        rank = 0;
        for (int n = 0; n <= at.tile; n++) {
            bool any = __syncthreads_or(threadIdx.x < OWN && is_shown(n * OWN + (int)threadIdx.x));
            if (n < at.tile) rank += any;
            else if (!any) count = 0;
        }
    }
    auto tile_of = [&](int n) { return query_tiles - 1 - n; };

    if (together(threadIdx.x >= THREADS)) {
        leave_registers();
        int warp = uniform((threadIdx.x - THREADS) / 32);
        if (warp < COPIERS / 32) {
            i64 mine = (i64)at.b * k_len * kv_row + at.h * D, statistics = (i64)pair * q_len, row = (i64)heads * D;
            Copier<OWN, false, COPIERS>(k + mine, kv_row).start_heads(keys, j0, k_len);
            Copier<OWN, false, COPIERS>(v + mine, kv_row).start_heads(keys + TILE_BYTES(OWN), j0, k_len);
            notes.own.hand_over_copies(0);
            Copier<FAR, true, COPIERS> query_copier(q + (i64)at.b * q_len * q_row + at.h * D, q_row);
            Copier<FAR, true, COPIERS> dout_copier(dout + at.b * q_len * row + at.h * D, row);
#pragma unroll 1
            for (int n = 0; n < count; n++) {
                int i0 = tile_of(n) * FAR, c = threadIdx.x % COPIERS, i = i0 + c;
                u32 to = tiles + n % PLACES * 2 * TILE_BYTES(FAR);
                // Read before the place is free. Queries past the last one are shifted by ∞: their weights are 0.
                float its_lse = i < q_len ? saved_lse(lse[statistics + i]) : INFINITY;
                float its_delta = i < q_len ? delta[statistics + i] : 0.0f;
                notes.tiles.claim(n);
                query_copier.start_heads(to, i0, q_len);
                dout_copier.start_heads(to + TILE_BYTES(FAR), i0, q_len);
                notes.tiles.hand_over_copies(n);
                Column& column = notes.columns[n % PLACES];
                column.shift[c] = -LOG2E * its_lse, column.delta[c] = its_delta;
                notes.tiles.hand_over(n);
            }
            close_copies();
            wait_copies<0>();
        } else if (threadIdx.x % 32 == 0) {
            int own = warp - COPIERS / 32;
#pragma unroll 1
            for (int n = own; n < count; n += ADDERS) {
                i64 part = (i64)pair * query_tiles + tile_of(n);
                Adder adder{turns + part, rank};
                adder.await_turn();
                notes.staged.await_published(n);
                adder.add(sums + part * STAGED_FLOATS, staging + own * 4 * STAGED_FLOATS);
                notes.staged.give_back(n);
                adder.finish();
            }
            if (own == 0) end_numbers();
        }
        return;
    }

    take_registers();
    Lane lane;
    int group = lane.warp / 4, own = j0 + 16 * lane.warp + lane.g;
    bool shown[2] = {is_shown(own), is_shown(own + 8)};
    u32 own_keys = unit_of(keys) + group * UNITS(8192), own_values = own_keys + UNITS(TILE_BYTES(OWN));
    u32 key_columns = unit_of(keys) + group * UNITS(SLAB_BYTES(OWN));
    u32 stage = staging + group * 2 * STAGED_FLOATS + threadIdx.x % 128 * 16;
    // The first queries that see a lane's keys, none if they are hidden, and those from which on all of a warp's are seen.
    int own_first[2], latest = first_of(j0 + 16 * lane.warp + 15);
#pragma unroll
    for (int r = 0; r < 2; r++) own_first[r] = shown[r] ? first_of(own + 8 * r) : q_len;
    if (!__all_sync(0xffffffffu, shown[0] && shown[1])) latest = q_len;
    float dkeys[D / 2], dvalues[D / 2];
#pragma unroll
    for (int n = 0; n < D / 2; n++) dkeys[n] = dvalues[n] = 0.0f;
    float scale_2 = scale * LOG2E;
    // The gradients of the queries of tile n, when both groups have its slopes. Of a tile before the first, what is
    // multiplied does not matter: with a branch around them, products would wait for each other.
    auto start_queries = [&](float (&dqueries)[32], int n) {
        u32 rows = unit_of(turned) + (n & 1) * UNITS(TURNED_BYTES);
        if (together(n >= 0)) notes.slopes.await_published(n);
        open_products();
#pragma unroll
        for (int m = 0; m < OWN / 16; m++)
            multiply_turned(dqueries, operand_at(rows + m * UNITS(2048), 1),
                            operand_at(key_columns + m * UNITS(2048), 1), m > 0);
        close_products();
    };
    auto end_queries = [&](const float (&dqueries)[32], int n) {
        if (!together(n >= 0)) return;
        notes.slopes.give_back_by_warp(n);
        u32 to = stage + n % ADDERS * 4 * STAGED_FLOATS;
        notes.staged.claim(n);
#pragma unroll
        for (int m = 0; m < 32; m += 4)
            asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + m / 4 * 2048), "f"(dqueries[m]),
                         "f"(dqueries[m + 1]), "f"(dqueries[m + 2]), "f"(dqueries[m + 3])
                         : "memory");
        publish();
        __syncwarp();
        if (threadIdx.x % 32 == 0) notes.staged.hand_over(n);
    };
    notes.own.await(0);
    if (group == GROUPS - 1) pass_turn(group);
#pragma unroll 1
    for (int n = 0; together(n < count); n++) {
        int i0 = tile_of(n) * FAR;
        u32 queries = unit_of(tiles) + n % PLACES * 2 * UNITS(TILE_BYTES(FAR)), douts = queries + UNITS(TILE_BYTES(FAR));
        const Column& column = notes.columns[n % PLACES];
        float s[FAR / 2], slopes[FAR / 2], dqueries[32];
        u32 weights[FAR / 16][4], slope_weights[FAR / 16][4];
        notes.tiles.await(n);
        // What is known of the queries is read before products keep shared memory busy.
        float shift[FAR / 16][4], query_delta[FAR / 16][4];
#pragma unroll
        for (int p = 0; p < FAR / 16; p++) take_four(shift[p], column.shift, p, lane);
        await_turn(group);
        open_products();
        start_scores<OWN, FAR>(s, own_keys, queries);
        close_products();
        start_scores<OWN, FAR>(slopes, own_values, douts);
        close_products();
        pass_turn(group);
        wait_products<1>();
        pin(s);
        if (together(i0 < latest)) {
#pragma unroll
            for (int m = 0; m < FAR / 2; m++)
                if (i0 + ::column(m, lane.t) < own_first[m % 4 / 2]) s[m] = NOTHING;
        }
#pragma unroll
        for (int p = 0; p < FAR / 16; p++) take_four(query_delta[p], column.delta, p, lane);
#pragma unroll
        for (int m = 0; m < FAR / 2; m++) s[m] = power_of_2(s[m] * scale_2 + shift[m / 8][m % 8 / 4 * 2 + m % 2]);
        // Who gave this place back has computed the gradients of queries two tiles before. It is asked for here because the
        // compiler moves no exponential past the branch in it: otherwise all of them would wait for the products too.
        notes.slopes.claim(n);
        wait_products<0>();
        pin(slopes);
#pragma unroll
        for (int m = 0; m < FAR / 2; m++)
            slopes[m] = s[m] * (slopes[m] - query_delta[m / 8][m % 8 / 4 * 2 + m % 2]);
        hold(slope_weights, slopes), hold(weights, s);
        put_turned(turned + n % 2 * TURNED_BYTES, slope_weights, lane);
        publish();
        __syncwarp();
        if (threadIdx.x % 32 == 0) notes.slopes.hand_over(n);
        start_queries(dqueries, n - 1);
        start_mix<FAR>(dvalues, weights, douts);
        start_mix<FAR>(dkeys, slope_weights, queries);
        close_products();
        wait_products<1>();
        pin(dqueries);
        end_queries(dqueries, n - 1);
        wait_products<0>();
        pin(dkeys), pin(dvalues);
        notes.tiles.give_back_by_warp(n);
    }
    float dqueries[32];
    start_queries(dqueries, count - 1);
    wait_products<0>();
    pin(dqueries);
    end_queries(dqueries, count - 1);
    float kept[2] = {shown[0] ? 1.0f : 0.0f, shown[1] ? 1.0f : 0.0f}, factor[2] = {kept[0] * scale, kept[1] * scale};
    i64 mine = (i64)at.b * k_len * kv_row + at.h * D;
    put_rows(dk + mine, kv_row, j0, k_len, dkeys, lane, factor);
    put_rows(dv + mine, kv_row, j0, k_len, dvalues, lane, kept);
}

// The sums of a tile's queries leave as rows: 0 if they see nothing, and nobody has added to them.
extern "C" __global__ void __launch_bounds__(128)
    round_queries(const float* sums, const u32* turns, T* dq, i64 q_row, int heads, int q_len, float scale) {
    int query_tiles = (q_len + FAR - 1) / FAR, pair = blockIdx.x / query_tiles, i0 = blockIdx.x % query_tiles * FAR;
    const float4* from = (const float4*)(sums + (i64)blockIdx.x * STAGED_FLOATS) + threadIdx.x;
    bool any = turns[blockIdx.x] > 0;
    float rows[D / 2];
#pragma unroll
    for (int n = 0; n < D / 2; n += 4) {
        float4 x = any ? from[n / 4 * 128] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        rows[n] = x.x, rows[n + 1] = x.y, rows[n + 2] = x.z, rows[n + 3] = x.w;
    }
    float factor[2] = {scale, scale};
    T* to = dq + (i64)(pair / heads) * q_len * q_row + pair % heads * D;
    put_rows<true>(to, q_row, i0, q_len, rows, Lane(), factor);
}
