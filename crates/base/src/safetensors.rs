//! Safetensors files, written and read tensor by tensor. Sizes in a file are checked before anything is allocated for
//! them, and at most one tensor is in host memory at a time.

use crate::files::open_to_read;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Larger headers are refused: a header is text about tensors, not tensors.
const MOST_HEADER_BYTES: u64 = 64 << 20;

#[derive(Debug, Error)]
pub enum TensorFileError {
    #[error("{path}: {cause}")]
    Io { path: PathBuf, cause: io::Error },
    #[error("{path}: not a whole safetensors file: {cause}")]
    Damaged { path: PathBuf, cause: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorInfo {
    pub dtype: String,
    pub shape: Vec<usize>,
    pub data_offsets: (u64, u64),
}

/// An open file: what is in it, and where.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    file: File,
    data_start: u64,
    tensors: BTreeMap<String, TensorInfo>,
    pub metadata: BTreeMap<String, String>,
}

impl TensorFile {
    pub fn open(path: &Path) -> Result<TensorFile, TensorFileError> {
        let io = |cause| TensorFileError::Io { path: path.into(), cause };
        let damaged = |cause: String| TensorFileError::Damaged { path: path.into(), cause };
        let mut file = open_to_read(path).map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        let mut size = [0u8; 8];
        file.read_exact(&mut size).map_err(|_| damaged(format!("{len} bytes is too short")))?;
        let header_bytes = u64::from_le_bytes(size);
        if header_bytes > MOST_HEADER_BYTES || header_bytes > len.saturating_sub(8) {
            return Err(damaged(format!("its header claims {header_bytes} of {len} bytes")));
        }
        let mut header = vec![0u8; header_bytes as usize];
        file.read_exact(&mut header).map_err(io)?;
        let (tensors, metadata) = parse_header(&header, len - 8 - header_bytes).map_err(damaged)?;
        Ok(TensorFile { path: path.into(), file, data_start: 8 + header_bytes, tensors, metadata })
    }

    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.tensors
    }

    /// Fills `data` with the bytes of a tensor from `offset` on.
    pub fn read_part(&self, info: &TensorInfo, offset: u64, data: &mut [u8]) -> Result<(), TensorFileError> {
        let (start, end) = info.data_offsets;
        let asked = offset.checked_add(data.len() as u64);
        if asked.is_none_or(|asked| asked > end - start) {
            let cause = format!("bytes {offset}.. of a tensor of {} were asked for", end - start);
            return Err(TensorFileError::Damaged { path: self.path.clone(), cause });
        }
        let result = read_exact_at(&self.file, data, self.data_start + start + offset);
        result.map_err(|cause| TensorFileError::Io { path: self.path.clone(), cause })
    }

    /// The bytes of one tensor.
    pub fn read(&self, info: &TensorInfo) -> Result<Vec<u8>, TensorFileError> {
        let (start, end) = info.data_offsets;
        let mut data = vec![0u8; (end - start) as usize];
        let result = read_exact_at(&self.file, &mut data, self.data_start + start);
        result.map_err(|cause| TensorFileError::Io { path: self.path.clone(), cause })?;
        Ok(data)
    }
}

/// Fills `data` from `offset` on, whoever else reads the file meanwhile.
#[cfg(unix)]
fn read_exact_at(file: &File, data: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, data, offset)
}

/// Fills `data` from `offset` on. Each read names its own place; that it moves the file's position harms nobody, for
/// nobody reads by position once the header is read.
#[cfg(windows)]
fn read_exact_at(file: &File, mut data: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !data.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, data, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                data = &mut data[read..];
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

type Header = (BTreeMap<String, TensorInfo>, BTreeMap<String, String>);

/// Every tensor lies inside the data, has as many bytes as its type and shape say, and overlaps no other.
fn parse_header(header: &[u8], data_bytes: u64) -> Result<Header, String> {
    let Entries(mut entries) = serde_json::from_slice(header).map_err(|e| format!("its header is not JSON: {e}"))?;
    let metadata = match entries.remove("__metadata__") {
        None => BTreeMap::new(),
        Some(value) => serde_json::from_value(value).map_err(|e| format!("its metadata is not text: {e}"))?,
    };
    let mut tensors = BTreeMap::new();
    for (name, value) in entries {
        let info: TensorInfo = serde_json::from_value(value).map_err(|e| format!("{name}: {e}"))?;
        check_tensor(&info, data_bytes).map_err(|cause| format!("{name}: {cause}"))?;
        tensors.insert(name, info);
    }
    let mut ranges: Vec<(u64, u64)> = tensors.values().map(|t| t.data_offsets).collect();
    ranges.sort_unstable();
    match ranges.windows(2).all(|w| w[0].1 <= w[1].0) {
        true => Ok((tensors, metadata)),
        false => Err("two tensors overlap".into()),
    }
}

/// The entries of a header, none named twice: which of two would count?
struct Entries(BTreeMap<String, serde_json::Value>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Entries, D::Error> {
        struct Once;
        impl<'de> serde::de::Visitor<'de> for Once {
            type Value = Entries;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object with an entry for each tensor")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, serde_json::Value>()? {
                    if entries.insert(name.clone(), value).is_some() {
                        return Err(serde::de::Error::custom(format!("{name:?} is named twice")));
                    }
                }
                Ok(Entries(entries))
            }
        }
        from.deserialize_map(Once)
    }
}

