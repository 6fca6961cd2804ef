//! Finds NVIDIA's libraries: where the system's loader looks, in the toolkit, in pip's packages of the active environment.

use plimsoll_core::kernels::cuda::CudaError;
use std::cell::LazyCell;
use std::ffi::{CString, OsString};
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
            Library::Nvrtc | Library::CublasLt => "pip install nvidia-cuda-nvrtc nvidia-cublas",
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

    pub(crate) fn is_here(self) -> bool {
        self.load().is_ok()
    }

    /// Loads it for good: the bindings find by its name what is loaded already, wherever it came from.
    pub fn load(self) -> Result<(), CudaError> {
        // Read only if the system's loader does not find it by its name.
        let folders = LazyCell::new(|| match self {
            Library::Driver => Vec::new(),
            _ => folders(Path::new("/"), |name| std::env::var_os(name)),
        });
        let found = |file: &&str| open(Path::new(file)) || folders.iter().any(|folder| self.load_from(folder, file));
        match self.files().iter().any(found) {
            true => Ok(()),
            false => Err(CudaError::Missing { library: self.name(), remedy: self.remedy() }),
        }
    }

    fn load_from(self, folder: &Path, file: &str) -> bool {
        let path = folder.join(file);
        if self == Library::Nvrtc && path.exists() {
            // NVRTC asks the loader for this one by name while it compiles.
            matching(folder, "libnvrtc-builtins.so").iter().for_each(|file| _ = open(file));
        }
        open(&path)
    }
}

/// Whether the library could be loaded. It stays loaded.
fn open(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: a library of NVIDIA's; its initializers have no conditions.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    !handle.is_null()
}

/// Where a toolkit and where Python packages may lie, those that the user's variables name first. `root` is `/`.
fn folders(root: &Path, variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let path = |name: &str| variable(name).map(PathBuf::from);
    let mut toolkits: Vec<PathBuf> = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(path).collect();
    toolkits.extend(matching(&root.join("usr/local"), "cuda"));
    let mut environments: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(path).collect();
    // Whose pip the user calls: the one of the search path, and what it installs for this user alone.
    let search: Vec<PathBuf> = variable("PATH").iter().flat_map(std::env::split_paths).collect();
    environments.extend(search.iter().filter_map(|bin| bin.parent()).map(PathBuf::from));
    environments.extend(path("HOME").map(|home| home.join(".local")));
    let in_toolkits = toolkits.into_iter().map(|toolkit| toolkit.join("lib64"));
    // conda has libraries of its own; pip has them among its packages.
    let in_environments = environments.into_iter().map(|environment| environment.join("lib"));
    in_toolkits.chain(in_environments.flat_map(|lib| [vec![lib.clone()], packages(&lib)].concat())).collect()
}

/// `lib` of every package of NVIDIA's that pip put below a `lib` of an environment.
fn packages(lib: &Path) -> Vec<PathBuf> {
    let kinds = |python: PathBuf| ["site-packages", "dist-packages"].map(|kind| python.join(kind).join("nvidia"));
    let nvidia = matching(lib, "python").into_iter().flat_map(kinds);
    nvidia.flat_map(|nvidia| matching(&nvidia, "")).map(|package| package.join("lib")).collect()
}

/// What lies in a folder under a name that starts so.
fn matching(folder: &Path, start: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(start.as_bytes()));
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(named).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::create_dir_all;

    #[test]
    fn toolkits_and_packages_of_active_environments_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let made = |path: &str| {
            create_dir_all(root.join(path)).unwrap();
            root.join(path)
        };
        let own = made("opt/toolkit/lib64");
        let system = made("usr/local/cuda-13.1/lib64");
        let venv = made("venv/lib/python3.12/site-packages/nvidia/cu13/lib");
        let conda = made("conda/lib");
        let on_path = made("usr/lib/python3/dist-packages/nvidia/cublas/lib");
        let of_user = made("home/.local/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib");
        let variable = |name: &str| {
            let paths = match name {
                "CUDA_HOME" => vec!["opt/toolkit"],
                "VIRTUAL_ENV" => vec!["venv"],
                "CONDA_PREFIX" => vec!["conda"],
                "PATH" => vec!["nowhere/bin", "usr/bin"],
                "HOME" => vec!["home"],
                _ => return None,
            };
            std::env::join_paths(paths.into_iter().map(|path| root.join(path))).ok()
        };
        let found = folders(root, variable);
        let place = |folder: &PathBuf| found.iter().position(|f| f == folder).unwrap_or_else(|| panic!("{folder:?}"));
        let places = [&own, &system, &venv, &conda, &on_path, &of_user].map(place);
        assert!(places.is_sorted(), "{found:?}");
        assert!(folders(root, |_| None).contains(&system));
    }
}
