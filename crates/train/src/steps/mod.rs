//! Steps on an executor: batches into inputs, phases for their lengths, updates, evaluation.

mod evaluate;
mod feed;
mod schedule;
mod shapes;
mod stepper;
mod told;

pub use evaluate::Judgement;
pub(crate) use evaluate::{evaluate, evaluation_options, kept};
pub use feed::Feeder;
pub(crate) use schedule::learning_rate;
pub(crate) use shapes::MOST_NODES;
pub use shapes::{Pass, Shapes, shapes};
pub(crate) use stepper::phase;
pub use stepper::{Stepped, Stepper, Underway};
