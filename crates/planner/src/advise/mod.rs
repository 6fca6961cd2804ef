//! Advice for a training that stays in PyTorch: what an out-of-memory message says and what to do about it, and the
//! settings under which a recipe fits there.
//!
//! ```text
//! text ─► oom (what it says) + log (where it died, what came before) ─► cause ─► what to do, in order
//! recipe ─► torch (what PyTorch keeps) ─► settings; with a message beside it ─► tensor (what the request was)
//! ```

mod cause;
mod log;
mod oom;
mod reading;
mod remedies;
mod scan;
mod settings;
mod tensor;
mod torch;

pub use cause::{Cause, CauseKind, Likely};
pub use log::{Log, Progress, Stage};
pub use oom::{Form, Oom, Process};
pub use reading::Reading;
pub use remedies::{Remedy, Verdict, remedies};
pub use scan::Amount;
pub use settings::{Advice, Setting, WayOut, advise};
pub use tensor::Candidate;
pub use torch::{Attention, Need, Optimizer, Torch, TorchSetup};
