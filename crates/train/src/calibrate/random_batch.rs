//! A batch of random samples for any program: what is timed does not depend on what is learned.

use plimsoll_base::random::{Stream, site};
use plimsoll_core::graph::{InputKind, Value};
use plimsoll_core::plan::Program;
use plimsoll_core::types::DType;
use plimsoll_data::{Batch, DataError, Dataset, Element, FieldSpec, RowMut};

/// Ids that random texts are drawn from, at most.
const IDS: u32 = 1000;

/// `count` samples for the data inputs of the program: normal numbers, random ids and labels, everything real and of
/// weight 1.
pub(super) fn random_batch(program: &Program, count: usize) -> Result<Batch, DataError> {
    let samples = RandomSamples::new(program, count);
    let mut batch = Batch::new(&samples.fields, count)?;
    batch.fill(&samples, 0..count)?;
    Ok(batch)
}

struct RandomSamples {
    count: usize,
    fields: Vec<FieldSpec>,
}

impl RandomSamples {
    fn new(program: &Program, count: usize) -> RandomSamples {
        let mut fields: Vec<FieldSpec> = Vec::new();
        for value in program.phases.iter().flat_map(|phase| phase.graph.values()) {
            let known = fields.iter().any(|field| *field.name == *value.name);
            if matches!(value.input, Some(InputKind::Data)) && !known {
                fields.push(field(value));
            }
        }
        RandomSamples { count, fields }
    }

    /// Tokens of a text, for the position that is read out.
    fn tokens(&self) -> i32 {
        let ids = self.fields.iter().find(|field| field.name == "ids");
        ids.and_then(FieldSpec::elements).unwrap_or(1) as i32
    }
}

fn field(value: &Value) -> FieldSpec {
    if &*value.name == "eos" {
        return FieldSpec::position("eos", "ids");
    }
    let element = if value.ty.dtype == DType::I32 { Element::I32 } else { Element::F32 };
    FieldSpec::new(&value.name, element, &value.ty.shape[1..])
}

impl Dataset for RandomSamples {
    fn len(&self) -> usize {
        self.count
    }

    fn fields(&self) -> &[FieldSpec] {
        &self.fields
    }

    fn fill(&self, sample: usize, row: &mut RowMut<'_>) -> Result<(), DataError> {
        let stream = Stream::new(1, site("bench"), 0);
        let word = |i: usize, draw: u32| stream.word(sample as u32, draw, i as u32);
        for (at, field) in self.fields.iter().enumerate() {
            match (field.name.as_str(), field.element) {
                ("weight" | "weights", _) => row.f32(at).fill(1.0),
                ("mask", _) => row.i32(at).fill(1),
                ("types", _) => row.i32(at).fill(0),
                ("eos", _) => row.i32(at)[0] = self.tokens() - 1,
                ("label", _) => row.i32(at)[0] = (word(0, 2) % 2) as i32,
                (_, Element::I32) => fill(row.i32(at), |i| (word(i, 0) % IDS) as i32),
                (_, Element::F32) => fill(row.f32(at), |i| normal(word(i, 0), word(i, 1))),
            }
        }
        Ok(())
    }

    fn resident_bytes(&self) -> usize {
        0
    }
}

fn fill<T>(to: &mut [T], value: impl Fn(usize) -> T) {
    to.iter_mut().enumerate().for_each(|(i, to)| *to = value(i));
}

/// Box–Muller.
fn normal(a: u32, b: u32) -> f32 {
    let unit = |word: u32| (f64::from(word) + 0.5) / 4_294_967_296.0;
    ((-2.0 * unit(a).ln()).sqrt() * (std::f64::consts::TAU * unit(b)).cos()) as f32
}
