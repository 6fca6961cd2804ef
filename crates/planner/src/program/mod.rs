//! The program of a run as graphs: the phases of a step, evaluation, and what writes text.

pub mod contrastive;
pub mod generation;
pub mod scaling;
mod step;
mod update;

pub use step::{
    EVALUATE, MICRO_STEP, NEXT_TOKEN, STEP, Settings, StepSpec, UPDATE, UpdateRule, accumulate, add_metric,
    apply_offload, apply_recompute, evaluate, micro_step, next_token, other_phases, phase, program, step,
    training_phases, update_phase,
};
