//! Files under macros: what NVRTC compiles at a time, and which of them stand for the rest.

use crate::launches::Need;
use plimsoll_core::kernels::cuda::Kernel;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// One file under one set of macros, with the kernels of it that are launched.
pub(crate) struct Module {
    /// One of them: it stands for file and macros.
    pub kernel: Kernel,
    pub launched: BTreeMap<&'static str, Need>,
}

/// All modules of these kernels, by file, those that ask for most in front.
pub(crate) fn modules(kernels: &HashMap<Kernel, Need>) -> Vec<Module> {
    let mut modules: HashMap<_, Module> = HashMap::new();
    for (kernel, &need) in kernels {
        let module = modules
            .entry((kernel.source, &kernel.defines))
            .or_insert_with(|| Module { kernel: kernel.clone(), launched: BTreeMap::new() });
        module.launched.insert(kernel.entry, need);
    }
    let mut modules: Vec<Module> = modules.into_values().collect();
    modules.sort_by_cached_key(|module| (module.kernel.source.name, Reverse(module.size()), module.to_string()));
    modules
}

/// Enough of them, sorted as above: of every kernel with every combination of element types the variant that asks for
/// most, and of every choice of a macro that is in none of these the one that asks for least, which takes the least time.
pub(crate) fn covering(modules: Vec<Module>) -> Vec<Module> {
    let mut seen = BTreeSet::new();
    // Counted, because all are to be put among the seen, not only the first that is new.
    let mut adds = |traits: Vec<String>| traits.into_iter().filter(|one| seen.insert(one.clone())).count() > 0;
    let mut is_chosen: Vec<bool> = modules.iter().map(|module| adds(module.launches())).collect();
    for (module, _) in modules.iter().zip(&is_chosen).filter(|(_, is_chosen)| **is_chosen) {
        adds(module.choices());
    }
    for (module, is_chosen) in modules.iter().zip(&mut is_chosen).rev() {
        *is_chosen |= adds(module.choices());
    }
    modules.into_iter().zip(is_chosen).filter_map(|(module, is_chosen)| is_chosen.then_some(module)).collect()
}

/// Of files that are another source for this architecture than for 8.6, the modules, by their places, that have every
/// kernel with every combination of element types once.
pub(crate) fn told_apart(modules: &[Module], arch: u32) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    let mut adds = |module: &Module| {
        let entries = module.launched.iter().filter(|(_, need)| need.archs().contains(&arch));
        entries.filter(|(entry, _)| seen.insert((module.file(), **entry, module.types().join(" ")))).count() > 0
    };
    (0..modules.len()).filter(|&index| modules[index].tells_apart(arch) && adds(&modules[index])).collect()
}

impl Module {
    /// The most dynamic shared memory of a launch; then what macros say, since they size what is static.
    fn size(&self) -> (u32, u64) {
        let sizes = self.kernel.defines.iter().filter_map(|(_, value)| value.parse::<u64>().ok());
        (self.launched.values().map(|need| need.shared_bytes).max().unwrap_or(0), sizes.sum())
    }

    /// Whether cards of this architecture launch one of its kernels.
    pub(crate) fn is_for(&self, arch: u32) -> bool {
        self.launched.values().any(|need| need.archs().contains(&arch))
    }

    /// Whether it is compiled for this architecture in any case. Most modules are launched by all and are the same source
    /// for all: 8.6 stands for the others. Hosts launch some on Hopper alone.
    pub(crate) fn is_apart(&self, arch: u32) -> bool {
        arch == 86 || !self.is_for(86)
    }

    /// Whether its file is another source for this architecture than for 8.6.
    fn tells_apart(&self, arch: u32) -> bool {
        arch == 75 && self.kernel.source.text.contains("__CUDA_ARCH__")
    }

    /// The element types among its macros.
    fn types(&self) -> Vec<&str> {
        self.kernel.defines.iter().map(|(_, value)| value.as_str()).filter(|value| is_type(value)).collect()
    }

    /// Its kernels with their element types, as text.
    fn launches(&self) -> Vec<String> {
        let types = self.types();
        // A variant that only some architectures launch does not stand for those that the others do.
        let kernels = self.launched.iter().map(|(entry, need)| format!("{entry} {types:?} {:?}", need.archs()));
        kernels.map(|one| format!("{} {one}", self.file())).collect()
    }

    /// What its macros choose, as text.
    fn choices(&self) -> Vec<String> {
        let choices = self.kernel.defines.iter().filter(|(_, value)| is_choice(value));
        choices.map(|(key, value)| format!("{} {key}={value}", self.file())).collect()
    }

    /// The same file may have other headers in front of it.
    fn file(&self) -> String {
        format!("{} {}", self.kernel.source.name, self.kernel.source.text.len())
    }
}

/// As `device_name` calls element types, or an integer of their size.
fn is_type(value: &str) -> bool {
    matches!(value, "float" | "double" | "bf16" | "half" | "int" | "long long") || value.starts_with("unsigned")
}

/// Names, operators and small numbers choose between code; larger numbers and tables only size it.
fn is_choice(value: &str) -> bool {
    value.len() == 1 || value.starts_with(char::is_alphabetic)
}

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.cu", self.kernel.source.name)?;
        self.kernel.defines.iter().try_for_each(|(name, value)| write!(f, " {name}={value:.40}"))
    }
}
