//! A folder that transformers loads: config.json, the weights, and the tokenizer's files. It appears whole or not at all.

mod config;

use plimsoll_base::safetensors::{TensorHead, TensorWriter};
use plimsoll_core::plan::{Program, Resident};
use plimsoll_exec::Executor;
use plimsoll_models::families::HuggingFace;
use plimsoll_models::hf::HfError;
use plimsoll_models::hf::checkpoint::{INDEX, WEIGHTS};
use plimsoll_models::hf::convert::names_of;
use plimsoll_models::hf::names::{expand, is_scalar};
use plimsoll_models::recipe::Model;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Weights beyond this many bytes are split over files.
pub const SHARD_BYTES: u64 = 5_000_000_000;

/// Files beside the weights that belong to a tokenizer or an image processor.
const COMPANIONS: [&str; 12] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "preprocessor_config.json",
    "generation_config.json",
];

/// What is written.
pub struct Export<'a> {
    pub program: &'a Program,
    pub executor: &'a dyn Executor,
    pub names: &'a HuggingFace,
    pub model: &'a Model,
    /// The folder of the checkpoint that training started from: keys of its config.json and its tokenizer go along.
    pub source: Option<&'a Path>,
    /// A tokenizer.json, or a folder with one; none given: that of the source.
    pub tokenizer: Option<&'a Path>,
    /// Names of the labels, by number; none given: those of the source, or LABEL_0, LABEL_1, …
    pub labels: &'a [String],
    /// Other files, by name.
    pub extras: &'a [(&'a str, &'a [u8])],
    /// Usually `SHARD_BYTES`.
    pub shard_bytes: u64,
}

/// One tensor of the file: rows of a parameter.
struct Part<'a> {
    head: TensorHead,
    resident: &'a Resident,
    index: usize,
    bytes: u64,
}

