//! Adafactor on a device, pass by pass; the kernels are in adafactor.cu.

use super::cuda::{define_index, put, source, typed, width};
use super::*;
use crate::kernels::cuda::{Arg, DeviceTensor, Grid, Kernel};

/// The extents of a weight and of the passes over it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sizes {
    elements: usize,
    matrices: usize,
    rows: usize,
    columns: usize,
    /// Blocks that add up squares of all elements.
    sums: usize,
    /// Stretches of rows whose squares are added up by column.
    chunks: usize,
}

impl Sizes {
    pub fn new(weight: &Type) -> Sizes {
        let elements = weight.elements();
        let (rows, columns) = match weight.shape[..] {
            [.., rows, columns] => (rows, columns),
            _ => (1, elements),
        };
        let matrices = Adafactor::matrices(weight);
        let tiles = (matrices * columns.div_ceil(256)).max(1);
        let chunks = (rows / 64).min(1024 / tiles).clamp(1, 256);
        Sizes { elements, matrices, rows, columns, sums: elements.div_ceil(16 << 10).clamp(1, 1024), chunks }
    }

    /// Where in the workspace, in floats, the update's factor, the sums of squares of weight and update, the scales of
    /// matrices and the squares by column are; then its length.
    fn starts(&self) -> [usize; 6] {
        let lens = [1, self.sums, self.sums, self.matrices, self.matrices * self.chunks * self.columns];
        let mut starts = [0; 6];
        for (i, len) in lens.into_iter().enumerate() {
            starts[i + 1] = (starts[i] + len).next_multiple_of(4);
        }
        starts
    }

    pub fn workspace_bytes(&self) -> usize {
        size_of::<f32>() * self.starts()[5]
    }
}

/// What the passes share: the tensors, the scalars of the step, the parts of the workspace.
pub(super) struct Passes<'a> {
    op: &'a Adafactor,
    sizes: Sizes,
    w: &'a DeviceTensor,
    g: &'a DeviceTensor,
    /// Those of the vector itself where there is no matrix.
    row_moments: &'a DeviceTensor,
    column_moments: &'a DeviceTensor,
    is_matrix: bool,
    /// Learning rate, number of the step, clip factor, and what rounding reads.
    scalars: &'a [DeviceTensor],
    /// Elements that a thread handles at once.
    width: usize,
    factor: Arg,
    weight_sums: Arg,
    update_sums: Arg,
    scales: Arg,
    column_sums: Arg,
}

