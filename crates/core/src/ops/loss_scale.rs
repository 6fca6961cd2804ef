//! The scale of a loss whose gradients are f16: as large as they bear, so that small ones do not vanish.

use super::cuda::{refuse_f64, source};
use super::*;
use crate::graph::Aliases;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, Grid, Kernel};
use crate::types::Results;
use smallvec::smallvec;

/// Inputs: the norm of the scaled gradients, the scale, how many steps in a row were good since it last changed, how
/// many were taken in all; the last three are overwritten. Outputs: the norm of the gradients themselves; what scaled
/// gradients are multiplied by, clipping included; 1 − β₁ᵗ and 1 − β₂ᵗ of step t, where only steps that were taken
/// count; then scale, good and taken.
///
/// A norm that is not finite is that of gradients too large for f16. The factor is then NaN, which tells the optimizer
/// to skip the step, and the scale is halved. After [`LossScale::GROW_AFTER`] good steps it is doubled.
#[derive(Debug, Clone, PartialEq)]
pub struct LossScale {
    pub max_norm: Option<f64>,
    /// Zero for optimizers that correct nothing.
    pub betas: [f64; 2],
}

/// What an update knows of those before it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct State {
    scale: f64,
    good: f64,
    taken: f64,
}

impl LossScale {
    pub const FIRST: f64 = 65536.0;
    pub(crate) const GROW_AFTER: f64 = 2000.0;
    /// A limit, because gradients that are zero bear any scale.
    const LARGEST: f64 = (1u64 << 24) as f64;

    pub fn samples(_: &mut SampleRng) -> Vec<Sample> {
        let sample = |max_norm: Option<f64>, state: [f64; 4]| {
            let op = LossScale { max_norm, betas: [0.9, 0.999] };
            Sample::plain(op, state.map(|x| SampleInput::constant(&[1], Fill::Value(x))).into())
        };
        vec![
            sample(Some(1.0), [300.0, 128.0, 7.0, 40.0]),
            sample(Some(1.0), [30.0, 128.0, 1999.0, 0.0]),
            sample(None, [3000.0, 65536.0, 0.0, 5000.0]),
        ]
    }

    /// The state after an update with this norm, and what scaled gradients are multiplied by.
    fn next(&self, norm: f64, State { scale, good, taken }: State) -> (State, f64) {
        if !norm.is_finite() {
            return (State { scale: scale / 2.0, good: 0.0, taken }, f64::NAN);
        }
        let clip = self.max_norm.map_or(1.0, |limit| (limit / (norm / scale + 1e-6)).min(1.0));
        let grown = good + 1.0 >= LossScale::GROW_AFTER;
        let after = State {
            scale: if grown { (2.0 * scale).min(LossScale::LARGEST) } else { scale },
            good: if grown { 0.0 } else { good + 1.0 },
            taken: taken + 1.0,
        };
        (after, clip / scale)
    }
}

/// 1 − βᵗ without the cancellation of a β near 1.
fn correction(beta: f64, t: f64) -> f64 {
    -(t.max(1.0) * beta.ln()).exp_m1()
}

