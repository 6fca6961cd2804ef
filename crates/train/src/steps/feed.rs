//! From a batch of samples to the inputs of a phase: an input takes the field of its own name. Rows beyond the batch are
//! zero, weight included, so they count nothing in the loss, in its gradients or in batch statistics.

use crate::RunError;
use half::{bf16, f16};
use plimsoll_core::graph::{Graph, InputKind};
use plimsoll_core::plan::{PlanError, Program};
use plimsoll_core::types::DType;
use plimsoll_data::{Batch, Element};
use plimsoll_exec::Executor;

/// Knows the inputs of every phase. Rows go straight from the batch to where the executor takes them from.
pub struct Feeder {
    phases: Vec<Vec<Input>>,
}

struct Input {
    name: String,
    rows: usize,
    row_elements: usize,
    dtype: DType,
}

impl Feeder {
    pub fn new(program: &Program) -> Feeder {
        let mut feeder = Feeder { phases: Vec::new() };
        feeder.add(program);
        feeder
    }

    /// Learns the inputs of further phases, in the order the executor numbers them. The number of the first.
    pub fn add(&mut self, program: &Program) -> usize {
        let first = self.phases.len();
        self.phases.extend(program.phases.iter().map(|phase| inputs(&phase.graph)));
        first
    }

    /// Learns the inputs of a phase in the place of another.
    pub fn replace(&mut self, phase: usize, program: &Program) {
        self.phases[phase] = program.phases.first().map(|phase| inputs(&phase.graph)).unwrap_or_default();
    }

    /// Samples that a phase takes.
    pub fn rows(&self, phase: usize) -> usize {
        self.phases[phase].first().map_or(1, |input| input.rows)
    }

    /// Copies the batch's rows from `first` on into the inputs of `phase`.
    pub fn feed(&self, executor: &mut dyn Executor, phase: usize, batch: &Batch, first: usize) -> Result<(), RunError> {
        let inputs = &self.phases[phase];
        for input in inputs {
            let rows = Rows::of(batch, inputs, input, first)?;
            let bytes = input.rows * input.row_elements * input.dtype.bytes();
            executor.fill_input(phase, &input.name, bytes, &|at, piece| rows.fill(at, piece))?;
        }
        Ok(())
    }
}

/// What the mean of the loss is taken over: the sum of the weights of samples or tokens.
pub(super) fn counted(batch: &Batch) -> f64 {
    let field = batch.field("weight").or_else(|| batch.field("weights"));
    let weights = field.map_or(&[][..], |field| batch.f32(field, 0..batch.len()));
    weights.iter().map(|&weight| f64::from(weight)).sum()
}

fn inputs(graph: &Graph) -> Vec<Input> {
    let data = graph.values().iter().filter(|value| matches!(value.input, Some(InputKind::Data)));
    let input = |value: &plimsoll_core::graph::Value| {
        let rows = value.ty.shape.first().copied().unwrap_or(1);
        let row_elements = value.ty.shape.iter().skip(1).product();
        Input { name: value.name.to_string(), rows, row_elements, dtype: value.ty.dtype }
    };
    data.map(input).collect()
}

fn unfit(input: &Input, cause: String) -> RunError {
    PlanError::Broken(format!("input {} of the graph {cause}", input.name)).into()
}

/// The rows of one input as they lie in the batch, whose elements have four bytes each.
struct Rows<'a> {
    /// Up to the end of the batch's buffer; what is behind it is zero.
    data: &'a [u8],
    dtype: DType,
    positions: Option<Positions>,
    padding: Option<Padding>,
}

/// Rows of the batch that are shorter than those of the phase.
struct Padding {
    from: usize,
    to: usize,
    /// What the batch itself would be padded with.
    value: [u8; 4],
    /// Rows with a sample.
    real: usize,
}

