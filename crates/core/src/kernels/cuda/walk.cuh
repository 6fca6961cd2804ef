// Shapes walked through the strides of two tensors, a and b: RANK dimensions, outermost first, in steps of one vector
// of the innermost.

#define WALK                                                                                                       \
    i64 count, i64 n0, i64 n1, i64 n2, i64 n3, i64 n4, i64 n5, i64 a0, i64 a1, i64 a2, i64 a3, i64 a4, i64 a5,      \
        i64 b0, i64 b1, i64 b2, i64 b3, i64 b4, i64 b5

struct Place {
    i64 a, b;
};
// Where vector i lies in both.
#define PLACE(i) place(i, {n0, n1, n2, n3, n4, n5}, {a0, a1, a2, a3, a4, a5}, {b0, b1, b2, b3, b4, b5})

struct Dims {
    i64 at[6];
};
__device__ __forceinline__ Place place(INDEX i, Dims n, Dims a, Dims b) {
    Place at = {0, 0};
    UNROLL for (int d = RANK - 1; d > 0; d--) {
        INDEX size = (INDEX)n.at[d], here = i % size;
        i /= size;
        at.a += here * a.at[d];
        at.b += here * b.at[d];
    }
    at.a += i * a.at[0];
    at.b += i * b.at[0];
    return at;
}
