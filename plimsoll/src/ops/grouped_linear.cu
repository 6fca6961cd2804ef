// Many small linear layers side by side. x (rows, GROUPS · INPUTS), `stride` apart; weight (GROUPS, PARTS · OUTPUTS,
// INPUTS); y (rows, PARTS, GROUPS, OUTPUTS). Groups are narrow here: a thread keeps the weights of one column in
// registers and goes through rows. Blocks are (columns, lanes of rows).

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
    int blocks = (columns + blockDim.x - 1) / blockDim.x;
    i64 first = blockIdx.x / blocks * length;
    return Share{first + threadIdx.y, min(first + length, rows), (int)(blockIdx.x % blocks * blockDim.x + threadIdx.x)};
}

extern "C" __global__ void forward(const T* x, const T* weight, const T* bias, T* y, i64 rows, i64 length, i64 stride) {
    Share share = share_of(Y_ROW, rows, length);
    if (share.n >= Y_ROW) return;
    Column column = column_of(share.n);
    float own[INPUTS], offset = to_float(bias[column.bias]);
#pragma unroll
    for (int i = 0; i < INPUTS; i++) own[i] = to_float(weight[(i64)column.bias * INPUTS + i]);
    for (i64 row = share.first; row < share.end; row += blockDim.y) {
        const T* from = x + row * stride + column.group * INPUTS;
        float sum = offset;
#pragma unroll
        for (int i = 0; i < INPUTS; i++) sum += to_float(from[i]) * own[i];
        y[row * Y_ROW + share.n] = from_float<T>(sum);
    }
}

extern "C" __global__ void backward_input(const T* dy, const T* weight, T* dx, i64 rows, i64 length) {
    Share share = share_of(X_ROW, rows, length);
    if (share.n >= X_ROW) return;
    int group = share.n / INPUTS, input = share.n % INPUTS;
    float own[PER_GROUP];
#pragma unroll
    for (int o = 0; o < PER_GROUP; o++) own[o] = to_float(weight[(i64)(group * PER_GROUP + o) * INPUTS + input]);
    for (i64 row = share.first; row < share.end; row += blockDim.y) {
        const T* from = dy + row * Y_ROW + group * OUTPUTS;
        float sum = 0.0f;
#pragma unroll
        for (int o = 0; o < PER_GROUP; o++)
            sum += to_float(from[o / OUTPUTS * GROUPS * OUTPUTS + o % OUTPUTS]) * own[o];
        dx[row * X_ROW + share.n] = from_float<T>(sum);
    }
}

// parts (stretches, GROUPS · PER_GROUP · INPUTS): dyᵀ · x of each stretch of rows.
extern "C" __global__ void weight_parts(const T* x, const T* dy, float* parts, i64 rows, i64 length, i64 stride) {
    const int count = Y_ROW * INPUTS;
    Share share = share_of(count, rows, length);
    if (share.n >= count) return;
    int input = share.n % INPUTS, bias = share.n / INPUTS, group = bias / PER_GROUP, o = bias % PER_GROUP;
    const T* left = dy + (o / OUTPUTS * GROUPS + group) * OUTPUTS + o % OUTPUTS;
    const T* right = x + group * INPUTS + input;
    float sum = 0.0f;
    for (i64 row = share.first; row < share.end; row++) sum += to_float(left[row * Y_ROW]) * to_float(right[row * stride]);
    parts[share.first / length * count + share.n] = sum;
}

// parts (stretches, GROUPS · PER_GROUP): Σ dy of each stretch of rows.
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
    for (i64 row = share.first; row < share.end; row += blockDim.y) y[row * Y_ROW + share.n] = own;
}
