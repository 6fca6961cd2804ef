//! Files that are written whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes a draft beside the file, which then takes its place: whatever goes wrong, what was there stays. What is no
/// plain file (a terminal, a pipe) is written to as it is.
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return fs::write(path, content);
    }
    // A link to a file stays one.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let draft = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = write_out(&draft, content).and_then(|()| fs::rename(&draft, &path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

fn write_out(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Links and /dev/null are Unix's own.
    #[cfg(unix)]
    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let [file, link] = ["page.html", "link.html"].map(|name| dir.path().join(name));
        std::os::unix::fs::symlink("page.html", &link).unwrap();
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
}
