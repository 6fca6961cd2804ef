// One step of an LSTM layer's recurrence in all directions, around the product with the recurrent weights. Direction 1
// runs backwards in time. Gates come in the order i, f, g, o.

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// A thread has one hidden unit of one row of one direction.
struct Unit { int direction, row, unit; i64 index; };
__device__ __forceinline__ Unit unit_of(int batch, int hidden) {
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    return Unit{(int)(n / hidden / batch), (int)(n / hidden % batch), (int)(n % hidden), n};
}

// Where the values of a unit's row lie in a tensor (batch, time, directions, …).
__device__ __forceinline__ i64 cell_of(Unit u, int step, int time, int directions) {
    int at = u.direction == 0 ? step : time - 1 - step;
    return ((i64)u.row * time + at) * directions + u.direction;
}

// products (directions, batch, 4 hidden): W_hh · h before the step, if it is not the first. Leaves h in `state` for the
// next product and the cell in `cell`, both (directions, batch, hidden). `gates` may be `gates_x`.
extern "C" __global__ void forward(const T* gates_x, const T* bias, const float* products, T* h, T* gates, T* cells,
                                   T* state, float* cell, int step, int batch, int time, int directions, int hidden) {
    Unit u = unit_of(batch, hidden);
    if (u.direction >= directions) return;
    i64 at = cell_of(u, step, time, directions), product = ((i64)u.direction * batch + u.row) * 4 * hidden + u.unit;
    float z[4];
#pragma unroll
    for (int n = 0; n < 4; n++) {
        z[n] = to_float(gates_x[at * 4 * hidden + n * hidden + u.unit]);
        z[n] += to_float(bias[(i64)u.direction * 4 * hidden + n * hidden + u.unit]);
        if (step > 0) z[n] += products[product + n * hidden];
        z[n] = n == 2 ? tanhf(z[n]) : sigmoid(z[n]);
        gates[at * 4 * hidden + n * hidden + u.unit] = from_float<T>(z[n]);
    }
    float c = z[0] * z[2] + (step > 0 ? z[1] * cell[u.index] : 0.0f);
    T out = from_float<T>(z[3] * tanhf(c));
    cell[u.index] = c;
    cells[at * hidden + u.unit] = from_float<T>(c);
    h[at * hidden + u.unit] = out;
    state[u.index] = out;
}

// The same step backwards: dstate (directions, batch, hidden) is the gradient of h that comes from later steps, if there
// are any; dcell that of the cell. Leaves the gradients of the gates' sums in `dgates`, which may be `gates`, and in
// `slopes` (directions, batch, 4 hidden) for the next product.
extern "C" __global__ void backward(const T* dh, const T* gates, const T* cells, const float* dstate, float* dcell,
                                    T* dgates, T* slopes, int step, int batch, int time, int directions, int hidden) {
    Unit u = unit_of(batch, hidden);
    if (u.direction >= directions) return;
    i64 at = cell_of(u, step, time, directions), wide = at * 4 * hidden + u.unit;
    bool last = step == time - 1;
    float i = to_float(gates[wide]), f = to_float(gates[wide + hidden]);
    float g = to_float(gates[wide + 2 * hidden]), o = to_float(gates[wide + 3 * hidden]);
    float c = tanhf(to_float(cells[at * hidden + u.unit]));
    float slope = to_float(dh[at * hidden + u.unit]) + (last ? 0.0f : dstate[u.index]);
    float through = slope * o * (1.0f - c * c) + (last ? 0.0f : dcell[u.index]);
    float before = step > 0 ? to_float(cells[cell_of(u, step - 1, time, directions) * hidden + u.unit]) : 0.0f;
    float dz[4] = {through * g * i * (1.0f - i), through * before * f * (1.0f - f), through * i * (1.0f - g * g),
                   slope * c * o * (1.0f - o)};
    dcell[u.index] = through * f;
    i64 product = ((i64)u.direction * batch + u.row) * 4 * hidden + u.unit;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        T rounded = from_float<T>(dz[n]);
        dgates[wide + n * hidden] = rounded;
        slopes[product + n * hidden] = rounded;
    }
}

// before (batch, time, directions, hidden): h of the step before, 0 before the first.
extern "C" __global__ void shift(const T* h, T* before, i64 count, int time, int directions, int hidden) {
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= count) return;
    int direction = (int)(n / hidden % directions), at = (int)(n / hidden / directions % time);
    int from = direction == 0 ? at - 1 : at + 1;
    bool there = from >= 0 && from < time;
    before[n] = there ? h[n + (i64)(from - at) * directions * hidden] : from_float<T>(0.0f);
}
