//! From a checkpoint's files into the arena.

use crate::RunError;
use plimsoll_base::safetensors::TensorInfo;
use plimsoll_core::plan::{Program, Resident};
use plimsoll_core::types::DType;
use plimsoll_core::types::first_not_finite;
use plimsoll_exec::Executor;
use plimsoll_models::families::HuggingFace;
use plimsoll_models::hf::convert::{convert, float_of, names_of};
use plimsoll_models::hf::names::{candidates, expand, is_fresh, is_ignored, is_scalar};
use plimsoll_models::hf::{Checkpoint, HfError, Mismatch};
use std::collections::BTreeSet;

/// Bytes of a file that are in memory at a time.
const PIECE_BYTES: usize = 4 << 20;

/// What became of a checkpoint's tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Tensors copied into the arena.
    pub loaded: usize,
    /// Parameters that the checkpoint does not have, or has in another size: they keep their initial values.
    pub fresh: Vec<String>,
    /// Tensors of the checkpoint that the model does not use.
    pub ignored: Vec<String>,
    /// Element types that were converted on the way, in the words of safetensors.
    pub converted_from: Vec<String>,
}

/// One tensor of a file and where it goes.
struct Copy {
    tensor: String,
    from: DType,
    resident: String,
    to: DType,
    /// In bytes of the resident.
    offset: usize,
}

/// Fills the program's parameters. Nothing is written unless every name, shape and element type is right.
pub fn load_into(
    checkpoint: &Checkpoint,
    program: &Program,
    names: &HuggingFace,
    executor: &mut dyn Executor,
) -> Result<LoadReport, RunError> {
    let residents = program.residents.iter().filter(|r| r.is_parameter);
    let Matched { copies, fresh, ignored } = matched(checkpoint, residents, names)?;
    refuse_other_copies(checkpoint, names, &copies)?;
    let mut pieces = Pieces::default();
    for copy in &copies {
        pieces.stream(checkpoint, copy, executor)?;
    }
    let converted: BTreeSet<&str> = copies.iter().filter(|c| c.from != c.to).map(|c| names_of(c.from).0).collect();
    let converted_from = converted.into_iter().map(String::from).collect();
    Ok(LoadReport { loaded: copies.len(), fresh, ignored, converted_from })
}

/// Whether a checkpoint has the tensors of these parameters; reads no numbers.
pub(crate) fn check_names(
    checkpoint: &Checkpoint,
    parameters: &[Resident],
    names: &HuggingFace,
) -> Result<(), RunError> {
    matched(checkpoint, parameters.iter(), names).map(|_| ())
}

/// Which tensor goes where.
struct Matched {
    copies: Vec<Copy>,
    fresh: Vec<String>,
    ignored: Vec<String>,
}

fn matched<'r>(
    checkpoint: &Checkpoint,
    parameters: impl Iterator<Item = &'r Resident>,
    names: &HuggingFace,
) -> Result<Matched, RunError> {
    let mut matching =
        Matching { checkpoint, names, copies: Vec::new(), fresh: Vec::new(), wrong: Mismatch::default() };
    parameters.for_each(|parameter| matching.find(parameter));
    let ignored = matching.sort_out_the_rest();
    let Matching { copies, fresh, mut wrong, .. } = matching;
    if wrong.is_empty() {
        return Ok(Matched { copies, fresh, ignored });
    }
    wrong.dir = checkpoint.dir().into();
    Err(HfError::Mismatch(Box::new(wrong)).into())
}

/// A tensor that a file holds twice is one parameter here: the second must not say something else.
fn refuse_other_copies(checkpoint: &Checkpoint, names: &HuggingFace, copies: &[Copy]) -> Result<(), RunError> {
    for (other, ours) in names.aliases.iter().filter(|(other, _)| checkpoint.has(other)) {
        let taken = copies.iter().find(|copy| copy.resident == *ours && copy.tensor != *other);
        let Some(taken) = taken else { continue };
        if !checkpoint.is_same(other, &taken.tensor)? {
            let cause =
                format!("{other} holds other numbers than {}: models that keep both are not supported", taken.tensor);
            return Err(HfError::Copies { dir: checkpoint.dir().into(), cause }.into());
        }
    }
    Ok(())
}

/// Pairs parameters with tensors and notes what does not fit.
struct Matching<'a> {
    checkpoint: &'a Checkpoint,
    names: &'a HuggingFace,
    copies: Vec<Copy>,
    fresh: Vec<String>,
    wrong: Mismatch,
}

