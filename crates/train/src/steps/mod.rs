//! Steps on an executor: batches into inputs, phases for their lengths, updates, evaluation.

mod evaluate;
mod feed;
mod schedule;
mod shapes;
mod stepper;
mod told;

pub(crate) use evaluate::evaluation_options;
pub use evaluate::{Judgement, evaluate, kept};
pub use feed::Feeder;
pub use schedule::learning_rate;
pub(crate) use shapes::MOST_NODES;
pub use shapes::{Pass, Shapes, shapes};
pub use stepper::{Stepped, Stepper, Underway, phase};