fn check_tensor(info: &TensorInfo, data_bytes: u64) -> Result<(), String> {
    let size = element_bytes(&info.dtype).ok_or_else(|| format!("unknown element type {}", info.dtype))?;
    let bytes = info.shape.iter().try_fold(size, |n, &d| n.checked_mul(d as u64));
    let (start, end) = info.data_offsets;
    match bytes {
        Some(bytes) if end <= data_bytes && end.checked_sub(start) == Some(bytes) => Ok(()),
        _ => Err(format!("bytes {start}..{end} do not fit {:?} of {}", info.shape, info.dtype)),
    }
}

fn element_bytes(dtype: &str) -> Option<u64> {
    match dtype {
        "F64" | "I64" | "U64" => Some(8),
        "F32" | "I32" | "U32" => Some(4),
        "F16" | "BF16" | "I16" | "U16" => Some(2),
        "I8" | "U8" | "BOOL" => Some(1),
        _ => None,
    }
}

/// What the header says about one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorHead {
    pub name: String,
    pub dtype: &'static str,
    pub shape: Vec<usize>,
}

impl TensorHead {
    /// `None` for element types that are not known, and beyond `u64`.
    pub fn bytes(&self) -> Option<u64> {
        self.shape.iter().try_fold(element_bytes(self.dtype)?, |n, &d| n.checked_mul(d as u64))
    }
}

/// A file in the making: the header first, then the tensors' bytes in the same order, so that no more than one tensor
/// need be in memory.
pub struct TensorWriter {
    file: BufWriter<File>,
    header_bytes: u64,
    announced: u64,
    written: u64,
}

impl TensorWriter {
    pub fn create(
        path: &Path,
        tensors: impl IntoIterator<Item = TensorHead>,
        metadata: &BTreeMap<String, String>,
    ) -> io::Result<TensorWriter> {
        let mut header = serde_json::Map::new();
        if !metadata.is_empty() {
            header.insert("__metadata__".into(), serde_json::to_value(metadata)?);
        }
        let mut end = 0u64;
        for tensor in tensors {
            let bytes = tensor.bytes().and_then(|bytes| end.checked_add(bytes));
            let next = bytes.ok_or_else(|| io::Error::other(format!("{} cannot be stored", tensor.name)))?;
            let info = TensorInfo { dtype: tensor.dtype.into(), shape: tensor.shape, data_offsets: (end, next) };
            header.insert(tensor.name, serde_json::to_value(info)?);
            end = next;
        }
        let mut header = serde_json::to_vec(&header)?;
        // The data starts at a multiple of 8, as the format wants; spaces fill up.
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        Ok(TensorWriter { file, header_bytes: 8 + header.len() as u64, announced: end, written: 0 })
    }

    /// The next bytes, tensor after tensor.
    pub fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.written += data.len() as u64;
        self.file.write_all(data)
    }

    /// Makes sure that all of it is on disk. Returns the file's size.
    pub fn finish(self) -> io::Result<u64> {
        if self.written != self.announced {
            let (written, announced) = (self.written, self.announced);
            return Err(io::Error::other(format!("{written} bytes of tensors instead of {announced}")));
        }
        self.file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        Ok(self.header_bytes + self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(dir: &Path) -> PathBuf {
        let path = dir.join("a.safetensors");
        let head = |name: &str, dtype, shape: &[usize]| TensorHead { name: name.into(), dtype, shape: shape.into() };
        let heads = [head("a", "F32", &[2, 3]), head("b", "I64", &[1])];
        let mut writer = TensorWriter::create(&path, heads, &BTreeMap::from([("k".into(), "v".into())])).unwrap();
        writer.write(&[1; 24]).unwrap();
        writer.write(&[2; 8]).unwrap();
        writer.finish().unwrap();
        path
    }

    #[test]
    fn what_is_written_is_read_and_is_a_safetensors_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = sample(dir.path());
        let file = TensorFile::open(&path).unwrap();
        assert_eq!(file.read(&file.tensors()["a"]).unwrap(), [1; 24]);
        assert_eq!(file.metadata["k"], "v");
        let bytes = std::fs::read(&path).unwrap();
        let official = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(official.tensor("b").unwrap().data(), [2; 8]);
    }

    #[test]
    fn a_cut_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = sample(dir.path());
        let bytes = std::fs::read(&path).unwrap();
        for len in [0, 5, 8, 20, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..len]).unwrap();
            assert!(matches!(TensorFile::open(&path), Err(TensorFileError::Damaged { .. })), "{len}");
        }
    }
}
