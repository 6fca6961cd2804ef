//! Checkpoints: everything a run needs to go on with the same bits. A checkpoint appears whole or not at all.

mod fingerprint;

pub use crate::CheckpointError;
pub use fingerprint::Fingerprint;
use plimsoll_base::files::{sync_folder, write_new};
use plimsoll_base::folders::take_place;
use plimsoll_base::safetensors::{TensorFile, TensorFileError, TensorHead, TensorInfo, TensorWriter};
use plimsoll_core::graph::Component;
use plimsoll_core::plan::{Program, Resident};
use plimsoll_core::types::DType;
use plimsoll_core::types::first_not_finite;
use plimsoll_data::Position;
use plimsoll_exec::Executor;
use plimsoll_planner::program::scaling;
use plimsoll_runs::{Best, Scores};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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
    /// What it was trained on.
    #[serde(default)]
    pub data: Option<Fingerprint>,
}

/// state.json: where the run stands, and what its tensors are known by.
#[derive(Serialize)]
struct Stored<'a> {
    #[serde(flatten)]
    state: &'a State,
    sha256: &'a Checksums,
}

/// SHA-256, in hex, of each tensor's bytes, by its name.
type Checksums = BTreeMap<String, String>;

/// What a checkpoint holds: weights, running statistics and optimizer state. Everything else is zero between steps or
/// set before each.
fn is_stored(resident: &Resident) -> bool {
    matches!(resident.component, Component::Weights | Component::Optimizer)
}

/// The checkpoints of a run, by step, oldest first. Unfinished ones do not count.
pub fn list(dir: &Path) -> Vec<(usize, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<(usize, PathBuf)> = entries.map(|e| e.path()).filter_map(|p| Some((step_of(&p)?, p))).collect();
    found.sort();
    found
}

