// A product through any strides, for operands that the library does not take: tiles of 16×16, sums in float.
//   c (m×n) = a (m×k) · b (k×n) [+ bias over columns] [+ c]

#define TILE 16

extern "C" __global__ void product(const T* a, const T* b, const T* bias, T* c, i64 m, i64 n, i64 k, i64 a_row,
                                   i64 a_column, i64 a_batch, i64 b_row, i64 b_column, i64 b_batch, i64 c_batch) {
    __shared__ float left[TILE][TILE + 1], right[TILE][TILE + 1];
    int x = threadIdx.x, y = threadIdx.y;
    i64 row = (i64)blockIdx.y * TILE + y, column = (i64)blockIdx.x * TILE + x;
    a += blockIdx.z * a_batch;
    b += blockIdx.z * b_batch;
    c += blockIdx.z * c_batch;
    float sum = 0.0f;
    for (i64 first = 0; first < k; first += TILE) {
        left[y][x] = row < m && first + x < k ? to_float(a[row * a_row + (first + x) * a_column]) : 0.0f;
        right[y][x] = first + y < k && column < n ? to_float(b[(first + y) * b_row + column * b_column]) : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    if (row >= m || column >= n) return;
    if (BIAS) sum += to_float(bias[column]);
    if (ADD) sum += to_float(c[row * n + column]);
    c[row * n + column] = from_float<T>(sum);
}
