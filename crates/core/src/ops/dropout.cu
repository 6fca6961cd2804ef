// Word w of quad q belongs to element 16 w + q of a block of 64 elements, as on the CPU. A thread makes WIDTH
// neighbouring quads and drops from four vectors, 16 elements apart; `threads_per_sample` cover a sample. The vectors
// are on their way while the words are made.

extern "C" __global__ void dropout(const T* x, T* y, const i64* rng, i64 threads, i64 threads_per_sample,
                                   i64 per_sample, u64 site, u32 threshold, float scale, u32 counts_samples) {
    i64 thread = thread_index();
    if (thread >= threads) return;
    INDEX sample = (INDEX)thread / (INDEX)threads_per_sample, part = (INDEX)thread % (INDEX)threads_per_sample;
    i64 element = (i64)(part / (16 / WIDTH)) * 64 + part % (16 / WIDTH) * WIDTH;
    const T* from = x + sample * per_sample;
    T* to = y + sample * per_sample;
    Raw<T, WIDTH> raw[4] = {};
    UNROLL for (int w = 0; w < 4; w++) if (element + 16 * w < per_sample) raw[w] = load_raw<WIDTH>(from + element + 16 * w);
    Stream stream = stream_of(rng[0], site, rng[1]);
    u32 number = (counts_samples ? (u32)rng[2] : 0) + (u32)sample;
    u32 row = (u32)(element >> 16), quad = (u32)(element & 0xffff) / 64 * 16 + (u32)(element % 16);
    float a[4][WIDTH];
    UNROLL for (int k = 0; k < WIDTH; k++) {
        uint4 words = stream_quad(stream, number, row, quad + k);
        a[0][k] = words.x < threshold ? 0.0f : unpacked(raw[0], k) * scale;
        a[1][k] = words.y < threshold ? 0.0f : unpacked(raw[1], k) * scale;
        a[2][k] = words.z < threshold ? 0.0f : unpacked(raw[2], k) * scale;
        a[3][k] = words.w < threshold ? 0.0f : unpacked(raw[3], k) * scale;
    }
    UNROLL for (int w = 0; w < 4; w++) if (element + 16 * w < per_sample) store(a[w], to, element + 16 * w, per_sample);
}
