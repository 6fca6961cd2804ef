//! What layer norm and RMS norm share: what they accept, and their kernels (norm.cu).

use super::cuda::{Group, LANES_HOLD, define_index, put, rows_of, source, typed, width};
use super::*;
use crate::kernels::cuda::{Arg, DeviceTensor, Grid, Kernel, Source};

/// The shapes of x without its last dimension, if x has one to normalize over and every vector has its length.
pub(super) fn norm_rows(x: &Type, vectors: &[Type]) -> Result<Type, OpError> {
    match x.shape.split_last() {
        Some((&width, rows)) if width > 0 => {
            match vectors.iter().find(|v| v.shape[..] != [width] || v.dtype != x.dtype) {
                Some(vector) => OpError::new(format!("{vector} does not scale or shift the rows of {x}")),
                None => Ok(x.wide_shape(if rows.is_empty() { &[1] } else { rows })),
            }
        }
        _ => OpError::new(format!("{x} has no elements in its rows to normalize")),
    }
}

/// A gradient that arrives at a statistic has nowhere to go: say so rather than drop it.
pub(super) fn refuse_statistics_gradient(cx: &Vjp<'_>, outputs: std::ops::Range<usize>) -> Result<(), GraphError> {
    match outputs.into_iter().find(|&i| cx.grad(i).is_some()) {
        Some(i) => {
            let name = &cx.graph.value(cx.output(i)).name;
            Err(GraphError::Broken(format!("{name} is a by-product without a gradient, but the loss depends on it")))
        }
        None => Ok(()),
    }
}

const SOURCE: Source = source!("norm", "map", "rows");

fn kernel(entry: &'static str, x: &DeviceTensor, centered: bool, group: Group) -> Kernel {
    let kernel = group.define(typed(SOURCE, entry, &[("T", x)])).define("COLUMNS", rows_of(&x.ty).1);
    kernel.define("CENTERED", u32::from(centered)).define("THREADS", threads(group))
}

/// Threads of a block that goes through many rows.
fn threads(group: Group) -> usize {
    if group.threads <= 32 { 256 } else { group.threads }
}

/// The tensors of a norm; mean and beta are there if it is centered.
pub(super) struct Forward<'a> {
    pub x: &'a DeviceTensor,
    pub gamma: &'a DeviceTensor,
    pub beta: Option<&'a DeviceTensor>,
    pub y: &'a DeviceTensor,
    pub mean: Option<&'a DeviceTensor>,
    pub rstd: &'a DeviceTensor,
}

/// An address, or none.
fn optional(tensor: Option<&DeviceTensor>) -> Arg {
    tensor.map_or(Arg::Address(0), Arg::from)
}

pub(super) fn put_norm(launch: &mut Launch<'_>, of: Forward<'_>, eps: f64) -> Result<(), CudaError> {
    let Forward { x, gamma, beta, y, mean, rstd } = of;
    let (rows, row) = (rstd.ty.elements(), gamma.ty.elements());
    let group = Group::lanes(row, width(&[x, gamma, beta.unwrap_or(gamma), y], row));
    let tensors = [x.into(), gamma.into(), optional(beta), y.into(), optional(mean), rstd.into()];
    let args = [&tensors[..], &[rows.into(), (eps as f32).into()]].concat();
    let kernel = AroundNorm::NONE.define(kernel("normalize", x, beta.is_some(), group), rows);
    put(launch, &kernel, group.grid(rows), rows, &args)
}

/// What is added to a branch before the norm, and where the sum goes.
pub(super) struct ResidualSum<'a> {
    pub residual: &'a DeviceTensor,
    pub total: &'a DeviceTensor,
    pub dropout: Option<&'a Dropout>,
    pub rng: Option<&'a DeviceTensor>,
}

/// `of.x` is the branch.
pub(super) fn put_residual_norm(
    launch: &mut Launch<'_>,
    of: Forward<'_>,
    more: ResidualSum<'_>,
    eps: f64,
) -> Result<(), CudaError> {
    let Forward { x, gamma, beta, y, mean, rstd } = of;
    let (rows, row) = (rstd.ty.elements(), gamma.ty.elements());
    let group = Group::lanes(row, width(&[x, gamma, beta.unwrap_or(gamma), y, more.residual, more.total], row));
    let extra = AroundNorm { dropout: more.dropout, rng: more.rng, ..AroundNorm::NONE };
    let kernel = extra.define(kernel("normalize_sum", x, beta.is_some(), group), rows);
    let total = if more.total.address == y.address { Arg::Address(0) } else { more.total.into() };
    let tensors = [x.into(), more.residual.into(), gamma.into(), optional(beta), total, y.into()];
    let statistics = [optional(mean), rstd.into(), rows.into(), (eps as f32).into(), optional(more.rng)];
    // Without the second part, the residual's gradient, `rng` and where it goes, which are the backward pass's.
    let args = [&tensors[..], &statistics, &extra.args(rows)[4..]].concat();
    put(launch, &kernel, group.grid(rows), rows, &args)
}

