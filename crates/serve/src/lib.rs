//! The page and the API of plimsoll: plans while sliders move, trainings started, followed and compared.
//!
//! ```text
//! browser ─► server (connections, limits) ─► guard (host, origin, token) ─► api ─► planning │ folders │ jobs
//! ```
//!
//! glance, limits, problem ◄─ settings ◄─ options ◄─ assets ◄─ folders ◄─ planning ◄─ jobs ◄─ gate ◄─ state ◄─ guard ◄─ api ◄─ connection ◄─ server
//!
//! Nothing here trains: a training is a child process of the same binary in a process group of its own, its folder is
//! all that is known about it, and a server that dies and comes back finds it by the lock in there.

mod api;
mod assets;
mod connection;
mod folders;
mod gate;
mod glance;
mod guard;
mod jobs;
mod limits;
mod options;
mod planning;
mod problem;
mod server;
mod settings;
mod state;

pub use api::openapi;
pub use jobs::Other;
pub use limits::raise_file_limit;
pub use options::{Limits, Options, Token, UnfitToken};
pub use server::{ServeError, Server};
