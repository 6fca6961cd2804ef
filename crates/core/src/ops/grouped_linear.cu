// Many small linear layers side by side. x (rows, GROUPS · INPUTS), `stride` apart; weight (GROUPS, PARTS · OUTPUTS,
// INPUTS); y (rows, PARTS, GROUPS, OUTPUTS). If groups are NARROW, a thread keeps the weights of one column in registers
// and goes through rows, several of which are on their way at a time. Blocks are (COLUMNS, LANES of rows).

#define PER_GROUP (PARTS * OUTPUTS)
#define Y_ROW (GROUPS * PER_GROUP)
#define X_ROW (GROUPS * INPUTS)

// A column of y: which part and group it belongs to, and where its weights and bias are.
struct Column { int group, bias; };
__device__ __forceinline__ Column column_of(int n) {
    int group = n / OUTPUTS % GROUPS;
    return Column{group, group * PER_GROUP + n / OUTPUTS / GROUPS * OUTPUTS + n % OUTPUTS};
}

// The first row of this thread and how many rows the block does; `n` is its column.
struct Share { i64 first, end; int n; };
__device__ __forceinline__ Share share_of(int columns, i64 rows, i64 length) {
    int blocks = (columns + COLUMNS - 1) / COLUMNS;
    i64 first = blockIdx.x / blocks * length;
    return Share{first + threadIdx.y, min(first + length, rows), (int)(blockIdx.x % blocks * COLUMNS + threadIdx.x)};
}

#if NARROW

// Rows on their way to a thread at a time.
#define AHEAD (INPUTS <= 4 && PER_GROUP <= 16 ? 4 : 2)

// N neighbours, in vectors of WIDTH.
template <int N> __device__ __forceinline__ void load_group(float* x, const T* from) {
    UNROLL for (int v = 0; v + WIDTH <= N; v += WIDTH) {
        Pack<T, WIDTH> pack = *(const Pack<T, WIDTH>*)(from + v);
        UNROLL for (int k = 0; k < WIDTH; k++) x[v + k] = to_float(pack.at[k]);
    }
}

extern "C" __global__ void forward(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias,
                                   T* __restrict__ y, i64 rows, i64 length, i64 stride) {
    Share share = share_of(Y_ROW, rows, length);
    if (share.n >= Y_ROW) return;
    Column column = column_of(share.n);
    float own[INPUTS], offset = to_float(bias[column.bias]);
    UNROLL for (int i = 0; i < INPUTS; i++) own[i] = to_float(weight[(i64)column.bias * INPUTS + i]);
#pragma unroll AHEAD
    for (i64 row = share.first; row < share.end; row += LANES) {
        float in[INPUTS], sum = offset;
        load_group<INPUTS>(in, x + row * stride + column.group * INPUTS);
        UNROLL for (int i = 0; i < INPUTS; i++) sum += in[i] * own[i];
        y[row * Y_ROW + share.n] = from_float<T>(sum);
    }
}

extern "C" __global__ void backward_input(const T* __restrict__ dy, const T* __restrict__ weight, T* __restrict__ dx,
                                          i64 rows, i64 length) {
    Share share = share_of(X_ROW, rows, length);
    if (share.n >= X_ROW) return;
    int group = share.n / INPUTS, input = share.n % INPUTS;
    float own[PER_GROUP];
    UNROLL for (int o = 0; o < PER_GROUP; o++) own[o] = to_float(weight[(i64)(group * PER_GROUP + o) * INPUTS + input]);
#pragma unroll AHEAD
    for (i64 row = share.first; row < share.end; row += LANES) {
        float in[PER_GROUP], sum = 0.0f;
        UNROLL for (int part = 0; part < PARTS; part++)
            load_group<OUTPUTS>(in + part * OUTPUTS, dy + row * Y_ROW + (part * GROUPS + group) * OUTPUTS);
        UNROLL for (int o = 0; o < PER_GROUP; o++) sum += in[o] * own[o];
        dx[row * X_ROW + share.n] = from_float<T>(sum);
    }
}

// parts (stretches, GROUPS · PER_GROUP · INPUTS + GROUPS · PER_GROUP): dyᵀ · x, then Σ dy, of each stretch of rows. A
// thread sums for one column of y; then the lanes are added up, the first one first.
extern "C" __global__ void __launch_bounds__(COLUMNS * LANES)
    weight_parts(const T* __restrict__ x, const T* __restrict__ dy, float* __restrict__ parts, i64 rows, i64 length,
                 i64 stride) {
    __shared__ float scratch[LANES][INPUTS + 1][COLUMNS];
    Share share = share_of(Y_ROW, rows, length);
    Column column = column_of(share.n);
    float sum[INPUTS + 1] = {};
    if (share.n < Y_ROW) {
#pragma unroll AHEAD
        for (i64 row = share.first; row < share.end; row += LANES) {
            float in[INPUTS], out = to_float(dy[row * Y_ROW + share.n]);
            load_group<INPUTS>(in, x + row * stride + column.group * INPUTS);
            UNROLL for (int i = 0; i < INPUTS; i++) sum[i] += out * in[i];
            sum[INPUTS] += out;
        }
    }
    UNROLL for (int i = 0; i <= INPUTS; i++) scratch[threadIdx.y][i][threadIdx.x] = sum[i];
    __syncthreads();
    if (share.n >= Y_ROW) return;
    parts += (share.first - threadIdx.y) / length * Y_ROW * (INPUTS + 1);
    for (int i = threadIdx.y; i <= INPUTS; i += LANES) {
        float total = 0.0f;
        UNROLL4 for (int lane = 0; lane < LANES; lane++) total += scratch[lane][i][threadIdx.x];
        parts[i < INPUTS ? column.bias * INPUTS + i : Y_ROW * INPUTS + column.bias] = total;
    }
}

#else

// parts (stretches, GROUPS · PER_GROUP): Σ dy of each stretch of rows, in blocks of one lane.
extern "C" __global__ void bias_parts(const T* dy, float* parts, i64 rows, i64 length) {
    Share share = share_of(Y_ROW, rows, length);
    if (share.n >= Y_ROW) return;
    float sum = 0.0f;
    for (i64 row = share.first; row < share.end; row++) sum += to_float(dy[row * Y_ROW + share.n]);
    parts[share.first / length * Y_ROW + column_of(share.n).bias] = sum;
}

// The bias in every row of y, for a product to be added to.
extern "C" __global__ void spread_bias(const T* bias, T* y, i64 rows, i64 length) {
    Share share = share_of(Y_ROW, rows, length);
    if (share.n >= Y_ROW) return;
    T own = bias[column_of(share.n).bias];
    for (i64 row = share.first; row < share.end; row += LANES) y[row * Y_ROW + share.n] = own;
}

#endif
