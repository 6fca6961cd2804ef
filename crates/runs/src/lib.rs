//! What trackers, pages and searches see of runs: the stream of events, and the scores in it. Nothing here trains.

mod events;
mod scores;
mod tail;

pub use events::{End, Evaluation, Event, EventLog, Finished, Started, StepEvent, read_events};
pub use scores::{Best, Scores};
pub use tail::EventTail;