/// Writes `step-N` beside its final place, makes it durable, and only then gives it its name. One that says the same is
/// left as it is. Returns path and bytes.
pub fn write(
    dir: &Path,
    state: &State,
    program: &Program,
    executor: &dyn Executor,
) -> Result<(PathBuf, u64), CheckpointError> {
    let target = dir.join(format!("step-{}", state.step));
    if let Some(bytes) = whole_bytes(&target).filter(|_| read_state(&target).is_ok_and(|there| there == *state)) {
        return Ok((target, bytes));
    }
    let draft = dir.join(format!("{DRAFT}step-{}", state.step));
    let written =
        write_draft(&draft, state, program, executor).and_then(|bytes| place(&draft, &target).map(|()| bytes));
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

fn write_draft(draft: &Path, state: &State, program: &Program, executor: &dyn Executor) -> io::Result<u64> {
    if fs::symlink_metadata(draft).is_ok() {
        fs::remove_dir_all(draft)?;
    }
    fs::create_dir(draft)?;
    let stored: Vec<&Resident> = program.residents.iter().filter(|r| is_stored(r)).collect();
    let (bytes, sha256) = write_residents(&draft.join(TENSORS), &stored, executor, &BTreeMap::new())?;
    write_new(&draft.join(STATE), &serde_json::to_vec_pretty(&Stored { state, sha256: &sha256 })?)?;
    sync_folder(draft)?;
    Ok(bytes)
}

/// An older one of the same step goes only after the new one has its name.
fn place(draft: &Path, target: &Path) -> io::Result<()> {
    let old = take_place(draft, target, &doomed(target))?;
    sync_folder(target.parent().unwrap_or(target))?;
    // What of it cannot be removed is swept later.
    old.iter().for_each(|old| drop(fs::remove_dir_all(old)));
    Ok(())
}

/// The bytes of a checkpoint's tensors if everything that belongs to it is there, as it was written.
fn whole_bytes(path: &Path) -> Option<u64> {
    let tensors = path.join(TENSORS);
    let (file, checksums) = (TensorFile::open(&tensors).ok()?, read_checksums(path).ok()?);
    state_of(path).ok()?;
    let mut piece = Vec::new();
    let is_as_written = |(name, sha256): (&String, &String)| {
        let info = file.tensors().get(name)?;
        let mut digest = Sha256::new();
        for at in (0..span(info)).step_by(PIECE) {
            read_piece(&file, info, at, &mut piece).ok()?;
            digest.update(&piece);
        }
        (written(digest) == *sha256).then_some(())
    };
    let is_whole = checksums.iter().map(is_as_written).all(|found| found.is_some());
    fs::metadata(tensors).ok().filter(|_| is_whole).map(|there| there.len())
}

/// Tensor by tensor: what a device hands out is let go before the next. Returns the file's size, and what the tensors are
/// known by.
fn write_residents(
    path: &Path,
    residents: &[&Resident],
    executor: &dyn Executor,
    metadata: &BTreeMap<String, String>,
) -> io::Result<(u64, Checksums)> {
    let mut checksums = Checksums::new();
    let head =
        |r: &&Resident| TensorHead { name: r.name.clone(), dtype: dtype_name(r.ty.dtype), shape: r.ty.shape.to_vec() };
    let mut writer = TensorWriter::create(path, residents.iter().map(head), metadata)?;
    for resident in residents {
        let missing = || io::Error::other(format!("{} is not in the arena", resident.name));
        let data = executor.read_resident(&resident.name).ok_or_else(missing)?;
        writer.write(&data)?;
        checksums.insert(resident.name.clone(), checksum(&data));
    }
    Ok((writer.finish()?, checksums))
}

fn checksum(data: &[u8]) -> String {
    written(Sha256::new_with_prefix(data))
}

fn written(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The trained weights (and running statistics) alone, as `model.safetensors`.
pub(crate) fn write_model(path: &Path, program: &Program, executor: &dyn Executor) -> io::Result<u64> {
    let weights: Vec<&Resident> = program.residents.iter().filter(|r| r.component == Component::Weights).collect();
    write_residents(path, &weights, executor, &BTreeMap::from([("format".into(), "pt".into())])).map(|(bytes, _)| bytes)
}

/// Where a run stood at the checkpoint `step-N`, which must be step N.
pub(crate) fn read_state(path: &Path) -> Result<State, CheckpointError> {
    let state = state_of(path)?;
    match step_of(path) {
        Some(named) if named != state.step => {
            let cause = format!("its state is that of step {}", state.step);
            Err(CheckpointError::Damaged { path: path.into(), cause })
        }
        _ => Ok(state),
    }
}

/// The same whatever the folder is called.
fn state_of(path: &Path) -> Result<State, CheckpointError> {
    parse_state(&read_stored(path)?).map_err(|cause| CheckpointError::Damaged { path: path.into(), cause })
}

fn read_stored(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    fs::read(path.join(STATE)).map_err(|cause| CheckpointError::Read { path: path.into(), cause })
}

/// N of `step-N`.
fn step_of(path: &Path) -> Option<usize> {
    path.file_name()?.to_str()?.strip_prefix("step-")?.parse().ok()
}

/// What the tensors of a checkpoint are known by; nothing in one that was written before they were.
fn read_checksums(path: &Path) -> Result<Checksums, CheckpointError> {
    #[derive(Deserialize)]
    struct Known {
        #[serde(default)]
        sha256: Checksums,
    }
    let known = serde_json::from_slice::<Known>(&read_stored(path)?).map(|known| known.sha256);
    known.map_err(|e| CheckpointError::Damaged { path: path.into(), cause: e.to_string() })
}

/// The text of state.json.
pub fn parse_state(text: &[u8]) -> Result<State, String> {
    serde_json::from_slice(text).map_err(|e| e.to_string())
}

/// Puts a checkpoint back into the arena. Names and shapes are checked before the first byte is copied, and every
/// tensor's bytes before they are.
pub(crate) fn restore(path: &Path, program: &Program, executor: &mut dyn Executor) -> Result<(), CheckpointError> {
    let stored: Vec<&Resident> = program.residents.iter().filter(|r| is_stored(r)).collect();
    load(&path.join(TENSORS), &stored, &read_checksums(path)?, executor)
}

/// The weights of a checkpoint alone, for using the model.
pub(crate) fn restore_weights(
    path: &Path,
    program: &Program,
    executor: &mut dyn Executor,
) -> Result<(), CheckpointError> {
    let weights: Vec<&Resident> = program.residents.iter().filter(|r| r.component == Component::Weights).collect();
    let checksums = read_checksums(path)?;
    let path = path.join(TENSORS);
    let file = TensorFile::open(&path)?;
    check_present(&file, &weights).map_err(|cause| CheckpointError::Another { path: path.clone(), cause })?;
    copy(&path, &file, &weights, &checksums, executor)
}

/// Weights from a `model.safetensors`.
pub(crate) fn load_model(path: &Path, program: &Program, executor: &mut dyn Executor) -> Result<(), CheckpointError> {
    let weights: Vec<&Resident> = program.residents.iter().filter(|r| r.component == Component::Weights).collect();
    load(path, &weights, &Checksums::new(), executor)
}

fn load(
    path: &Path,
    residents: &[&Resident],
    checksums: &Checksums,
    executor: &mut dyn Executor,
) -> Result<(), CheckpointError> {
    let another = |cause: String| CheckpointError::Another { path: path.into(), cause };
    let file = TensorFile::open(path)?;
    check_present(&file, residents).and_then(|()| check_known(&file, residents)).map_err(another)?;
    copy(path, &file, residents, checksums, executor)
}

/// So much of a tensor is in memory at a time: at the end of a run, when the best weights come back, nothing else is free.
const PIECE: usize = 4 << 20;

/// Every tensor must be what its checksum says; where there are none, it is taken as it is.
fn copy(
    path: &Path,
    file: &TensorFile,
    residents: &[&Resident],
    checksums: &Checksums,
    executor: &mut dyn Executor,
) -> Result<(), CheckpointError> {
    let mut piece = Vec::new();
    for resident in residents {
        let info = &file.tensors()[&resident.name];
        let known = (!checksums.is_empty()).then(|| checksums.get(&resident.name).map_or("", String::as_str));
        check_tensor(file, info, resident, known, &mut piece).map_err(|fault| match fault {
            Fault::Unread(error) => error.into(),
            Fault::Wrong(cause) => CheckpointError::Damaged { path: path.into(), cause },
        })?;
        let bytes = span(info);
        for at in (0..bytes).step_by(PIECE) {
            // What fits into one piece is still there from the check.
            if bytes > PIECE {
                read_piece(file, info, at, &mut piece)?;
            }
            executor.write_resident_at(&resident.name, at, &piece)?;
        }
    }
    Ok(())
}

enum Fault {
    Unread(TensorFileError),
    Wrong(String),
}

/// Reads a tensor once, piece by piece, before any of it is used. With a checksum it is what was written, and an optimizer may
/// have infinite moments of a huge gradient; in weights (and running statistics), and without a checksum, what is not finite
/// is of no use to anybody.
fn check_tensor(
    file: &TensorFile,
    info: &TensorInfo,
    resident: &Resident,
    known: Option<&str>,
    piece: &mut Vec<u8>,
) -> Result<(), Fault> {
    let must_be_finite = known.is_none() || resident.component != Component::Optimizer;
    let (mut digest, mut broken) = (Sha256::new(), None);
    piece.clear();
    for at in (0..span(info)).step_by(PIECE) {
        read_piece(file, info, at, piece).map_err(Fault::Unread)?;
        if known.is_some() {
            digest.update(&piece);
        }
        if must_be_finite && broken.is_none() {
            broken = first_not_finite(resident.ty.dtype, piece).map(|within| at / resident.ty.dtype.bytes() + within);
        }
    }
    if known.is_some_and(|known| known != written(digest)) {
        return Err(Fault::Wrong(format!("the bytes of {} are not those that were written", resident.name)));
    }
    broken.map_or(Ok(()), |element| {
        let cause = format!("{} is not finite: element {element} is no number or infinite", resident.name);
        Err(Fault::Wrong(cause))
    })
}

fn span(info: &TensorInfo) -> usize {
    (info.data_offsets.1 - info.data_offsets.0) as usize
}

fn read_piece(file: &TensorFile, info: &TensorInfo, at: usize, piece: &mut Vec<u8>) -> Result<(), TensorFileError> {
    piece.resize((span(info) - at).min(PIECE), 0);
    file.read_part(info, at as u64, piece)
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
/// CPU.
fn check_known(file: &TensorFile, residents: &[&Resident]) -> Result<(), String> {
    let known = |name: &String| scaling::is_state(name) || residents.iter().any(|r| r.name == *name);
    match file.tensors().keys().find(|name| !known(name)) {
        Some(extra) => Err(format!("it has {extra}, which the model does not")),
        None => Ok(()),
    }
}

/// Removes old checkpoints; the newest `keep` and the best stay. What cannot be removed costs space, nothing else.
pub(crate) fn prune(dir: &Path, keep: usize, best: Option<usize>) {
    let all = list(dir);
    let old = all.len().saturating_sub(keep.max(1));
    for (_, path) in all.iter().take(old).filter(|(step, _)| Some(*step) != best) {
        let _ = discard(path);
    }
}

/// Takes the name away first: a kill in the middle leaves no half of a checkpoint under its name.
fn discard(path: &Path) -> io::Result<()> {
    let doomed = doomed(path);
    if doomed.exists() {
        fs::remove_dir_all(&doomed)?;
    }
    fs::rename(path, &doomed)?;
    fs::remove_dir_all(doomed)
}

const DRAFT: &str = ".draft-";
const DOOMED: &str = ".doomed-";

fn doomed(path: &Path) -> PathBuf {
    path.with_file_name(format!("{DOOMED}{}", path.file_name().unwrap_or_default().to_string_lossy()))
}

/// Clears what a kill left behind: drafts and half-removed checkpoints. A whole one whose step has no other is given its
/// name instead: it may be all that there is.
pub fn sweep(dir: &Path) {
    for prefix in [DRAFT, DOOMED] {
        for (path, named) in left_behind(dir, prefix) {
            if named.exists() || whole_bytes(&path).is_none() || fs::rename(&path, named).is_err() {
                let _ = fs::remove_dir_all(path);
            }
        }
    }
}

/// Folders `<prefix>step-N`, each with the name that it would have as a checkpoint. Nothing else here is ours.
fn left_behind(dir: &Path, prefix: &str) -> Vec<(PathBuf, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let named = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?.strip_prefix(prefix)?.to_string();
        name.strip_prefix("step-")?.parse::<usize>().ok()?;
        Some((entry.path(), dir.join(name)))
    };
    folders.filter_map(named).collect()
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
    use plimsoll_core::graph::{Init, Space};
    use plimsoll_core::types::Type;

    /// A folder with a checkpoint of one tensor, damaged or whole.
    fn leave(folder: &Path, step: usize, is_whole: bool) {
        fs::create_dir_all(folder).unwrap();
        let head = TensorHead { name: "w".into(), dtype: "F32", shape: vec![2] };
        let mut writer = TensorWriter::create(&folder.join(TENSORS), [head], &BTreeMap::new()).unwrap();
        // One bit is another than what its checksum was taken from.
        writer.write(&[step as u8 ^ !is_whole as u8; 8]).unwrap();
        writer.finish().unwrap();
        let (state, sha256) = (State { step, ..state() }, Checksums::from([("w".into(), checksum(&[step as u8; 8]))]));
        fs::write(folder.join(STATE), serde_json::to_vec(&Stored { state: &state, sha256: &sha256 }).unwrap()).unwrap();
    }

    fn state() -> State {
        parse_state(
            br#"{"step": 0, "position": {"epoch": 0, "index": 0}, "recipe_hash": "", "samples_seen": 0,
            "best": null, "without_improvement": 0, "last": null}"#,
        )
        .unwrap()
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Moments of a huge gradient are infinite: with the checksum they were written with they come back, without one they are
    /// damage. Weights and running statistics that are not finite answer nothing.
    #[test]
    fn what_is_not_finite_comes_back_where_its_checksum_says_that_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        leave(dir.path(), 0xff, true);
        let file = TensorFile::open(&dir.path().join(TENSORS)).unwrap();
        let ty = Type::new(DType::F32, &[2]);
        let of = |component| {
            let (name, init, space) = ("w".into(), Init::Zeros, Space::Device);
            Resident { name, ty: ty.clone(), component, init, is_parameter: false, space }
        };
        let [own, other] = [0xff, 0].map(|byte| checksum(&[byte; 8]));
        for (component, with_its_own) in [(Component::Optimizer, true), (Component::Weights, false)] {
            let resident = of(component);
            let check = |known: Option<&str>| {
                check_tensor(&file, &file.tensors()["w"], &resident, known, &mut Vec::new()).is_ok()
            };
            assert_eq!([Some(own.as_str()), Some(&other), None].map(check), [with_its_own, false, false]);
        }
    }

    /// Whatever a kill leaves, the newest whole state of each step is there afterwards, and the user's own things are.
    #[test]
    fn sweeping_keeps_the_last_whole_checkpoint_and_what_is_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        leave(&at("step-3"), 3, true);
        leave(&at(".draft-step-3"), 7, true);
        // Killed between the two renames of a file system without exchange: both are whole, neither has the name.
        leave(&at(".draft-step-4"), 4, true);
        leave(&at(".doomed-step-4"), 4, true);
        leave(&at(".draft-step-5"), 5, false);
        leave(&at(".doomed-step-6"), 6, true);
        for other in [".git", ".draft-mine", ".draft-step-x", "notes"] {
            fs::create_dir(at(other)).unwrap();
        }
        fs::write(at(".draft-step-8"), "a file").unwrap();
        sweep(dir.path());
        let left = [".draft-mine", ".draft-step-8", ".draft-step-x", ".git", "notes", "step-3", "step-4", "step-6"];
        assert_eq!(names(dir.path()), left);
        assert_eq!(list(dir.path()).iter().map(|(step, _)| *step).collect::<Vec<_>>(), [3, 4, 6]);
        assert_eq!(read_state(&at("step-3")).unwrap().step, 3);
    }

    #[test]
    fn a_checkpoint_of_the_same_step_is_replaced_in_one_step() {
        let dir = tempfile::tempdir().unwrap();
        let [draft, target] = [".draft-step-5", "step-5"].map(|name| dir.path().join(name));
        leave(&target, 1, true);
        assert!(read_state(&target).is_err(), "step 1 is not step 5");
        leave(&draft, 5, true);
        place(&draft, &target).unwrap();
        assert_eq!(names(dir.path()), ["step-5"]);
        assert_eq!(read_state(&target).unwrap().step, 5);
    }

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
