//! Kernel sources to machine code: NVRTC for one architecture, with a cache on disk.

use super::libraries::Library;
use cudarc::nvrtc::{result, sys};
use plimsoll_core::kernels::cuda::{COMMON, CudaError, Kernel};
use sha2::{Digest, Sha256};
use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};

/// The oldest architecture that the kernels are written for.
pub(crate) const OLDEST_ARCH: u32 = 75;

/// Compiles for one architecture: `arch` 90 is compute capability 9.0.
pub struct Compiler {
    arch: u32,
    version: (c_int, c_int),
    cache: Option<PathBuf>,
}

impl Compiler {
    /// `cache` is the folder of compiled kernels, if there is one.
    pub fn new(arch: u32, cache: Option<PathBuf>) -> Result<Compiler, CudaError> {
        Library::Nvrtc.load()?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: a query into two integers.
        let answer = unsafe { sys::nvrtcVersion(&mut major, &mut minor) }.result();
        answer.map_err(|error| CudaError::Driver { call: "nvrtcVersion", cause: error.to_string() })?;
        Ok(Compiler { arch, version: (major, minor), cache })
    }

    pub fn arch(&self) -> u32 {
        self.arch
    }

    /// The machine code of the kernel's file under its macros.
    pub fn cubin(&self, kernel: &Kernel) -> Result<Vec<u8>, CudaError> {
        let text = text(kernel);
        let Some(file) = self.cache.as_ref().map(|folder| folder.join(self.file_name(&text))) else {
            return self.compile(kernel, &text);
        };
        if let Ok(cubin) = std::fs::read(&file) {
            return Ok(cubin);
        }
        let cubin = self.compile(kernel, &text)?;
        store(&file, &cubin);
        Ok(cubin)
    }

    /// Everything that the machine code depends on.
    fn file_name(&self, text: &str) -> String {
        let (major, minor) = self.version;
        let digest = Sha256::new()
            .chain_update(format!("{} {major}.{minor}\n", architecture(self.arch)))
            .chain_update(text)
            .finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).chain([".cubin".into()]).collect()
    }

    fn compile(&self, kernel: &Kernel, text: &str) -> Result<Vec<u8>, CudaError> {
        let failed = |log: String| CudaError::Compile { source_name: kernel.source.name, arch: self.arch, log };
        let source = CString::new(text).map_err(|error| failed(error.to_string()))?;
        let program = Program(result::create_program(&source, None).map_err(|error| failed(error.to_string()))?);
        let options = [format!("--gpu-architecture={}", architecture(self.arch)), "--std=c++17".into()];
        // SAFETY: the program was created above and lives until the end of this function.
        unsafe {
            result::compile_program(program.0, &options).map_err(|error| failed(program.log(&error)))?;
            program.cubin().map_err(|error| failed(error.to_string()))
        }
    }
}

/// What the compiler calls it. Hopper's machine code has its own instructions in it (products of warp groups), which no
/// other architecture is to run.
fn architecture(arch: u32) -> String {
    if arch == 90 { "sm_90a".into() } else { format!("sm_{arch}") }
}

/// The file with the common part and its macros in front of it.
fn text(kernel: &Kernel) -> String {
    let mut text = format!("#line 1 \"common.cuh\"\n{COMMON}\n");
    kernel.defines.iter().for_each(|(name, value)| text += &format!("#define {name} {value}\n"));
    text + &format!("#line 1 \"{}.cu\"\n{}\n", kernel.source.name, kernel.source.text)
}

/// A cache that cannot be written costs time, nothing else. Whole files only: another process may read them.
pub(super) fn store(file: &Path, content: &[u8]) {
    let draft = file.with_extension(format!("draft-{}", std::process::id()));
    let folder = file.parent().map_or(Ok(()), std::fs::create_dir_all);
    let written = folder.and_then(|()| std::fs::write(&draft, content)).and_then(|()| std::fs::rename(&draft, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
}

/// Where compiled kernels and what was learned about a card are kept.
pub fn cache_folder() -> Option<PathBuf> {
    plimsoll_base::files::cache_folder("cuda")
}

struct Program(sys::nvrtcProgram);

impl Program {
    /// The compiler's log, or what there is instead.
    fn log(&self, error: &result::NvrtcError) -> String {
        // SAFETY: the program exists as long as self.
        let log = unsafe { result::get_program_log(self.0) }.unwrap_or_default();
        let bytes: Vec<u8> = log.iter().map(|&c| c as u8).take_while(|&b| b != 0).collect();
        format!("{error}\n{}", String::from_utf8_lossy(&bytes))
    }

    /// # Safety
    /// The program was compiled.
    unsafe fn cubin(&self) -> Result<Vec<u8>, result::NvrtcError> {
        let mut bytes = 0;
        // SAFETY: the buffer has the size that the library asks for.
        unsafe {
            sys::nvrtcGetCUBINSize(self.0, &mut bytes).result()?;
            let mut cubin = vec![0u8; bytes];
            sys::nvrtcGetCUBIN(self.0, cubin.as_mut_ptr().cast::<c_char>()).result()?;
            Ok(cubin)
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created by create_program and destroyed once.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}
