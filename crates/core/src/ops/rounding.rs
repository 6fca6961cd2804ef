//! Stochastic rounding: a number between two neighbours in bf16 becomes either of them, each as often as it is near it.
//! What is too small for one step then still adds up over many. Rounded to nearest, a weight whose update is below half
//! a step of bf16 would stand still, and so would a second moment.
//!
//! Kernels compute in f32, so f32 is stored as it is, and the CPU, which has no bf16, rounds nothing.

use super::*;
use crate::kernels::cuda::{Arg, DeviceTensor, Kernel};
use crate::types::DType;
use plimsoll_base::random;

/// Where the chance comes from. The bits for an element are a function of (seed, step, first sample, site, tensor,
/// element), of which the first three are the op's last input, `rng` i64[3]: a resumed run rounds as the first did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rounding {
    /// The hash of the node's path.
    pub site: u64,
    /// The index of the first element, where the op sees a stretch of a tensor only; a multiple of eight.
    pub first: usize,
}

/// Elements that share one draw of the generator.
const GROUP: usize = 8;

impl Rounding {
    /// For the node at `path`, which overwrites elements of these types; none if none of them is bf16.
    pub fn of(path: &str, written: &[DType]) -> Option<Rounding> {
        written.contains(&DType::Bf16).then(|| Rounding { site: random::site(path), first: 0 })
    }

    /// The same for a stretch that begins at element `first`.
    pub fn starting_at(self, first: usize) -> Rounding {
        Rounding { first, ..self }
    }

    /// `more` is what an op reads beside its other inputs: `rng` if it rounds, else nothing.
    pub(super) fn check(rounding: Option<Rounding>, more: &[Type]) -> Result<(), OpError> {
        match (rounding, more) {
            (None, []) => Ok(()),
            (Some(r), _) if !r.first.is_multiple_of(GROUP) => {
                OpError::new(format!("a stretch begins at element {}, which is no multiple of {GROUP}", r.first))
            }
            (Some(_), [rng]) if rng.dtype == DType::I64 && rng.shape[..] == [3] => Ok(()),
            _ => {
                OpError::new("needs (seed, step, first sample) as i64[3] if it rounds stochastically, and nothing else")
            }
        }
    }

    /// `ROUNDED`, as rounding.cuh has it.
    pub(super) fn define(rounding: Option<Rounding>, kernel: Kernel) -> Kernel {
        kernel.define("ROUNDED", u32::from(rounding.is_some()))
    }

    /// What a set of a sweep has of its own, and the argument `ROUNDING_OF_SETS` of all of them.
    pub(super) fn in_sweep(rounding: Option<Rounding>, rng: Option<&DeviceTensor>) -> (Vec<u64>, Arg) {
        let words = rounding.map_or(Vec::new(), |Rounding { site, first }| vec![site, first as u64]);
        (words, rng.map_or(Arg::Address(0), Arg::from))
    }

    /// The arguments `ROUNDING` of a kernel. `rng` is not read if nothing is rounded.
    pub(super) fn args(rounding: Option<Rounding>, rng: Option<&DeviceTensor>) -> [Arg; 3] {
        let Rounding { site, first } = rounding.unwrap_or(Rounding { site: 0, first: 0 });
        [rng.map_or(Arg::Address(0), Arg::from), Arg::U64(site), first.into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_wants_rng_where_bf16_is_written_and_only_there() {
        let rng = Type::new(DType::I64, &[3]);
        let rounding = Rounding::of("w.update", &[DType::Bf16, DType::F32]);
        assert!(rounding.is_some() && Rounding::of("w.update", &[DType::F32, DType::F16]).is_none());
        assert!(Rounding::check(rounding, std::slice::from_ref(&rng)).is_ok());
        assert!(Rounding::check(rounding, &[]).is_err());
        assert!(Rounding::check(None, &[]).is_ok());
        assert!(Rounding::check(None, std::slice::from_ref(&rng)).is_err());
        let stretch = |first| Rounding::check(rounding.map(|r| r.starting_at(first)), std::slice::from_ref(&rng));
        assert!(stretch(16).is_ok() && stretch(12).is_err());
    }
}
