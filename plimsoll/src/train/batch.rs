//! From a batch of samples to the inputs of a phase: an input takes the field of its own name. Rows beyond the batch are
//! zero, weight included, so they count nothing in the loss, in its gradients or in batch statistics.

use super::TrainError;
use crate::data::Batch;
use crate::exec::Executor;
use crate::graph::{DType, Graph, InputKind};
use crate::plan::{PlanError, Program};
use half::{bf16, f16};

/// Knows the inputs of every phase. Its only buffer is made once: feeding allocates nothing.
pub struct Feeder {
    phases: Vec<Vec<Input>>,
    /// For rows that do not lie in the batch as the phase wants them; of the largest input.
    staging: Vec<u32>,
    /// For rows that the phase wants in half precision.
    halves: Vec<u16>,
}

struct Input {
    name: String,
    rows: usize,
    /// Of the data, whose elements have four bytes.
    row_bytes: usize,
    dtype: DType,
}

impl Feeder {
    pub fn new(program: &Program) -> Feeder {
        let mut feeder = Feeder { phases: Vec::new(), staging: Vec::new(), halves: Vec::new() };
        feeder.add(program);
        feeder
    }

    /// Learns the inputs of further phases, in the order the executor numbers them.
    pub fn add(&mut self, program: &Program) {
        let further: Vec<Vec<Input>> = program.phases.iter().map(|phase| inputs(&phase.graph)).collect();
        let largest = further.iter().flatten().map(|input| input.rows * input.row_bytes).max().unwrap_or(0);
        self.staging.resize(self.staging.len().max(largest.div_ceil(4)), 0);
        self.phases.extend(further);
    }

    /// Samples that a phase takes.
    pub fn rows(&self, phase: usize) -> usize {
        self.phases[phase].first().map_or(1, |input| input.rows)
    }

    /// Copies the batch's rows from `first` on into the inputs of `phase`.
    pub fn feed(
        &mut self,
        executor: &mut dyn Executor,
        phase: usize,
        batch: &Batch,
        first: usize,
    ) -> Result<(), TrainError> {
        for input in &self.phases[phase] {
            let rows = rows_of(batch, input, first, &mut self.staging)?;
            let rows = in_half_precision(input.dtype, rows, &mut self.halves).unwrap_or(rows);
            if !executor.write_input(phase, &input.name, rows) {
                return Err(unfit(input, format!("takes other than {} bytes", rows.len())));
            }
        }
        Ok(())
    }
}

/// Floats as an input of half precision takes them; `None` for every other input.
fn in_half_precision<'a>(dtype: DType, rows: &[u8], halves: &'a mut Vec<u16>) -> Option<&'a [u8]> {
    let convert: fn(f32) -> u16 = match dtype {
        DType::Bf16 => |x| bf16::from_f32(x).to_bits(),
        DType::F16 => |x| f16::from_f32(x).to_bits(),
        _ => return None,
    };
    halves.clear();
    halves.extend(rows.chunks_exact(4).map(|bytes| convert(bytemuck::pod_read_unaligned(bytes))));
    Some(bytemuck::cast_slice(halves))
}

/// What the mean of the loss is taken over: the sum of the weights of samples or tokens.
pub fn counted(batch: &Batch) -> f64 {
    let field = batch.field("weight").or_else(|| batch.field("weights"));
    let weights = field.map_or(&[][..], |field| batch.f32(field, 0..batch.len()));
    weights.iter().map(|&weight| f64::from(weight)).sum()
}

fn inputs(graph: &Graph) -> Vec<Input> {
    let data = graph.values().iter().filter(|value| matches!(value.input, Some(InputKind::Data)));
    let input = |value: &crate::graph::Value| {
        let rows = value.ty.shape.first().copied().unwrap_or(1);
        let elements: usize = value.ty.shape.iter().skip(1).product();
        Input { name: value.name.clone(), rows, row_bytes: elements * 4, dtype: value.ty.dtype }
    };
    data.map(input).collect()
}

fn unfit(input: &Input, cause: String) -> TrainError {
    PlanError::Broken(format!("input {} of the graph {cause}", input.name)).into()
}

/// The bytes of an input's rows, from the batch itself where they lie there as they are.
fn rows_of<'a>(batch: &'a Batch, input: &Input, first: usize, staging: &'a mut [u32]) -> Result<&'a [u8], TrainError> {
    let field = batch.field(&input.name).ok_or_else(|| unfit(input, "has no field in the data".into()))?;
    let (elements, end) = (batch.row_elements(field), first + input.rows);
    if elements * 4 != input.row_bytes {
        return Err(unfit(input, format!("has rows of {} bytes, the data of {}", input.row_bytes, elements * 4)));
    }
    let positions = batch.spec(field).position_in.as_deref();
    if positions.is_none() && end <= batch.capacity() {
        return Ok(batch.bytes(field, first..end));
    }
    let present = first.min(batch.capacity())..end.min(batch.capacity());
    let staging: &mut [u8] = &mut bytemuck::cast_slice_mut(staging)[..input.rows * input.row_bytes];
    let (rows, beyond) = staging.split_at_mut(present.len() * input.row_bytes);
    rows.copy_from_slice(batch.bytes(field, present.clone()));
    beyond.fill(0);
    if let Some(of) = positions.and_then(|name| batch.field(name)) {
        let real = batch.len().saturating_sub(first).min(present.len());
        let row_length = batch.row_elements(of) as i32;
        let values: &mut [i32] = bytemuck::cast_slice_mut(&mut rows[..real * input.row_bytes]);
        for (row, positions) in values.chunks_mut(elements.max(1)).enumerate() {
            positions.iter_mut().for_each(|position| *position += row as i32 * row_length);
        }
    }
    Ok(staging)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{DataError, Dataset, Element, FieldSpec, RowMut};
    use crate::graph::Type;
    use crate::plan::Phase;
    use std::borrow::Cow;

    /// Remembers what was written.
    #[derive(Default)]
    struct Recorder(Vec<(String, Vec<i32>)>);

    impl Executor for Recorder {
        fn run(&mut self, _: usize) {}
        fn write_input(&mut self, _: usize, name: &str, data: &[u8]) -> bool {
            self.0.push((name.into(), data.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()));
            true
        }
        fn write_resident(&mut self, _: &str, _: &[u8]) -> bool {
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
        fn add_phases(&mut self, _: &Program, _: &crate::plan::Layout) -> usize {
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
        let mut feeder = Feeder::new(&program(3, 3, None));
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
        let mut feeder = Feeder::new(&program(1, 3, None));
        feeder.feed(&mut recorder, 0, &batch, 1).unwrap();
        assert_eq!(recorder.0[1].1, [2]);
    }

    #[test]
    fn data_that_is_not_what_the_graph_takes_is_an_error() {
        let batch = batch();
        let mut other_length = Feeder::new(&program(3, 4, None));
        assert!(other_length.feed(&mut Recorder::default(), 0, &batch, 0).is_err());
        let mut no_field = Feeder::new(&program(3, 3, Some("mask")));
        assert!(no_field.feed(&mut Recorder::default(), 0, &batch, 0).is_err());
    }
}
