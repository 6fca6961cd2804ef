//! The program of a run as graphs: the phases of a step, evaluation, and what writes text.

pub mod contrastive;
pub mod generation;
pub mod scaling;
mod step;
mod update;

pub use step::{
    EVALUATE, MICRO_STEP, NEXT_TOKEN, STEP, Settings, StepSpec, UPDATE, UpdateRule, accumulate, evaluate, micro_step,
    phase, program, step,
};
pub(crate) use step::{evaluation_phase, program_around, recomputed, training_phases, update_phase, writing_phases};
