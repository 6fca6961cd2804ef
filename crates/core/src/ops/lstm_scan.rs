//! A whole recurrence in one launch, where clusters of blocks can exchange states among themselves: see lstm_scan.cu.

use super::cuda::source;
use super::device::int;
use super::*;
use crate::kernels::cpu::lstm::LstmShape;
use crate::kernels::cuda::{Arg, Grid, Kernel, Source};
use crate::types::DType;

const SOURCE: Source = source!("lstm_scan", "half");

/// The first architecture with clusters, and how many blocks each of them allows in one.
const CLUSTERS_SINCE: u32 = 90;
const MOST_BLOCKS: usize = 8;

/// Clusters of that size that fit on a data-center card at once, whichever of its multiprocessors are switched off.
const AT_ONCE: usize = 12;

/// What one block of a cluster has: hidden units, and rows as often as it is tall, each time with so many threads.
const UNITS: usize = 32;
const ROWS: usize = 16;
const THREADS: usize = 128;

/// Barriers are outside of dynamic shared memory, but count: asked for with it, a block is allowed enough for both.
const BARRIER_BYTES: usize = 64;

/// A right operand of a product: two registers of each of those threads.
const OPERAND_BYTES: usize = 8 * THREADS;

/// A recurrence that clusters can run.
pub(super) struct Scan {
    shape: LstmShape,
    dtype: DType,
    /// Blocks of a cluster: one to every [`UNITS`] hidden units.
    blocks: usize,
    /// A cluster has this many times [`ROWS`] rows. What comes out does not depend on it.
    tall: usize,
}

impl Scan {
    /// None where a launch for every step is needed: another precision or device, or units that no cluster holds.
    pub(super) fn new(launch: &Launch<'_>, shape: LstmShape, dtype: DType) -> Option<Scan> {
        let (arch, blocks) = (launch.queue.arch(), shape.hidden / UNITS);
        let by_clusters = arch >= CLUSTERS_SINCE && dtype.is_half();
        let held = shape.hidden.is_multiple_of(UNITS) && (1..=MOST_BLOCKS).contains(&blocks);
        // Neighbours are read and written in pairs.
        let mut tensors = launch.inputs.iter().chain(launch.outputs);
        let in_pairs = tensors.all(|tensor| tensor.address.is_multiple_of(4));
        let any = shape.batch * shape.time > 0;
        (by_clusters && held && in_pairs && any).then(|| Scan { shape, dtype, blocks, tall: tall(arch, &shape) })
    }

    pub(super) fn forward(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let tensors: Vec<Arg> = launch.inputs.iter().chain(launch.outputs).map(Arg::from).collect();
        // The states of two steps, and the operands of the weights that are not kept: of four gates.
        let (states, [kept, _]) = (2 * self.rows() * self.shape.hidden * self.dtype.bytes(), self.kept());
        self.run(launch, "scan", &tensors, states + (2 * self.blocks - kept) * 4 * OPERAND_BYTES)
    }

    /// Leaves the states before each step in `before`; what is left to do is the weights' gradient.
    pub(super) fn backward(&self, launch: &mut Launch<'_>, before: u64) -> Result<(), CudaError> {
        let ends = [Arg::from(&launch.outputs[0]), Arg::Address(before)];
        let tensors: Vec<Arg> = launch.inputs.iter().map(Arg::from).chain(ends).collect();
        // Of two steps, every block's part of the gradients of the block's units in f32; operands for all blocks.
        let (parts, [_, kept]) = (2 * self.blocks * self.rows() * UNITS * 4, self.kept());
        // And the gradients of the block's gates, also of two steps.
        let slopes = 2 * self.rows() * 4 * UNITS * self.dtype.bytes();
        self.run(launch, "scan_back", &tensors, parts + (8 - kept) * self.blocks * OPERAND_BYTES + slopes)
    }

    /// Whether no cluster has to wait for another to end. Backwards, rounds of them take longer than single steps do.
    pub(super) fn is_one_round(&self) -> bool {
        self.clusters() <= AT_ONCE
    }

    fn clusters(&self) -> usize {
        self.shape.batch.div_ceil(self.rows()) * self.shape.dirs
    }

    /// How many of the weights' operands, forward and backward, a thread's registers have room for.
    fn kept(&self) -> [usize; 2] {
        let [forward, backward] = if self.tall < 3 { [usize::MAX; 2] } else { [13, 40 / self.blocks] };
        [forward.min(2 * self.blocks), backward.min(8)]
    }

