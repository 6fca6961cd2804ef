//! Writes small shared libraries without a compiler or linker: one whose functions count their calls and answer 0, and
//! carriers, which have a name and versions and nothing else.

use std::collections::BTreeSet;

/// A library that is only its name: the loader takes it for NVIDIA's, whose functions it then finds elsewhere.
pub struct Carrier<'a> {
    pub name: &'a str,
    pub versions: BTreeSet<String>,
    /// Libraries in which its functions are to be found.
    pub leads_to: Vec<&'a str>,
}

impl Carrier<'_> {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        Image { name: self.name, needed: &self.leads_to, versions: &self.versions, functions: &[] }.bytes()
    }
}

/// A library of these functions. Each adds one to its own counter and answers 0. `plimsoll_ghost_calls` is where the
/// counters start, in the order of the names.
pub(crate) fn shim(name: &str, functions: &[String]) -> Vec<u8> {
    Image { name, needed: &[], versions: &BTreeSet::new(), functions }.bytes()
}

/// The name under which the counters are found.
const COUNTERS: &str = "plimsoll_ghost_calls";

struct Image<'a> {
    name: &'a str,
    needed: &'a [&'a str],
    versions: &'a BTreeSet<String>,
    functions: &'a [String],
}

/// Names, one behind the other.
struct Names(Vec<u8>);

impl Names {
    fn add(&mut self, name: &str) -> u32 {
        let at = self.0.len() as u32;
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(0);
        at
    }
}

const PAGE: usize = 4096;
const HEADERS: usize = 64 + 4 * 56;
const SYMBOL: usize = 24;
/// Bytes of one function.
const FUNCTION: usize = 16;
const CODE_SECTION: u16 = 1;
const DATA_SECTION: u16 = 2;

/// Where everything lies; addresses are offsets in the file.
struct Places {
    hash: usize,
    symbols: usize,
    versions_of_symbols: usize,
    versions: usize,
    names: usize,
    code: usize,
    dynamic: usize,
    counters: usize,
    end: usize,
}