/// Positions count elements of another field: those of a row come after those of all rows before it in the micro-batch.
struct Positions {
    row_elements: usize,
    of_elements: usize,
    /// Rows with a sample.
    real: usize,
}

impl<'a> Rows<'a> {
    fn of(batch: &'a Batch, inputs: &[Input], input: &Input, first: usize) -> Result<Rows<'a>, RunError> {
        let field = batch.field(&input.name).ok_or_else(|| unfit(input, "has no field in the data".into()))?;
        let (elements, real) = (batch.row_elements(field), batch.len().saturating_sub(first));
        let padding = Padding::of(batch, field, input, real);
        if elements != input.row_elements && padding.is_none() {
            return Err(unfit(input, format!("has rows of {} elements, the data of {elements}", input.row_elements)));
        }
        if !matches!(input.dtype, DType::F32 | DType::I32 | DType::Bf16 | DType::F16) {
            return Err(unfit(input, format!("holds {}, which no data has", input.dtype.name())));
        }
        let present = first.min(batch.capacity())..(first + input.rows).min(batch.capacity());
        let of = batch.spec(field).position_in.as_deref().and_then(|name| batch.field(name));
        let width = |of: usize| {
            let same = inputs.iter().find(|other| other.name == batch.spec(of).name);
            same.map_or(batch.row_elements(of), |other| other.row_elements)
        };
        let positions = of.map(|of| Positions { row_elements: elements.max(1), of_elements: width(of), real });
        Ok(Rows { data: batch.bytes(field, present), dtype: input.dtype, positions, padding })
    }

    /// Writes the bytes of the input from `at` on.
    fn fill(&self, at: usize, piece: &mut [u8]) {
        if let Some(padding) = &self.padding {
            return self.padded(padding, at, piece);
        }
        match self.dtype {
            DType::Bf16 => self.halves(at, piece, |x| bf16::from_f32(x).to_bits()),
            DType::F16 => self.halves(at, piece, |x| f16::from_f32(x).to_bits()),
            _ => self.words(at, piece),
        }
    }

    /// Rows as long as the phase has them, element by element: this is for the rare batch without a phase of its own.
    fn padded(&self, padding: &Padding, at: usize, piece: &mut [u8]) {
        let bytes = self.dtype.bytes();
        for (i, to) in piece.chunks_exact_mut(bytes).enumerate() {
            let word = padding.element(at / bytes + i, self.data);
            let float = || f32::from_ne_bytes(word);
            match self.dtype {
                DType::Bf16 => to.copy_from_slice(&bf16::from_f32(float()).to_bits().to_ne_bytes()),
                DType::F16 => to.copy_from_slice(&f16::from_f32(float()).to_bits().to_ne_bytes()),
                _ => to.copy_from_slice(&word),
            }
        }
    }

    /// The batch's bytes from `at` on, at most `bytes` of them.
    fn from(&self, at: usize, bytes: usize) -> &[u8] {
        &self.data[at.min(self.data.len())..(at + bytes).min(self.data.len())]
    }

    fn words(&self, at: usize, piece: &mut [u8]) {
        let from = self.from(at, piece.len());
        let (present, beyond) = piece.split_at_mut(from.len());
        present.copy_from_slice(from);
        beyond.fill(0);
        if let Some(positions) = &self.positions {
            positions.shift(at / 4, present);
        }
    }

    /// Floats as an input of half precision takes them.
    fn halves(&self, at: usize, piece: &mut [u8], convert: impl Fn(f32) -> u16) {
        let from = self.from(2 * at, 2 * piece.len());
        let (present, beyond) = piece.split_at_mut(from.len() / 2);
        for (to, float) in present.chunks_exact_mut(2).zip(from.chunks_exact(4)) {
            to.copy_from_slice(&convert(bytemuck::pod_read_unaligned(float)).to_ne_bytes());
        }
        beyond.fill(0);
    }
}

impl Padding {
    /// If samples of this field may be of any length, and the phase takes longer ones than the batch has.
    fn of(batch: &Batch, field: usize, input: &Input, real: usize) -> Option<Padding> {
        let (spec, from, to) = (batch.spec(field), batch.row_elements(field), input.row_elements);
        let pad = spec.padding.as_ref().filter(|_| from < to)?.value;
        let value = match spec.element {
            Element::F32 => (pad as f32).to_ne_bytes(),
            Element::I32 => pad.to_ne_bytes(),
        };
        Some(Padding { from, to, value, real })
    }

