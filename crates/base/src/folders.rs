//! Folders that appear whole or not at all. One that is there already is replaced only if it holds nothing but files that
//! their writer knows as its own; nothing else is ever removed.

use super::files::{sync_folder, write_new};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum FolderError {
    #[error("{}: {cause}", path.display())]
    Occupied { path: PathBuf, cause: String },
    #[error("{}: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
}

/// Whether a writer knows a file of this name as its own.
pub type IsKnown<'a> = &'a dyn Fn(&str) -> bool;

/// A folder in the making, beside the place that it will take. Given up on the way, it leaves nothing.
pub struct FolderDraft<'a> {
    target: PathBuf,
    path: PathBuf,
    is_known: IsKnown<'a>,
    /// Folders on the way to it that were not there.
    made: Vec<PathBuf>,
    is_placed: bool,
}

impl<'a> FolderDraft<'a> {
    /// Refuses targets that must not be replaced before anything is written.
    pub fn begin(target: &Path, is_known: IsKnown<'a>) -> Result<FolderDraft<'a>, FolderError> {
        let target = without_slash(target);
        check_replaceable(&target, is_known)?;
        let io = |cause| FolderError::Io { path: target.clone(), cause };
        let made = make_folders(parent(&target)).map_err(io)?;
        let path = make_beside(&target).inspect_err(|_| remove_empty(&made)).map_err(io)?;
        Ok(FolderDraft { target, path, is_known, made, is_placed: false })
    }

    /// Where its files are written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        write_new(&self.path.join(name), content)
    }

    /// Gives the folder its name. A reader finds the old one or the new one, at every moment.
    pub fn publish(mut self) -> Result<(), FolderError> {
        let io = |cause| FolderError::Io { path: self.target.clone(), cause };
        sync_folder(&self.path).map_err(io)?;
        check_replaceable(&self.target, self.is_known)?;
        let aside = beside(&self.target, usize::MAX);
        let old = take_place(&self.path, &self.target, &aside).map_err(io)?;
        self.is_placed = true;
        // What of the old one cannot be removed costs space, nothing else.
        old.iter().for_each(|old| remove_known(old, self.is_known));
        sync_folder(parent(&self.target)).map_err(io)
    }
}

impl Drop for FolderDraft<'_> {
    fn drop(&mut self) {
        if !self.is_placed {
            // Made by this process under a name that nothing had.
            let _ = fs::remove_dir_all(&self.path);
            remove_empty(&self.made);
        }
    }
}

/// A folder may be written where there is none, an empty one, or one with known files alone. Links, files and the working
/// directory are left alone whatever they hold.
pub fn check_replaceable(target: &Path, is_known: IsKnown<'_>) -> Result<(), FolderError> {
    let target = &without_slash(target);
    let occupied = |cause: &str| Err(FolderError::Occupied { path: target.clone(), cause: cause.into() });
    if target.file_name().is_none() {
        return occupied("this is no name of a folder of its own");
    }
    match fs::symlink_metadata(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => occupied("the way to it leads through a file"),
        Err(cause) => Err(FolderError::Io { path: target.clone(), cause }),
        Ok(there) if there.is_symlink() => occupied("this is a symbolic link"),
        Ok(there) if !there.is_dir() => occupied("this is a file, not a folder"),
        Ok(_) if is_same(target, Path::new(".")) => occupied("this is the working directory"),
        Ok(_) => check_entries(target, is_known),
    }
}

fn check_entries(folder: &Path, is_known: IsKnown<'_>) -> Result<(), FolderError> {
    let io = |cause| FolderError::Io { path: folder.into(), cause };
    for entry in fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        if !is_known_file(&entry, is_known) {
            let cause = format!("this folder holds {:?}, which is no file of a model", entry.file_name());
            return Err(FolderError::Occupied { path: folder.into(), cause });
        }
    }
    Ok(())
}

fn is_known_file(entry: &fs::DirEntry, is_known: IsKnown<'_>) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_file()) && entry.file_name().to_str().is_some_and(is_known)
}

