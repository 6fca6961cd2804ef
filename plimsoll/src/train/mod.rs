//! Training: the program of a step, the choice of a plan, and the loop that runs it.

mod choose;
mod step;

pub use choose::{Choice, ChooseError, Decision, Pins, choose};
pub use step::{EVALUATE, MICRO_STEP, NEXT_TOKEN, STEP, Settings, StepSpec, UPDATE, UpdateRule, program};
