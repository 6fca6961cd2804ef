//! Kernels that are loaded on the device, compiled when they are first needed.

use super::compile::Compiler;
use super::driver::check;
use cudarc::driver::sys;
use plimsoll_core::kernels::cuda::{CudaError, Kernel, Source};
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Dynamic shared memory that needs no permission.
const PLAIN_SHARED_BYTES: u32 = 48 << 10;

/// One file under one set of macros.
type ModuleKey = (Source, Vec<(&'static str, String)>);

pub(super) struct Modules {
    compiler: Compiler,
    modules: HashMap<ModuleKey, sys::CUmodule>,
    functions: HashMap<Kernel, Function>,
}

#[derive(Clone, Copy)]
struct Function {
    handle: sys::CUfunction,
    allowed_shared_bytes: u32,
}

fn key(kernel: &Kernel) -> ModuleKey {
    (kernel.source, kernel.defines.clone())
}

impl Modules {
    pub fn new(compiler: Compiler) -> Modules {
        Modules { compiler, modules: HashMap::new(), functions: HashMap::new() }
    }

    /// The compute capability that they are compiled for.
    pub fn arch(&self) -> u32 {
        self.compiler.arch()
    }

    /// Compiles what is not loaded yet, on all cores, and loads it.
    pub fn load(&mut self, kernels: &[Kernel]) -> Result<(), CudaError> {
        let mut missing: Vec<&Kernel> = Vec::new();
        for kernel in kernels.iter().filter(|kernel| !self.modules.contains_key(&key(kernel))) {
            if !missing.iter().any(|other| key(other) == key(kernel)) {
                missing.push(kernel);
            }
        }
        for (kernel, cubin) in missing.iter().zip(compile_all(&self.compiler, &missing)) {
            let cubin = cubin?;
            let mut module = std::ptr::null_mut();
            // SAFETY: a whole cubin, which the driver copies; unloaded when dropped.
            unsafe { check("cuModuleLoadData", sys::cuModuleLoadData(&mut module, cubin.as_ptr().cast::<c_void>()))? };
            self.modules.insert(key(kernel), module);
        }
        Ok(())
    }

    /// The kernel, allowed to take this much dynamic shared memory.
    pub fn function(&mut self, kernel: &Kernel, shared_bytes: u32) -> Result<sys::CUfunction, CudaError> {
        if !self.functions.contains_key(kernel) {
            let found = self.find(kernel)?;
            self.functions.insert(kernel.clone(), found);
        }
        let function = self.functions.get_mut(kernel).expect("it was put there above");
        if shared_bytes > function.allowed_shared_bytes {
            let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function exists.
            unsafe {
                let code = sys::cuFuncSetAttribute(function.handle, attribute, shared_bytes as i32);
                check("cuFuncSetAttribute", code)?;
            }
            function.allowed_shared_bytes = shared_bytes;
        }
        Ok(function.handle)
    }

    fn find(&mut self, kernel: &Kernel) -> Result<Function, CudaError> {
        self.load(std::slice::from_ref(kernel))?;
        let broken = |log: String| CudaError::Compile { source_name: kernel.source.name, arch: 0, log };
        let name = CString::new(kernel.entry).map_err(|error| broken(error.to_string()))?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the module was loaded above.
        unsafe {
            let module = self.modules[&key(kernel)];
            check("cuModuleGetFunction", sys::cuModuleGetFunction(&mut handle, module, name.as_ptr()))?;
            // Lazy loading would take memory in the first step: after the reserve was measured.
            check("cuFuncLoad", sys::cuFuncLoad(handle))?;
        }
        Ok(Function { handle, allowed_shared_bytes: PLAIN_SHARED_BYTES })
    }
}

fn compile_all(compiler: &Compiler, kernels: &[&Kernel]) -> Vec<Result<Vec<u8>, CudaError>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(kernels.len()));
    let work = || {
        while let Some((index, kernel)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            kernels.get(index).map(|kernel| (index, kernel))
        } {
            let cubin = compiler.cubin(kernel);
            done.lock().unwrap_or_else(|e| e.into_inner()).push((index, cubin));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(kernels.len());
    std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
    let mut done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, cubin)| cubin).collect()
}

impl Drop for Modules {
    fn drop(&mut self) {
        // SAFETY: each was loaded once; nothing runs any more.
        self.modules.values().for_each(|&module| unsafe { _ = sys::cuModuleUnload(module) });
    }
}