impl Image<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut names = Names(vec![0]);
        let needed: Vec<u32> = self.needed.iter().map(|library| names.add(library)).collect();
        let soname = names.add(self.name);
        let versions: Vec<(u32, u32)> = self.all_versions().map(|name| (names.add(name), elf_hash(name))).collect();
        let functions: Vec<u32> = self.exports().map(|name| names.add(name)).collect();
        let places = self.places(names.0.len());

        let mut file = vec![0; places.end];
        put(&mut file, 0, &header());
        put(&mut file, 64, &segments(&places));
        put(&mut file, places.hash, &self.hash_table());
        put(&mut file, places.symbols, &self.symbols(&functions, &places));
        put(&mut file, places.versions_of_symbols, &[1, 0].repeat(self.functions.len() + 2)[..]);
        put(&mut file, places.versions_of_symbols, &[0, 0]);
        put(&mut file, places.versions, &version_table(&versions));
        put(&mut file, places.names, &names.0);
        put(&mut file, places.code, &self.code(&places));
        put(&mut file, places.dynamic, &self.dynamic(&needed, soname, &places, names.0.len()));
        file
    }

    /// The first version is the library itself.
    fn all_versions(&self) -> impl Iterator<Item = &str> {
        let first = (!self.versions.is_empty()).then_some(self.name);
        first.into_iter().chain(self.versions.iter().map(String::as_str))
    }

    /// The counters, then the functions.
    fn exports(&self) -> impl Iterator<Item = &str> {
        [COUNTERS].into_iter().chain(self.functions.iter().map(String::as_str))
    }

    fn places(&self, names: usize) -> Places {
        let symbols = self.functions.len() + 2;
        let versions = self.all_versions().count();
        let hash = HEADERS;
        let symbols_at = (hash + 4 * (2 + buckets(symbols) + symbols)).next_multiple_of(8);
        let versions_of_symbols = symbols_at + SYMBOL * symbols;
        let versions_at = (versions_of_symbols + 2 * symbols).next_multiple_of(8);
        let names_at = versions_at + 28 * versions;
        let code = (names_at + names).next_multiple_of(FUNCTION);
        let dynamic = (code + FUNCTION * self.functions.len()).next_multiple_of(PAGE);
        let counters = dynamic + 16 * (12 + self.needed.len());
        let end = counters + 4 * self.functions.len().max(1);
        let versions = versions_at;
        Places {
            hash,
            symbols: symbols_at,
            versions_of_symbols,
            versions,
            names: names_at,
            code,
            dynamic,
            counters,
            end,
        }
    }

    fn hash_table(&self) -> Vec<u8> {
        let symbols = self.functions.len() + 2;
        let count = buckets(symbols);
        let (mut heads, mut chains) = (vec![0u32; count], vec![0u32; symbols]);
        for (place, name) in self.exports().enumerate() {
            let bucket = elf_hash(name) as usize % count;
            chains[place + 1] = std::mem::replace(&mut heads[bucket], place as u32 + 1);
        }
        let sizes = [count as u32, symbols as u32];
        sizes.iter().chain(&heads).chain(&chains).flat_map(|word| word.to_le_bytes()).collect()
    }

    fn symbols(&self, names: &[u32], places: &Places) -> Vec<u8> {
        let mut table = vec![0; SYMBOL];
        for (place, name) in names.iter().enumerate() {
            let counters = place == 0;
            let (kind, section) = if counters { (0x11, DATA_SECTION) } else { (0x12, CODE_SECTION) };
            let address = if counters { places.counters } else { places.code + FUNCTION * (place - 1) };
            table.extend(name.to_le_bytes());
            table.extend([kind, 0]);
            table.extend(section.to_le_bytes());
            table.extend((address as u64).to_le_bytes());
            table.extend((FUNCTION as u64).to_le_bytes());
        }
        table
    }

    /// `lock inc dword [rip + counter]; xor eax, eax; ret`, for x86-64.
    fn code(&self, places: &Places) -> Vec<u8> {
        let mut code = Vec::with_capacity(FUNCTION * self.functions.len());
        for place in 0..self.functions.len() {
            let behind_increment = places.code + FUNCTION * place + 7;
            let distance = (places.counters + 4 * place).wrapping_sub(behind_increment) as u32;
            code.extend([0xf0, 0xff, 0x05]);
            code.extend(distance.to_le_bytes());
            code.extend([0x31, 0xc0, 0xc3]);
            code.extend([0xcc; FUNCTION - 10]);
        }
        code
    }

    fn dynamic(&self, needed: &[u32], soname: u32, places: &Places, names: usize) -> Vec<u8> {
        let versions = self.all_versions().count() as u64;
        let mut entries: Vec<(u64, u64)> = needed.iter().map(|name| (1, u64::from(*name))).collect();
        entries.extend([(14, u64::from(soname)), (4, places.hash as u64), (5, places.names as u64)]);
        entries.extend([(6, places.symbols as u64), (10, names as u64), (11, SYMBOL as u64)]);
        if versions > 0 {
            entries.push((0x6fff_fff0, places.versions_of_symbols as u64));
            entries.extend([(0x6fff_fffc, places.versions as u64), (0x6fff_fffd, versions)]);
        }
        entries.push((0, 0));
        entries.into_iter().flat_map(|(tag, value)| [tag.to_le_bytes(), value.to_le_bytes()].concat()).collect()
    }
}

fn buckets(symbols: usize) -> usize {
    (symbols / 2).max(1)
}

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The hash of ELF's tables.
fn elf_hash(name: &str) -> u32 {
    name.bytes().fold(0u32, |hash, byte| {
        let hash = (hash << 4).wrapping_add(u32::from(byte));
        let top = hash & 0xf000_0000;
        (hash ^ (top >> 24)) & !top
    })
}

fn header() -> Vec<u8> {
    let mut header = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    header.extend(0u64.to_le_bytes());
    header.extend(64u64.to_le_bytes());
    header.extend(0u64.to_le_bytes());
    header.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 4, 64, 0, 0] {
        header.extend(half.to_le_bytes());
    }
    header
}

