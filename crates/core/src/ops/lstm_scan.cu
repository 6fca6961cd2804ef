// An LSTM layer's recurrence through all steps in one launch: half precision, on cards whose blocks form clusters. A
// cluster of BLOCKS blocks takes 16 · TALL rows of the batch through one direction, 32 hidden units to a block. Each block
// keeps its share of the recurrent weights; what the others need of its results it writes into their shared memory, where
// a barrier counts the bytes. Sixteen rows are a recurrence of their own: they wait for nobody else.
//
// Warp (tall, wide) of a block has its rows from 16·tall and its units from 8·wide on; lane (g, t) = (lane / 4, lane % 4)
// has rows g and g + 8 of these and units 2t and 2t + 1. So lie the results of m16n8k16 and so its left operands: results
// become operands without being rearranged. Direction 1 runs backwards in time. Gates come in the order i, f, g, o.
//
// T is bf16, where BF16 is 1, or half. Of the weights' 2 · BLOCKS operands forward and 8 backward, FORWARD_KEPT and
// BACKWARD_KEPT stay in registers. Threads of tall blocks have fewer of these: the rest lies in shared memory, once for
// all warps of the same units.

#define WARPS (4 * TALL)
#define HIDDEN (32 * BLOCKS)
#define EACH(name, count) _Pragma("unroll") for (int name = 0; name < count; name++)

// One of two neighbours in one register.
__device__ __forceinline__ float low(u32 pair) { return to_float(T{(unsigned short)pair}); }
__device__ __forceinline__ float high(u32 pair) { return to_float(T{(unsigned short)(pair >> 16)}); }
__device__ __forceinline__ float half_of(u32 pair, int n) { return n == 0 ? low(pair) : high(pair); }

// A barrier between all threads of the cluster, once before the first step.
__device__ __forceinline__ void meet() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Where a place in this block's shared memory is in that of another block of the cluster.
__device__ __forceinline__ u32 own_place(const void* own) { return (u32)__cvta_generic_to_shared(own); }
__device__ __forceinline__ u32 in_block(const void* own, int block) {
    u32 to;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(own_place(own)), "r"(block));
    return to;
}

// What arrives for a step. Each of a block's barriers is armed with the bytes that are to come, which are then counted
// down by the stores that bring them. Two take turns: the data of a step goes out only after that of the step before
// came from all blocks, so it cannot reach a barrier or a place that is still being waited for or read.
typedef u64 Barrier;
__device__ __forceinline__ void arm(Barrier* own, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(own_place(own)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void prepare(Barrier* own, int bytes) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(own_place(own)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    arm(own, bytes);
}
// Waits for the `round`-th time that the bytes are complete. They are in this block's own shared memory: no cache has to
// be cleared for them. A run that goes wrong ends instead of hanging.
__device__ __forceinline__ void await(Barrier* own, int round) {
    u32 done = 0;
    for (u32 polls = 0; !done; polls++) {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}" : "=r"(done) : "r"(own_place(own)), "r"(round % 2) : "memory");
        if (polls == 1u << 28) __trap();
    }
}
__device__ __forceinline__ void send(const uint2* to, uint2 x, const Barrier* counted, int block) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::
                 "r"(in_block(to, block)), "r"(x.x), "r"(x.y), "r"(in_block(counted, block)) : "memory");
}
__device__ __forceinline__ void send(const float4* to, const float x[4], const Barrier* counted, int block) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::
                 "r"(in_block(to, block)), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"(in_block(counted, block))
                 : "memory");
}

// A barrier between the four warps of the same rows.
__device__ __forceinline__ void meet_wide(int tall) { asm volatile("bar.sync %0, 128;" ::"r"(tall + 1) : "memory"); }

// The hardware's exponential: exact to some 1e-7, far below what rounding the gates to half precision leaves.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
__device__ __forceinline__ float squash(float x) { return 2.0f * sigmoid(2.0f * x) - 1.0f; }