/// Removes known files, and the folder if nothing else came into it meanwhile.
fn remove_known(folder: &Path, is_known: IsKnown<'_>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_known_file(entry, is_known)) {
        let _ = fs::remove_file(entry.path());
    }
    let _ = fs::remove_dir(folder);
}

/// Gives a draft its name. Where a folder has it already, the two change places in one step, or by way of `aside` where
/// the file system cannot do that. Returns where the old one is now.
pub fn take_place(draft: &Path, target: &Path, aside: &Path) -> io::Result<Option<PathBuf>> {
    match fs::rename(draft, target) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTEMPTY | libc::EEXIST)) => {}
        renamed => return renamed.map(|()| None),
    }
    match exchange(draft, target) {
        Err(error) if is_unsupported(&error) => step_aside(draft, target, aside).map(|()| Some(aside.into())),
        exchanged => exchanged.map(|()| Some(draft.into())),
    }
}

/// For a moment nothing has the name; a failure then puts the old one back.
fn step_aside(draft: &Path, target: &Path, aside: &Path) -> io::Result<()> {
    fs::rename(target, aside)?;
    fs::rename(draft, target).inspect_err(|_| {
        let _ = fs::rename(aside, target);
    })
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP))
}

/// Two paths change places in one step.
#[cfg(target_os = "linux")]
fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    let [a, b] = [CString::new(a.as_os_str().as_bytes())?, CString::new(b.as_os_str().as_bytes())?];
    let (here, flags) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
    // SAFETY: both paths are strings that end in NUL and outlive the call, which keeps neither.
    let failed = unsafe { libc::syscall(libc::SYS_renameat2, here, a.as_ptr(), here, b.as_ptr(), flags) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// A new folder beside another, under a name that nothing has.
fn make_beside(target: &Path) -> io::Result<PathBuf> {
    for path in (0..).map(|n| beside(target, n)) {
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

const DRAFT: &str = ".plimsoll-draft-";

fn beside(target: &Path, n: usize) -> PathBuf {
    target.with_file_name(format!("{DRAFT}{}-{n}", process::id()))
}

/// The process that began the draft of a folder, if this is the name of one.
pub fn folder_writer(name: &str) -> Option<u32> {
    let (process, number) = name.strip_prefix(DRAFT)?.split_once('-')?;
    number.parse::<usize>().ok()?;
    process.parse().ok()
}

/// Makes a folder and those on the way to it. Returns which were not there, the innermost first.
pub fn make_folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    let missing: Vec<PathBuf> =
        path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.exists()).map(PathBuf::from).collect();
    fs::create_dir_all(if path.as_os_str().is_empty() { Path::new(".") } else { path })
        .inspect_err(|_| remove_empty(&missing))?;
    Ok(missing)
}

/// Removes folders that nothing came into.
pub fn remove_empty(folders: &[PathBuf]) {
    folders.iter().for_each(|folder| drop(fs::remove_dir(folder)));
}

/// Whether two paths lead to the same thing.
pub fn is_same(a: &Path, b: &Path) -> bool {
    fs::canonicalize(a).is_ok_and(|a| fs::canonicalize(b).is_ok_and(|b| a == b))
}

/// `link/` leads through a link, `link` is the link.
fn without_slash(path: &Path) -> PathBuf {
    path.components().collect()
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn is_known(name: &str) -> bool {
        matches!(name, "a" | "b")
    }

    fn put(target: &Path, content: &[u8]) -> Result<(), FolderError> {
        let draft = FolderDraft::begin(target, &is_known)?;
        for name in ["a", "b"] {
            draft.write(name, content).map_err(|cause| FolderError::Io { path: target.into(), cause })?;
        }
        draft.publish()
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn new_empty_and_known_folders_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("new/model");
        put(&target, b"one").unwrap();
        put(&target, b"two").unwrap();
        assert_eq!(fs::read(target.join("b")).unwrap(), b"two");
        assert_eq!(names(&dir.path().join("new")), ["model"]);
        fs::create_dir(dir.path().join("empty")).unwrap();
        put(&dir.path().join("empty/"), b"three").unwrap();
        assert_eq!(names(dir.path()), ["empty", "new"]);
    }

    /// What a user has is found as it was, and nothing is left beside it.
    #[test]
    fn anything_else_is_refused_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["others", "mixed", "nested/a", "linked", "whole"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["others/thesis.txt", "mixed/a", "mixed/.git", "file", "whole/a"] {
            fs::write(at(file), "mine").unwrap();
        }
        symlink("../file", at("linked/a")).unwrap();
        symlink("whole", at("link")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        let before = names(dir.path());
        let refused = [
            "others", "mixed", "nested", "linked", "file", "link", "link/", "dangling", ".", "whole/..", "others/.",
            "file/x",
        ];
        for name in refused {
            let error = put(&at(name), b"new").unwrap_err();
            assert!(matches!(error, FolderError::Occupied { .. }), "{name}: {error}");
        }
        for root in [".", "..", "/", ""] {
            // Only asked: a defect here must not cost anybody their files.
            let answer = check_replaceable(Path::new(root), &is_known);
            assert!(matches!(answer, Err(FolderError::Occupied { .. })), "{root}");
        }
        assert_eq!(names(dir.path()), before);
        for file in ["others/thesis.txt", "mixed/a", "mixed/.git", "file", "whole/a"] {
            assert_eq!(fs::read(at(file)).unwrap(), b"mine", "{file}");
        }
    }

    #[test]
    fn a_draft_that_is_given_up_leaves_nothing_and_drafts_of_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let foreign = dir.path().join(format!("{DRAFT}{}-0", process::id()));
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("a"), "theirs").unwrap();
        let draft = FolderDraft::begin(&dir.path().join("x/y/model"), &is_known).unwrap();
        draft.write("a", b"half").unwrap();
        drop(draft);
        let draft = FolderDraft::begin(&dir.path().join("model"), &is_known).unwrap();
        assert_ne!(draft.path(), foreign);
        drop(draft);
        assert_eq!(names(dir.path()).len(), 1);
        assert_eq!(fs::read(foreign.join("a")).unwrap(), b"theirs");
        assert_eq!(folder_writer(foreign.file_name().unwrap().to_str().unwrap()), Some(process::id()));
    }

    /// What comes into the old folder while the draft is written stops the exchange.
    #[test]
    fn a_file_that_came_meanwhile_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("model");
        put(&target, b"one").unwrap();
        let draft = FolderDraft::begin(&target, &is_known).unwrap();
        draft.write("a", b"two").unwrap();
        fs::write(target.join("notes.txt"), "mine").unwrap();
        assert!(matches!(draft.publish(), Err(FolderError::Occupied { .. })));
        assert_eq!(names(&target), ["a", "b", "notes.txt"]);
        assert_eq!(fs::read(target.join("a")).unwrap(), b"one");
        // And where it comes at the very last moment, it stays, in the old folder.
        remove_known(&target, &is_known);
        assert_eq!(names(&target), ["notes.txt"]);
        assert_eq!(names(dir.path()), ["model"]);
    }

    #[test]
    fn a_reader_never_finds_the_name_missing() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("model");
        put(&target, b"first").unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..300u32 {
                    put(&target, &n.to_le_bytes()).unwrap();
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                assert!(fs::symlink_metadata(&target).is_ok_and(|there| there.is_dir()));
            }
        });
    }

    /// Where two names cannot be exchanged, a failure in between puts the old folder back.
    #[test]
    fn without_an_exchange_the_old_folder_steps_aside() {
        let dir = tempfile::tempdir().unwrap();
        let [draft, target, aside] = ["draft", "target", "aside"].map(|name| dir.path().join(name));
        for folder in [&draft, &target] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("a"), folder.as_os_str().as_bytes()).unwrap();
        }
        step_aside(&draft, &target, &aside).unwrap();
        assert_eq!(fs::read(target.join("a")).unwrap(), draft.as_os_str().as_bytes());
        assert_eq!(fs::read(aside.join("a")).unwrap(), target.as_os_str().as_bytes());
        fs::remove_dir_all(&aside).unwrap();
        assert!(step_aside(&dir.path().join("no such draft"), &target, &aside).is_err());
        assert_eq!(names(dir.path()), ["target"]);
    }
}