    /// Element `index` of the input, from the batch's rows. Those without a sample are zero.
    fn element(&self, index: usize, rows: &[u8]) -> [u8; 4] {
        let (row, column) = (index / self.to, index % self.to);
        if row >= self.real {
            return [0; 4];
        }
        let at = 4 * (row * self.from + column);
        let word = rows.get(at..at + 4).filter(|_| column < self.from);
        word.and_then(|word| word.try_into().ok()).unwrap_or(self.value)
    }
}

impl Positions {
    /// `values` are i32, the first of them element `first` of the input.
    fn shift(&self, first: usize, values: &mut [u8]) {
        for (i, bytes) in values.chunks_exact_mut(4).enumerate() {
            let row = (first + i) / self.row_elements;
            let shift = if row < self.real { (row * self.of_elements) as i32 } else { 0 };
            bytes.copy_from_slice(&(bytemuck::pod_read_unaligned::<i32>(bytes) + shift).to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::plan::Phase;
    use plimsoll_core::types::Type;
    use plimsoll_data::{DataError, Dataset, Element, FieldSpec, RowMut};
    use plimsoll_exec::{ExecError, Fill};
    use std::borrow::Cow;

    /// Remembers what was written.
    #[derive(Default)]
    struct Recorder(Vec<(String, Vec<i32>)>);

    impl Executor for Recorder {
        fn run(&mut self, _: usize) {}
        fn fill_input(&mut self, _: usize, name: &str, bytes: usize, fill: &Fill<'_>) -> Result<(), ExecError> {
            let mut data = vec![0; bytes];
            // In pieces, as executors do.
            data.chunks_mut(4).enumerate().for_each(|(i, piece)| fill(4 * i, piece));
            self.0.push((name.into(), data.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()));
            Ok(())
        }
        fn clear_resident(&mut self, _: &str) -> Result<(), ExecError> {
            Ok(())
        }
        fn fill_resident(&mut self, _: &str, _: usize, _: &Fill<'_>) -> Result<(), ExecError> {
            Ok(())
        }
        fn write_resident_at(&mut self, _: &str, _: usize, _: &[u8]) -> Result<(), ExecError> {
            Ok(())
        }
        fn read_resident(&self, _: &str) -> Option<Cow<'_, [u8]>> {
            None
        }
        fn read_output(&self, _: usize, _: &str) -> Option<Cow<'_, [u8]>> {
            None
        }
        fn add_phases(&mut self, _: &Program, _: &plimsoll_core::plan::Layout) -> usize {
            0
        }
        fn measured_bytes(&self) -> u64 {
            0
        }
    }

    /// Sample `i`: `i + 1` ids of value `i + 1`, the position of the last, weight 0.5.
    struct Texts([FieldSpec; 3]);

    impl Texts {
        fn new() -> Self {
            Texts([
                FieldSpec::variable("ids", Element::I32, 0, 8, 0),
                FieldSpec::position("eos", "ids"),
                FieldSpec::new("weight", Element::F32, &[]),
            ])
        }
    }

    impl Dataset for Texts {
        fn len(&self) -> usize {
            8
        }
        fn fields(&self) -> &[FieldSpec] {
            &self.0
        }
        fn fill(&self, sample: usize, row: &mut RowMut<'_>) -> Result<(), DataError> {
            row.grow_i32(0).extend(std::iter::repeat_n(sample as i32 + 1, sample + 1));
            row.i32(1)[0] = sample as i32;
            row.f32(2)[0] = 0.5;
            Ok(())
        }
        fn resident_bytes(&self) -> usize {
            0
        }
    }

    fn program(rows: usize, length: usize, extra: Option<&str>) -> Program {
        let mut graph = Graph::new("step", DType::F32);
        graph.data("ids", Type::new(DType::I32, &[rows, length])).unwrap();
        graph.data("eos", Type::new(DType::I32, &[rows])).unwrap();
        if let Some(name) = extra {
            graph.data(name, Type::new(DType::F32, &[rows])).unwrap();
        }
        Program::new(vec![Phase { name: "step".into(), graph, repeat: 1 }]).unwrap()
    }

    fn batch() -> Batch {
        let data = Texts::new();
        let mut batch = Batch::new(data.fields(), 4).unwrap();
        batch.fill(&data, [0, 2, 1].into_iter()).unwrap();
        batch
    }

    #[test]
    fn inputs_take_the_rows_of_their_field_and_zeros_behind() {
        let (mut recorder, batch) = (Recorder::default(), batch());
        assert_eq!(counted(&batch), 1.5);
        let feeder = Feeder::new(&program(3, 3, None));
        assert_eq!(feeder.rows(0), 3);
        for first in [0, 3, 6] {
            feeder.feed(&mut recorder, 0, &batch, first).unwrap();
        }
        let written = |at: usize| (recorder.0[at].0.as_str(), recorder.0[at].1.as_slice());
        assert_eq!(written(0), ("ids", &[1, 0, 0, 3, 3, 3, 2, 2, 0][..]));
        assert_eq!(written(1), ("eos", &[0, 3 + 2, 2 * 3 + 1][..]), "positions count rows of the micro-batch");
        assert_eq!(written(2), ("ids", &[0; 9][..]), "rows beyond the samples and beyond the buffer");
        assert_eq!(written(3), ("eos", &[0; 3][..]));
        assert_eq!(written(4), ("ids", &[0; 9][..]), "rows wholly beyond the buffer");
    }

    #[test]
    fn a_phase_for_longer_samples_pads_them_as_the_batch_would() {
        let (mut recorder, batch) = (Recorder::default(), batch());
        Feeder::new(&program(4, 5, None)).feed(&mut recorder, 0, &batch, 1).unwrap();
        let ids = [[3, 3, 3, 0, 0], [2, 2, 0, 0, 0], [0; 5], [0; 5]].concat();
        assert_eq!(recorder.0[0], ("ids".to_string(), ids));
        assert_eq!(recorder.0[1].1, [2, 5 + 1, 0, 0], "positions are those of the longer rows");
        let padding = Padding { from: 2, to: 3, value: 7i32.to_ne_bytes(), real: 1 };
        let rows: Vec<u8> = [1i32, 2, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let padded: Vec<i32> = (0..6).map(|i| i32::from_ne_bytes(padding.element(i, &rows))).collect();
        assert_eq!(padded, [1, 2, 7, 0, 0, 0]);
    }

    #[test]
    fn positions_begin_anew_in_every_micro_batch() {
        let (mut recorder, batch) = (Recorder::default(), batch());
        let feeder = Feeder::new(&program(1, 3, None));
        feeder.feed(&mut recorder, 0, &batch, 1).unwrap();
        assert_eq!(recorder.0[1].1, [2]);
    }

    #[test]
    fn data_that_is_not_what_the_graph_takes_is_an_error() {
        let batch = batch();
        // Longer rows are padded further; shorter ones have no room for what is there.
        let other_length = Feeder::new(&program(3, 2, None));
        assert!(other_length.feed(&mut Recorder::default(), 0, &batch, 0).is_err());
        let no_field = Feeder::new(&program(3, 3, Some("mask")));
        assert!(no_field.feed(&mut Recorder::default(), 0, &batch, 0).is_err());
    }
}