/// Tables and code to read and run, the dynamic section and counters to write, and a stack that runs nothing.
fn segments(places: &Places) -> Vec<u8> {
    let (read_run, read_write) = (5, 6);
    let tail = places.end - places.dynamic;
    let dynamic = places.counters - places.dynamic;
    let all = [
        (1u32, read_run, 0, places.dynamic, PAGE),
        (1, read_write, places.dynamic, tail, PAGE),
        (2, read_write, places.dynamic, dynamic, 8),
        (0x6474_e551, read_write, 0, 0, 16),
    ];
    let mut bytes = Vec::new();
    for (kind, flags, at, size, alignment) in all {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(u32::to_le_bytes(flags));
        for word in [at, at, at, size, size, alignment] {
            bytes.extend((word as u64).to_le_bytes());
        }
    }
    bytes
}

/// Versions, each with its one name.
fn version_table(versions: &[(u32, u32)]) -> Vec<u8> {
    let mut table = Vec::new();
    for (place, (name, hash)) in versions.iter().enumerate() {
        let base = u16::from(place == 0);
        let next = if place + 1 == versions.len() { 0u32 } else { 28 };
        for half in [1u16, base, place as u16 + 1, 1] {
            table.extend(half.to_le_bytes());
        }
        for word in [*hash, 20, next, *name, 0] {
            table.extend(word.to_le_bytes());
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::Library;
    use super::*;
    use std::ffi::{CString, c_char, c_int, c_void};

    fn open(bytes: &[u8], folder: &tempfile::TempDir, name: &str) -> *mut c_void {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a library that this test wrote.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null());
        library
    }

    fn symbol(library: *mut c_void, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: an open library and a C string.
        unsafe { libc::dlsym(library, name.as_ptr().cast::<c_char>()) }
    }

    #[test]
    fn every_function_of_a_shim_answers_zero_and_counts_only_its_own_calls() {
        let names: Vec<String> = (0..500).map(|place| format!("ghostFunction{place}")).collect();
        let folder = tempfile::tempdir().unwrap();
        let library = open(&shim("libshim_test.so", &names), &folder, "shim.so");
        for place in [0, 7, 7, 499] {
            let function = symbol(library, &names[place]);
            assert!(!function.is_null());
            // SAFETY: a function without arguments that answers an int.
            let function: extern "C" fn() -> c_int = unsafe { std::mem::transmute(function) };
            assert_eq!(function(), 0);
        }
        let counters = symbol(library, COUNTERS).cast::<u32>();
        // SAFETY: as many counters as names.
        let counts = unsafe { std::slice::from_raw_parts(counters, names.len()) };
        let called: Vec<_> = counts.iter().enumerate().filter(|(_, count)| **count > 0).collect();
        assert_eq!(called, [(0, &1), (7, &2), (499, &1)]);
        assert!(symbol(library, "ghostFunction500").is_null());
    }

    #[test]
    fn a_carrier_leads_to_the_functions_of_another_library() {
        let folder = tempfile::tempdir().unwrap();
        open(&shim("libghost_target_test.so", &["ghostLed".into()]), &folder, "target.so");
        let versions = BTreeSet::from(["libcudart.so.99".to_string()]);
        let carrier = Carrier { name: "libcudart.so.99", versions, leads_to: vec!["libghost_target_test.so"] };
        let library = open(&carrier.bytes(), &folder, "carrier.so");
        assert!(!symbol(library, "ghostLed").is_null());
    }

    #[test]
    fn a_file_that_is_no_library_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        for bytes in [&b""[..], b"#!/bin/sh\n", &[0x7f, b'E', b'L', b'F', 2, 1], &shim("a", &[])[..70]] {
            let path = folder.path().join("broken.so");
            std::fs::write(&path, bytes).unwrap();
            assert!(Library::read(&path).unwrap_err().to_string().contains("broken.so"));
        }
    }
}