impl Matching<'_> {
    fn find(&mut self, resident: &Resident) {
        let parts = expand(&resident.name);
        let shape = part_shape(&resident.ty.shape, parts.len());
        for (index, part) in parts.iter().enumerate() {
            let spelled = candidates(part, self.names).into_iter().find(|name| self.checkpoint.has(name));
            let found = spelled.and_then(|name| Some((self.checkpoint.info(&name)?.clone(), name)));
            match found {
                None if is_fresh(part, self.names) => self.fresh.push(part.clone()),
                None => self.wrong.missing.push(part.clone()),
                Some((info, tensor)) => match (&shape, float_of(&info.dtype)) {
                    (Some(shape), Some(from)) if is_same_shape(&info.shape, shape, part) => {
                        let bytes: usize = shape.iter().product::<usize>() * resident.ty.dtype.bytes();
                        let (resident, to) = (resident.name.clone(), resident.ty.dtype);
                        self.copies.push(Copy { tensor, from, resident, to, offset: index * bytes });
                    }
                    // A head for another number of labels.
                    (Some(_), Some(_)) if is_fresh(part, self.names) => self.fresh.push(part.clone()),
                    _ => self.wrong.misshapen.push(describe(&tensor, &info, resident, shape.as_deref())),
                },
            }
        }
    }

    /// Tensors that nobody took: names that may be ignored, returned, and strangers.
    fn sort_out_the_rest(&mut self) -> Vec<String> {
        let taken: BTreeSet<&str> = self.copies.iter().map(|c| c.tensor.as_str()).collect();
        let misshapen = |name: &str| self.wrong.misshapen.iter().any(|m| m.split(' ').next() == Some(name));
        let rest = self.checkpoint.names().filter(|name| !taken.contains(name) && !misshapen(name));
        let known = |name: &&str| {
            let is_alias = self.names.aliases.iter().any(|(other, _)| other == name);
            is_alias || is_ignored(name, self.names) || is_fresh(name, self.names)
        };
        let (ignored, unexpected): (Vec<&str>, Vec<&str>) = rest.partition(known);
        self.wrong.unexpected = unexpected.into_iter().map(String::from).collect();
        ignored.into_iter().map(String::from).collect()
    }
}

/// The shape of each of `parts` equal pieces along the first dimension.
fn part_shape(shape: &[usize], parts: usize) -> Option<Vec<usize>> {
    let (first, rest) = shape.split_first()?;
    let rows = (first % parts == 0).then_some(first / parts)?;
    Some(std::iter::once(rows).chain(rest.iter().copied()).collect())
}

/// A single number has no dimensions in a file and one in the arena.
fn is_same_shape(file: &[usize], ours: &[usize], name: &str) -> bool {
    file == ours || (file.is_empty() && ours == [1] && is_scalar(name))
}

fn describe(tensor: &str, info: &TensorInfo, resident: &Resident, shape: Option<&[usize]>) -> String {
    let ours = shape.unwrap_or(&resident.ty.shape);
    format!("{tensor} is {} {:?}, the model has {} {ours:?}", info.dtype, info.shape, resident.ty.dtype.name())
}

/// The buffers through which tensors stream.
#[derive(Default)]
struct Pieces {
    raw: Vec<u8>,
    converted: Vec<u8>,
}

impl Pieces {
    fn stream(&mut self, checkpoint: &Checkpoint, copy: &Copy, executor: &mut dyn Executor) -> Result<(), RunError> {
        let elements = checkpoint.info(&copy.tensor).map_or(0, |info| info.shape.iter().product());
        let step = PIECE_BYTES / copy.from.bytes();
        for first in (0..elements).step_by(step) {
            let count = step.min(elements - first);
            self.raw.resize(count * copy.from.bytes(), 0);
            checkpoint.read_part(&copy.tensor, (first * copy.from.bytes()) as u64, &mut self.raw)?;
            if let Some(at) = first_not_finite(copy.from, &self.raw) {
                let cause = format!("{} is not finite: element {} is no number or infinite", copy.tensor, first + at);
                return Err(HfError::NotFinite { dir: checkpoint.dir().into(), cause }.into());
            }
            let data = if copy.from == copy.to {
                &self.raw
            } else {
                self.converted.resize(count * copy.to.bytes(), 0);
                convert(copy.from, copy.to, &self.raw, &mut self.converted);
                &self.converted
            };
            let offset = copy.offset + first * copy.to.bytes();
            executor.write_resident_at(&copy.resident, offset, data)?;
        }
        Ok(())
    }
}
