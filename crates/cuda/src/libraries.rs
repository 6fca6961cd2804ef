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
    pub(crate) const ALL: [Library; 3] = [Library::Driver, Library::Nvrtc, Library::CublasLt];

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

    /// Whether there is one to load. The driver is loaded for it; the others are only looked for: who asks what is here
    /// would hold more than 100 MB of them from then on.
    pub(crate) fn is_here(self) -> bool {
        match self {
            Library::Driver => self.load().is_ok(),
            _ => self.is_loaded() || self.lies_below(Path::new("/"), |name| std::env::var_os(name)),
        }
    }

    fn is_loaded(self) -> bool {
        self.files().iter().any(|file| dlopen(Path::new(file), libc::RTLD_LAZY | libc::RTLD_NOLOAD))
    }

    /// Whether the system's loader or a folder of ours has its file. `root` is `/`.
    fn lies_below(self, root: &Path, variable: impl Fn(&str) -> Option<OsString>) -> bool {
        let listed = std::fs::read(root.join("etc/ld.so.cache")).unwrap_or_default();
        let loaders = variable("LD_LIBRARY_PATH").unwrap_or_default();
        let loaders: Vec<PathBuf> = std::env::split_paths(&loaders).chain(LOADERS.map(|at| root.join(at))).collect();
        let folders = LazyCell::new(|| folders(root, variable));
        self.files().iter().any(|file| {
            lists(&listed, file) || loaders.iter().chain(folders.iter()).any(|folder| folder.join(file).exists())
        })
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

/// Where the system's loader looks for what its list does not name.
const LOADERS: [&str; 4] = ["lib64", "usr/lib64", "lib", "usr/lib"];

/// Whether the loader's list has a library of this name; names in it end with a zero.
fn lists(list: &[u8], file: &str) -> bool {
    let name = [file.as_bytes(), b"\0"].concat();
    list.windows(name.len()).any(|found| found == name)
}

/// Whether the library could be loaded. It stays loaded.
fn open(path: &Path) -> bool {
    dlopen(path, libc::RTLD_NOW | libc::RTLD_GLOBAL)
}

fn dlopen(path: &Path, how: i32) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: a library of NVIDIA's; its initializers have no conditions.
    let handle = unsafe { libc::dlopen(name.as_ptr(), how) };
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

    #[test]
    fn a_library_is_found_by_the_loaders_list_its_folders_or_ours_and_not_by_half_a_name() {
        let here = |prepare: &dyn Fn(&Path), name: &str| {
            let dir = tempfile::tempdir().unwrap();
            prepare(dir.path());
            Library::CublasLt.lies_below(dir.path(), |asked| (asked == name).then(|| dir.path().join("own").into()))
        };
        let put = |path: &'static str, bytes: &'static [u8]| {
            move |root: &Path| {
                create_dir_all(root.join(path).parent().unwrap()).unwrap();
                std::fs::write(root.join(path), bytes).unwrap();
            }
        };
        let listed = put("etc/ld.so.cache", b"libc.so.6\0/lib/libc.so.6\0libcublasLt.so.13\0/usr/lib/x\0");
        assert!(here(&listed, ""));
        assert!(!here(&put("etc/ld.so.cache", b"libcublasLt.so.130\0libcublas.so.13\0"), ""));
        assert!(here(&put("usr/lib64/libcublasLt.so.13", b""), ""));
        assert!(here(&put("own/libcublasLt.so.13", b""), "LD_LIBRARY_PATH"));
        assert!(!here(&put("own/libcublasLt.so.13", b""), ""));
        assert!(here(&put("own/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13", b""), "VIRTUAL_ENV"));
    }
}
