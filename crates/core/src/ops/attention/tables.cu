// What attention needs before and after its scores: a bias by distance, Σ dout · out, and sums of parts in their order.

// The row of the tables for each distance from -REACH to REACH keys after the query; beyond, the last one holds.
__device__ const unsigned int row_of[] = ROWS;

// Distance n is that of a key n - (q_len - 1) after query 0's position. Rows are counted from `first_row` on.
// VALUES: of a relative bias, the table's values too, for a head in every row of blocks.
extern "C" __global__ void distances(const T* table, u32* rows, float* by_distance, int count, int q_len, int heads,
                                     int first_row, const i64* position, int first) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    int h = blockIdx.y;
    if (n >= count) return;
    i64 start = position ? min(max(*position, -(i64)count), (i64)count) : first;
    i64 relative = n - (start + q_len - 1);
    u32 row = row_of[min(max(relative, -(i64)REACH), (i64)REACH) + REACH];
    if (h == 0) rows[n] = row - (u32)first_row;
    if (VALUES) by_distance[(i64)h * count + n] = to_float(table[(i64)row * heads + h]);
}