// What a thread is in charge of.
struct Lane {
    int lane, g, t, tall, wide, warp;
    // Which of the cluster's blocks this is, the direction, the first of two rows 8 apart, the first of two units.
    int block, direction, row, unit;
    bool there[2];
    __device__ __forceinline__ Lane(int batch, int directions)
        : lane(threadIdx.x % 32), g(threadIdx.x % 32 / 4), t(threadIdx.x % 4), tall(threadIdx.x / 128),
          wide(threadIdx.x / 32 % 4), warp(threadIdx.x / 32), block(blockIdx.x % BLOCKS),
          direction(blockIdx.x / BLOCKS % directions),
          row((blockIdx.x / BLOCKS / directions * TALL + tall) * 16 + g), unit(32 * block + 8 * wide + 2 * t),
          there{row < batch, row + 8 < batch} {}
};

// Where a row's values of a step are in tensors (batch, time, directions, width), counted in widths.
struct Steps {
    int first, apart, onward;
    __device__ __forceinline__ Steps(const Lane& l, int time, int directions)
        : first(l.row * time * directions + l.direction), apart(8 * time * directions), onward(directions) {
        if (l.direction == 1) first += onward * (time - 1), onward = -onward;
    }
    __device__ __forceinline__ i64 at(int step, int row) const { return first + row * apart + step * onward; }
};

// A pair of units of gate `gate`, or of a state.
__device__ __forceinline__ i64 of_gate(i64 place, int gate, int unit) { return (4 * place + gate) * HIDDEN + unit; }
__device__ __forceinline__ i64 of_state(i64 place, int unit) { return place * HIDDEN + unit; }
__device__ __forceinline__ u32 load(const T* from, i64 at, bool there) { return there ? *(const u32*)(from + at) : 0u; }
__device__ __forceinline__ void store(T* to, i64 at, bool there, u32 pair) {
    if (there) *(u32*)(to + at) = pair;
}

