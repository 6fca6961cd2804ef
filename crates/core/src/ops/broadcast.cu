// Binary arithmetic where an operand is repeated: STEP_A and STEP_B are 0 where one element of it meets all of a
// vector's elements.

template <int STEP> __device__ __forceinline__ void load_repeated(float (&x)[WIDTH], const T* from, i64 at) {
    if (STEP == 0) {
        float one = to_float(from[at]);
        UNROLL for (int k = 0; k < WIDTH; k++) x[k] = one;
    } else {
        load(x, from, at, at + WIDTH);
    }
}

extern "C" __global__ void broadcast(const T* a, const T* b, T* y, WALK) {
    i64 i = thread_index();
    if (i >= count) return;
    Place at = PLACE((INDEX)i);
    float x[WIDTH], z[WIDTH];
    load_repeated<STEP_A>(x, a, at.a);
    load_repeated<STEP_B>(z, b, at.b);
    UNROLL for (int k = 0; k < WIDTH; k++) x[k] = x[k] OP z[k];
    store(x, y, i * WIDTH, count * WIDTH);
}
