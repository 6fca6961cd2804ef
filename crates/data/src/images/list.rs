//! Which images there are, and what is said about each: rows of a table, or a folder.

use crate::{
    DataError, Place,
    formats::{self, Cell, Columns, Wanted},
    text,
};
use plimsoll_base::formats::Format;
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// One image with its caption, and where it is listed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listed {
    pub image: PathBuf,
    pub caption: String,
    pub row: Option<Place>,
}

/// Where an image was found: shown before what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePlace {
    pub image: PathBuf,
    /// Table, row and column that name it.
    pub row: Option<(PathBuf, Place, String)>,
}

impl fmt::Display for ImagePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((table, place, column)) = &self.row {
            write!(f, "{}: {place}, column `{column}`: ", table.display())?;
        }
        write!(f, "{}", self.image.display())
    }
}

/// The images of a table; paths are relative to its folder.
pub(crate) fn of_table(
    file: &Path,
    format: Option<Format>,
    image: &str,
    caption: &str,
) -> Result<Vec<Listed>, DataError> {
    let columns = Columns::new([image.to_string(), caption.to_string()]);
    let opened = formats::open(file, format, Wanted::CAPTIONS, &columns);
    let mut reader = opened.map_err(|error| error.named_by(&[(image, "image"), (caption, "caption")]))?;
    let (folder, typed) = (file.parent().unwrap_or(Path::new("")), reader.typed());
    let mut listed = Vec::new();
    while let Some(mut row) = reader.next()? {
        let place = row.place;
        let mut cells = row.cells(file, &columns)?.into_iter().map(|cell| word(cell, typed));
        let mut next = || cells.next().unwrap_or_default();
        let missing = || DataError::MissingValue { file: file.into(), place, column: image.into() };
        let image = folder.join(Some(next()).filter(|image| !image.is_empty()).ok_or_else(missing)?);
        listed.push(Listed { image, caption: next(), row: Some(place) });
    }
    match listed.is_empty() {
        true => Err(DataError::Empty { file: file.into(), what: "rows" }),
        false => Ok(listed),
    }
}

/// Among captions and file names, numbers are words too; nothing is an empty word.
fn word(cell: Cell<'_>, typed: bool) -> String {
    match cell {
        Cell::Text(text) if typed => text.into_owned(),
        Cell::Text(text) => text.trim().into(),
        Cell::Number(number) => number.to_string(),
        Cell::Missing => String::new(),
        Cell::List(_) => "[…]".into(),
        Cell::Other(_) => "{…}".into(),
    }
}

const EXTENSIONS: [&str; 6] = ["jpg", "jpeg", "png", "webp", "gif", "bmp"];

/// The images below `folder`, in the order of their paths. A text file of the same stem is the caption; otherwise the
/// folder that an image lies in is its class, put into `template` for `{}`.
pub(super) fn of_folder(folder: &Path, template: &str) -> Result<Vec<Listed>, DataError> {
    let mut images = Vec::new();
    collect(folder, 0, &mut images)?;
    images.sort();
    images.into_iter().map(|image| captioned(folder, image, template)).collect()
}

/// Folders nested deeper are a loop of links.
const DEEPEST: usize = 16;

fn collect(folder: &Path, depth: usize, images: &mut Vec<PathBuf>) -> Result<(), DataError> {
    let unreadable = |source| DataError::Unreadable { file: folder.into(), source };
    if depth > DEEPEST {
        return Err(unreadable(std::io::Error::other(format!("folders are nested more than {DEEPEST} deep"))));
    }
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if hidden {
            continue;
        }
        let extension = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        if path.is_dir() {
            collect(&path, depth + 1, images)?;
        } else if extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str())) {
            images.push(path);
        }
    }
    Ok(())
}

fn captioned(folder: &Path, image: PathBuf, template: &str) -> Result<Listed, DataError> {
    let beside = image.with_extension("txt");
    if beside.is_file() {
        let caption = text::read(&beside)?.trim().to_string();
        return Ok(Listed { image, caption, row: None });
    }
    let class = image.parent().filter(|&parent| parent != folder).and_then(Path::file_name);
    match class {
        None => Err(DataError::NoCaption { file: image }),
        Some(class) => {
            let name = class.to_string_lossy().replace('_', " ");
            Ok(Listed { image, caption: template.replace("{}", &name), row: None })
        }
    }
}
