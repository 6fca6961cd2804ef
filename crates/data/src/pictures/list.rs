//! Which pictures there are, and what is said about each: rows of a table, or a folder.

use crate::table::{Selection, Table, Values};
use crate::{DataError, Place, text};
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// One picture with its caption, and where it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    pub picture: PathBuf,
    pub caption: String,
    pub row: Option<Place>,
}

/// Where a picture was found: shown before what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PicturePlace {
    pub picture: PathBuf,
    /// Table, row and column that name it.
    pub row: Option<(PathBuf, Place, String)>,
}

impl fmt::Display for PicturePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((table, place, column)) = &self.row {
            write!(f, "{}: {place}, column `{column}`: ", table.display())?;
        }
        write!(f, "{}", self.picture.display())
    }
}

/// The pictures of a table; paths are relative to its folder.
pub fn of_table(file: &Path, image: &str, caption: &str) -> Result<Vec<Listed>, DataError> {
    let selection = Selection { numbers: Some(Vec::new()), others: vec![image.into(), caption.into()] };
    let table = Table::read(file, &selection)?;
    let (images, captions) = (words(&table, image)?, words(&table, caption)?);
    let folder = file.parent().unwrap_or(Path::new(""));
    let listed = images.into_iter().zip(captions).enumerate().map(|(row, (image, caption))| Listed {
        picture: folder.join(image),
        caption,
        row: Some(table.place(row)),
    });
    Ok(listed.collect())
}

/// Among captions and file names, numbers are words too.
fn words(table: &Table, column: &str) -> Result<Vec<String>, DataError> {
    Ok(match table.column(column)? {
        Values::Text(words) => words.clone(),
        Values::Numbers(numbers) => numbers.iter().map(f64::to_string).collect(),
    })
}

const EXTENSIONS: [&str; 6] = ["jpg", "jpeg", "png", "webp", "gif", "bmp"];

/// The pictures below `folder`, in the order of their paths. A text file of the same stem is the caption; otherwise the
/// folder that a picture lies in is its class, put into `template` for `{}`.
pub fn of_folder(folder: &Path, template: &str) -> Result<Vec<Listed>, DataError> {
    let mut pictures = Vec::new();
    collect(folder, 0, &mut pictures)?;
    pictures.sort();
    pictures.into_iter().map(|picture| captioned(folder, picture, template)).collect()
}

/// Folders nested deeper are a loop of links.
const DEEPEST: usize = 16;

fn collect(folder: &Path, depth: usize, pictures: &mut Vec<PathBuf>) -> Result<(), DataError> {
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
            collect(&path, depth + 1, pictures)?;
        } else if extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str())) {
            pictures.push(path);
        }
    }
    Ok(())
}

fn captioned(folder: &Path, picture: PathBuf, template: &str) -> Result<Listed, DataError> {
    let beside = picture.with_extension("txt");
    if beside.is_file() {
        let caption = text::read(&beside)?.trim().to_string();
        return Ok(Listed { picture, caption, row: None });
    }
    let class = picture.parent().filter(|&parent| parent != folder).and_then(Path::file_name);
    match class {
        None => Err(DataError::NoCaption { file: picture }),
        Some(class) => {
            let name = class.to_string_lossy().replace('_', " ");
            Ok(Listed { picture, caption: template.replace("{}", &name), row: None })
        }
    }
}
