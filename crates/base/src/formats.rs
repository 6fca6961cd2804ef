//! Formats of data files: the one list that recipes and readers share.

use crate::names::Named;
use std::path::Path;

/// Hands every format to the macro `$then`: its name in recipes, the extensions it is known by, what its files hold, and
/// the module in the data crate's `formats/` that reads them. A new format is a line here and a file there.
#[macro_export]
macro_rules! for_each_format {
    ($then:ident) => {
        $then! {
            /// Values between commas, one row per line, below a line of names.
            Csv = "csv", ["csv"], Rows, csv;
            /// Values between tabs.
            Tsv = "tsv", ["tsv", "tab"], Rows, tsv;
            /// Values between semicolons; known by its line of names where it is called `.csv`.
            Semicolon = "csv-semicolon", [], Rows, semicolon;
            /// An array of JSON objects.
            Json = "json", ["json"], Rows, json;
            /// One JSON object per line.
            Jsonl = "jsonl", ["jsonl", "ndjson"], Rows, jsonl;
            /// Columns, compressed.
            Parquet = "parquet", ["parquet", "pq"], Rows, parquet;
            /// Plain UTF-8.
            Text = "text", ["txt", "text", "md"], Document, text;
            /// Images, in folders named after their classes or with captions beside them.
            Folder = "folder", [], Images, ;
        }
    };
}

/// What files of a format hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Rows with named cells.
    Rows,
    /// One text.
    Document,
    /// Pictures.
    Images,
}

macro_rules! declare {
    ($($(#[$meta:meta])* $variant:ident = $name:literal, [$($extension:literal),*], $holds:ident, $($reader:ident)?;)+) => {
        crate::named! {
            /// How a data file is written.
            pub enum Format { $($(#[$meta])* $variant = $name),+ }
        }

        impl Format {
            /// Extensions that say it, in lower case.
            pub fn extensions(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &[$($extension),*]),+ }
            }

            /// What its files hold.
            pub fn holds(self) -> Holds {
                match self { $(Self::$variant => Holds::$holds),+ }
            }
        }
    };
}
for_each_format!(declare);

impl Format {
    /// By the extension of the file.
    pub fn of(file: &Path) -> Option<Self> {
        let extension = extension(file)?;
        Self::ALL.iter().copied().find(|format| format.extensions().contains(&extension.as_str()))
    }

    /// What is said of a file that goes with the training data, of which `said` is said: a file of the same extension is
    /// written the same way, and one whose own says nothing follows. `None`: it is told by the file itself.
    pub fn beside(file: &Path, train: &Path, said: Option<Self>) -> Option<Self> {
        match (said, Self::of(file)) {
            (Some(format), _) if extension(file) == extension(train) => Some(format),
            (_, Some(_)) => None,
            (said, None) => said.or_else(|| Self::of(train)),
        }
    }

    /// Those that hold one of `wanted`.
    pub fn holding(wanted: &[Holds]) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |format| wanted.contains(&format.holds()))
    }
}

fn extension(file: &Path) -> Option<String> {
    Some(file.extension()?.to_str()?.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_extension_says_one_format() {
        let mut seen = HashSet::new();
        for &format in Format::ALL {
            for extension in format.extensions() {
                assert!(seen.insert(extension), "{extension} is listed twice");
                assert_eq!(Format::of(Path::new(&format!("a.b/c.{}", extension.to_uppercase()))), Some(format));
            }
        }
        assert_eq!(Format::of(Path::new("csv")), None);
    }

    #[test]
    fn a_file_beside_the_training_data_is_written_alike_unless_it_says_otherwise() {
        let beside = |file: &str, train: &str, known| Format::beside(Path::new(file), Path::new(train), known);
        let (csv, jsonl) = (Format::Csv, Format::Jsonl);
        assert_eq!(beside("b.txt", "a.txt", Some(jsonl)), Some(jsonl), "a corpus of JSON lines called .txt");
        assert_eq!(beside("b.PARQUET", "a.data", Some(csv)), None, "its own extension says it");
        assert_eq!(beside("b.out", "a.data", Some(csv)), Some(csv));
        assert_eq!(beside("b.csv", "a.parquet", None), None);
        assert_eq!(beside("b.out", "a.jsonl", None), Some(jsonl), "one that says nothing follows");
        assert_eq!(beside("b.out", "a.data", None), None);
    }
}
