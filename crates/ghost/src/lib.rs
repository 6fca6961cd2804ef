//! Runs a PyTorch program, unchanged, on a card that is not there, and says what it would take there. PyTorch's own
//! host code and its own caching allocator decide; the stand-in for CUDA (`plimsoll-ghost-cuda`) only counts.
//!
//! ```text
//! card, elf, notes, pickle, python ◄─ settings, stand_in ◄─ allocator, launch, snapshot ◄─ earlier ◄─ account
//!   ◄─ report ◄─ run, text ◄─ doctor, fit, replay
//! ```

pub mod account;
pub mod allocator;
pub mod card;
pub mod doctor;
mod earlier;
pub mod elf;
pub mod fit;
pub mod launch;
pub mod notes;
pub mod pickle;
pub mod python;
pub mod replay;
pub mod report;
pub mod run;
pub mod settings;
pub mod snapshot;
pub mod stand_in;
pub mod text;
