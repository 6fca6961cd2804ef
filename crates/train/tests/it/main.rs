//! The library as a whole, in one binary: what needs a process of its own (a counting allocator, a death on purpose) stands
//! beside it, and so do the comparisons with PyTorch.

#[path = "../common/mod.rs"]
mod common;

mod accumulation;
mod any_length;
mod conformance;
mod contrastive;
mod fuzz_checkpoint;
mod fuzz_hf;
mod fuzz_plan;
mod fuzz_recipe;
mod generation_mu_sota;
mod generation_t5;
mod hf_checkpoint;
mod hf_families;
mod lengths;
mod op_goldens;
mod optimal;
mod precision;
mod recipe_errors;
mod recipe_round_trip;
mod recipe_shipped;
mod search;
