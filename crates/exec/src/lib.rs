//! Executors: what runs a plan. A trainer sees only this trait; which device is behind it is the plan's business.
//!
//! ```text
//! algorithms, error, fill ◄─ executor ◄─ cpu, initial, null ◄─ host
//! ```

mod algorithms;
pub mod cpu;
mod error;
mod executor;
mod fill;
pub mod host;
mod initial;
mod null;

pub use algorithms::{Algorithm, Algorithms};
pub use error::{DeviceFailure, ExecError};
pub use executor::{Asked, Executor, Scalars, floats};
pub use fill::{Fill, copy_of, fill_in_pieces};
pub use initial::{initialize, initialize_some};
pub use null::NullExecutor;
