//! What is told about a run to others: trackers (MLflow, TensorBoard), scrapers (OpenMetrics) and people (notifications).
//!
//! ```text
//! events.jsonl ─► tail ─► follow ─► a sink each: mlflow | tensorboard | a notification's URL
//!    (the queue, on disk)      └─ cursor: how far it has come, kept in the run's folder
//! ```
//!
//! A run writes its events and knows nothing of this. A follower, a process of its own, reads them behind it: it cannot
//! slow or stop a step, what it could not deliver is still on disk, and the next follower goes on where it was.
//!
//! ```text
//! base64, cursor, environment, error, facts, metrics, planned, sink, tail ◄─ http, openmetrics, tensorboard ◄─ notify
//!   ◄─ settings ◄─ mlflow ◄─ follow
//! ```

mod base64;
mod cursor;
mod environment;
mod error;
mod facts;
mod follow;
mod http;
mod metrics;
mod mlflow;
mod notify;
mod openmetrics;
mod planned;
mod settings;
mod sink;
mod tail;
mod tensorboard;

pub use environment::Environment;
pub use error::TrackError;
pub use facts::{RunFacts, RunState};
pub use follow::{Delivery, FollowOptions, Watch, deliveries, follow};
pub use metrics::{Metric, metrics_of};
pub use mlflow::{Client as MlflowClient, Params, Status as MlflowStatus};
pub use notify::{Notify, Occasion, Outcome as NotifyOutcome, ProgressEvery, Target, test as test_notifications};
pub use openmetrics::{Exposed, OPENMETRICS_TYPE, openmetrics};
pub use planned::planned_components;
pub use settings::{Mlflow, Settings};