/// The tensors of its gradient; mean and dbeta are there if it is centered.
pub(super) struct Backward<'a> {
    pub dy: &'a DeviceTensor,
    pub x: &'a DeviceTensor,
    pub gamma: &'a DeviceTensor,
    pub mean: Option<&'a DeviceTensor>,
    pub rstd: &'a DeviceTensor,
    pub dx: &'a DeviceTensor,
    pub dgamma: &'a DeviceTensor,
    pub dbeta: Option<&'a DeviceTensor>,
}

/// What else it reads and writes; see `NormGrad`.
#[derive(Clone, Copy)]
pub(super) struct AroundNorm<'a> {
    pub second: Option<&'a DeviceTensor>,
    pub residual: Option<&'a DeviceTensor>,
    pub dropout: Option<&'a Dropout>,
    pub rng: Option<&'a DeviceTensor>,
    pub dropped: Option<&'a DeviceTensor>,
    pub sums: Option<&'a DeviceTensor>,
}

impl AroundNorm<'_> {
    const NONE: AroundNorm<'static> =
        AroundNorm { second: None, residual: None, dropout: None, rng: None, dropped: None, sums: None };

    fn is_there(&self) -> bool {
        self.second.is_some() || self.residual.is_some() || self.dropout.is_some() || self.sums.is_some()
    }

    fn define(&self, kernel: Kernel, rows: usize) -> Kernel {
        let kernel = kernel.define("SECOND", u32::from(self.second.is_some()));
        let kernel = kernel.define("RESIDUAL", u32::from(self.residual.is_some()));
        let kernel = kernel.define("DROPPED", u32::from(self.dropout.is_some()));
        define_index(kernel.define("SUMS", u32::from(self.sums.is_some())), rows)
    }

    /// The second part, the residual's gradient, `rng`, where what is dropped from goes, how many rows a sample has, and
    /// what dropout knows beside sizes.
    fn args(&self, rows: usize) -> Vec<Arg> {
        let none = Dropout { p: 0.0, site: 0, samples: 1 };
        let dropout = self.dropout.unwrap_or(&none);
        let tensors = [self.second, self.residual, self.rng, self.dropped].map(optional);
        let rows_per_sample = (rows / dropout.samples.max(1)).max(1);
        [&tensors[..], &[rows_per_sample.into()], &dropout.constants()].concat()
    }
}

/// Bytes of the parts of `vectors` sums over rows, for any number of rows up to this one: stretches of equal length may be
/// fewer for more rows. `more`: whether there is more to it than the gradient of a norm.
pub(super) fn workspace_bytes(rows: usize, row: usize, vectors: usize, more: bool) -> usize {
    let (most, least_rows) = cut(row, more);
    vectors * rows.div_ceil(least_rows).clamp(1, most) * row * size_of::<f32>()
}

/// The most stretches, and the fewest rows of one.
fn cut(row: usize, more: bool) -> (usize, usize) {
    if row <= if more { 768 } else { LANES_HOLD } { (264, 16) } else { (528, 8) }
}

/// Into how many stretches the rows are cut, each with parts of dgamma and dbeta: as many blocks as a large card has at
/// once, fewer where a block has many rows at once, and several rows for each. It depends on the shape alone, so that
/// the order of the sum does too.
fn parts(rows: usize, row: usize, more: bool) -> usize {
    let (most, least_rows) = cut(row, more);
    rows.div_ceil(rows.div_ceil(most).max(least_rows)).max(1)
}

pub(super) fn put_norm_grad(launch: &mut Launch<'_>, of: Backward<'_>, extra: AroundNorm<'_>) -> Result<(), CudaError> {
    let Backward { dy, x, gamma, mean, rstd, dx, dgamma, dbeta } = of;
    let (rows, row, more) = (rstd.ty.elements(), gamma.ty.elements(), extra.is_there());
    let others = [extra.second, extra.residual, extra.dropped].into_iter().flatten();
    let width = width(&[dy, x, gamma, dx].into_iter().chain(others).collect::<Vec<_>>(), row);
    let group = if more { Group::vectors(row, width) } else { Group::teams(row, width) };
    let parts = parts(rows, row, more);
    let tensors = [dy.into(), x.into(), gamma.into(), optional(mean), rstd.into(), dx.into()];
    let sizes = [Arg::Address(launch.workspace), rows.into(), rows.div_ceil(parts).into()];
    let kernel = extra.define(kernel("normalize_grad", x, dbeta.is_some(), group), rows);
    let args = [&tensors[..], &sizes, &extra.args(rows)].concat();
    launch.kernel(&kernel, Grid::new(parts, threads(group)), &args)?;
    let sums: Vec<&DeviceTensor> = [dgamma].into_iter().chain(dbeta).chain(extra.sums).collect();
    reduce::add_parts(launch, launch.workspace, parts, &sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_cover_all_rows() {
        for rows in [0usize, 1, 7, 16, 17, 100, 4095, 4096, 4097, 1_000_000] {
            for (row, more) in [(64, false), (1024, true), (4096, false)] {
                let parts = parts(rows, row, more);
                let stretch = rows.div_ceil(parts);
                assert!(parts * stretch >= rows && parts <= 528);
                assert!(4 * parts * row <= workspace_bytes(rows, row, 1, more), "{rows} rows of {row}");
                assert!(stretch == 0 || (parts - 1) * stretch < rows, "{rows}: a stretch without rows");
            }
        }
    }
}
