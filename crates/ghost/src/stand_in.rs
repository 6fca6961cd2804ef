//! The libraries that go in front of PyTorch: the stand-in itself, a shim for what it lacks, and carriers that bear the
//! names of NVIDIA's libraries, so that those need not be there and are not loaded where they are.

use crate::elf::{Carrier, ElfError, Library, shim};
use crate::python::Torch;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The stand-in, compiled by the build script.
static STAND_IN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stand_in.so"));
const STAND_IN_NAME: &str = "libplimsoll_ghost_cuda.so";
const SHIM_NAME: &str = "libplimsoll_ghost_rest.so";

#[derive(Debug, Error)]
pub enum StandInError {
    #[error("plimsoll ghost runs on Linux on x86-64 only")]
    Machine,
    #[error("{path}: {cause}")]
    Io { path: PathBuf, cause: io::Error },
    #[error(transparent)]
    Library(#[from] ElfError),
}

/// The libraries of one run, in a folder.
#[derive(Debug)]
pub struct StandIn {
    pub folder: PathBuf,
    /// To be loaded first, in this order.
    pub preload: Vec<PathBuf>,
    /// To be searched first: what lies here cannot be loaded, as on a machine that does not have it.
    pub absent: PathBuf,
    /// Functions that PyTorch asks for and that neither the stand-in has nor a plain yes is known to serve.
    pub unknown: Vec<String>,
}

/// How the names of NVIDIA's libraries start.
const LIBRARIES: [&str; 17] = [
    "libcudart.so",
    "libcublas.so",
    "libcublasLt.so",
    "libcudnn.so",
    "libcufft.so",
    "libcurand.so",
    "libcusparse.so",
    "libcusparseLt.so",
    "libcusolver.so",
    "libnvrtc.so",
    "libnvJitLink.so",
    "libnccl.so",
    "libcupti.so",
    "libnvToolsExt.so",
    "libcufile.so",
    "libnvshmem_host.so",
    "libcuda.so",
];

/// How the names of their functions start.
const PREFIXES: [&str; 14] = [
    "__cuda",
    "cuda",
    "cublas",
    "cudnn",
    "cusparse",
    "cusolver",
    "cufft",
    "curand",
    "nvrtc",
    "nvJitLink",
    "nccl",
    "cupti",
    "nvtx",
    "nvshmem",
];

/// Functions of the driver that are looked up by name at run time, and may say yes.
const DRIVER: [&str; 32] = [
    "cuCtxPushCurrent_v2",
    "cuCtxSetCurrent",
    "cuCtxSetLimit",
    "cuCtxSynchronize",
    "cuDevicePrimaryCtxRelease_v2",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncSetAttribute",
    "cuFuncSetCacheConfig",
    "cuLaunchCooperativeKernel",
    "cuLaunchHostFunc",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuLibraryUnload",
    "cuMemAddressFree",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemcpyAsync",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD32Async",
    "cuMemsetD8Async",
    "cuModuleUnload",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuStreamWriteValue32_v2",
    "cuTensorMapEncodeIm2col",
    "cuTensorMapEncodeTiled",
    "cuGreenCtxDestroy",
];

/// What the libraries of a torch ask NVIDIA's for.
#[derive(Default)]
struct Wants {
    functions: BTreeSet<String>,
    libraries: BTreeMap<String, BTreeSet<String>>,
}

impl Wants {
    /// Of the libraries in a folder; files that are no libraries are passed over.
    fn of_folder(&mut self, folder: &Path) -> Result<(), StandInError> {
        let entries = fs::read_dir(folder).map_err(|cause| io_error(folder, cause))?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.contains(".so")
                && let Ok(library) = Library::read(&entry.path())
            {
                self.add(library);
            }
        }
        Ok(())
    }

    fn add(&mut self, mut library: Library) {
        let needed = library.needed.into_iter().filter(|name| is_nvidias(name)).collect::<Vec<_>>();
        if needed.is_empty() {
            return;
        }
        self.functions.extend(library.undefined.into_iter().filter(|name| is_cuda_function(name)));
        for name in needed {
            let versions = library.versions.remove(&name).unwrap_or_default();
            self.libraries.entry(name).or_default().extend(versions);
        }
    }
}

/// Names of driver functions that PyTorch looks up when it runs, all at once: one that is missing is an error, even where it
/// would never be called.
fn looked_up(libraries: &Path) -> Vec<String> {
    let bytes = fs::read(libraries.join("libc10_cuda.so")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok());
    let is_name = |word: &&str| word.chars().all(|letter| letter.is_ascii_alphanumeric());
    words.filter(|word| word.len() < 60 && is_driver_function(word)).filter(is_name).map(String::from).collect()
}

fn is_nvidias(library: &str) -> bool {
    LIBRARIES
        .iter()
        .any(|start| library.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

fn is_driver_function(name: &str) -> bool {
    name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()))
}

fn is_cuda_function(name: &str) -> bool {
    is_driver_function(name) || PREFIXES.iter().any(|start| name.starts_with(start))
}

