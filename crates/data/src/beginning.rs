//! What would be refused at once, said without reading the data: files that are not there, columns that they lack.

use crate::formats::{Columns, Wanted, check_document, open};
use crate::{DataError, images::list::holds_images};
use plimsoll_base::formats::{Format, Holds};
use std::path::Path;

/// Whether a file is there and has these columns, as far as its beginning says.
///
/// # Errors
/// As loading it would say it.
pub fn check_columns(file: &Path, said: Option<Format>, columns: &[&str]) -> Result<(), DataError> {
    let unreadable = |source| DataError::Unreadable { file: file.into(), source };
    let kind = std::fs::metadata(file).map_err(unreadable)?;
    match said.or_else(|| Format::of(file)).map(Format::holds) {
        None | Some(Holds::Images) if kind.is_dir() => check_folder(file),
        Some(Holds::Document) => check_document(file, said),
        _ => open(file, said, Wanted::TEXTS, &Columns::new(columns.iter().map(ToString::to_string))).map(drop),
    }
}

fn check_folder(folder: &Path) -> Result<(), DataError> {
    match holds_images(folder)? {
        true => Ok(()),
        false => Err(DataError::Empty { file: folder.into(), what: "images" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What would be refused when it is read is said without reading it.
    #[test]
    fn pipes_empty_texts_and_folders_without_images_are_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("empty.txt"), "").unwrap();
        std::fs::create_dir_all(path("photos.v2/cats")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path("pipe.txt")).status().unwrap().success());
        let told = |name: &str, said| check_columns(&path(name), said, &[]).map_err(|error| error.to_string());
        assert!(told("empty.txt", None).unwrap_err().ends_with("holds no text"));
        assert!(told("pipe.txt", None).unwrap_err().contains("not a regular file"));
        assert!(told("photos.v2", Some(Format::Folder)).unwrap_err().ends_with("holds no images"));
        assert!(told("photos.v2", Some(Format::Csv)).unwrap_err().contains("not a regular file"));
        std::fs::write(path("photos.v2/cats/a.png"), "").unwrap();
        std::fs::write(path("empty.txt"), "x").unwrap();
        assert_eq!((told("photos.v2", Some(Format::Folder)), told("empty.txt", None)), (Ok(()), Ok(())));
    }
}
