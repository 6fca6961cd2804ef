// Rows of a table from a position on; a position that no row can have is moved to where all rows fall outside.
__device__ __forceinline__ i64 first_of(const i64* position, i64 len, i64 rows) {
    return position ? min(max(*position, -len), rows) : 0;
}

extern "C" __global__ void read_rows(const T* table, const i64* position, T* to, i64 len, i64 rows, i64 width) {
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= len * width) return;
    i64 row = first_of(position, len, rows) + n / width;
    bool there = row >= 0 && row < rows;
    to[n] = there ? table[row * width + n % width] : from_float<T>(__int_as_float(0x7fffffff));
}

extern "C" __global__ void write_rows(const T* from, const i64* position, T* table, i64 len, i64 rows, i64 width) {
    i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= len * width) return;
    i64 row = first_of(position, len, rows) + n / width;
    if (row >= 0 && row < rows) table[row * width + n % width] = from[n];
}
