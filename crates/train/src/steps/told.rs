//! What a step is told by the host: residents of one program, found when the program is, not when they are written. So
//! a name that only one side knows ends a run before its first step instead of training with a zero.

use bytemuck::{bytes_of, cast_slice};
use plimsoll_core::graph::Component;
use plimsoll_core::plan::{LANDING, PlanError, Program};
use plimsoll_exec::{ExecError, Executor};
use plimsoll_models::recipe::Rule;

/// Sums over micro-batches, which start at zero.
const METRICS: [&str; 3] = ["metrics.loss", "metrics.correct", "metrics.norm"];

/// (seed, step, first sample): where dropout and stochastic rounding take their chance from.
const RNG: &str = "rng";

/// A number that changes from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scalar {
    LearningRate,
    /// 1 / what the mean of the loss is taken over.
    LossScale,
    /// Adam's 1 − βᵗ.
    Correction(usize),
    /// The step's number, from 1.
    Step,
}

const SCALARS: [(&str, Scalar); 5] = [
    ("lr", Scalar::LearningRate),
    ("loss.scale", Scalar::LossScale),
    ("adam.correction1", Scalar::Correction(0)),
    ("adam.correction2", Scalar::Correction(1)),
    ("adafactor.step", Scalar::Step),
];

/// One update, as far as scalars depend on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Update {
    /// From 0.
    pub step: usize,
    pub lr: f64,
    /// What the mean of the loss is taken over.
    pub counted: f64,
    pub rule: Rule,
}

impl Scalar {
    fn value(self, update: &Update) -> f64 {
        let t = update.step as i32 + 1;
        match self {
            Scalar::LearningRate => update.lr,
            Scalar::LossScale => 1.0 / update.counted,
            Scalar::Step => t.into(),
            Scalar::Correction(which) => match update.rule {
                Rule::AdamW { betas, .. } => 1.0 - betas[which].powi(t),
                _ => 1.0,
            },
        }
    }
}

/// The residents of one program that a step writes.
#[derive(Debug, PartialEq)]
pub(super) struct Told {
    scalars: Vec<(&'static str, Scalar)>,
    metrics: Metrics,
    has_rng: bool,
}

impl Told {
    /// An error if the program reads something that no step writes.
    pub(super) fn of(program: &Program) -> Result<Told, PlanError> {
        let mut told = Told { scalars: Vec::new(), metrics: Metrics::of(program), has_rng: false };
        // What only evaluation and generation read is theirs to write.
        let is_read =
            |name: &str| program.phases.iter().any(|phase| phase.repeat > 0 && phase.graph.find(name).is_some());
        let inputs = program.residents.iter().filter(|r| r.component == Component::Inputs && r.name != LANDING);
        for resident in inputs.filter(|resident| is_read(&resident.name)) {
            match SCALARS.iter().find(|(name, _)| *name == resident.name) {
                Some(&scalar) => told.scalars.push(scalar),
                None if resident.name == RNG => told.has_rng = true,
                None if METRICS.contains(&resident.name.as_str()) => {}
                None => return Err(PlanError::Broken(format!("no step writes {}, which it reads", resident.name))),
            }
        }
        Ok(told)
    }

    /// What an update is told before its first micro-batch.
    pub(super) fn write(&self, executor: &mut dyn Executor, update: &Update) -> Result<(), ExecError> {
        for (name, scalar) in &self.scalars {
            executor.write_resident(name, bytes_of(&(scalar.value(update) as f32)))?;
        }
        self.metrics.clear(executor)
    }

    /// What a micro-batch is told.
    pub(super) fn write_rng(&self, executor: &mut dyn Executor, words: [i64; 3]) -> Result<(), ExecError> {
        if self.has_rng { executor.write_resident(RNG, cast_slice(&words)) } else { Ok(()) }
    }
}

/// The sums that a program has.
#[derive(Debug, PartialEq)]
pub(super) struct Metrics(Vec<&'static str>);

impl Metrics {
    pub(super) fn of(program: &Program) -> Metrics {
        let has = |name: &&str| program.residents.iter().any(|resident| resident.name == *name);
        Metrics(METRICS.into_iter().filter(has).collect())
    }

    pub(super) fn clear(&self, executor: &mut dyn Executor) -> Result<(), ExecError> {
        self.0.iter().try_for_each(|name| executor.write_resident(name, bytes_of(&0f32)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::graph::Graph;
    use plimsoll_core::plan::Phase;
    use plimsoll_core::types::DType;

    fn program(scalars: &[&str]) -> Program {
        let mut graph = Graph::new("step", DType::F32);
        for name in scalars {
            graph.scalar(name).unwrap();
        }
        Program::new(vec![Phase { name: "step".into(), graph, repeat: 1 }]).unwrap()
    }

    #[test]
    fn a_scalar_that_no_step_writes_ends_the_run_before_it_starts() {
        assert!(Told::of(&program(&["lr", "loss.scale", "metrics.loss"])).is_ok());
        let error = Told::of(&program(&["lr", "adam.corection1"])).unwrap_err();
        assert!(error.to_string().contains("no step writes adam.corection1"), "{error}");
    }

    #[test]
    fn a_program_is_told_what_it_has_and_nothing_else() {
        let told = Told::of(&program(&["adafactor.step", "metrics.loss", "lr"])).unwrap();
        let mut names: Vec<&str> = told.scalars.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        assert_eq!(
            (names, told.metrics, told.has_rng),
            (vec!["adafactor.step", "lr"], Metrics(vec!["metrics.loss"]), false)
        );
    }
}
