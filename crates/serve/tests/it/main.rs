//! The server over real connections: what it answers, and whom it does not let in.

mod attacks;
mod desk;
mod following;
mod limits;
mod planning;
mod sharing;
mod texts;
mod tokens;
