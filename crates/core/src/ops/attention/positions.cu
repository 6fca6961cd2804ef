// The tables of a disentangled bias by distance, before and after the passes of disentangled.cu.

#define TILE 64
#define DEEP ((D + 15) / 16)

// Distance n of the packed tables is that of a key `ahead - n` before and after which `rows` counts: see disentangled.cu.
__device__ __forceinline__ int place_of_distance(int n, int q_len, int k_len) {
    return q_len - 2 + (k_len + TILE - 1) / TILE * TILE - n;
}

// One table in the order of right operands: (heads, sixteenths, DEEP, 32 lanes, 8). TURNED: distances are summed over, else
// the head's dimensions. Distances that do not occur are 0.
extern "C" __global__ void pack(const T* table, const u32* rows, uint4* to, int first_row, int heads, int q_len,
                                int k_len, int turned) {
    int sixteenths = 4 * ((q_len + TILE - 1) / TILE + (k_len + TILE - 1) / TILE);
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= (i64)heads * sixteenths * DEEP * 32) return;
    int lane = n % 32, k = n / 32 % DEEP, sixteenth = n / (32 * DEEP) % sixteenths, h = n / (32 * DEEP) / sixteenths;
    int g = lane / 4, t = lane % 4;
    u32 x[4] = {0, 0, 0, 0};
#pragma unroll
    for (int m = 0; m < 8; m++) {
        // Word m / 2 is register m / 2 % 2 of the eight columns m / 4.
        int d = turned ? 16 * k + m / 4 * 8 + g : 16 * k + m / 2 % 2 * 8 + 2 * t + m % 2;
        int distance = turned ? 4 * t + m / 2 % 2 * 2 + m % 2 : g / 2 * 4 + m / 4 * 2 + g % 2;
        int at = place_of_distance(16 * sixteenth + distance, q_len, k_len);
        if (d >= D || at < 0 || at >= q_len + k_len - 1) continue;
        T value = table[((i64)(first_row + rows[at]) * heads + h) * D + d];
        x[m / 2] |= (u32)value.bits << m % 2 * 16;
    }
    to[n] = make_uint4(x[0], x[1], x[2], x[3]);
}

// The first place whose row is at most this one: rows fall.
__device__ __forceinline__ int first_place(const u32* rows, int count, i64 row) {
    int low = 0, high = count;
    while (low < high) {
        int middle = (low + high) / 2;
        if ((i64)rows[middle] <= row) high = middle;
        else low = middle + 1;
    }
    return low;
}

// Gradients (bias_rows, heads, D) of both tables: the sum over a row's distances, over the bands that meet them and over
// the shares, in that order.
extern "C" __global__ void add_positions(const float* parts, const u32* rows, T* dkeys, T* dqueries, int first_row,
                                         int bias_rows, int heads, int q_len, int k_len, int shares, float scale) {
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x, elements = (i64)bias_rows * heads * D;
    if (n >= 2 * elements) return;
    int of_keys = n >= elements, count = q_len + k_len - 1;
    i64 element = n - of_keys * elements, row = element / (heads * D) - first_row;
    int h = element / D % heads, d = element % D;
    int bands = (q_len + TILE - 1) / TILE + (k_len + TILE - 1) / TILE - 1;
    int begin = first_place(rows, count, row), end = first_place(rows, count, row - 1);
    float sum = 0.0f;
    for (int at = begin; at < end; at++) {
        int distance = place_of_distance(at, q_len, k_len);
        for (int band = max(distance / TILE - 1, 0); band <= min(distance / TILE, bands - 1); band++)
            for (int share = 0; share < shares; share++)
                sum += parts[((((i64)share * heads + h) * bands + band) * 2 + of_keys) * 2 * TILE * D +
                             (i64)(distance - band * TILE) * D + d];
    }
    (of_keys ? dqueries : dkeys)[element] = from_float<T>(sum * scale);
}
