//! From a batch of samples to the inputs of a phase: an input takes the field of its own name. Rows beyond the batch are
//! zero, weight included, so they count nothing in the loss, in its gradients or in batch statistics.

use crate::RunError;
use half::{bf16, f16};
use plimsoll_core::graph::{Graph, InputKind};
use plimsoll_core::plan::{PlanError, Program};
use plimsoll_core::types::DType;
use plimsoll_data::Batch;
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

    /// Learns the inputs of further phases, in the order the executor numbers them.
    pub fn add(&mut self, program: &Program) {
        self.phases.extend(program.phases.iter().map(|phase| inputs(&phase.graph)));
    }

    /// Samples that a phase takes.
    pub fn rows(&self, phase: usize) -> usize {
        self.phases[phase].first().map_or(1, |input| input.rows)
    }

    /// Copies the batch's rows from `first` on into the inputs of `phase`.
    pub fn feed(&self, executor: &mut dyn Executor, phase: usize, batch: &Batch, first: usize) -> Result<(), RunError> {
        for input in &self.phases[phase] {
            let rows = Rows::of(batch, input, first)?;
            let bytes = input.rows * input.row_elements * input.dtype.bytes();
            if !executor.fill_input(phase, &input.name, bytes, &|at, piece| rows.fill(at, piece)) {
                return Err(unfit(input, format!("takes other than {bytes} bytes")));
            }
        }
        Ok(())
    }
}

/// What the mean of the loss is taken over: the sum of the weights of samples or tokens.
pub fn counted(batch: &Batch) -> f64 {
    let field = batch.field("weight").or_else(|| batch.field("weights"));
    let weights = field.map_or(&[][..], |field| batch.f32(field, 0..batch.len()));
    weights.iter().map(|&weight| f64::from(weight)).sum()
}

fn inputs(graph: &Graph) -> Vec<Input> {
    let data = graph.values().iter().filter(|value| matches!(value.input, Some(InputKind::Data)));
    let input = |value: &plimsoll_core::graph::Value| {
        let rows = value.ty.shape.first().copied().unwrap_or(1);
        let row_elements = value.ty.shape.iter().skip(1).product();
        Input { name: value.name.clone(), rows, row_elements, dtype: value.ty.dtype }
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
}

/// Positions count elements of another field: those of a row come after those of all rows before it in the micro-batch.
struct Positions {
    row_elements: usize,
    of_elements: usize,
    /// Rows with a sample.
    real: usize,
}

impl<'a> Rows<'a> {
    fn of(batch: &'a Batch, input: &Input, first: usize) -> Result<Rows<'a>, RunError> {
        let field = batch.field(&input.name).ok_or_else(|| unfit(input, "has no field in the data".into()))?;
        let elements = batch.row_elements(field);
        if elements != input.row_elements {
            return Err(unfit(input, format!("has rows of {} elements, the data of {elements}", input.row_elements)));
        }
        if !matches!(input.dtype, DType::F32 | DType::I32 | DType::Bf16 | DType::F16) {
            return Err(unfit(input, format!("holds {}, which no data has", input.dtype.name())));
        }
        let present = first.min(batch.capacity())..(first + input.rows).min(batch.capacity());
        let of = batch.spec(field).position_in.as_deref().and_then(|name| batch.field(name));
        let positions = of.map(|of| Positions {
            row_elements: elements.max(1),
            of_elements: batch.row_elements(of),
            real: batch.len().saturating_sub(first),
        });
        Ok(Rows { data: batch.bytes(field, present), dtype: input.dtype, positions })
    }

    /// Writes the bytes of the input from `at` on.
    fn fill(&self, at: usize, piece: &mut [u8]) {
        match self.dtype {
            DType::Bf16 => self.halves(at, piece, |x| bf16::from_f32(x).to_bits()),
            DType::F16 => self.halves(at, piece, |x| f16::from_f32(x).to_bits()),
            _ => self.words(at, piece),
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
    use plimsoll_exec::Fill;
    use std::borrow::Cow;

    /// Remembers what was written.
    #[derive(Default)]
    struct Recorder(Vec<(String, Vec<i32>)>);

    impl Executor for Recorder {
        fn run(&mut self, _: usize) {}
        fn fill_input(&mut self, _: usize, name: &str, bytes: usize, fill: &Fill<'_>) -> bool {
            let mut data = vec![0; bytes];
            // In pieces, as executors do.
            data.chunks_mut(4).enumerate().for_each(|(i, piece)| fill(4 * i, piece));
            self.0.push((name.into(), data.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()));
            true
        }
        fn clear_resident(&mut self, _: &str) -> bool {
            true
        }
        fn fill_resident(&mut self, _: &str, _: usize, _: &Fill<'_>) -> bool {
            true
        }
        fn write_resident_at(&mut self, _: &str, _: usize, _: &[u8]) -> bool {
            true
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
    fn positions_begin_anew_in_every_micro_batch() {
        let (mut recorder, batch) = (Recorder::default(), batch());
        let feeder = Feeder::new(&program(1, 3, None));
        feeder.feed(&mut recorder, 0, &batch, 1).unwrap();
        assert_eq!(recorder.0[1].1, [2]);
    }

    #[test]
    fn data_that_is_not_what_the_graph_takes_is_an_error() {
        let batch = batch();
        let other_length = Feeder::new(&program(3, 4, None));
        assert!(other_length.feed(&mut Recorder::default(), 0, &batch, 0).is_err());
        let no_field = Feeder::new(&program(3, 3, Some("mask")));
        assert!(no_field.feed(&mut Recorder::default(), 0, &batch, 0).is_err());
    }
}
