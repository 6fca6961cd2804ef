// The window under every output row of a convolution as a row of its own, and back. A thread has WIDTH neighbouring
// channels with their TAPS taps, which lie side by side in a window. INDEX holds the number of threads.

// Where a thread's channels are: in which sample and row of it.
struct Place {
    i64 sample;
    int row, channel;
    __device__ __forceinline__ Place(i64 thread, int rows, int channels) {
        INDEX n = (INDEX)thread, packs = (INDEX)(channels / WIDTH);
        channel = (int)(n % packs) * WIDTH;
        row = (int)(n / packs % (INDEX)rows);
        sample = (i64)(n / packs / (INDEX)rows);
    }
};

// windows (samples · time_out, channels, taps): what the weight of an output channel is multiplied with.
extern "C" __global__ void unfold(const T* x, T* windows, i64 count, int time, int time_out, int channels, int stride,
                                  int padding) {
    if (thread_index() >= count) return;
    Place to(thread_index(), time_out, channels);
    Pack<T, WIDTH> taken[TAPS], window[TAPS];
    UNROLL for (int tap = 0; tap < TAPS; tap++) {
        int at = to.row * stride + tap - padding;
        bool there = at >= 0 && at < time;
        const T* from = x + (to.sample * time + (there ? at : 0)) * channels + to.channel;
        taken[tap] = *(const Pack<T, WIDTH>*)from;
        if (!there) UNROLL for (int k = 0; k < WIDTH; k++) taken[tap].at[k] = from_float<T>(0.0f);
    }
    UNROLL for (int n = 0; n < TAPS * WIDTH; n++) window[n / WIDTH].at[n % WIDTH] = taken[n % TAPS].at[n / TAPS];
    T* row = windows + ((to.sample * time_out + to.row) * channels + to.channel) * TAPS;
    UNROLL for (int tap = 0; tap < TAPS; tap++) ((Pack<T, WIDTH>*)row)[tap] = window[tap];
}

// dx (samples, time, channels): every row gets what the windows it is in hold for it.
extern "C" __global__ void fold(const T* windows, T* dx, i64 count, int time, int time_out, int channels, int stride,
                                int padding) {
    if (thread_index() >= count) return;
    Place to(thread_index(), time, channels);
    float sum[WIDTH];
    UNROLL for (int k = 0; k < WIDTH; k++) sum[k] = 0.0f;
    UNROLL for (int tap = 0; tap < TAPS; tap++) {
        int from = to.row + padding - tap;
        if (from < 0 || from % stride != 0 || from / stride >= time_out) continue;
        Pack<T, WIDTH> window[TAPS];
        const T* row = windows + ((to.sample * time_out + from / stride) * channels + to.channel) * TAPS;
        UNROLL for (int n = 0; n < TAPS; n++) window[n] = ((const Pack<T, WIDTH>*)row)[n];
        UNROLL for (int k = 0; k < WIDTH; k++) {
            int n = k * TAPS + tap;
            sum[k] += to_float(window[n / WIDTH].at[n % WIDTH]);
        }
    }
    i64 at = (to.sample * time + to.row) * channels + to.channel;
    store(sum, dx, at, at + WIDTH);
}
