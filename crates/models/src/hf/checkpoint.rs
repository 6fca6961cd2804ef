//! The tensors of a checkpoint: one file, or several with an index.

use super::HfError;
use super::config::{Config, read_json};
use plimsoll_base::safetensors::{TensorFile, TensorFileError, TensorInfo};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub const WEIGHTS: &str = "model.safetensors";
pub const INDEX: &str = "model.safetensors.index.json";

/// An index names each tensor once: some hundred bytes for each of some ten thousand.
const MOST_INDEX_BYTES: u64 = 64 << 20;

/// Bytes of two tensors that are compared at a time.
const COMPARED_BYTES: usize = 1 << 20;

/// An open checkpoint: which tensors there are, and where.
#[derive(Debug)]
pub struct Checkpoint {
    dir: PathBuf,
    files: Vec<TensorFile>,
    /// By name: the number of its file.
    tensors: BTreeMap<String, usize>,
}

impl Checkpoint {
    /// Reads the headers of the weights in `dir`.
    pub fn open(dir: &Path) -> Result<Checkpoint, HfError> {
        if dir.join(WEIGHTS).exists() {
            return Self::from_file(dir);
        }
        if dir.join(INDEX).exists() {
            return Self::from_index(dir);
        }
        let torch = ["pytorch_model.bin", "pytorch_model.bin.index.json"].map(|name| dir.join(name));
        match torch.into_iter().find(|path| path.exists()) {
            Some(path) => {
                let class = Config::open(dir).map_or("AutoModel".into(), |config| config.class().into());
                Err(HfError::Torch { path, class })
            }
            None => Err(HfError::NoWeights { dir: dir.into() }),
        }
    }

    fn from_file(dir: &Path) -> Result<Checkpoint, HfError> {
        let file = TensorFile::open(&dir.join(WEIGHTS))?;
        let tensors = file.tensors().keys().map(|name| (name.clone(), 0)).collect();
        Ok(Checkpoint { dir: dir.into(), files: vec![file], tensors })
    }

    fn from_index(dir: &Path) -> Result<Checkpoint, HfError> {
        let path = dir.join(INDEX);
        let broken = |cause: String| HfError::Json { path: path.clone(), cause };
        let index = read_json(&path, MOST_INDEX_BYTES)?;
        let map = index.get("weight_map").and_then(Value::as_object);
        let map = map.ok_or_else(|| broken("it has no weight_map".into()))?;
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut checkpoint = Checkpoint { dir: dir.into(), files: Vec::new(), tensors: BTreeMap::new() };
        for (name, shard) in map {
            let shard = shard.as_str().filter(|shard| is_file_name(shard));
            let shard = shard.ok_or_else(|| broken(format!("weight_map: {name:?} is in no file of this folder")))?;
            let number = match numbers.get(shard) {
                Some(&number) => number,
                None => {
                    checkpoint.files.push(open_shard(dir, shard, name)?);
                    numbers.insert(shard, checkpoint.files.len() - 1);
                    checkpoint.files.len() - 1
                }
            };
            if !checkpoint.files[number].tensors().contains_key(name) {
                let cause = format!("{name:?} is not in it, though the index says so");
                return Err(HfError::Shard { path: dir.join(shard), cause });
            }
            checkpoint.tensors.insert(name.clone(), number);
        }
        Ok(checkpoint)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.files[*self.tensors.get(name)?].tensors().get(name)
    }

    /// Whether two tensors hold the same numbers in the same type. Reads until they differ.
    pub fn is_same(&self, one: &str, other: &str) -> Result<bool, HfError> {
        let (Some(a), Some(b)) = (self.info(one), self.info(other)) else { return Ok(false) };
        if a.dtype != b.dtype || a.shape != b.shape {
            return Ok(false);
        }
        let mut pieces = [vec![0; COMPARED_BYTES], vec![0; COMPARED_BYTES]];
        let bytes = a.data_offsets.1 - a.data_offsets.0;
        for start in (0..bytes).step_by(COMPARED_BYTES) {
            let len = (bytes - start).min(COMPARED_BYTES as u64) as usize;
            for (name, piece) in [one, other].into_iter().zip(&mut pieces) {
                self.read_part(name, start, &mut piece[..len])?;
            }
            if pieces[0][..len] != pieces[1][..len] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Fills `data` with the bytes of a tensor from `offset` on.
    pub fn read_part(&self, name: &str, offset: u64, data: &mut [u8]) -> Result<(), HfError> {
        let file = self.tensors.get(name).map(|&number| &self.files[number]);
        match file.and_then(|file| Some((file, file.tensors().get(name)?))) {
            Some((file, info)) => Ok(file.read_part(info, offset, data)?),
            None => Err(HfError::Shard { path: self.dir.clone(), cause: format!("{name} is not there") }),
        }
    }
}

/// A plain name: an index must not lead out of its folder.
fn is_file_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(std::path::Component::Normal(only)), None) if only == name)
        && !name.contains('\0')
}

fn open_shard(dir: &Path, shard: &str, name: &str) -> Result<TensorFile, HfError> {
    TensorFile::open(&dir.join(shard)).map_err(|error| match error {
        TensorFileError::Io { path, cause } if cause.kind() == std::io::ErrorKind::NotFound => {
            HfError::Shard { path, cause: format!("this part is missing; it holds {name} and others") }
        }
        error => error.into(),
    })
}