    /// Of a cluster.
    fn rows(&self) -> usize {
        ROWS * self.tall
    }

    fn run(
        &self,
        launch: &mut Launch<'_>,
        entry: &'static str,
        tensors: &[Arg],
        shared: usize,
    ) -> Result<(), CudaError> {
        let s = &self.shape;
        let is_bf16 = (self.dtype == DType::Bf16) as u32;
        let kernel = Kernel::new(SOURCE, entry).dtype("T", self.dtype).define("BF16", is_bf16);
        let [forward, backward] = self.kept();
        let kernel = kernel.define("BLOCKS", self.blocks).define("TALL", self.tall);
        let kernel = kernel.define("FORWARD_KEPT", forward).define("BACKWARD_KEPT", backward);
        let args = [tensors, &[s.batch, s.time, s.dirs].map(int)].concat();
        let grid = Grid::new(self.clusters() * self.blocks, THREADS * self.tall).shared(shared + BARRIER_BYTES);
        launch.kernel(&kernel, grid, &args)
    }
}

/// As flat as lets all clusters run at once, for rows of one block slow each other down; but one more round of clusters
/// costs more. Blocks as tall as 3 have too much in shared memory for cards of sm_120.
fn tall(arch: u32, shape: &LstmShape) -> usize {
    let most = if arch < 120 { 3 } else { 2 };
    (1..most).find(|tall| shape.batch.div_ceil(ROWS * tall) * shape.dirs <= AT_ONCE).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::cuda::{DeviceTensor, Recorded, Recorder};

    /// What a layer's forward pass launches on an architecture.
    fn launches(arch: u32, dtype: DType, [batch, hidden]: [usize; 2]) -> Vec<Recorded> {
        let shapes = [vec![batch, 5, 2, 4 * hidden], vec![2, 4 * hidden, hidden], vec![2, 4 * hidden]];
        let types: Vec<Type> = shapes.iter().map(|shape| Type::new(dtype, shape)).collect();
        let place = |(n, ty): (usize, &Type)| DeviceTensor { address: (n as u64 + 1) << 32, ty: ty.clone() };
        let inputs: Vec<DeviceTensor> = types.iter().enumerate().map(place).collect();
        let outputs: Vec<DeviceTensor> = Lstm.outputs(&types).unwrap().iter().enumerate().map(place).collect();
        let mut queue = Recorder { arch, ..Recorder::default() };
        let mut launch = Launch {
            inputs: &inputs,
            outputs: &outputs,
            workspace: 1 << 40,
            workspace_bytes: usize::MAX,
            tf32: false,
            queue: &mut queue,
        };
        Lstm.cuda(&mut launch).unwrap();
        queue.launches
    }

    fn is_scan(launches: &[Recorded]) -> bool {
        launches.len() == 1 && launches[0].kernel().is_some_and(|kernel| kernel.source == SOURCE)
    }

    #[test]
    fn clusters_run_what_they_can_hold() {
        assert!(is_scan(&launches(90, DType::Bf16, [256, 256])));
        assert!(is_scan(&launches(120, DType::F16, [1, 32])));
        for (arch, dtype, hidden) in [
            (0, DType::Bf16, 256),
            (89, DType::Bf16, 256),
            (90, DType::F32, 256),
            (90, DType::Bf16, 288),
            (90, DType::Bf16, 40),
        ] {
            let found = launches(arch, dtype, [3, hidden]);
            assert!(!is_scan(&found) && found.len() == 5 + 4, "sm_{arch} {dtype:?} {hidden}: {found:?}");
        }
    }

    #[test]
    fn every_row_has_a_cluster() {
        // Batch, and how tall blocks are on which card.
        for (batch, arch, tall) in [(16, 90, 1), (97, 90, 2), (256, 90, 3), (1000, 90, 3), (256, 120, 2)] {
            let Recorded::Kernel { grid, .. } = &launches(arch, DType::Bf16, [batch, 96])[0] else { panic!() };
            let clusters = 2 * batch.div_ceil(16 * tall) as u32;
            assert_eq!((grid.blocks, grid.threads), ([3 * clusters, 1, 1], [128 * tall as u32, 1, 1]), "{batch}");
        }
    }
}