impl Export<'_> {
    /// Writes the folder `dir`; one with a model in it is replaced. Returns the bytes of the weights.
    pub fn write(&self, dir: &Path) -> Result<u64, HfError> {
        refuse_other_content(dir)?;
        let name = dir.file_name().map_or("model".into(), |n| n.to_string_lossy().into_owned());
        let (draft, doomed) =
            (dir.with_file_name(format!(".draft-{name}")), dir.with_file_name(format!(".doomed-{name}")));
        let written = self.write_draft(&draft).and_then(|bytes| {
            let io = |cause| HfError::Write { path: dir.into(), cause };
            remove(&doomed).map_err(io)?;
            if dir.exists() {
                fs::rename(dir, &doomed).map_err(io)?;
            }
            fs::rename(&draft, dir).map_err(io)?;
            sync_folder(dir.parent().unwrap_or(Path::new("."))).map_err(io)?;
            Ok(bytes)
        });
        // What cannot be removed costs space, nothing else.
        let _ = remove(&doomed);
        if written.is_err() {
            let _ = remove(&draft);
        }
        written
    }

    fn write_draft(&self, draft: &Path) -> Result<u64, HfError> {
        let parts = self.parts();
        let config = config::config_json(self, parts.first().map(|p| p.resident.ty.dtype))?;
        let io = |cause| HfError::Write { path: draft.into(), cause };
        remove(draft).map_err(io)?;
        fs::create_dir_all(draft).map_err(io)?;
        let bytes = self.write_weights(draft, &parts).map_err(io)?;
        write_durably(&draft.join("config.json"), config.as_bytes()).map_err(io)?;
        self.copy_companions(draft)?;
        for (name, data) in self.extras {
            write_durably(&draft.join(name), data).map_err(io)?;
        }
        sync_folder(draft).map_err(io)?;
        Ok(bytes)
    }

    /// The tensors in the order of the program.
    fn parts(&self) -> Vec<Part<'_>> {
        let parameters = self.program.residents.iter().filter(|r| r.is_parameter);
        parameters.flat_map(parts_of).collect()
    }

    fn write_weights(&self, draft: &Path, parts: &[Part<'_>]) -> io::Result<u64> {
        let shards = shards(parts, self.shard_bytes);
        let total: u64 = parts.iter().map(|p| p.bytes).sum();
        if let [_] | [] = shards[..] {
            self.write_shard(&draft.join(WEIGHTS), parts)?;
            return Ok(total);
        }
        let mut map = BTreeMap::new();
        for (number, shard) in shards.iter().enumerate() {
            let name = format!("model-{:05}-of-{:05}.safetensors", number + 1, shards.len());
            self.write_shard(&draft.join(&name), shard)?;
            map.extend(shard.iter().map(|part| (part.head.name.as_str(), name.clone())));
        }
        let index = json!({ "metadata": { "total_size": total }, "weight_map": map });
        write_durably(&draft.join(INDEX), &serde_json::to_vec_pretty(&index)?)?;
        Ok(total)
    }

    /// Tensor by tensor: what a device hands out is let go before the next.
    fn write_shard(&self, path: &Path, parts: &[Part<'_>]) -> io::Result<()> {
        let metadata = BTreeMap::from([("format".into(), "pt".into())]);
        let mut writer = TensorWriter::create(path, parts.iter().map(|p| p.head.clone()), &metadata)?;
        for part in parts {
            let missing = || io::Error::other(format!("{} is not in the arena", part.resident.name));
            let data = self.executor.read_resident(&part.resident.name).ok_or_else(missing)?;
            let start = part.index * part.bytes as usize;
            writer.write(data.get(start..start + part.bytes as usize).ok_or_else(missing)?)?;
        }
        writer.finish().map(drop)
    }

    fn copy_companions(&self, draft: &Path) -> Result<(), HfError> {
        let is_file = self.tokenizer.is_some_and(Path::is_file);
        let folders = [self.source, self.tokenizer.map(|t| if is_file { t.parent().unwrap_or(t) } else { t })];
        for (folder, name) in folders.into_iter().flatten().flat_map(|f| COMPANIONS.map(|name| (f, name))) {
            let from = folder.join(name);
            if from.is_file() {
                copy_durably(&from, &draft.join(name))?;
            }
        }
        match self.tokenizer.filter(|_| is_file) {
            // Whatever it is called.
            Some(file) => copy_durably(file, &draft.join("tokenizer.json")),
            None => Ok(()),
        }
    }
}

/// One tensor for each name in braces, in equal parts.
fn parts_of(resident: &Resident) -> Vec<Part<'_>> {
    let (dtype, names) = (names_of(resident.ty.dtype).0, expand(&resident.name));
    let count = names.len();
    let mut shape = resident.ty.shape.to_vec();
    if let Some(first) = shape.first_mut() {
        *first /= count;
    }
    let bytes = (resident.ty.elements() / count * resident.ty.dtype.bytes()) as u64;
    let part = |(index, name): (usize, String)| {
        let shape = if is_scalar(&name) { Vec::new() } else { shape.clone() };
        Part { head: TensorHead { name, dtype, shape }, resident, index, bytes }
    };
    names.into_iter().enumerate().map(part).collect()
}

/// Runs of tensors of at most `most` bytes; a larger one has a file of its own.
fn shards<'p, 'a>(parts: &'p [Part<'a>], most: u64) -> Vec<&'p [Part<'a>]> {
    let mut shards = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, part) in parts.iter().enumerate() {
        if at > start && bytes + part.bytes > most {
            shards.push(&parts[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += part.bytes;
    }
    shards.push(&parts[start..]);
    shards
}

/// Only a folder that is empty, or holds a model, may be replaced.
fn refuse_other_content(dir: &Path) -> Result<(), HfError> {
    let occupied = |cause: &str| Err(HfError::Occupied { path: PathBuf::from(dir), cause: cause.into() });
    if dir.is_file() {
        return occupied("this is a file");
    }
    let mut entries = fs::read_dir(dir).into_iter().flatten().flatten().peekable();
    let is_model = dir.join(WEIGHTS).exists() || dir.join(INDEX).exists();
    if entries.peek().is_some() && !is_model {
        occupied("this folder holds something else than a model")
    } else {
        Ok(())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    if path.exists() { fs::remove_dir_all(path) } else { Ok(()) }
}

fn write_durably(path: &Path, data: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(data)?;
    file.sync_all()
}

fn copy_durably(from: &Path, to: &Path) -> Result<(), HfError> {
    let data = fs::read(from).map_err(|cause| HfError::Io { path: from.into(), cause })?;
    write_durably(to, &data).map_err(|cause| HfError::Write { path: to.into(), cause })
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path)?.sync_all()
}
