// A thread has eight neighbours, which share a draw; `threads_per_sample` cover a sample. The elements are on their way
// while the words are made.

extern "C" __global__ void dropout(const T* x, T* y, const i64* rng, i64 threads, i64 threads_per_sample,
                                   i64 per_sample, u64 site, u32 threshold, float scale, u32 counts_samples) {
    i64 thread = thread_index();
    if (thread >= threads) return;
    INDEX sample = (INDEX)thread / (INDEX)threads_per_sample, group = (INDEX)thread % (INDEX)threads_per_sample;
    i64 element = (i64)group * 8;
    const T* from = x + sample * per_sample;
    T* to = y + sample * per_sample;
    Raw<T, WIDTH> raw[8 / WIDTH] = {};
    UNROLL for (int v = 0; v < 8 / WIDTH; v++)
        if (element + WIDTH * v < per_sample) raw[v] = load_raw<WIDTH>(from + element + WIDTH * v);
    Stream stream = stream_of(rng[0], site, rng[1]);
    u32 number = (counts_samples ? (u32)rng[2] : 0) + (u32)sample;
    uint4 words = stream_eight(stream, number, (u32)(element >> 16), (u32)(element & 0xffff) / 8);
    UNROLL for (int v = 0; v < 8 / WIDTH; v++) {
        float a[WIDTH];
        UNROLL for (int k = 0; k < WIDTH; k++)
            a[k] = bits_of(words, WIDTH * v + k) < threshold ? 0.0f : unpacked(raw[v], k) * scale;
        if (element + WIDTH * v < per_sample) store(a, to, element + WIDTH * v, per_sample);
    }
}
