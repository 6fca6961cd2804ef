//! What lies in the workspace between the kernels of attention on a CUDA device.

use super::banded::{self, BandSpace};
use super::form::Form;
use super::groups::Sums;
use super::kernel::AttentionShape;
use super::{Attention, Bias, DType};
use crate::ops::device::{GEMM_BYTES, Regions};

/// The products of a disentangled bias take up to this much at a time; then samples are run in groups.
const PRODUCT_BYTES: usize = 64 << 20;

/// The workspace: offsets in a plan, addresses on the device.
pub(super) struct Space {
    pub rows: u64,
    pub by_distance: u64,
    pub by_query: u64,
    pub by_key: u64,
    pub delta: u64,
    /// Of a relative bias, every block's part of the gradient.
    pub parts: u64,
    /// Of a disentangled bias: the gradients of its products, and of its tables where they are summed in f32.
    pub dby_query: u64,
    pub dby_key: u64,
    pub dtables: [u64; 2],
    pub gemm: u64,
    /// Of gradients in one pass: where those of queries are added up, and how many have added to them.
    pub sums: Option<(Sums, [u64; 2])>,
    pub end: u64,
    /// Samples that run at a time.
    pub group: usize,
    /// Elements from one query's products to the next one's.
    pub pitch: usize,
    /// What else the kernels of a band have.
    pub banded: Option<BandSpace>,
}

impl Space {
    /// Bytes that are enough for any lengths up to the shape's, whichever form their addresses allow.
    pub(super) fn bytes_up_to(op: &Attention, shape: &AttentionShape, dtype: DType, backward: bool) -> usize {
        let sums = Sums::new(op, shape, dtype).filter(|_| backward).map_or([0; 2], |sums| sums.bytes_up_to());
        let sums: usize = sums.iter().map(|bytes| bytes.next_multiple_of(256)).sum();
        let plain = Space::plain_up_to(shape, dtype, backward) + sums;
        let banded = banded::suits(shape, dtype).then(|| BandSpace::bytes_up_to(shape, backward));
        banded.map_or(plain, |banded| banded.max(plain))
    }

    /// Of shorter samples more run at a time.
    fn plain_up_to(shape: &AttentionShape, dtype: DType, backward: bool) -> usize {
        let space = Space::new(0, shape, dtype, backward);
        let widths = [dtype.bytes(), if backward { 4 } else { 0 }];
        let of_sample = |len: usize| widths.map(|bytes| shape.heads * len * space.pitch * bytes);
        let products = [of_sample(shape.q_len), of_sample(shape.k_len)].concat();
        let sample = products.iter().sum::<usize>();
        let most = product_bytes(shape, dtype).max(sample).min(shape.batch.max(1) * sample);
        // Each of them is a region of its own, and rounded up.
        let taken: usize = products.iter().map(|bytes| (space.group * bytes).next_multiple_of(256)).sum();
        let rounding = if sample > 0 { 256 * products.len() } else { 0 };
        space.end as usize - taken + most + rounding
    }

    /// The same with room for gradients in one pass at its end.
    pub(super) fn with_sums(self, sums: Sums) -> Space {
        let mut regions = Regions::new(self.end);
        let places = sums.bytes().map(|bytes| regions.take(bytes));
        Space { sums: Some((sums, places)), end: regions.end(), ..self }
    }

    pub(super) fn new(start: u64, shape: &AttentionShape, dtype: DType, backward: bool) -> Space {
        let (mut regions, distances) = (Regions::new(start), shape.distances());
        let (relative, disentangled) = (shape.bias.tables() == 1, shape.bias.tables() == 2);
        let only = |when: bool, elements: usize| if when { elements } else { 0 };
        let pitch = if disentangled { shape.span().1.next_multiple_of(8) } else { 0 };
        let bytes = dtype.bytes() + only(backward, 4);
        let sample = shape.heads * (shape.q_len + shape.k_len) * pitch * bytes;
        let group = product_bytes(shape, dtype).checked_div(sample).unwrap_or(shape.batch).clamp(1, shape.batch.max(1));
        let products = |len: usize| group * shape.heads * len * pitch;
        // Of all forms that a bias may take, this one has the most tiles.
        let tiles = Form::Tiled.blocks(shape, shape.q_len).0;
        let table = shape.bias_rows * shape.heads * shape.head_dim;
        let rounded = backward && disentangled && dtype.bytes() < 4;
        Space {
            rows: regions.take(only(relative || disentangled, 4 * distances)),
            by_distance: regions.take(only(relative, 4 * shape.heads * distances)),
            by_query: regions.take(products(shape.q_len) * dtype.bytes()),
            by_key: regions.take(products(shape.k_len) * dtype.bytes()),
            delta: regions.take(only(backward, 4 * shape.batch * shape.heads * shape.q_len)),
            parts: regions.take(only(backward && relative, 4 * shape.batch * tiles * shape.heads * shape.bias_rows)),
            dby_query: regions.take(only(backward, 4 * products(shape.q_len))),
            dby_key: regions.take(only(backward, 4 * products(shape.k_len))),
            dtables: [(); 2].map(|()| regions.take(only(rounded, 4 * table))),
            gemm: regions.take(only(backward && disentangled, GEMM_BYTES)),
            sums: None,
            end: regions.end(),
            group,
            pitch,
            banded: None,
        }
    }

    /// That of a disentangled bias whose products stay in their tiles: all samples run at a time.
    pub(super) fn banded(start: u64, shape: &AttentionShape, backward: bool) -> Space {
        let band = BandSpace::new(start, shape, backward);
        let [by_query, by_key] = band.packed;
        let nothing = Space::new(start, &AttentionShape { bias: Bias::None, ..*shape }, DType::F32, false);
        let (rows, delta, end) = (band.rows, band.delta, band.end);
        Space { rows, by_query, by_key, delta, end, banded: Some(band), ..nothing }
    }
}

/// What products with the tables may take. Where a band is the rule, they are for addresses that no vector can be read
/// from.
fn product_bytes(shape: &AttentionShape, dtype: DType) -> usize {
    if banded::serves(shape, dtype) { 0 } else { PRODUCT_BYTES }
}
