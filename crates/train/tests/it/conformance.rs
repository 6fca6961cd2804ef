//! What every op of the registry has to keep: its gradient agrees with finite differences in f64, f32 agrees with
//! f64, and a shared, poisoned arena gives the bits of an unshared one. Sizes come from a printed seed; `PLIMSOLL_TEST_SEED=n` draws others.

use crate::common::case::{Built, Case, Outcome, cases};
use crate::common::{Run, relative};
use plimsoll_core::ops::SampleRng;
use plimsoll_core::types::DType;

fn run(case: &Case, float: DType, values: &[Vec<f64>], differentiate: bool, sharing: bool) -> Outcome {
    let built = case.build(float, differentiate).unwrap();
    let mut run = Run::new(built.graph.clone(), sharing);
    outcome(case, &built, &mut run, values)
}

/// One run with these inputs, of as many as are asked for.
fn outcome(case: &Case, built: &Built, run: &mut Run, values: &[Vec<f64>]) -> Outcome {
    case.inputs(values).iter().for_each(|(name, values)| run.write(name, values));
    run.run();
    built.outcome(|name| run.read(name))
}

/// Three draws of every op's samples.
fn all() -> Vec<(&'static str, Case)> {
    cases(crate::common::seed_or(1), 3)
}

/// So many elements of each input are nudged one by one, and all of them together in as many directions.
const NUDGES: usize = 2;

/// Where an input with `n` elements is nudged to: single elements, and directions in which every one of them moves.
fn directions(n: usize, seed: u64) -> Vec<Vec<f64>> {
    let single = |at: usize| (0..n).map(|i| f64::from(u8::from(i == at))).collect();
    let mut random = SampleRng::new(seed);
    let drawn = move |_| {
        let drawn: Vec<f64> = (0..n).map(|_| random.normal()).collect();
        let length = drawn.iter().map(|x| x * x).sum::<f64>().sqrt();
        drawn.iter().map(|x| x / length).collect()
    };
    let singles = (0..n).step_by(n.div_ceil(NUDGES).max(1)).map(single);
    singles.chain((0..NUDGES).map(drawn)).collect()
}

#[test]
fn gradients_agree_with_finite_differences() {
    for (name, case) in all().iter().filter(|(_, c)| c.is_differentiable()) {
        let exact = run(case, DType::F64, &case.values, true, false);
        let forward = case.build(DType::F64, false).unwrap();
        let mut arena = Run::new(forward.graph.clone(), false);
        for (index, input) in case.sample.inputs.iter().enumerate().filter(|(_, input)| input.checked) {
            let grad = exact.grads[index].as_ref().unwrap_or_else(|| panic!("{name}: no gradient for input {index}"));
            let (mut numeric, mut analytic) = (Vec::new(), Vec::new());
            for direction in directions(input.ty.elements(), index as u64) {
                let mut nudge = |by: f64| {
                    let mut values = case.values.clone();
                    values[index].iter_mut().zip(&direction).for_each(|(value, along)| *value += by * along);
                    outcome(case, &forward, &mut arena, &values).loss
                };
                // Fourth order: the error is about 1e-12 in f64.
                let h = 1e-3;
                let slope = (8.0 * (nudge(h) - nudge(-h)) - (nudge(2.0 * h) - nudge(-2.0 * h))) / (12.0 * h);
                numeric.push(slope);
                analytic.push(grad.iter().zip(&direction).map(|(slope, along)| slope * along).sum());
            }
            let error = relative(&analytic, &numeric, 1e-3);
            assert!(
                error < 1e-7,
                "{name} {:?}: input {index} off by {error:e}\n{analytic:?}\n{numeric:?}",
                case.sample
            );
        }
    }
}

#[test]
fn f32_agrees_with_f64() {
    for (name, case) in all() {
        let differentiable = case.is_differentiable();
        // Both start from the same f32 values.
        let values: Vec<Vec<f64>> = case.values.iter().map(|v| v.iter().map(|&x| x as f32 as f64).collect()).collect();
        let exact = run(&case, DType::F64, &values, differentiable, false);
        let single = run(&case, DType::F32, &values, differentiable, false);
        for (a, b) in single.outputs.iter().zip(&exact.outputs) {
            let error = relative(a, b, 1e-2);
            // A few hundred roundings of 6e-8 each.
            assert!(error < 3e-5, "{name} {:?}: output off by {error:e}", case.sample);
        }
        // A gradient that cancels to almost nothing is as exact as its terms, not as its sum: errors are measured
        // against the gradient of the whole sample.
        let whole = exact.grads.iter().flatten().flatten().map(|x| x * x).sum::<f64>().sqrt();
        for (a, b) in single.grads.iter().zip(&exact.grads).filter_map(|(a, b)| Some((a.as_ref()?, b.as_ref()?))) {
            let error = relative(a, b, (0.1 * whole).max(1e-2));
            assert!(error < 3e-5, "{name} {:?}: gradient off by {error:e}", case.sample);
        }
    }
}

#[test]
fn sharing_memory_changes_no_bit() {
    for (name, case) in all() {
        let differentiable = case.is_differentiable();
        let shared = run(&case, DType::F32, &case.values, differentiable, true);
        let alone = run(&case, DType::F32, &case.values, differentiable, false);
        let bits = |o: &Outcome| {
            let all = o.outputs.iter().chain(o.grads.iter().flatten()).flatten().copied().chain([o.loss]);
            all.map(f64::to_bits).collect::<Vec<_>>()
        };
        assert_eq!(bits(&shared), bits(&alone), "{name} {:?}", case.sample);
    }
}
