//! Files that are written whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use thiserror::Error;

/// Writes a draft beside the file, which then takes its place: whatever goes wrong, what was there stays. For paths that
/// the user names: a link to a file stays one, and what is no plain file (a terminal, a pipe) is written to as it is.
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return fs::write(path, content);
    }
    write_inside(&fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf()), content)
}

/// The same for a file of a folder that may come from somebody else: a link there is replaced, never followed.
pub fn write_inside(path: &Path, content: &[u8]) -> io::Result<()> {
    let draft = write_draft(path, content)?;
    let placed = fs::rename(&draft, path).and_then(|()| sync_folder(path.parent().unwrap_or(Path::new(""))));
    if placed.is_err() {
        let _ = fs::remove_file(&draft);
    }
    placed
}

/// A draft under a name that nothing else has; a process that was killed may have left one behind.
fn write_draft(path: &Path, content: &[u8]) -> io::Result<PathBuf> {
    let name = |n: usize| path.with_extension(format!("{}-{n}.tmp", process::id()));
    for draft in (0..).map(name) {
        match write_new(&draft, content) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            written => return written.map(|()| draft),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// The process that wrote a draft of `stem.*`, if this is the name of one.
pub fn draft_writer(name: &str, stem: &str) -> Option<u32> {
    let rest = name.strip_prefix(stem)?.strip_prefix('.')?.strip_suffix(".tmp")?;
    let (process, number) = rest.split_once('-').unwrap_or((rest, "0"));
    number.parse::<usize>().ok()?;
    process.parse().ok()
}

/// Writes a file that is not there yet, down to the disk. What cannot be written whole leaves nothing.
pub fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written
}

/// Why a folder could not be written.
#[derive(Debug, Error)]
pub enum FolderError {
    #[error("{}: {cause}", path.display())]
    Occupied { path: PathBuf, cause: String },
    #[error("{}: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
}

/// Opens a plain file to read it and to add to it, or makes one; a link is an error.
pub fn open_to_append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).read(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    plain(options.open(path)?)
}

/// Opens a plain file to read it; a pipe, which nobody may ever write to, is an error.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    plain(options.open(path)?)
}

/// The same in a folder that others write to, for readers who are others still: a link is an error, too.
pub fn open_inside(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    plain(options.open(path)?)
}

fn plain(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("this is no plain file")),
    }
}

/// Makes names in a folder last.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path)?.sync_all()
}

/// `$XDG_CACHE_HOME/plimsoll/<name>`, or below `~/.cache`; `None` where neither is set to an absolute path.
pub fn cache_folder(name: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(cache.join("plimsoll").join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    // Pipes, links and /dev/null are Unix's own.
    #[cfg(unix)]
    #[test]
    fn a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "x").unwrap();
        symlink(&file, &link).unwrap();
        for open in [open_to_read, open_inside] {
            assert!(open(&pipe).unwrap_err().to_string().contains("no plain file"));
            assert!(open(folder.path()).is_err() && open(&file).is_ok());
        }
        assert!(open_to_read(&link).is_ok() && open_inside(&link).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let [file, link] = ["page.html", "link.html"].map(|name| dir.path().join(name));
        symlink("page.html", &link).unwrap();
        for (path, text) in [(&file, "one"), (&file, "two"), (&link, "three")] {
            write_whole(path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[cfg(unix)]
    #[test]
    fn what_cannot_be_written_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(write_whole(&dir.path().join("no/such/page.html"), b"x").is_err());
        assert!(write_whole(dir.path(), b"x").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        write_whole(Path::new("/dev/null"), b"x").unwrap();
    }

    #[test]
    fn inside_a_folder_links_are_replaced_and_drafts_of_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let [victim, page] = ["victim.txt", "page.html"].map(|name| dir.path().join(name));
        fs::write(&victim, "thesis").unwrap();
        symlink("victim.txt", &page).unwrap();
        // A draft with the name that comes first, and it is a link too.
        let left = page.with_extension(format!("{}-0.tmp", process::id()));
        symlink("victim.txt", &left).unwrap();
        write_inside(&page, b"new").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "thesis");
        assert_eq!(fs::read_to_string(&page).unwrap(), "new");
        assert!(fs::symlink_metadata(&page).unwrap().is_file());
        assert!(fs::symlink_metadata(&left).unwrap().is_symlink());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn what_is_added_to_is_a_plain_file() {
        let dir = tempfile::tempdir().unwrap();
        let [victim, link] = ["victim.txt", "events.jsonl"].map(|name| dir.path().join(name));
        open_to_append(&victim).unwrap().write_all(b"one").unwrap();
        open_to_append(&victim).unwrap().write_all(b"two").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "onetwo");
        symlink("victim.txt", &link).unwrap();
        assert!(open_to_append(&link).is_err());
        assert!(open_to_append(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn drafts_are_known_by_their_names() {
        assert_eq!(draft_writer("plan.123-0.tmp", "plan"), Some(123));
        assert_eq!(draft_writer("plan.123.tmp", "plan"), Some(123));
        for other in ["plan.json", "plan.tmp", "plan.x-0.tmp", "plans.1-0.tmp", "plan.1-x.tmp"] {
            assert_eq!(draft_writer(other, "plan"), None, "{other}");
        }
    }
}
