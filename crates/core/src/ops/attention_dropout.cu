// Dropout of attention weights (batch, heads, queries, keys) that exist as a value: the words that the fused kernels
// draw. A thread has the four keys of one quad.
extern "C" __global__ void attention_dropout(const T* x, T* y, i64 rows, int queries, int heads, int keys,
                                             const i64* state, u64 site, u32 threshold, float keep) {
    int quads = (keys + 3) / 4;
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x, row = n / quads;
    if (row >= rows) return;
    u32 quad = (u32)(n % quads), query = (u32)(row % queries), head = (u32)(row / queries % heads);
    u32 sample = (u32)state[2] + (u32)(row / queries / heads);
    Stream stream = stream_of((u64)state[0], site, (u64)state[1]);
    uint4 word = stream_eight(stream, sample, (head << 16) + query / 16 * 8 + query % 8, quad);
    u32 lower = query / 8 % 2 ? 0 : 16, words[4] = {word.x << lower, word.y << lower, word.z << lower, word.w << lower};
#pragma unroll
    for (int c = 0; c < 4; c++) {
        i64 at = row * keys + 4 * quad + c;
        if (4 * quad + c < keys) y[at] = from_float<T>(to_float(x[at]) * (words[c] < threshold ? 0.0f : keep));
    }
}
