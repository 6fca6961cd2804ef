// How a group that brings tiles hands them over to the groups that multiply, and gets their places back: by barriers in
// shared memory, so that nobody waits for all threads of the block.

// Of a block's threads: GROUPS groups that multiply, and behind them the one that brings.
#define BRINGERS 128
#define ALL_THREADS (THREADS + BRINGERS)
// Registers of a thread: what all start with, what those that bring keep, and what the others then have.
#define EVEN_REGISTERS (65536 / (RESIDENT * ALL_THREADS) / 8 * 8)
#define BRINGER_REGISTERS (EVEN_REGISTERS > 128 ? 40 : 32)
#define GROUP_REGISTERS ((EVEN_REGISTERS * (GROUPS + 1) - BRINGER_REGISTERS) / GROUPS / 8 * 8)

template <int COUNT = GROUP_REGISTERS> __device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT = BRINGER_REGISTERS> __device__ __forceinline__ void leave_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// COUNT places, which are filled in turn: what is brought as the n-th is the n / COUNT-th in its place.
template <int COUNT> struct Places {
    u64 full[COUNT], empty[COUNT];

    // By one thread, before the block's next barrier: how many arrive when a place is full, and when it is empty.
    __device__ __forceinline__ void open(int bringing = BRINGERS, int reading = 4 * GROUPS) {
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(full + n)), "r"(bringing));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(empty + n)), "r"(reading));
        }
    }
    static __device__ __forceinline__ void wait(u64* barrier, u32 parity) {
        asm volatile("{.reg .pred done;\n"
                     "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                     "@!done bra again; }" ::"r"(shared_address(barrier)), "r"(parity)
                     : "memory");
    }
    static __device__ __forceinline__ void arrive(u64* barrier) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
    }
    // Until the place of the n-th is free.
    __device__ __forceinline__ void claim(u32 n) { wait(empty + n % COUNT, n / COUNT % 2 ^ 1); }
    // Arrives when this thread's copies so far have come; or for what it has written itself.
    __device__ __forceinline__ void hand_over_copies(u32 n) {
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(full + n % COUNT))
                     : "memory");
    }
    __device__ __forceinline__ void hand_over(u32 n) { arrive(full + n % COUNT); }
    // Until the n-th is there; for products too, if it was published before it was handed over, or now.
    __device__ __forceinline__ void await_published(u32 n) { wait(full + n % COUNT, n / COUNT % 2); }
    __device__ __forceinline__ void await(u32 n) {
        await_published(n);
        publish();
    }
    // By a thread, or by a warp of which all have read it.
    __device__ __forceinline__ void give_back(u32 n) { arrive(empty + n % COUNT); }
    __device__ __forceinline__ void give_back_by_warp(u32 n) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) give_back(n);
    }
};

// Among those that bring, and among those that multiply.
__device__ __forceinline__ void meet_bringers() { asm volatile("bar.sync 15, %0;" ::"n"(BRINGERS) : "memory"); }
__device__ __forceinline__ void meet_groups() { asm volatile("bar.sync 14, %0;" ::"n"(THREADS) : "memory"); }

// Groups start their products in turn: while one computes exponentials, the others' products run. Where weights fall, draws
// take so much longer than products that nobody has to wait.
__device__ __forceinline__ void await_turn(int group) {
    if (!DROPPED) asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory");
}
__device__ __forceinline__ void pass_turn(int group) {
    if (DROPPED) return;
    asm volatile("bar.arrive %0, 256;" ::"r"(1 + (group + 1) % GROUPS) : "memory");
}

// Numbers are handed out to blocks in the order in which they ask, in this launch: launches of a kernel follow each other.
__device__ u32 handed_out, finished;
__device__ __forceinline__ u32 take_number() { return atomicAdd(&handed_out, 1u); }
// By one thread of every block, when it takes no more: the last one makes ready for the next launch.
__device__ __forceinline__ void end_numbers() {
    if (atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1) handed_out = 0;
}
