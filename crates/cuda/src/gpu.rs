//! An open device: its context, its stream, and what has been made ready for it. Executors share it.

use super::blas::Blas;
use super::compile::{Compiler, cache_folder};
use super::driver::{Context, Stream};
use super::modules::Modules;
use super::opened;
use crate::{gpu_free_bytes, own_gpu_bytes};
use plimsoll_core::kernels::cuda::{CudaError, Kernel};
use plimsoll_exec::Algorithms;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

/// It stays on the thread that opened it, as its context does. Fields are dropped in this order, the context last.
pub struct Gpu {
    pub(super) stream: Stream,
    pub(super) modules: RefCell<Modules>,
    pub(super) blas: RefCell<Blas>,
    ordinal: usize,
    opening: Opening,
    /// What all had taken when it was last looked at, and this process's part of it.
    looked: Cell<Option<(u64, u64)>>,
    context: Context,
}

/// What a device was like when this process first opened it: the driver keeps what it took then, whoever closes it.
#[derive(Clone, Copy)]
struct Opening {
    /// Free bytes before anything was taken.
    free_before: u64,
    taken_bytes: u64,
}

static OPENINGS: Mutex<BTreeMap<usize, Opening>> = Mutex::new(BTreeMap::new());

fn opening(ordinal: usize) -> Option<Opening> {
    OPENINGS.lock().unwrap_or_else(PoisonError::into_inner).get(&ordinal).copied()
}

/// What opening a device took of its memory in this process; nothing if it did not open it.
pub fn opened_bytes(ordinal: usize) -> u64 {
    opening(ordinal).map_or(0, |opening| opening.taken_bytes)
}

/// The driver's own count of a process is a few MiB off the device's: only more than this is somebody else's doing.
const OTHERS_BYTES: u64 = 64 << 20;

/// Of what is taken by all since some moment, the part of this process, whose memory the driver says is `own`.
fn own_part(by_all: u64, own: Option<u64>) -> u64 {
    own.filter(|own| own.abs_diff(by_all) > OTHERS_BYTES).unwrap_or(by_all)
}

impl Gpu {
    /// Opens a device; `ordinal` as the driver counts them.
    pub fn open(ordinal: usize) -> Result<Rc<Gpu>, CudaError> {
        let earlier = opening(ordinal);
        let free = earlier.map(|earlier| earlier.free_before).or_else(|| gpu_free_bytes(ordinal));
        let context = Context::open(ordinal)?;
        let free_before = free.map_or_else(|| context.memory().map(|(free, _)| free), Ok)?;
        let mut gpu = Gpu {
            stream: Stream::new()?,
            modules: RefCell::new(Modules::new(Compiler::new(context.arch, cache_folder())?)),
            blas: RefCell::new(Blas::new(&context.name, cache_folder())?),
            ordinal,
            opening: earlier.unwrap_or(Opening { free_before, taken_bytes: 0 }),
            looked: Cell::new(None),
            context,
        };
        if earlier.is_none() {
            gpu.opening.taken_bytes = opened::plausible(&gpu.context.name, gpu.used_bytes()?);
            opened::remember(&gpu.context.name, gpu.opening.taken_bytes);
            OPENINGS.lock().unwrap_or_else(PoisonError::into_inner).insert(ordinal, gpu.opening);
        }
        Ok(Rc::new(gpu))
    }

    /// What opening it took.
    pub(crate) fn opened_bytes(&self) -> u64 {
        self.opening.taken_bytes
    }

    /// Bytes of the device that this process has taken: what is taken since before it opened the device, unless others
    /// took or gave back some meanwhile.
    pub fn used_bytes(&self) -> Result<u64, CudaError> {
        let (free, _) = self.context.memory()?;
        let by_all = self.opening.free_before.saturating_sub(free);
        let used = match self.looked.get() {
            Some((before, used)) if before == by_all => used,
            _ => own_part(by_all, own_gpu_bytes(self.ordinal)),
        };
        self.looked.set(Some((by_all, used)));
        Ok(used)
    }

    /// Compiles and loads kernels ahead of their use, on all cores.
    pub fn load(&self, kernels: &[Kernel]) -> Result<(), CudaError> {
        self.modules.borrow_mut().load(kernels)
    }

    /// Goes on with the algorithms of an earlier run.
    pub fn adopt(&self, products: &Algorithms) {
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

#[cfg(test)]
mod tests {
    use super::own_part;

    #[test]
    fn what_others_take_meanwhile_is_not_ours() {
        let mib = |n: u64| n << 20;
        assert_eq!(own_part(mib(560), Some(mib(563))), mib(560), "alone: what the device says, to the byte");
        assert_eq!(own_part(mib(2660), Some(mib(1170))), mib(1170), "another opened the device in the same moment");
        assert_eq!(own_part(0, Some(mib(1170))), mib(1170), "another ended");
        assert_eq!(own_part(mib(2660), None), mib(2660), "the driver does not tell");
    }
}
