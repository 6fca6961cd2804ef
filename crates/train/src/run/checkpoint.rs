//! Checkpoints: everything a run needs to go on with the same bits. A checkpoint appears whole or not at all.

use plimsoll_base::safetensors::{TensorFile, TensorFileError, TensorHead, TensorWriter};
use plimsoll_core::graph::Component;
use plimsoll_core::plan::{Program, Resident};
use plimsoll_core::types::DType;
use plimsoll_data::Position;
use plimsoll_exec::Executor;
use plimsoll_planner::program::scaling;
use plimsoll_runs::{Best, Scores};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

const TENSORS: &str = "state.safetensors";
const STATE: &str = "state.json";

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub step: usize,
    pub position: Position,
    pub recipe_hash: String,
    pub samples_seen: u64,
    /// Best evaluation so far.
    pub best: Option<Best>,
    /// Evaluations since then.
    pub without_improvement: usize,
    /// The last evaluation.
    pub last: Option<Scores>,
}

#[derive(Debug, Error)]
pub enum CheckpointError {
    #[error("cannot write checkpoint {path}: {cause}; {previous}")]
    Write { path: PathBuf, cause: io::Error, previous: String },
    #[error("cannot read checkpoint {path}: {cause}")]
    Read { path: PathBuf, cause: io::Error },
    #[error("checkpoint {path} is damaged: {cause}")]
    Damaged { path: PathBuf, cause: String },
    #[error("checkpoint {path} does not fit this recipe: {cause}")]
    Another { path: PathBuf, cause: String },
    #[error(transparent)]
    Tensors(#[from] TensorFileError),
}

/// What a checkpoint holds: weights, running statistics and optimizer state. Everything else is zero between steps or
/// set before each.
fn is_stored(resident: &Resident) -> bool {
    matches!(resident.component, Component::Weights | Component::Optimizer)
}

/// The checkpoints of a run, by step, oldest first. Unfinished ones do not count.
pub fn list(dir: &Path) -> Vec<(usize, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let step = |path: &Path| path.file_name()?.to_str()?.strip_prefix("step-")?.parse().ok();
    let mut found: Vec<(usize, PathBuf)> = entries.map(|e| e.path()).filter_map(|p| Some((step(&p)?, p))).collect();
    found.sort();
    found
}

/// Writes `step-N` beside its final place, makes it durable, and only then gives it its name. Returns path and bytes.
pub fn write(
    dir: &Path,
    state: &State,
    program: &Program,
    executor: &dyn Executor,
) -> Result<(PathBuf, u64), CheckpointError> {
    let target = dir.join(format!("step-{}", state.step));
    let draft = dir.join(format!(".draft-step-{}", state.step));
    let written = write_draft(dir, &draft, &target, state, program, executor);
    written.map(|bytes| (target.clone(), bytes)).map_err(|cause| {
        // Nothing half-written stays behind; what was there before is untouched.
        let _ = fs::remove_dir_all(&draft);
        let previous = match list(dir).last() {
            Some((step, _)) => format!("the checkpoint of step {step} is intact"),
            None => "there was none before".into(),
        };
        CheckpointError::Write { path: target, cause, previous }
    })
}

fn write_draft(
    dir: &Path,
    draft: &Path,
    target: &Path,
    state: &State,
    program: &Program,
    executor: &dyn Executor,
) -> io::Result<u64> {
    if draft.exists() {
        fs::remove_dir_all(draft)?;
    }
    fs::create_dir_all(draft)?;
    let stored: Vec<&Resident> = program.residents.iter().filter(|r| is_stored(r)).collect();
    let bytes = write_residents(&draft.join(TENSORS), &stored, executor, &BTreeMap::new())?;
    let mut file = File::create(draft.join(STATE))?;
    serde_json::to_writer_pretty(&mut file, state)?;
    file.sync_all()?;
    File::open(draft)?.sync_all()?;
    discard(target)?;
    fs::rename(draft, target)?;
    File::open(dir)?.sync_all()?;
    Ok(bytes)
}

/// Tensor by tensor: what a device hands out is let go before the next. Returns the file's size.
fn write_residents(
    path: &Path,
    residents: &[&Resident],
    executor: &dyn Executor,
    metadata: &BTreeMap<String, String>,
) -> io::Result<u64> {
    let head =
        |r: &&Resident| TensorHead { name: r.name.clone(), dtype: dtype_name(r.ty.dtype), shape: r.ty.shape.to_vec() };
    let mut writer = TensorWriter::create(path, residents.iter().map(head), metadata)?;
    for resident in residents {
        let missing = || io::Error::other(format!("{} is not in the arena", resident.name));
        writer.write(&executor.read_resident(&resident.name).ok_or_else(missing)?)?;
    }
    writer.finish()
}

/// The trained weights (and running statistics) alone, as `model.safetensors`.
pub fn write_model(path: &Path, program: &Program, executor: &dyn Executor) -> io::Result<u64> {
    let weights: Vec<&Resident> = program.residents.iter().filter(|r| r.component == Component::Weights).collect();
    write_residents(path, &weights, executor, &BTreeMap::from([("format".into(), "pt".into())]))
}

pub fn read_state(path: &Path) -> Result<State, CheckpointError> {
    let text = fs::read(path.join(STATE)).map_err(|cause| CheckpointError::Read { path: path.into(), cause })?;
    parse_state(&text).map_err(|cause| CheckpointError::Damaged { path: path.into(), cause })
}

/// The text of state.json.
pub fn parse_state(text: &[u8]) -> Result<State, String> {
    serde_json::from_slice(text).map_err(|e| e.to_string())
}

/// Puts a checkpoint back into the arena. Everything is checked before the first byte is copied.
pub fn restore(path: &Path, program: &Program, executor: &mut dyn Executor) -> Result<(), CheckpointError> {
    let stored: Vec<&Resident> = program.residents.iter().filter(|r| is_stored(r)).collect();
    load(&path.join(TENSORS), &stored, executor)
}

/// The weights of a checkpoint alone, for using the model.
pub fn restore_weights(path: &Path, program: &Program, executor: &mut dyn Executor) -> Result<(), CheckpointError> {
    let weights: Vec<&Resident> = program.residents.iter().filter(|r| r.component == Component::Weights).collect();
    let path = path.join(TENSORS);
    let file = TensorFile::open(&path)?;
    check_present(&file, &weights).map_err(|cause| CheckpointError::Another { path: path.clone(), cause })?;
    copy(&path, &file, &weights, executor)
}

/// Weights from a `model.safetensors`.
pub fn load_model(path: &Path, program: &Program, executor: &mut dyn Executor) -> Result<(), CheckpointError> {
    let weights: Vec<&Resident> = program.residents.iter().filter(|r| r.component == Component::Weights).collect();
    load(path, &weights, executor)
}

fn load(path: &Path, residents: &[&Resident], executor: &mut dyn Executor) -> Result<(), CheckpointError> {
    let another = |cause: String| CheckpointError::Another { path: path.into(), cause };
    let file = TensorFile::open(path)?;
    check_present(&file, residents).and_then(|()| check_known(&file, residents)).map_err(another)?;
    copy(path, &file, residents, executor)
}

fn copy(
    path: &Path,
    file: &TensorFile,
    residents: &[&Resident],
    executor: &mut dyn Executor,
) -> Result<(), CheckpointError> {
    let another = |cause: String| CheckpointError::Another { path: path.into(), cause };
    for resident in residents {
        let data = file.read(&file.tensors()[&resident.name])?;
        if !executor.write_resident(&resident.name, &data) {
            return Err(another(format!("{} is not in the arena", resident.name)));
        }
    }
    Ok(())
}

/// Every tensor there, each of the right type and shape.
fn check_present(file: &TensorFile, residents: &[&Resident]) -> Result<(), String> {
    for resident in residents {
        let Some(info) = file.tensors().get(&resident.name) else {
            return Err(format!("it has no {}", resident.name));
        };
        if info.shape[..] != resident.ty.shape[..] || info.dtype != dtype_name(resident.ty.dtype) {
            let found = format!("{} {:?}", info.dtype, info.shape);
            return Err(format!("{} is {found}, the model has {}", resident.name, resident.ty));
        }
    }
    Ok(())
}

/// No tensor that is not wanted. The scale of a loss is left out where there is none: a run in f16 goes on in f32 on a
/// processor.
fn check_known(file: &TensorFile, residents: &[&Resident]) -> Result<(), String> {
    let known = |name: &String| scaling::is_state(name) || residents.iter().any(|r| r.name == *name);
    match file.tensors().keys().find(|name| !known(name)) {
        Some(extra) => Err(format!("it has {extra}, which the model does not")),
        None => Ok(()),
    }
}

/// Removes old checkpoints; the newest `keep` and the best stay. What cannot be removed costs space, nothing else.
pub fn prune(dir: &Path, keep: usize, best: Option<usize>) {
    let all = list(dir);
    let old = all.len().saturating_sub(keep.max(1));
    for (_, path) in all.iter().take(old).filter(|(step, _)| Some(*step) != best) {
        let _ = discard(path);
    }
}

/// Takes the name away first: a kill in the middle leaves no half of a checkpoint under its name.
fn discard(path: &Path) -> io::Result<()> {
    let Some(name) = path.file_name().filter(|_| path.exists()) else { return Ok(()) };
    let doomed = path.with_file_name(format!(".doomed-{}", name.to_string_lossy()));
    if doomed.exists() {
        fs::remove_dir_all(&doomed)?;
    }
    fs::rename(path, &doomed)?;
    fs::remove_dir_all(doomed)
}

/// Clears what a kill left behind: drafts and half-removed checkpoints.
pub fn sweep(dir: &Path) {
    let hidden = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
    for path in fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).filter(hidden) {
        let _ = fs::remove_dir_all(path);
    }
}

fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "F32",
        DType::F64 => "F64",
        DType::Bf16 => "BF16",
        DType::F16 => "F16",
        DType::I32 => "I32",
        DType::I64 => "I64",
        DType::Bool => "BOOL",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_of_a_loss_may_be_left_out_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(TENSORS);
        for (name, may) in [("scaling.scale", true), ("moment1.w", false)] {
            let head = TensorHead { name: name.into(), dtype: "F32", shape: vec![1] };
            let mut writer = TensorWriter::create(&path, [head], &BTreeMap::new()).unwrap();
            writer.write(&[0; 4]).unwrap();
            writer.finish().unwrap();
            assert_eq!(check_known(&TensorFile::open(&path).unwrap(), &[]).is_ok(), may, "{name}");
        }
    }
}
