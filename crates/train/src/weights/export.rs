//! A folder that transformers loads: config.json, the weights, and the tokenizer's files. It appears whole or not at all.

mod config;

use plimsoll_base::folders::FolderDraft;
use plimsoll_base::safetensors::{TensorHead, TensorWriter};
use plimsoll_core::plan::{Program, Resident};
use plimsoll_exec::Executor;
use plimsoll_models::families::HuggingFace;
use plimsoll_models::hf::HfError;
use plimsoll_models::hf::checkpoint::INDEX;
pub(crate) use plimsoll_models::hf::checkpoint::WEIGHTS;
use plimsoll_models::hf::convert::names_of;
use plimsoll_models::hf::names::{expand, is_scalar};
use plimsoll_models::recipe::Model;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Weights beyond this many bytes are split over files.
pub const SHARD_BYTES: u64 = 5_000_000_000;

pub(crate) const CONFIG: &str = "config.json";
/// How a series was brought to the model's scale, and the names of its classes.
pub(crate) const NORMALIZER: &str = "normalizer.json";
pub(crate) const TOKENIZER: &str = "tokenizer.json";

/// Files beside the weights that belong to a tokenizer or an image processor.
const COMPANIONS: [&str; 12] = [
    TOKENIZER,
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
struct TensorPart<'a> {
    head: TensorHead,
    resident: &'a Resident,
    index: usize,
    bytes: u64,
}

/// Whether an export writes files of this name, in whatever family's layout: a folder with nothing else may be replaced.
pub(crate) fn is_exported(name: &str) -> bool {
    name == WEIGHTS
        || name == INDEX
        || name == CONFIG
        || name == NORMALIZER
        || COMPANIONS.contains(&name)
        || is_shard(name)
}

/// `model-00001-of-00003.safetensors`
fn is_shard(name: &str) -> bool {
    let numbers = name.strip_prefix("model-").and_then(|rest| rest.strip_suffix(".safetensors"));
    let is_number = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.and_then(|rest| rest.split_once("-of-")).is_some_and(|(n, of)| is_number(n) && is_number(of))
}

impl Export<'_> {
    /// Writes the folder `dir`; one with an export and nothing else in it is replaced. Returns the bytes of the weights.
    pub fn write(&self, dir: &Path) -> Result<u64, HfError> {
        let is_known = |name: &str| is_exported(name) || self.extras.iter().any(|(extra, _)| *extra == name);
        let draft = FolderDraft::begin(dir, &is_known)?;
        let bytes = self.fill(&draft)?;
        draft.publish()?;
        Ok(bytes)
    }

    fn fill(&self, draft: &FolderDraft<'_>) -> Result<u64, HfError> {
        let parts = self.parts();
        let config = config::config_json(self, parts.first().map(|p| p.resident.ty.dtype))?;
        let io = |cause| HfError::Write { path: draft.path().into(), cause };
        let bytes = self.write_weights(draft, &parts).map_err(io)?;
        draft.write(CONFIG, config.as_bytes()).map_err(io)?;
        for (name, from) in self.companions() {
            copy_into(draft, name, &from)?;
        }
        self.extras.iter().try_for_each(|(name, data)| draft.write(name, data)).map_err(io)?;
        Ok(bytes)
    }

    /// The tensors in the order of the program.
    fn parts(&self) -> Vec<TensorPart<'_>> {
        let parameters = self.program.residents.iter().filter(|r| r.is_parameter);
        parameters.flat_map(parts_of).collect()
    }

    fn write_weights(&self, draft: &FolderDraft<'_>, parts: &[TensorPart<'_>]) -> io::Result<u64> {
        let at = |name: &str| draft.path().join(name);
        let shards = shards(parts, self.shard_bytes);
        let total: u64 = parts.iter().map(|p| p.bytes).sum();
        if let [_] | [] = shards[..] {
            self.write_shard(&at(WEIGHTS), parts)?;
            return Ok(total);
        }
        let mut map = BTreeMap::new();
        for (number, shard) in shards.iter().enumerate() {
            let name = format!("model-{:05}-of-{:05}.safetensors", number + 1, shards.len());
            self.write_shard(&at(&name), shard)?;
            map.extend(shard.iter().map(|part| (part.head.name.as_str(), name.clone())));
        }
        let index = json!({ "metadata": { "total_size": total }, "weight_map": map });
        draft.write(INDEX, &serde_json::to_vec_pretty(&index)?)?;
        Ok(total)
    }

    /// Tensor by tensor: what a device hands out is let go before the next.
    fn write_shard(&self, path: &Path, parts: &[TensorPart<'_>]) -> io::Result<()> {
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

    /// What goes along unless it was made by code, and where it is: the tokenizer's files before those of the source.
    fn companions(&self) -> BTreeMap<&'static str, PathBuf> {
        let is_file = self.tokenizer.is_some_and(Path::is_file);
        let folders = [self.source, self.tokenizer.map(|t| if is_file { t.parent().unwrap_or(t) } else { t })];
        let all = folders.into_iter().flatten().flat_map(|folder| COMPANIONS.map(|name| (name, folder.join(name))));
        let mut found: BTreeMap<_, _> = all.filter(|(_, from)| from.is_file()).collect();
        if let Some(file) = self.tokenizer.filter(|_| is_file) {
            // Whatever it is called.
            found.insert(TOKENIZER, file.into());
        }
        found.retain(|name, _| self.extras.iter().all(|(extra, _)| extra != name));
        found
    }
}

/// Copies a file that an export names; an error says which.
pub(crate) fn copy_into(draft: &FolderDraft<'_>, name: &str, from: &Path) -> Result<(), HfError> {
    let data = fs::read(from).map_err(|cause| HfError::Io { path: from.into(), cause })?;
    draft.write(name, &data).map_err(|cause| HfError::Write { path: draft.path().join(name), cause })
}

/// One tensor for each name in braces, in equal parts.
fn parts_of(resident: &Resident) -> Vec<TensorPart<'_>> {
    let (dtype, names) = (names_of(resident.ty.dtype).0, expand(&resident.name));
    let count = names.len();
    let mut shape = resident.ty.shape.to_vec();
    if let Some(first) = shape.first_mut() {
        *first /= count;
    }
    let bytes = (resident.ty.elements() / count * resident.ty.dtype.bytes()) as u64;
    let part = |(index, name): (usize, String)| {
        let shape = if is_scalar(&name) { Vec::new() } else { shape.clone() };
        TensorPart { head: TensorHead { name, dtype, shape }, resident, index, bytes }
    };
    names.into_iter().enumerate().map(part).collect()
}

/// Runs of tensors of at most `most` bytes; a larger one has a file of its own.
fn shards<'p, 'a>(parts: &'p [TensorPart<'a>], most: u64) -> Vec<&'p [TensorPart<'a>]> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_an_export_are_known_by_their_names() {
        let known =
            ["model.safetensors", "model-00001-of-00012.safetensors", "config.json", "vocab.txt", "normalizer.json"];
        assert!(known.into_iter().all(is_exported));
        let others =
            ["model-1-of-2.safetensors", "model-00001-of-.safetensors", "README.md", ".git", "onnx", "state.json"];
        assert!(!others.into_iter().any(is_exported));
    }
}
