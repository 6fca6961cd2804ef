// The window under every output row of a convolution as a row of its own, and back.

// windows (samples · time_out, channels, taps): what the weight of an output channel is multiplied with.
extern "C" __global__ void unfold(const T* x, T* windows, i64 count, int time, int time_out, int channels, int taps,
                                  int stride, int padding) {
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= count) return;
    int tap = (int)(n % taps), channel = (int)(n / taps % channels);
    i64 row = n / taps / channels, sample = row / time_out;
    int at = (int)(row % time_out) * stride + tap - padding;
    windows[n] = at >= 0 && at < time ? x[(sample * time + at) * channels + channel] : from_float<T>(0.0f);
}

// dx (samples, time, channels): every row gets what the windows it is in hold for it.
extern "C" __global__ void fold(const T* windows, T* dx, i64 count, int time, int time_out, int channels, int taps,
                                int stride, int padding) {
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= count) return;
    int channel = (int)(n % channels), at = (int)(n / channels % time);
    i64 sample = n / channels / time;
    float sum = 0.0f;
    for (int tap = 0; tap < taps; tap++) {
        int from = at + padding - tap;
        if (from < 0 || from % stride != 0 || from / stride >= time_out) continue;
        sum += to_float(windows[((sample * time_out + from / stride) * channels + channel) * taps + tap]);
    }
    dx[n] = from_float<T>(sum);
}
