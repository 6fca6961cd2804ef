//! Which images there are, and what is said about each: rows of a table, or a folder.

use crate::{
    DataError, Place,
    asked::id_of,
    formats::{self, Cell, Columns, Wanted},
    text,
};
use plimsoll_base::formats::Format;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// One image with its caption, and where it is listed. Those that a model is asked about may lack one of the two.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listed {
    pub image: Option<PathBuf>,
    pub caption: String,
    pub row: Option<Place>,
    pub id: Option<Value>,
}

/// The columns of a table of images.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableColumns<'a> {
    pub image: Option<&'a str>,
    pub caption: Option<&'a str>,
    /// What rows are called.
    pub id: Option<&'a str>,
}

impl TableColumns<'_> {
    fn columns(&self) -> Columns {
        let names = [self.image, self.caption, self.id].into_iter().flatten().map(String::from);
        let columns = Columns::new(names);
        if self.id.is_some() { columns.with_exact_last() } else { columns }
    }

    fn listed(&self, file: &Path, place: Place, mut cells: Vec<Cell<'_>>, typed: bool) -> Result<Listed, DataError> {
        let id = if self.id.is_some() { cells.pop().and_then(id_of) } else { None };
        let mut words = cells.into_iter().map(|cell| word(cell, typed));
        let mut next = |column: Option<&str>| column.and_then(|_| words.next()).unwrap_or_default();
        let (image, caption) = (next(self.image), next(self.caption));
        let image = match self.image {
            Some(column) if image.is_empty() => {
                return Err(DataError::MissingCell { file: file.into(), place, column: column.into() });
            }
            Some(_) => Some(file.parent().unwrap_or(Path::new("")).join(image)),
            None => None,
        };
        Ok(Listed { image, caption, row: Some(place), id })
    }
}

/// The images of a table, each or what is wrong with its row; paths are relative to its folder.
pub(crate) fn of_table(
    file: &Path,
    format: Option<Format>,
    names: TableColumns<'_>,
) -> Result<Vec<Result<Listed, DataError>>, DataError> {
    let columns = names.columns();
    let keys = [(names.image.unwrap_or_default(), "image"), (names.caption.unwrap_or_default(), "caption")];
    let opened = formats::open(file, format, Wanted::CAPTIONS, &columns);
    let mut reader = opened.map_err(|error| error.named_by(&keys))?;
    let (mut listed, typed) = (Vec::new(), reader.typed());
    while let Some(mut row) = reader.next()? {
        let place = row.place;
        listed.push(row.cells(file, &columns).and_then(|cells| names.listed(file, place, cells, typed)));
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
        Cell::Exact(value) => value.to_string(),
        Cell::Other(_) => "{…}".into(),
    }
}

const EXTENSIONS: [&str; 6] = ["jpg", "jpeg", "png", "webp", "gif", "bmp"];

/// The images below `folder`, in the order of their paths. A text file of the same stem is the caption; otherwise the
/// folder that an image lies in is its class, put into `template` for `{}`.
pub(super) fn of_folder(folder: &Path, template: &str) -> Result<Vec<Result<Listed, DataError>>, DataError> {
    let mut images = Vec::new();
    collect(folder, 0, usize::MAX, &mut images)?;
    images.sort();
    Ok(images.into_iter().map(|image| captioned(folder, image, template)).collect())
}

/// Folders nested deeper are a loop of links.
const DEEPEST: usize = 16;

/// Finds images until there are `most`.
fn collect(folder: &Path, depth: usize, most: usize, images: &mut Vec<PathBuf>) -> Result<(), DataError> {
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
        if images.len() >= most {
            return Ok(());
        }
        let extension = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        if path.is_dir() {
            collect(&path, depth + 1, most, images)?;
        } else if extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str())) {
            images.push(path);
        }
    }
    Ok(())
}

/// Whether there is an image below `folder`.
pub(crate) fn holds_images(folder: &Path) -> Result<bool, DataError> {
    let mut images = Vec::new();
    collect(folder, 0, 1, &mut images).map(|()| !images.is_empty())
}

/// With its caption; an empty one where nothing says it.
fn captioned(folder: &Path, image: PathBuf, template: &str) -> Result<Listed, DataError> {
    let beside = image.with_extension("txt");
    let caption = match beside.is_file() {
        true => text::read(&beside)?.trim().to_string(),
        false => {
            let class = image.parent().filter(|&parent| parent != folder).and_then(Path::file_name);
            let words = class.map(|class| template.replace("{}", &class.to_string_lossy().replace('_', " ")));
            words.unwrap_or_default()
        }
    };
    Ok(Listed { image: Some(image), caption, row: None, id: None })
}
