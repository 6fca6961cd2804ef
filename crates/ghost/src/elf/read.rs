//! Reads what a shared library needs and offers. Only its tables are read: the files are up to gigabytes large.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ElfError {
    #[error("{path}: {cause}")]
    Io { path: PathBuf, cause: std::io::Error },
    #[error("{path}: not a shared library for this machine ({what})")]
    Malformed { path: PathBuf, what: &'static str },
}

/// What a shared library needs and offers.
#[derive(Debug, Default)]
pub struct Library {
    /// Libraries it is linked to, by the names it calls them.
    pub needed: Vec<String>,
    /// Functions of C that it expects from others.
    pub undefined: BTreeSet<String>,
    /// Functions of C that it offers.
    pub defined: BTreeSet<String>,
    /// Versions that it expects, by library.
    pub versions: BTreeMap<String, BTreeSet<String>>,
}

struct Section {
    kind: u32,
    offset: u64,
    size: u64,
    link: u32,
}

const DYNAMIC: u32 = 6;
const SYMBOLS: u32 = 11;
const NEEDED_VERSIONS: u32 = 0x6fff_fffe;
/// No table of a real library is larger.
const TABLE_LIMIT: u64 = 1 << 30;

struct Reader<'a> {
    path: &'a Path,
    file: File,
}

impl Library {
    pub(crate) fn read(path: &Path) -> Result<Library, ElfError> {
        let file = File::open(path).map_err(|cause| ElfError::Io { path: path.into(), cause })?;
        Reader { path, file }.library()
    }
}

impl Reader<'_> {
    fn malformed(&self, what: &'static str) -> ElfError {
        ElfError::Malformed { path: self.path.into(), what }
    }

    fn bytes(&self, offset: u64, size: u64) -> Result<Vec<u8>, ElfError> {
        if size > TABLE_LIMIT {
            return Err(self.malformed("a table is too large"));
        }
        let mut bytes = vec![0; size as usize];
        let read = self.file.read_exact_at(&mut bytes, offset);
        read.map_err(|cause| ElfError::Io { path: self.path.into(), cause })?;
        Ok(bytes)
    }

    fn table(&self, section: &Section) -> Result<Vec<u8>, ElfError> {
        self.bytes(section.offset, section.size)
    }

    fn sections(&self) -> Result<Vec<Section>, ElfError> {
        let header = self.bytes(0, 64)?;
        if header[..6] != [0x7f, b'E', b'L', b'F', 2, 1] {
            return Err(self.malformed("its first bytes"));
        }
        let (offset, size, count) = (u64_at(&header, 40), u16_at(&header, 58), u16_at(&header, 60));
        if size != Some(64) {
            return Err(self.malformed("its section headers"));
        }
        let bytes = self.bytes(offset.unwrap_or(0), 64 * u64::from(count.unwrap_or(0)))?;
        Ok(bytes.chunks_exact(64).filter_map(section).collect())
    }

    fn library(&self) -> Result<Library, ElfError> {
        let sections = self.sections()?;
        let find = |kind| sections.iter().find(|section| section.kind == kind);
        let symbols = find(SYMBOLS).ok_or_else(|| self.malformed("no symbols"))?;
        let strings = sections.get(symbols.link as usize).ok_or_else(|| self.malformed("no names"))?;
        let names = self.table(strings)?;
        let mut library = Library::default();
        library.read_symbols(&self.table(symbols)?, &names);
        if let Some(dynamic) = find(DYNAMIC) {
            library.read_needed(&self.table(dynamic)?, &names);
        }
        if let Some(versions) = find(NEEDED_VERSIONS) {
            library.read_versions(&self.table(versions)?, &names);
        }
        Ok(library)
    }
}

impl Library {
    fn read_symbols(&mut self, table: &[u8], names: &[u8]) {
        for symbol in table.chunks_exact(24).skip(1) {
            let Some(at) = u32_at(symbol, 0).map(|at| at as usize).filter(|at| !is_mangled(names, *at)) else {
                continue;
            };
            let Some(name) = text(names, at) else { continue };
            let defined = u16_at(symbol, 6) != Some(0);
            if defined {
                self.defined.insert(name)
            } else {
                self.undefined.insert(name)
            };
        }
    }

    fn read_needed(&mut self, table: &[u8], names: &[u8]) {
        const NEEDED: u64 = 1;
        let entries = table.chunks_exact(16).filter(|entry| u64_at(entry, 0) == Some(NEEDED));
        self.needed = entries.filter_map(|entry| text(names, u64_at(entry, 8)? as usize)).collect();
    }

    /// A chain of libraries, each with a chain of versions. Offsets that do not lead on end it.
    fn read_versions(&mut self, table: &[u8], names: &[u8]) {
        let mut at = 0;
        while let Some((library, next)) = version_need(table, at, names) {
            let versions = version_names(table, at, names);
            self.versions.entry(library).or_default().extend(versions);
            if next == 0 {
                break;
            }
            at += next;
        }
    }
}

fn version_need(table: &[u8], at: usize, names: &[u8]) -> Option<(String, usize)> {
    let library = text(names, u32_at(table, at + 4)? as usize)?;
    Some((library, u32_at(table, at + 12)? as usize))
}

fn version_names(table: &[u8], need: usize, names: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = need + u32_at(table, need + 8).unwrap_or(0) as usize;
    for _ in 0..u16_at(table, need + 2).unwrap_or(0) {
        let name = u32_at(table, at + 8).and_then(|name| text(names, name as usize));
        found.extend(name);
        at += u32_at(table, at + 12).unwrap_or(0) as usize;
    }
    found
}

fn section(bytes: &[u8]) -> Option<Section> {
    Some(Section {
        kind: u32_at(bytes, 4)?,
        offset: u64_at(bytes, 24)?,
        size: u64_at(bytes, 32)?,
        link: u32_at(bytes, 40)?,
    })
}

/// Names of C++, of which there are hundreds of thousands, and none of them CUDA's.
fn is_mangled(names: &[u8], at: usize) -> bool {
    names.get(at..).is_some_and(|name| name.starts_with(b"_Z"))
}

fn text(names: &[u8], at: usize) -> Option<String> {
    let tail = names.get(at..)?;
    let end = tail.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&tail[..end]).into_owned())
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