impl Op for LossScale {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let [norm, rest @ ..] = inputs else { return OpError::new("needs a norm and the scale's state") };
        let alike = rest.len() == 3 && rest.iter().all(|ty| ty == norm);
        match alike && norm.elements() == 1 && norm.dtype == norm.dtype.wide() {
            true => Ok(smallvec![norm.clone(); 7]),
            false => OpError::new(format!("{inputs:?} are not four f32 scalars")),
        }
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        (1..4).map(|i| Alias::must(i + 3, i)).collect()
    }
    fn class(&self) -> Class {
        Class::Update
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => {
            let [norm, scale, good, taken] = [0, 1, 2, 3].map(|i| io.scalar::<T>(i).to_f64());
            let (after, factor) = self.next(norm, State { scale, good, taken });
            let [one, two] = self.betas.map(|beta| correction(beta, after.taken));
            let all = [norm / scale, factor, one, two, after.scale, after.good, after.taken];
            for (i, value) in all.into_iter().enumerate() {
                io.output::<T>(i)[0] = T::of(value);
            }
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let limits = [Arg::U32(u32::from(self.max_norm.is_some())), Arg::F32(self.max_norm.unwrap_or(0.0) as f32)];
        let constants = [self.betas[0].ln(), self.betas[1].ln(), LossScale::GROW_AFTER, LossScale::LARGEST];
        let tensors = launch.inputs[..1].iter().chain(launch.outputs).map(Arg::from);
        let args: Vec<Arg> = tensors.chain(limits).chain(constants.map(|x| Arg::F32(x as f32))).collect();
        launch.kernel(&Kernel::new(source!("loss_scale"), "loss_scale"), Grid::new(1, 32), &args)
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{f32s, output_of, run};
    use super::*;

    const OP: LossScale = LossScale { max_norm: Some(1.0), betas: [0.9, 0.999] };
    const START: State = State { scale: LossScale::FIRST, good: 0.0, taken: 0.0 };

    #[test]
    fn the_scale_halves_at_an_overflow_and_doubles_after_many_good_steps() {
        let (mut state, good) = (START, LossScale::GROW_AFTER as usize);
        for norm in [f64::INFINITY, f64::NAN, f64::NEG_INFINITY] {
            let (after, factor) = OP.next(norm, state);
            assert!(factor.is_nan() && after == State { scale: state.scale / 2.0, ..START }, "{after:?}");
            state = after;
        }
        assert_eq!(state.scale, LossScale::FIRST / 8.0);
        for step in 1..=2 * good {
            state = OP.next(4.0, state).0;
            let doubled = (step / good) as i32;
            assert_eq!((state.scale, state.taken), (LossScale::FIRST / 8.0 * 2f64.powi(doubled), step as f64));
        }
        // A bad step starts the count anew.
        state = OP.next(4.0, state).0;
        assert_eq!(state.good, 1.0);
        state = OP.next(f64::INFINITY, state).0;
        assert_eq!((state.good, state.taken), (0.0, 2.0 * LossScale::GROW_AFTER + 1.0));
        let largest = State { scale: LossScale::LARGEST, good: LossScale::GROW_AFTER - 1.0, ..START };
        assert_eq!(OP.next(0.0, largest).0.scale, LossScale::LARGEST);
    }

    #[test]
    fn the_factor_takes_the_scale_back_and_clips_the_true_norm() {
        let state = State { scale: 1024.0, ..START };
        assert_eq!(OP.next(512.0, state).1, 1.0 / 1024.0, "a true norm of one half is not clipped");
        let clipped = OP.next(4096.0, state).1 * 4096.0;
        assert!((clipped - 1.0).abs() < 1e-6, "a true norm of 4 becomes {clipped}");
        let unlimited = LossScale { max_norm: None, ..OP };
        assert_eq!(unlimited.next(4096.0, state).1, 1.0 / 1024.0);
    }

    #[test]
    fn corrections_are_exact_near_one() {
        for t in [1.0, 2.0, 7.0, 1000.0, 100_000.0] {
            for beta in [0.0, 0.9, 0.999, 0.9999] {
                let plain: f64 = 1.0 - f64::powf(beta, t);
                assert!((correction(beta, t) / plain - 1.0).abs() < 1e-9, "{beta} {t}");
            }
        }
    }

    #[test]
    fn corrections_count_only_steps_that_were_taken() {
        let given = |norm: f32| [norm, 1024.0, 5.0, 2.0].map(|x| f32s(&[1], &[x]));
        for (norm, taken) in [(2048.0, 3.0), (f32::NAN, 2.0)] {
            for (index, beta) in OP.betas.into_iter().enumerate() {
                let found = output_of(&OP, &given(norm), 2 + index);
                assert_eq!(found, [correction(beta, taken) as f32], "{beta} after a norm of {norm}");
            }
        }
        assert_eq!(run(&OP, &given(2048.0)), [2.0], "the norm of the gradients themselves");
        assert!(run(&OP, &given(f32::NAN))[0].is_nan());
    }
}