/// Whether a function answers through a pointer, so that a plain yes leaves its caller with nothing.
fn answers_something(name: &str) -> bool {
    const HARMLESS: [&str; 5] = [
        "cudaGetLastError",
        "cudaPeekAtLastError",
        "cusparseLtInit",
        "cuptiGetResultString",
        "cudnnGetLastErrorString",
    ];
    const WORDS: [&str; 10] =
        ["Get", "Create", "bufferSize", "BufferSize", "Find", "Alloc", "Open", "Import", "workEstimation", "Size2"];
    !HARMLESS.contains(&name) && WORDS.iter().any(|word| name.contains(word))
}

impl StandIn {
    /// Writes the libraries for this torch into a folder.
    pub(crate) fn write(torch: &Torch, folder: &Path) -> Result<StandIn, StandInError> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) || STAND_IN.is_empty() {
            return Err(StandInError::Machine);
        }
        let stand_in = folder.join(STAND_IN_NAME);
        write(&stand_in, STAND_IN)?;
        let offered = Library::read(&stand_in)?.defined;
        let mut wants = Wants::default();
        wants.of_folder(&torch.libraries)?;
        wants.functions.extend(DRIVER.map(String::from));
        // A newer name serves for a plain one.
        let served = |name: &String| ["_v2", "_v3"].iter().any(|version| offered.contains(&format!("{name}{version}")));
        wants.functions.extend(looked_up(&torch.libraries).into_iter().filter(|name| !served(name)));
        wants.libraries.entry("libcuda.so.1".into()).or_default();
        let missing: Vec<String> = wants.functions.difference(&offered).cloned().collect();
        let preload = [stand_in, write_shim(folder, &missing)?];
        let carriers = write_carriers(folder, wants.libraries)?;
        let unknown = missing.into_iter().filter(|name| answers_something(name)).collect();
        let (folder, preload) = (folder.to_path_buf(), preload.into_iter().chain(carriers).collect());
        Ok(StandIn { absent: write_absent(&folder)?, folder, preload, unknown })
    }
}

/// NVML knows the cards that are there; PyTorch asks it about others' memory when its own runs out.
fn write_absent(folder: &Path) -> Result<PathBuf, StandInError> {
    let absent = folder.join("absent");
    fs::create_dir_all(&absent).map_err(|cause| io_error(&absent, cause))?;
    write(&absent.join("libnvidia-ml.so.1"), b"")?;
    Ok(absent)
}

/// The shim, and beside it the names of its functions; those whose answer matters are marked.
fn write_shim(folder: &Path, functions: &[String]) -> Result<PathBuf, StandInError> {
    let path = folder.join(SHIM_NAME);
    write(&path, &shim(SHIM_NAME, functions))?;
    let marked = |name: &String| format!("{}{name}\n", if answers_something(name) { "?" } else { "" });
    write(&folder.join("stubs.txt"), functions.iter().map(marked).collect::<String>().as_bytes())?;
    Ok(path)
}

/// Only the driver's file bears its name, for Triton, which looks for the file. PyTorch takes a file called as the
/// runtime's for a sign that NVIDIA's packages are there, and would load them.
fn write_carriers(folder: &Path, libraries: BTreeMap<String, BTreeSet<String>>) -> Result<Vec<PathBuf>, StandInError> {
    let mut written = Vec::new();
    for (place, (name, versions)) in libraries.into_iter().enumerate() {
        let file = if name.starts_with("libcuda.so") { name.clone() } else { format!("carrier_{place}.so") };
        let carrier = Carrier { name: &name, versions, leads_to: vec![STAND_IN_NAME, SHIM_NAME] };
        write(&folder.join(&file), &carrier.bytes())?;
        written.push(folder.join(file));
    }
    Ok(written)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), StandInError> {
    fs::write(path, bytes).map_err(|cause| io_error(path, cause))
}

fn io_error(path: &Path, cause: io::Error) -> StandInError {
    StandInError::Io { path: path.into(), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvidias_libraries_and_functions_are_told_from_others() {
        assert!(is_nvidias("libcudart.so.13") && is_nvidias("libcuda.so.1") && is_nvidias("libcusparseLt.so.0"));
        assert!(!is_nvidias("libcudnn_graph.so.9") && !is_nvidias("libc10_cuda.so") && !is_nvidias("libcurl.so.4"));
        assert!(is_cuda_function("cuMemCreate") && is_cuda_function("__cudaRegisterFatBinary"));
        assert!(!is_cuda_function("curl_easy_init") && !is_cuda_function("custom"));
    }

    #[test]
    fn a_plain_yes_serves_what_only_acts_and_not_what_answers() {
        assert!(answers_something("cusolverDnCgesvd_bufferSize") && answers_something("cudnnGetCTCLossWorkspaceSize"));
        assert!(!answers_something("cublasSgemm_v2") && !answers_something("cudaGetLastError"));
        assert!(!answers_something("cudnnBackendExecute") && !answers_something("ncclAllReduce"));
    }
}
