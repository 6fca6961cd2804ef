//! The folder of a run while it is trained in: made for this run alone, and locked, so that no second process writes
//! into it.

#![deny(missing_docs)]

use crate::RunError;
use plimsoll_base::files::draft_writer;
use plimsoll_base::folders::{folder_writer, make_folders, remove_empty};
use plimsoll_runs::{LOCK, holder, open_lock, written_number};
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::thread::sleep;
use std::time::Duration;

const RECIPE: &str = "recipe.toml";
/// What a start writes before its recipe, whose presence makes a folder a run.
const START: [&str; 4] = [LOCK, "data.json", "plan.json", "checkpoints"];
/// What the names of its drafts begin with.
const DRAFTS: [&str; 3] = ["data", "plan", "recipe"];

/// A run's folder, held by this process. Let go before anything was written, it is as it was before.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// Held as long as it is open.
    _lock: Option<File>,
    /// Folders that were not there before, the innermost first.
    made: Vec<PathBuf>,
}

impl RunFolder {
    /// Takes the folder that the user names: a new or an empty one, or, to resume it, one with a run.
    pub fn claim(path: &Path, resume: bool) -> Result<RunFolder, RunError> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        check(path, resume)?;
        let made = make_folders(path).map_err(RunError::io(path))?;
        let folder = RunFolder { _lock: lock(path).inspect_err(|_| remove_empty(&made))?, path: path.into(), made };
        // Another process may have been here just before.
        check(path, resume)?;
        Ok(folder)
    }

    /// Makes the first folder `<name>-<n>` of `runs` that is not there.
    pub fn claim_next(runs: &Path, name: &str) -> Result<RunFolder, RunError> {
        let mut made = make_folders(runs).map_err(RunError::io(runs))?;
        for path in (1usize..).map(|n| runs.join(format!("{name}-{n}"))) {
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(cause) => {
                    remove_empty(&made);
                    return Err(RunError::Io { path, cause });
                }
                Ok(()) => {
                    made.insert(0, path.clone());
                    return Ok(RunFolder { _lock: lock(&path).inspect_err(|_| remove_empty(&made))?, path, made });
                }
            }
        }
        Err(refused(format!("{} is full", runs.display()), "choose a folder with --out"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is something to resume.
    pub(crate) fn holds_run(&self) -> bool {
        holds_run(&self.path)
    }

    /// Removes drafts of files and of the model that a kill left behind.
    pub fn sweep(&self) {
        for entry in entries(&self.path).filter(|entry| entry.file_name().to_str().is_some_and(is_abandoned)) {
            let path = entry.path();
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let is_unused = fs::read_dir(&self.path).is_ok() && entries(&self.path).all(|entry| entry.file_name() == LOCK);
        if is_unused {
            let _ = fs::remove_file(self.path.join(LOCK));
            remove_empty(&self.made);
        }
    }
}

fn entries(path: &Path) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(path).into_iter().flatten().flatten()
}

fn holds_run(path: &Path) -> bool {
    path.join(RECIPE).exists()
}

fn refused(cause: String, hint: impl Into<String>) -> RunError {
    RunError::Refused { cause, hint: hint.into() }
}

fn check(path: &Path, resume: bool) -> Result<(), RunError> {
    let shown = path.display();
    if path.exists() && !path.is_dir() {
        return Err(refused(format!("{shown} is a file, not a folder"), "choose another folder with --out"));
    }
    if !holds_run(path) {
        return check_start(path);
    }
    if resume {
        return refuse_links(path);
    }
    match holder(path) {
        Some(holder) => Err(in_use(path, holder)),
        None => Err(refused(
            format!("{shown} already holds a run"),
            "continue it with --resume, or choose another folder with --out",
        )),
    }
}

/// Without a recipe, a folder is empty or where a run was killed before it had one.
fn check_start(path: &Path) -> Result<(), RunError> {
    let started = path.join(LOCK).exists();
    let is_of_start = |entry: &fs::DirEntry| {
        let is_empty = |folder: &Path| fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
        let name = entry.file_name().into_string().unwrap_or_default();
        let is_own = START.contains(&&name[..]) || DRAFTS.iter().any(|f| draft_writer(&name, f).is_some());
        let kind = entry.file_type();
        started && is_own && kind.is_ok_and(|kind| kind.is_file() || kind.is_dir() && is_empty(&entry.path()))
    };
    match entries(path).find(|entry| !is_of_start(entry)) {
        None => Ok(()),
        Some(other) => Err(refused(
            format!("{} holds {:?} and no run: nothing is written there", path.display(), other.file_name()),
            "choose a folder that is new or empty with --out",
        )),
    }
}

/// A run that comes from somebody else must not lead out of its folder.
fn refuse_links(path: &Path) -> Result<(), RunError> {
    let is_link = |name: &&str| fs::symlink_metadata(path.join(name)).is_ok_and(|there| there.is_symlink());
    match ["checkpoints", "events.jsonl", LOCK].into_iter().find(is_link) {
        None => Ok(()),
        Some(name) => Err(refused(
            format!("{} is a symbolic link: a run is written inside its folder alone", path.join(name).display()),
            "put what it points to in its place, or link the whole folder of the run",
        )),
    }
}

fn in_use(path: &Path, holder: u32) -> RunError {
    let who = if holder == 0 { "another process".into() } else { format!("process {holder}") };
    refused(
        format!("{} is in use: {who} is training there", path.display()),
        "wait until it ends, or choose another folder with --out",
    )
}

/// Drafts of a process that is gone. Those of recipe and plan are written under the lock, which is ours now.
fn is_abandoned(name: &str) -> bool {
    let own = DRAFTS.iter().any(|stem| draft_writer(name, stem).is_some());
    own || draft_writer(name, "report").or(folder_writer(name)).is_some_and(|process| !is_alive(process))
}

fn is_alive(process: u32) -> bool {
    let Ok(process) = libc::pid_t::try_from(process) else { return false };
    // SAFETY: signal 0 is not sent, it only asks whether there is such a process.
    let asked = unsafe { libc::kill(process, 0) };
    asked == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// Who only looks holds a lock for a moment; who trains does so for longer than all of these.
const TRIES: usize = 10;
const BETWEEN: Duration = Duration::from_millis(20);

/// None where the file system has no locks: a run there is better than none.
fn lock(path: &Path) -> Result<Option<File>, RunError> {
    let io = |cause| RunError::Io { path: path.join(LOCK), cause };
    let mut tries = 0;
    loop {
        let mut file = open_lock(path, true).map_err(io)?;
        match file.try_lock() {
            // Its last holder may have removed it just before: then another can lock another.
            Ok(()) if !is_still_there(&file, path) => {}
            Ok(()) => return sign(file).map(Some).map_err(io),
            Err(TryLockError::WouldBlock) if tries == TRIES => return Err(in_use(path, written_number(&mut file))),
            Err(TryLockError::WouldBlock) => sleep(BETWEEN),
            Err(TryLockError::Error(error)) if is_without_locks(&error) => return Ok(None),
            Err(TryLockError::Error(cause)) => return Err(io(cause)),
        }
        tries = (tries + 1).min(TRIES);
    }
}

fn is_still_there(file: &File, path: &Path) -> bool {
    let inode = |there: fs::Metadata| (there.dev(), there.ino());
    let named = fs::symlink_metadata(path.join(LOCK)).map(inode);
    named.is_ok_and(|named| file.metadata().map(inode).is_ok_and(|held| held == named))
}

fn is_without_locks(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP))
}