impl<'a> Passes<'a> {
    pub fn new(op: &'a Adafactor, inputs: &'a [DeviceTensor], workspace: u64) -> Passes<'a> {
        let (w, gradient, sizes) = (&inputs[0], Adafactor::gradient(&inputs[0].ty), Sizes::new(&inputs[0].ty));
        let (g, column_moments) = (&inputs[gradient], &inputs[gradient - 1]);
        let [factor, weight_sums, update_sums, scales, column_sums, _] =
            sizes.starts().map(|start| Arg::Address(workspace + (size_of::<f32>() * start) as u64));
        Passes {
            op,
            sizes,
            w,
            g,
            row_moments: &inputs[1],
            column_moments,
            is_matrix: gradient == 3,
            scalars: &inputs[gradient + 1..],
            width: width(&[w, g, column_moments], sizes.columns),
            factor,
            weight_sums,
            update_sums,
            scales,
            column_sums,
        }
    }

    pub fn put(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let elements = self.sizes.elements.into();
        self.pass(launch, "weight_squares", self.sizes.sums, &[&[self.w.into(), elements, self.weight_sums]])?;
        match self.is_matrix {
            true => self.matrix_moments(launch)?,
            false => {
                let args = [self.g.into(), self.column_moments.into(), elements];
                let more: [&[Arg]; 4] = [&args, &self.step(), &[self.decay()], &self.rounding()];
                self.pass(launch, "vector_moments", self.blocks(), &more)?;
            }
        }
        self.update(launch)
    }

    /// Moments of rows and of columns, and the scale of each matrix.
    fn matrix_moments(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let Sizes { matrices, rows, columns, chunks, .. } = self.sizes;
        let (g, row_moments, step) = (Arg::from(self.g), self.row_moments.into(), self.step());
        let (decay, rounding) = ([self.decay()], self.rounding());
        let from = [g, row_moments, columns.into()];
        self.pass(launch, "row_moments", matrices * rows, &[&from, &step, &decay, &rounding])?;
        let blocks = matrices * chunks * columns.div_ceil(32 * self.width);
        let extents = [rows, columns, chunks].map(Arg::from);
        let stretch = rows.div_ceil(chunks).into();
        self.pass(launch, "column_squares", blocks, &[&[g, self.column_sums], &extents, &[stretch], &step])?;
        let all = matrices * columns;
        let to = [self.column_sums, self.column_moments.into(), all.into()];
        self.pass(launch, "column_moments", all.div_ceil(256), &[&to, &extents, &step, &decay, &rounding])?;
        let eps = Arg::F32(self.op.eps_moment as f32);
        self.pass(launch, "row_scales", matrices, &[&[row_moments, self.scales, rows.into(), eps]])
    }

    /// The size of the update, then the update.
    fn update(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let Sizes { elements, rows, columns, sums, .. } = self.sizes;
        let (g, step) = (Arg::from(self.g), self.step());
        let moments = [self.row_moments.into(), self.scales, self.column_moments.into()];
        let extents = [elements, rows, columns].map(Arg::from);
        let least = Arg::F32((self.op.eps_moment * self.op.eps_moment) as f32);
        self.pass(launch, "update_squares", sums, &[&[g], &moments, &extents, &step, &[least, self.update_sums]])?;
        let limits = [self.op.eps_weight, self.op.limit].map(|x| Arg::F32(x as f32));
        let parts = [self.weight_sums, self.update_sums, sums.into(), elements.into()];
        self.pass(launch, "update_factor", 1, &[&parts, &step, &limits, &[self.factor]])?;
        let last = [least, self.factor, Arg::F32(self.op.weight_decay as f32)];
        let ends = [self.w.into(), g];
        self.pass(launch, "update", self.blocks(), &[&ends, &moments, &extents, &step, &last, &self.rounding()])
    }

    /// One kernel, in blocks of 256 threads.
    fn pass(
        &self,
        launch: &mut Launch<'_>,
        entry: &'static str,
        blocks: usize,
        args: &[&[Arg]],
    ) -> Result<(), CudaError> {
        put(launch, &self.kernel(entry), Grid::new(blocks, 256), blocks, &args.concat())
    }

    fn kernel(&self, entry: &'static str) -> Kernel {
        let types =
            [("T", self.w), ("G", self.g), ("M", self.row_moments), ("S", &self.scalars[0]), ("C", &self.scalars[2])];
        let kernel = typed(source!("adafactor", "map", "rounding"), entry, &types);
        Rounding::define(self.op.rounding, define_index(kernel, self.sizes.elements))
            .define("WIDTH", self.width)
            .define("MATRIX", u32::from(self.is_matrix))
            .define("ZERO_GRADIENT", u32::from(self.op.zero_gradient))
    }

    /// Blocks of an elementwise pass.
    fn blocks(&self) -> usize {
        self.sizes.elements.div_ceil(256 * self.width)
    }

    /// Learning rate, number of the step and clip factor.
    fn step(&self) -> [Arg; 3] {
        [0, 1, 2].map(|i| Arg::from(&self.scalars[i]))
    }

    fn rounding(&self) -> [Arg; 3] {
        Rounding::args(self.op.rounding, self.scalars.get(3))
    }

    fn decay(&self) -> Arg {
        Arg::F32(self.op.beta2_decay as f32)
    }
}
