// Word w of quad q belongs to element 16 w + q of a block of 64 elements, as on the CPU. A thread makes WIDTH
// neighbouring quads and drops from four vectors, 16 elements apart; `threads_per_sample` cover a sample.

extern "C" __global__ void dropout(const T* x, T* y, const i64* rng, i64 threads, i64 threads_per_sample,
                                   i64 per_sample, u64 site, u32 threshold, float scale, u32 counts_samples) {
    i64 thread = thread_index();
    if (thread >= threads) return;
    i64 sample = thread / threads_per_sample, part = thread % threads_per_sample;
    i64 element = part / (16 / WIDTH) * 64 + part % (16 / WIDTH) * WIDTH;
    Stream stream = stream_of(rng[0], site, rng[1]);
    u32 number = (counts_samples ? (u32)rng[2] : 0) + (u32)sample;
    u32 row = (u32)(element >> 16), quad = (u32)(element & 0xffff) / 64 * 16 + (u32)(element % 16);
    uint4 words[WIDTH];
    UNROLL for (int k = 0; k < WIDTH; k++) words[k] = stream_quad(stream, number, row, quad + k);
    UNROLL for (int w = 0; w < 4; w++) {
        i64 at = element + 16 * w;
        if (at >= per_sample) return;
        float a[WIDTH];
        load(a, x + sample * per_sample, at, per_sample);
        UNROLL for (int k = 0; k < WIDTH; k++) {
            u32 word = w == 0 ? words[k].x : w == 1 ? words[k].y : w == 2 ? words[k].z : words[k].w;
            a[k] = word < threshold ? 0.0f : a[k] * scale;
        }
        store(a, y + sample * per_sample, at, per_sample);
    }
}
