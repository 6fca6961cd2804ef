//! An open device: its context, its stream, and what has been made ready for it. Executors share it.

use super::blas::{Blas, Products};
use super::compile::{Compiler, cache_folder};
use super::driver::{Context, Stream};
use super::modules::Modules;
use super::{CudaError, Kernel};
use crate::exec::devices::gpu_free_bytes;
use std::cell::RefCell;
use std::rc::Rc;

/// It stays on the thread that opened it, as its context does. Fields are dropped in this order, the context last.
pub struct Gpu {
    pub(super) stream: Stream,
    pub(super) modules: RefCell<Modules>,
    pub(super) blas: RefCell<Blas>,
    /// Free bytes before anything was taken.
    free_before: u64,
    context: Context,
}

impl Gpu {
    /// Opens a device; `ordinal` as the driver counts them.
    pub fn open(ordinal: usize) -> Result<Rc<Gpu>, CudaError> {
        let free = gpu_free_bytes(ordinal);
        let context = Context::open(ordinal)?;
        let free_before = free.map_or_else(|| context.memory().map(|(free, _)| free), Ok)?;
        Ok(Rc::new(Gpu {
            stream: Stream::new()?,
            modules: RefCell::new(Modules::new(Compiler::new(context.arch, cache_folder())?)),
            blas: RefCell::new(Blas::new(&context.name, cache_folder())?),
            free_before,
            context,
        }))
    }

    /// Bytes of the device that are taken since before it was opened.
    pub fn used_bytes(&self) -> Result<u64, CudaError> {
        let (free, _) = self.context.memory()?;
        Ok(self.free_before.saturating_sub(free))
    }

    /// Compiles and loads kernels ahead of their use, on all cores.
    pub fn load(&self, kernels: &[Kernel]) -> Result<(), CudaError> {
        self.modules.borrow_mut().load(kernels)
    }

    /// Goes on with the algorithms of an earlier run.
    pub fn adopt(&self, products: &Products) {
        self.blas.borrow_mut().adopt(products);
    }

    /// Its compute capability: 90 is 9.0.
    pub fn arch(&self) -> u32 {
        self.context.arch
    }

    pub fn free_bytes(&self) -> Result<u64, CudaError> {
        Ok(self.context.memory()?.0)
    }
}