// gates_x (batch, time, directions, 4 hidden) without the recurrent part and its bias; `gates` may be `gates_x`.
extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(32 * WARPS, 1)
scan(const T* gates_x, const T* weights, const T* bias, T* h, T* gates, T* cells, int batch, int time, int directions) {
    // h of the step before as left operands: (2, TALL, HIDDEN / 8, 32).
    extern __shared__ uint2 states[];
    __shared__ Barrier come[2][TALL];
    const int bytes = 16 * HIDDEN * sizeof(T);
    Lane l(batch, directions);
    Steps steps(l, time, directions);
    if (threadIdx.x < 2 * TALL) prepare(&come[0][0] + threadIdx.x, bytes);
    uint2 w[FORWARD_KEPT][4], *others = states + 2 * TALL * HIDDEN / 8 * 32 + threadIdx.x % 128;
    u32 b[4], x[2][4];
    EACH(n, 4) {
        i64 gate = (i64)(4 * l.direction + n) * HIDDEN + 32 * l.block + 8 * l.wide + l.g;
        const T* from = weights + gate * HIDDEN + 2 * l.t;
        EACH(k, HIDDEN / 16) {
            uint2 weight = make_uint2(*(const u32*)(from + 16 * k), *(const u32*)(from + 16 * k + 8));
            if (k < FORWARD_KEPT) w[k % FORWARD_KEPT][n] = weight;
            else if (l.tall == 0) others[((k - FORWARD_KEPT) * 4 + n) * 128] = weight;
        }
        b[n] = *(const u32*)(bias + (4 * l.direction + n) * HIDDEN + l.unit);
        EACH(r, 2) x[r][n] = load(gates_x, of_gate(steps.at(0, r), n, l.unit), l.there[r]);
    }
    float cell[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    meet();
#pragma unroll 1
    for (int step = 0; step < time; step++) {
        bool last = step + 1 == time;
        float z[4][4];
        EACH(n, 4) EACH(q, 4) z[n][q] = half_of(x[q / 2][n], q % 2) + half_of(b[n], q % 2);
        if (!last) EACH(n, 4) EACH(r, 2) x[r][n] = load(gates_x, of_gate(steps.at(step + 1, r), n, l.unit), l.there[r]);
        if (step > 0) {
            Barrier* all = &come[step % 2][l.tall];
            await(all, (step - 1) / 2);
            if (threadIdx.x % 128 == 0) arm(all, bytes);
            const uint2* from = states + (step % 2 * TALL + l.tall) * (HIDDEN / 8) * 32 + l.lane;
            EACH(k, HIDDEN / 16) {
                uint2 one = from[2 * k * 32], other = from[(2 * k + 1) * 32];
                u32 a[4] = {one.x, one.y, other.x, other.y};
                EACH(n, 4) {
                    const uint2* shared = others + ((k - FORWARD_KEPT) * 4 + n) * 128;
                    uint2 weight = k < FORWARD_KEPT ? w[k % FORWARD_KEPT][n] : *shared;
                    multiply(z[n], a, weight.x, weight.y);
                }
            }
        }
        float out[4];
        EACH(q, 4) {
            EACH(n, 4) z[n][q] = n == 2 ? squash(z[n][q]) : sigmoid(z[n][q]);
            cell[q] = z[0][q] * z[2][q] + z[1][q] * cell[q];
            out[q] = z[3][q] * squash(cell[q]);
        }
        uint2 state = make_uint2(pair_of(out[0], out[1]), pair_of(out[2], out[3]));
        if (!last) {
            uint2* to = states + (((step + 1) % 2 * TALL + l.tall) * (HIDDEN / 8) + 4 * l.block + l.wide) * 32 + l.lane;
            EACH(block, BLOCKS) send(to, state, &come[(step + 1) % 2][l.tall], block);
        }
        EACH(r, 2) {
            EACH(n, 4) {
                u32 pair = pair_of(z[n][2 * r], z[n][2 * r + 1]);
                store(gates, of_gate(steps.at(step, r), n, l.unit), l.there[r], pair);
            }
            store(cells, of_state(steps.at(step, r), l.unit), l.there[r], pair_of(cell[2 * r], cell[2 * r + 1]));
            store(h, of_state(steps.at(step, r), l.unit), l.there[r], r == 0 ? state.x : state.y);
        }
    }
}

// What a step backwards reads besides the gradient from the steps after it: pairs of both rows.
struct Kept { u32 gates[2][4], dh[2], cells[2], before[2]; };

// Leaves the gradients of the gates' sums in `dgates`, which may be `gates`, and in `before` (batch, time, directions,
// hidden) h of the step before each. Every block multiplies the gradients of its own gates, which gives a part of the
// gradient of every unit's h; the unit's block adds the parts up in the order of the blocks.
extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(32 * WARPS, 1)
scan_back(const T* dh, const T* gates, const T* cells, const T* h, const T* weights, T* dgates, T* before, int batch,
          int time, int directions) {
    // Every block's part of what the step after gives: (2, BLOCKS, WARPS, 32).
    extern __shared__ float4 parts[];
    __shared__ Barrier come[2][TALL];
    const int bytes = BLOCKS * 4 * 32 * sizeof(float4);
    Lane l(batch, directions);
    Steps steps(l, time, directions);
    if (threadIdx.x < 2 * TALL) prepare(&come[0][0] + threadIdx.x, bytes);
    // Of the eights of units from BLOCKS · wide on, for the eight operands of `slopes`.
    uint2 w[BLOCKS][BACKWARD_KEPT], *others = (uint2*)(parts + 2 * BLOCKS * WARPS * 32) + threadIdx.x % 128;
    // The block's gradients of gates i and f, and of g and o, as left operands; in turns, for who is a step ahead.
    typedef uint4 Slopes[TALL][4][2][32];
    Slopes* slopes = (Slopes*)(parts + (2 * WARPS * 32 + (8 - BACKWARD_KEPT) * 64) * BLOCKS);
    EACH(k, 8) EACH(j, BLOCKS) {
        i64 gate = (i64)(4 * l.direction + k % 2 * 2) * HIDDEN + 32 * l.block + k / 2 * 8 + 2 * l.t;
        const T *from = weights + gate * HIDDEN + (l.wide * BLOCKS + j) * 8 + l.g, *next = from + HIDDEN * HIDDEN;
        uint2 weight = make_uint2((u32)from[0].bits | (u32)from[HIDDEN].bits << 16,
                                  (u32)next[0].bits | (u32)next[HIDDEN].bits << 16);
        if (k < BACKWARD_KEPT) w[j][k % BACKWARD_KEPT] = weight;
        else if (l.tall == 0) others[((k - BACKWARD_KEPT) * BLOCKS + j) * 128] = weight;
    }
    Kept kept;
    auto fetch = [&](int step) {
        EACH(r, 2) {
            EACH(n, 4) kept.gates[r][n] = load(gates, of_gate(steps.at(step, r), n, l.unit), l.there[r]);
            kept.dh[r] = load(dh, of_state(steps.at(step, r), l.unit), l.there[r]);
            kept.cells[r] = load(cells, of_state(steps.at(step - 1, r), l.unit), l.there[r] && step > 0);
            kept.before[r] = load(h, of_state(steps.at(step - 1, r), l.unit), l.there[r] && step > 0);
        }
    };
    u32 cell[2];
    EACH(r, 2) cell[r] = load(cells, of_state(steps.at(time - 1, r), l.unit), l.there[r]);
    fetch(time - 1);
    float dcell[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    meet();
#pragma unroll 1
    for (int step = time - 1; step >= 0; step--) {
        float slope[4], dz[4][4];
        EACH(q, 4) slope[q] = half_of(kept.dh[q / 2], q % 2);
        if (step < time - 1) {
            Barrier* all = &come[(step + 1) % 2][l.tall];
            await(all, (time - 2 - step) / 2);
            if (threadIdx.x % 128 == 0) arm(all, bytes);
            const float4* from = parts + ((step + 1) % 2 * BLOCKS * WARPS + l.warp) * 32 + l.lane;
            EACH(block, BLOCKS) {
                float4 part = from[block * WARPS * 32];
                slope[0] += part.x, slope[1] += part.y, slope[2] += part.z, slope[3] += part.w;
            }
        }
        EACH(q, 4) {
            float i = half_of(kept.gates[q / 2][0], q % 2), f = half_of(kept.gates[q / 2][1], q % 2);
            float g = half_of(kept.gates[q / 2][2], q % 2), o = half_of(kept.gates[q / 2][3], q % 2);
            float c = squash(half_of(cell[q / 2], q % 2));
            float through = slope[q] * o * (1.0f - c * c) + dcell[q];
            dz[0][q] = through * g * i * (1.0f - i);
            dz[1][q] = through * half_of(kept.cells[q / 2], q % 2) * f * (1.0f - f);
            dz[2][q] = through * i * (1.0f - g * g);
            dz[3][q] = slope[q] * c * o * (1.0f - o);
            dcell[q] = through * f;
        }
        u32 rounded[4][2];
        EACH(n, 4) EACH(r, 2) rounded[n][r] = pair_of(dz[n][2 * r], dz[n][2 * r + 1]);
        u32 former[2] = {kept.before[0], kept.before[1]};
        cell[0] = kept.cells[0], cell[1] = kept.cells[1];
        if (step > 0) {
            fetch(step - 1);
            EACH(side, 2) {
                const u32 *one = rounded[2 * side], *other = rounded[2 * side + 1];
                slopes[step % 2][l.tall][l.wide][side][l.lane] = make_uint4(one[0], one[1], other[0], other[1]);
            }
            meet_wide(l.tall);
            float sums[BLOCKS][4];
            EACH(j, BLOCKS) EACH(q, 4) sums[j][q] = 0.0f;
            EACH(k, 8) {
                uint4 own = slopes[step % 2][l.tall][k / 2][k % 2][l.lane];
                u32 a[4] = {own.x, own.y, own.z, own.w};
                EACH(j, BLOCKS) {
                    const uint2* shared = others + ((k - BACKWARD_KEPT) * BLOCKS + j) * 128;
                    uint2 weight = k < BACKWARD_KEPT ? w[j][k % BACKWARD_KEPT] : *shared;
                    multiply(sums[j], a, weight.x, weight.y);
                }
            }
            EACH(j, BLOCKS) {
                int eight = BLOCKS * l.wide + j, to = (step % 2 * BLOCKS + l.block) * WARPS + 4 * l.tall + eight % 4;
                send(parts + to * 32 + l.lane, sums[j], &come[step % 2][l.tall], eight / 4);
            }
        }
        EACH(r, 2) {
            EACH(n, 4) store(dgates, of_gate(steps.at(step, r), n, l.unit), l.there[r], rounded[n][r]);
            store(before, of_state(steps.at(step, r), l.unit), l.there[r], former[r]);
        }
    }
}
