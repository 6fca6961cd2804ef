//! A stand-in for CUDA and its libraries, loaded in front of PyTorch: kernels are not launched, products are not
//! computed, device memory is a counter with a limit. What PyTorch's own host code decides (which kernels, which
//! workspaces, what its caching allocator asks for) happens as on the card that the settings describe.
//!
//! Only functions that must answer something are here. Those that may simply say yes are written into a small library
//! at run time, from what the installed PyTorch asks for (`plimsoll-ghost`, `shim.rs`), which also counts their calls.
//!
//! ```text
//! answer, card, lookup, places ◄─ handles, memory ◄─ blas, copies, dnn, nvrtc ◄─ probe, runtime
//!   ◄─ driver, fft, nccl, solvers
//! ```

// Every exported function has the C signature that its callers were compiled against; the contract of its pointers is
// NVIDIA's documentation, not something that could be said better here.
#![allow(clippy::missing_safety_doc)]

mod answer;
pub mod blas;
mod card;
mod copies;
pub mod dnn;
pub mod driver;
pub mod fft;
mod handles;
mod lookup;
mod memory;
pub mod nccl;
pub mod nvrtc;
mod places;
pub mod probe;
pub mod runtime;
pub mod solvers;
