//! The one allocation of a run, on whichever device its plan is for.

use crate::RunError;
use plimsoll_base::batching::Buckets;
use plimsoll_core::graph::Backend;
use plimsoll_core::kernels::cuda::CudaError;
use plimsoll_cuda::{CudaExecutor, CudaOptions, Gpu};
use plimsoll_exec::cpu::CpuExecutor;
use plimsoll_exec::{Algorithms, Executor};
use plimsoll_models::recipe::{Choice as Pin, Precision, Recipe};
use plimsoll_planner::choose::{Choice, Planned, precision};
use std::io;

/// One allocation for everything that the plan holds, and one beside it for what is offloaded.
pub(crate) fn take_arena(recipe: &Recipe, planned: &Planned) -> Result<Box<dyn Executor>, RunError> {
    take_arena_with(recipe, planned, &Algorithms::default(), planned.reserve_bytes)
}

/// The same beside others of this process: what these take must not count against its graphs.
pub(crate) fn take_arena_beside_others(recipe: &Recipe, planned: &Planned) -> Result<Box<dyn Executor>, RunError> {
    take_arena_with(recipe, planned, &Algorithms::default(), u64::MAX)
}

/// With the products' algorithms of an earlier run, and graphs as long as `reserve_bytes` beside the arena hold them.
pub(crate) fn take_arena_with(
    recipe: &Recipe,
    planned: &Planned,
    products: &Algorithms,
    reserve_bytes: u64,
) -> Result<Box<dyn Executor>, RunError> {
    let Choice { program, layout, options, .. } = &planned.choice;
    let bytes = layout.arena_bytes.saturating_add(layout.host_bytes) as u64;
    let taken = |cause: io::Error| RunError::Arena { bytes, cause };
    match options.target.backend {
        Backend::Cpu => Ok(Box::new(CpuExecutor::new(program, layout, options.target.threads).map_err(taken)?)),
        Backend::Cuda => {
            let options = CudaOptions {
                graphs: recipe.memory.cuda_graphs == Pin::Auto,
                tf32: precision(recipe, &planned.device) == Precision::Tf32,
                reserve_bytes,
                has_lengths: recipe.data.batching().buckets != Buckets::Off,
            };
            let take = || {
                let gpu = Gpu::open(planned.device.ordinal)?;
                gpu.adopt(products);
                CudaExecutor::new(gpu, program, layout, options)
            };
            Ok(Box::new(take().map_err(|error| match error {
                CudaError::OutOfMemory { .. } | CudaError::Full { .. } => {
                    taken(io::Error::new(io::ErrorKind::OutOfMemory, error))
                }
                error => error.into(),
            })?))
        }
    }
}
