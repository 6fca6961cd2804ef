//! What layer norm and RMS norm share: what they accept, and their kernels (norm.cu).

use super::cuda::{Group, LANES_HOLD, put, rows_of, source, typed, width};
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
    put(launch, &kernel("normalize", x, beta.is_some(), group), group.grid(rows), rows, &args)
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

/// Bytes of the parts of dgamma (and dbeta: `vectors` is 2), for any number of rows up to this one: stretches of equal
/// length may be fewer for more rows.
pub(super) fn workspace_bytes(rows: usize, row: usize, vectors: usize) -> usize {
    let (most, least_rows) = cut(row);
    vectors * rows.div_ceil(least_rows).clamp(1, most) * row * size_of::<f32>()
}

/// The most stretches, and the fewest rows of one.
fn cut(row: usize) -> (usize, usize) {
    if row <= LANES_HOLD { (264, 16) } else { (528, 8) }
}

/// Into how many stretches the rows are cut, each with parts of dgamma and dbeta: as many blocks as a large card has at
/// once, fewer where a block has many rows at once, and several rows for each. It depends on the shape alone, so that
/// the order of the sum does too.
fn parts(rows: usize, row: usize) -> usize {
    let (most, least_rows) = cut(row);
    rows.div_ceil(rows.div_ceil(most).max(least_rows)).max(1)
}

pub(super) fn put_norm_grad(launch: &mut Launch<'_>, of: Backward<'_>) -> Result<(), CudaError> {
    let Backward { dy, x, gamma, mean, rstd, dx, dgamma, dbeta } = of;
    let (rows, row) = (rstd.ty.elements(), gamma.ty.elements());
    let group = Group::teams(row, width(&[dy, x, gamma, dx], row));
    let parts = parts(rows, row);
    let tensors = [dy.into(), x.into(), gamma.into(), optional(mean), rstd.into(), dx.into()];
    let sizes = [Arg::Address(launch.workspace), rows.into(), rows.div_ceil(parts).into()];
    let kernel = kernel("normalize_grad", x, dbeta.is_some(), group);
    launch.kernel(&kernel, Grid::new(parts, threads(group)), &[&tensors[..], &sizes].concat())?;
    let sums: Vec<&DeviceTensor> = [dgamma].into_iter().chain(dbeta).collect();
    reduce::add_parts(launch, launch.workspace, parts, &sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_cover_all_rows() {
        for rows in [0usize, 1, 7, 16, 17, 100, 4095, 4096, 4097, 1_000_000] {
            for row in [64, 4096] {
                let parts = parts(rows, row);
                let stretch = rows.div_ceil(parts);
                assert!(parts * stretch >= rows && parts <= 528);
                assert!(4 * parts * row <= workspace_bytes(rows, row, 1), "{rows} rows of {row}");
                assert!(stretch == 0 || (parts - 1) * stretch < rows, "{rows}: a stretch without rows");
            }
        }
    }
}
