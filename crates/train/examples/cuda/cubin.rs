//! What a compiled kernel asks of a multiprocessor, read off the sections of its ELF file.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Resources {
    pub registers: u32,
    /// Shared memory that is declared in the source; what a launch adds comes on top.
    pub shared_bytes: u32,
}

/// By kernel; `None` if this is not a cubin.
pub fn resources(cubin: &[u8]) -> Option<BTreeMap<String, Resources>> {
    let count = number::<2>(cubin, 0x3C)?;
    let names_at = Section::read(cubin, number::<2>(cubin, 0x3E)?)?.offset;
    let mut kernels: BTreeMap<String, Resources> = BTreeMap::new();
    for index in 0..count {
        let section = Section::read(cubin, index)?;
        let name = text(cubin, names_at + section.name)?;
        if let Some(kernel) = name.strip_prefix(".text.") {
            // The upper byte of sh_info.
            kernels.entry(kernel.into()).or_default().registers = section.info >> 24;
        }
        if let Some(kernel) = name.strip_prefix(".nv.shared.").filter(|name| !name.starts_with("reserved")) {
            kernels.entry(kernel.into()).or_default().shared_bytes = section.bytes;
        }
    }
    Some(kernels)
}

struct Section {
    name: usize,
    offset: usize,
    bytes: u32,
    info: u32,
}

impl Section {
    fn read(elf: &[u8], index: usize) -> Option<Section> {
        let at = number::<8>(elf, 0x28)? + index * number::<2>(elf, 0x3A)?;
        Some(Section {
            name: number::<4>(elf, at)?,
            offset: number::<8>(elf, at + 24)?,
            bytes: number::<8>(elf, at + 32)? as u32,
            info: number::<4>(elf, at + 44)? as u32,
        })
    }
}

/// `N` bytes, little-endian.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    Some(bytes.get(at..at + N)?.iter().rev().fold(0, |n, &byte| n << 8 | byte as usize))
}

fn text(bytes: &[u8], at: usize) -> Option<String> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|&b| b == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}
