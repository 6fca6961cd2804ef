//! What trackers, pages and searches see of runs: the stream of events, and the scores in it. Nothing here trains.
//!
//! ```text
//! lock, scores ◄─ events ◄─ tail
//! ```

#![deny(missing_docs)]

mod events;
mod lock;
mod scores;
mod tail;

pub use events::{
    DeviceEvent, End, Evaluation, Event, EventLog, Failed, Finished, Started, StepEvent, Timed, open_events,
    read_events, read_timed,
};
pub use lock::{LOCK, holder, open_lock, written_number};
pub use plimsoll_base::files::open_inside;
pub use plimsoll_base::units::{format_bytes, format_seconds};
pub use scores::{Best, Scores};
pub use tail::EventTail;
