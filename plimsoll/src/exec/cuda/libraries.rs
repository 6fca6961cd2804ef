//! Finds NVIDIA's libraries: where the system's loader looks, in the toolkit, in pip's packages of the active environment.

use super::CudaError;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A library that is loaded when it is first needed; without it there is an error, never a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// Comes with the driver.
    Driver,
    /// Compiles kernels.
    Nvrtc,
    /// Matrix products.
    CublasLt,
}

impl Library {
    pub const ALL: [Library; 3] = [Library::Driver, Library::Nvrtc, Library::CublasLt];

    pub fn name(self) -> &'static str {
        match self {
            Library::Driver => "libcuda",
            Library::Nvrtc => "libnvrtc",
            Library::CublasLt => "libcublasLt",
        }
    }

    /// The one command (or step) that provides it.
    pub fn remedy(self) -> &'static str {
        match self {
            Library::Driver => "install NVIDIA's driver, version 580 or newer",
            Library::Nvrtc => "pip install nvidia-cuda-nvrtc",
            Library::CublasLt => "pip install nvidia-cublas",
        }
    }

    /// File names, newest first.
    fn files(self) -> &'static [&'static str] {
        match self {
            Library::Driver => &["libcuda.so.1", "libcuda.so"],
            Library::Nvrtc => &["libnvrtc.so.13", "libnvrtc.so"],
            Library::CublasLt => &["libcublasLt.so.13", "libcublasLt.so"],
        }
    }

    pub fn is_here(self) -> bool {
        self.load().is_ok()
    }

    /// Loads it for good: the bindings find by its name what is loaded already, wherever it came from.
    pub fn load(self) -> Result<(), CudaError> {
        let by_name = || self.files().iter().any(|file| open(Path::new(file)));
        let by_path = || folders().iter().any(|folder| self.load_from(folder));
        match by_name() || (self != Library::Driver && by_path()) {
            true => Ok(()),
            false => Err(CudaError::Missing { library: self.name(), remedy: self.remedy() }),
        }
    }

    fn load_from(self, folder: &Path) -> bool {
        if self == Library::Nvrtc {
            // NVRTC asks the loader for this one by name while it compiles.
            matching(folder, "libnvrtc-builtins.so").iter().for_each(|file| _ = open(file));
        }
        self.files().iter().any(|file| open(&folder.join(file)))
    }
}

/// Whether the library could be loaded. It stays loaded.
fn open(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: a library of NVIDIA's; its initializers have no conditions.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    !handle.is_null()
}

/// Folders of the toolkit and of pip's packages.
fn folders() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let toolkits = [variable("CUDA_HOME"), variable("CUDA_PATH"), Some("/usr/local/cuda".into())];
    let mut folders: Vec<PathBuf> = toolkits.into_iter().flatten().map(|home| home.join("lib64")).collect();
    for environment in [variable("VIRTUAL_ENV"), variable("CONDA_PREFIX")].into_iter().flatten() {
        for python in matching(&environment.join("lib"), "python") {
            let packages = python.join("site-packages/nvidia");
            folders.extend(["cu13", "cuda_nvrtc", "cublas"].map(|package| packages.join(package).join("lib")));
        }
    }
    folders
}

/// What lies in a folder under a name that starts so.
fn matching(folder: &Path, start: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(start.as_bytes()));
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(named).collect();
    found.sort();
    found
}
