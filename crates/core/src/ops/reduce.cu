// Sums of x (outer, n, inner) over n, cut into `chunks` of `stretch` rows each: y (outer, chunks, inner).

// Where single elements are summed: a block per chunk.
extern "C" __global__ void sum_rows(const X* x, Y* y, i64 n, i64 chunks, i64 stretch) {
    __shared__ float scratch[33];
    i64 first = blockIdx.x % chunks * stretch, end = first + stretch < n ? first + stretch : n;
    const X* row = x + blockIdx.x / chunks * n;
    float sum = 0.0f;
    for (i64 i = first + threadIdx.x * WIDTH; i < end; i += blockDim.x * WIDTH) {
        float a[WIDTH];
        load(a, row, i, end);
        UNROLL for (int k = 0; k < WIDTH; k++) sum += a[k];
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) y[blockIdx.x] = from_float<Y>(sum);
}

// Where rows are summed: 32 threads beside each other have WIDTH columns each, and eight of such take turns with the
// rows of a chunk.
extern "C" __global__ void sum_columns(const X* x, Y* y, i64 n, i64 inner, i64 chunks, i64 stretch) {
    __shared__ float scratch[8][32 * WIDTH];
    int side = threadIdx.x % 32, turn = threadIdx.x / 32;
    i64 tiles = (inner + 32 * WIDTH - 1) / (32 * WIDTH);
    i64 part = blockIdx.x / tiles, column = (blockIdx.x % tiles * 32 + side) * WIDTH;
    i64 first = part % chunks * stretch, end = first + stretch < n ? first + stretch : n;
    const X* rows = x + part / chunks * n * inner;
    float sum[WIDTH] = {};
    if (column < inner) {
        _Pragma("unroll 8") for (i64 row = first + turn; row < end; row += 8) {
            float a[WIDTH];
            load(a, rows + row * inner, column, inner);
            UNROLL for (int k = 0; k < WIDTH; k++) sum[k] += a[k];
        }
    }
    UNROLL for (int k = 0; k < WIDTH; k++) scratch[turn][side * WIDTH + k] = sum[k];
    __syncthreads();
    if (turn != 0 || column >= inner) return;
    for (int t = 1; t < 8; t++) {
        UNROLL for (int k = 0; k < WIDTH; k++) sum[k] += scratch[t][side * WIDTH + k];
    }
    store(sum, y + part * inner, column, inner);
}

// Sums over parts (outer, count, columns) of sums: a thread per column and every 32nd part, then a warp per column. The
// first `width` columns are y's, the next `second` z's, the others last's.
extern "C" __global__ void add_parts(const float* parts, Y* y, Y* z, Y* last, i64 count, i64 columns, i64 width,
                                     i64 second) {
    __shared__ float scratch[32][33];
    int side = threadIdx.x % 32, turn = threadIdx.x / 32;
    i64 tiles = (columns + 31) / 32, outer = blockIdx.x / tiles, first = blockIdx.x % tiles * 32;
    const float* from = parts + outer * count * columns;
    float sum = 0.0f;
    if (first + side < columns) {
        _Pragma("unroll 8") for (i64 part = turn; part < count; part += 32) sum += from[part * columns + first + side];
    }
    scratch[turn][side] = sum;
    __syncthreads();
    sum = warp_sum(scratch[side][turn]);
    i64 column = first + turn;
    if (side != 0 || column >= columns) return;
    if (column < width) y[outer * width + column] = from_float<Y>(sum);
    else if (column < width + second) z[outer * second + column - width] = from_float<Y>(sum);
    else last[outer * (columns - width - second) + column - width - second] = from_float<Y>(sum);
}
