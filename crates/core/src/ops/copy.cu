// T is an unsigned integer of the elements' size: copies do not look at what they move. REPEATS: one element fills a
// vector.

extern "C" __global__ void copy(const T* from, T* to, WALK) {
    i64 i = thread_index();
    if (i >= count) return;
    Place at = PLACE((INDEX)i);
    if (REPEATS) {
        Pack<T, WIDTH> pack;
        UNROLL for (int k = 0; k < WIDTH; k++) pack.at[k] = from[at.a];
        *(Pack<T, WIDTH>*)(to + at.b) = pack;
    } else {
        *(Pack<T, WIDTH>*)(to + at.b) = *(const Pack<T, WIDTH>*)(from + at.a);
    }
}

extern "C" __global__ void zero(T* to, WALK) {
    i64 i = thread_index();
    if (i >= count) return;
    Pack<T, WIDTH> pack;
    UNROLL for (int k = 0; k < WIDTH; k++) pack.at[k] = 0;
    *(Pack<T, WIDTH>*)(to + PLACE((INDEX)i).b) = pack;
}
