//! A disentangled bias on a CUDA device, where no band serves it: products of queries and keys with the rows of its tables in
//! use, before the scores; and from the gradients of these to those of queries, keys and tables.

use super::backward::Backward;
use super::cuda::{Call, Part};
use super::*;
use crate::kernels::cuda::{CudaError, Gemm, Launch};
use crate::ops::device::{GEMM_BYTES, by_columns, by_rows, every, multiply, product, round_to};

impl Call<'_> {
    /// Of a disentangled bias, the products of a part's queries and keys with the rows in use.
    pub(super) fn write_products(&self, launch: &mut Launch<'_>, part: Part) -> Result<(), CudaError> {
        let (s, Part { samples, heads, .. }) = (&self.shape, part);
        let sides = [
            (heads.q, heads.q_row, s.q_len, self.space.by_query, 0),
            (heads.k, heads.kv_row, s.k_len, self.space.by_key, 1),
        ];
        for (from, row, len, to, table) in sides {
            let rows = samples * len;
            let a = every(s.head_dim, by_rows(from, self.dtype, row));
            let b = every(s.head_dim, by_columns(self.table_in_use(table), self.dtype, s.heads * s.head_dim));
            let c = every(rows * self.space.pitch, by_rows(to, self.dtype, self.space.pitch));
            let gemm = product([rows, s.span().1, s.head_dim], a, b, c);
            multiply(launch, Gemm { batch: s.heads, alpha: self.op.scale as f32, ..gemm })?;
        }
        Ok(())
    }

    /// The first row in use of a table.
    fn table_in_use(&self, table: usize) -> u64 {
        self.tables[table] + (self.in_use() * self.dtype.bytes()) as u64
    }

    /// Elements of a table before the first row in use.
    fn in_use(&self) -> usize {
        self.shape.span().0 * self.shape.heads * self.shape.head_dim
    }
}

impl Backward<'_> {
    /// From the gradients of a disentangled bias's products to those of queries, keys and tables, added to what is
    /// there.
    pub(super) fn add_products(&self, launch: &mut Launch<'_>, part: Part) -> Result<(), CudaError> {
        let (call, s, Part { first, samples, heads }) = (&self.call, &self.call.shape, part);
        let (to, space, width) = (self.to.starting_at(first, s), &call.space, s.span().1);
        let sides = [
            (heads.q, to.q, heads.q_row, s.q_len, space.dby_query, space.by_query, 0),
            (heads.k, to.k, heads.kv_row, s.k_len, space.dby_key, space.by_key, 1),
        ];
        for (from, to, row, len, sums, rounded, table) in sides {
            let rows = samples * len;
            let slopes = self.rounded(launch, sums, rounded, rows * s.heads * space.pitch)?;
            let slopes = |turned: bool| {
                let matrix = if turned { by_columns } else { by_rows };
                every(rows * space.pitch, matrix(slopes, call.dtype, space.pitch))
            };
            let table_row = s.heads * s.head_dim;
            let b = every(s.head_dim, by_rows(call.table_in_use(table), call.dtype, table_row));
            let c = every(s.head_dim, by_rows(to, call.dtype, row));
            let whole = Gemm { batch: s.heads, alpha: call.op.scale as f32, beta: 1.0, ..product([0; 3], b, b, c) };
            multiply(launch, Gemm { m: rows, n: s.head_dim, k: width, a: slopes(false), ..whole })?;
            let b = every(s.head_dim, by_rows(from, call.dtype, row));
            let (address, dtype) = self.table_sums(table);
            let address = address + (call.in_use() * dtype.bytes()) as u64;
            let c = every(s.head_dim, by_rows(address, dtype, table_row));
            let (workspace, workspace_bytes) = (space.gemm, GEMM_BYTES);
            let whole = Gemm { b, c, workspace, workspace_bytes, ..whole };
            multiply(launch, Gemm { m: width, n: s.head_dim, k: rows, a: slopes(true), ..whole })?;
        }
        Ok(())
    }

    /// f32 sums in the type that products read: where they are, or rounded to `to`.
    fn rounded(&self, launch: &mut Launch<'_>, sums: u64, to: u64, count: usize) -> Result<u64, CudaError> {
        if self.call.dtype == DType::F32 || count == 0 {
            return Ok(sums);
        }
        round_to(launch, self.call.dtype, sums, to, count)?;
        Ok(to)
    }

    /// Where the gradient of a table is summed up, and in which type.
    fn table_sums(&self, table: usize) -> (u64, DType) {
        match self.call.dtype {
            DType::F32 => (self.dtables[table], DType::F32),
            _ => (self.call.space.dtables[table], DType::F32),
        }
    }

    pub(super) fn table_elements(&self) -> usize {
        self.call.shape.bias_rows * self.call.shape.heads * self.call.shape.head_dim
    }

    pub(super) fn clear_tables(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        (0..2).try_for_each(|table| launch.queue.fill(self.table_sums(table).0, 0, 4 * self.table_elements()))
    }

    pub(super) fn round_tables(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        for table in 0..2 {
            self.rounded(launch, self.table_sums(table).0, self.dtables[table], self.table_elements())?;
        }
        Ok(())
    }
}