/// Puts this process's number into its lock.
fn sign(mut file: File) -> io::Result<File> {
    file.set_len(0)?;
    file.write_all(format!("{}\n", process::id()).as_bytes())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::os::unix::fs::symlink;

    fn names(folder: &Path) -> BTreeSet<String> {
        entries(folder).map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_second_claim_is_refused_with_the_number_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("deep/run");
        let first = RunFolder::claim(&out, false).unwrap();
        for (resume, has_recipe) in [(false, false), (true, false), (false, true), (true, true)] {
            if has_recipe {
                fs::write(out.join(RECIPE), "").unwrap();
            }
            let error = RunFolder::claim(&out, resume).unwrap_err().to_string();
            assert!(error.contains(&format!("process {}", process::id())), "{error}");
        }
        drop(first);
        RunFolder::claim(&out, true).unwrap();
        let error = RunFolder::claim(&out, false).unwrap_err().to_string();
        assert!(error.contains("already holds a run"), "{error}");
    }

    #[test]
    fn what_was_not_used_is_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        drop(RunFolder::claim(&dir.path().join("a/b"), false).unwrap());
        drop(RunFolder::claim_next(&dir.path().join("runs"), "x").unwrap());
        assert!(names(dir.path()).is_empty());
        fs::create_dir(dir.path().join("empty")).unwrap();
        drop(RunFolder::claim(&dir.path().join("empty"), true).unwrap());
        assert!(names(&dir.path().join("empty")).is_empty());
    }

    #[test]
    fn folders_asked_for_at_once_are_all_different() {
        let dir = tempfile::tempdir().unwrap();
        let claims: Vec<RunFolder> = std::thread::scope(|scope| {
            let one = || RunFolder::claim_next(&dir.path().join("runs"), "x").unwrap();
            let all: Vec<_> = (0..16).map(|_| scope.spawn(one)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let paths: BTreeSet<PathBuf> = claims.iter().map(|claim| claim.path().into()).collect();
        let expected = (1..=16).map(|n| dir.path().join(format!("runs/x-{n}"))).collect();
        assert_eq!(paths, expected);
    }

    /// Of many that want one folder, exactly one has it at any time, also while others give it up.
    #[test]
    fn a_folder_that_is_given_up_is_never_held_twice() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        let holders = std::sync::atomic::AtomicUsize::new(0);
        let order = std::sync::atomic::Ordering::SeqCst;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let Ok(folder) = RunFolder::claim(&out, false) else { continue };
                        assert_eq!(holders.fetch_add(1, order), 0, "two hold it");
                        holders.fetch_sub(1, order);
                        drop(folder);
                    }
                });
            }
        });
    }

    #[test]
    fn folders_with_other_things_are_refused_and_killed_starts_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["project/model", "planned", "killed/checkpoints", "locked"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["project/model/net.py", "planned/plan.json", "locked/run.lock", "locked/thesis.txt", "file"] {
            fs::write(at(file), "mine").unwrap();
        }
        for (name, resume) in ["project", "planned", "locked", "file"].iter().flat_map(|n| [(n, false), (n, true)]) {
            let before = names(&at(name));
            let error = RunFolder::claim(&at(name), resume).unwrap_err();
            assert!(matches!(error, RunError::Refused { .. }), "{name}: {error}");
            assert_eq!(names(&at(name)), before);
        }
        for file in ["run.lock", "data.json", "plan.json", "data.77-0.tmp", "plan.77-0.tmp", "recipe.77-1.tmp"] {
            fs::write(at("killed").join(file), "").unwrap();
        }
        let folder = RunFolder::claim(&at("killed"), false).unwrap();
        folder.sweep();
        assert_eq!(
            names(&at("killed")),
            ["checkpoints", "data.json", "plan.json", "run.lock"].map(String::from).into()
        );
    }

    #[test]
    fn a_run_that_leads_out_of_its_folder_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["checkpoints", "events.jsonl", "run.lock"] {
            let out = dir.path().join(format!("run-{name}"));
            fs::create_dir(&out).unwrap();
            fs::write(out.join(RECIPE), "").unwrap();
            symlink("../elsewhere", out.join(name)).unwrap();
            let error = RunFolder::claim(&out, true).unwrap_err();
            assert!(matches!(&error, RunError::Refused { cause, .. } if cause.contains(name)), "{error}");
        }
        assert!(!dir.path().join("elsewhere").exists());
    }

    #[test]
    fn drafts_of_the_dead_are_swept_and_those_of_the_living_stay() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::claim(&dir.path().join("run"), false).unwrap();
        let (own, dead) = (process::id(), u32::MAX);
        for n in [own, dead] {
            fs::write(folder.path().join(format!("report.{n}-0.tmp")), "").unwrap();
            fs::create_dir(folder.path().join(format!(".plimsoll-draft-{n}-0"))).unwrap();
        }
        fs::write(folder.path().join("notes.tmp"), "mine").unwrap();
        folder.sweep();
        let left = [LOCK.into(), "notes.tmp".into(), format!("report.{own}-0.tmp"), format!(".plimsoll-draft-{own}-0")];
        assert_eq!(names(folder.path()), left.into());
    }
}
