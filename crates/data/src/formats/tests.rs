use super::*;
use crate::{
    Batch, Composition, CorpusOptions, Dataset, LabelRule, LabelledOptions, PairsOptions, Place, SeriesOptions,
    WordStyle,
    formats::table::tests::file,
    images::list::{TableColumns, of_table},
    load_corpus, load_labelled, load_pairs, load_series,
    synthetic::word_tokenizer,
};
use plimsoll_base::batching::{Batching, Buckets, Compose};
use proptest::{collection::vec, prelude::*};

type Cells = (Place, Result<Vec<Cell<'static>>, String>);

fn read(name: &str, content: impl AsRef<[u8]>, columns: &[&str]) -> Result<Vec<Cells>, DataError> {
    let (_folder, path) = file(name, content);
    let columns = Columns::new(columns.iter().map(|c| c.to_string()));
    let mut reader = open(&path, None, Wanted::TEXTS, &columns)?;
    let mut rows = Vec::new();
    while let Some(mut row) = reader.next_owned()? {
        let cells = row.cells(&path, &columns).map_err(|error| error.to_string());
        let cells = cells.map(|cells| cells.into_iter().map(Cell::into_owned).collect());
        rows.push((row.place, cells));
    }
    Ok(rows)
}

fn text(text: &str) -> Cell<'static> {
    Cell::Text(text.to_string().into())
}

#[test]
fn lines_give_the_columns_asked_for() {
    let content = "\u{feff}{\"x\": {\"deep\": [1]}, \"label\": 1, \"text\": \"a\\n\\u00e4\"}\n\n{\"text\": \"b\", \"label\": [\"p\", 2]}\n{\"text\"\n";
    let rows = read("a.jsonl", content, &["text", "label"]).unwrap();
    assert_eq!(rows[0], (Place::Line(1), Ok(vec![text("a\nä"), Cell::Number(1.0)])));
    assert_eq!(rows[1], (Place::Line(3), Ok(vec![text("b"), Cell::List(vec![text("p"), Cell::Number(2.0)])])));
    assert!(rows[2].1.as_ref().unwrap_err().contains("line 4: "));
    let error = read("a.jsonl", content, &["txt"]).unwrap_err();
    assert_eq!(error.hint(), "did you mean `text`?");
}

#[test]
fn records_of_csv_keep_numbers_as_text_and_survive_ragged_rows() {
    let rows = read("a.csv", "label,text\n1,\"a, b\nc\"\n2\n,007\n", &["text", "label"]).unwrap();
    assert_eq!(rows[0], (Place::Line(2), Ok(vec![text("a, b\nc"), text("1")])));
    assert!(rows[1].1.as_ref().unwrap_err().contains("1 cells where the header has 2"));
    assert_eq!(rows[2].1, Ok(vec![text("007"), Cell::Missing]));
    assert!(matches!(read("a.csv", "a,b\n", &["text"]), Err(DataError::MissingColumn { .. })));
    assert!(matches!(read("a.xls", "", &["text"]), Err(DataError::UnknownFormat { .. })));
}

#[test]
fn every_format_that_holds_something_to_read_has_a_reader() {
    for &format in Format::ALL {
        assert_eq!(reader(format).is_some(), format.holds() != Holds::Images, "{format}");
    }
}

/// The file `content` under a name that says nothing, or something else.
fn disguised(content: impl AsRef<[u8]>) -> [(tempfile::TempDir, std::path::PathBuf); 2] {
    [file("a.data", &content), file("a.txt", &content)]
}

#[test]
fn a_format_that_is_said_counts_more_than_the_extension() {
    let rows: Vec<Vec<Cell<'_>>> =
        (0..40).map(|row| vec![Cell::Number(row as f64), text(["up", "down"][row % 2])]).collect();
    for format in Format::holding(&[Holds::Rows]) {
        for (_folder, path) in disguised(reader(format).unwrap().write(&["x", "y"], &rows)) {
            let label = LabelRule::Column("y".into());
            let options = SeriesOptions { format: Some(format), window: 3, ..SeriesOptions::new(&path, label) };
            let data = load_series(&options).unwrap_or_else(|error| panic!("{format}: {error}"));
            assert_eq!(data.normalizer.classes, ["down", "up"], "{format}");
            let other = SeriesOptions { validation: Some(path.clone()), ..options.clone() };
            assert_eq!(load_series(&other).unwrap().validation.len(), 38, "{format}: a validation file follows");
            let unsaid = load_series(&SeriesOptions { format: None, ..options });
            let Err(error @ DataError::UnknownFormat { .. }) = unsaid else { panic!("{format}: read as {path:?}") };
            assert!(error.hint().contains("data.format") && error.hint().contains(&format.to_string()));
        }
    }
}

/// What only the extension says may be otherwise: another separator, an array of objects. What the user says is not.
#[test]
fn a_format_that_is_said_is_not_overruled_by_how_the_file_begins() {
    for (name, content, said, others) in [
        ("a.csv", "a;b\n1;2\n", Format::Csv, vec!["a;b"]),
        ("a.csv", "a\tb\n1\t2\n", Format::Csv, vec!["a\tb"]),
        ("a.jsonl", "[{\"a\": 1}]\n", Format::Jsonl, vec![]),
    ] {
        let (_folder, path) = file(name, content);
        assert_eq!(column_names(&path, Some(said)).unwrap(), others, "{name}");
        assert!(column_names(&path, None).unwrap().contains(&"a".to_string()), "{name}");
    }
}

#[test]
fn utf_16_is_told_as_what_it_is() {
    let utf16 = |order: fn(u16) -> [u8; 2], mark: &str| {
        format!("{mark}a,b\n1,2\n").encode_utf16().flat_map(order).collect::<Vec<u8>>()
    };
    for order in [u16::to_le_bytes, u16::to_be_bytes] {
        for (name, mark) in [("a.csv", "\u{feff}"), ("a.csv", ""), ("a.jsonl", "\u{feff}"), ("a.tsv", "")] {
            let error = read(name, utf16(order, mark), &["a"]).unwrap_err();
            assert!(matches!(error, DataError::Utf16 { .. }) && error.hint().contains("iconv"), "{name}: {error}");
        }
    }
}

#[test]
fn a_corpus_of_json_lines_may_be_called_txt() {
    for (_folder, path) in disguised("{\"text\": \"ab\"}\n{\"text\": \"cd\"}\n") {
        let options = CorpusOptions { validation_fraction: 0.0, ..CorpusOptions::new(&path, 4, 257) };
        let said = CorpusOptions { format: Some(Format::Jsonl), ..options.clone() };
        assert_eq!(load_corpus(&said).unwrap().train.tokens(), [97, 98, 256, 99, 100]);
        assert_eq!(load_corpus(&options).unwrap().train.tokens().len(), 30, "unsaid, it is a text like any other");
    }
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("a.csv");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let error = table(&pipe, None, &Selection::default()).unwrap_err();
    assert!(error.to_string().ends_with("cannot be read: it is not a regular file"), "{error}");
    let error = table(folder.path(), Some(Format::Csv), &Selection::default()).unwrap_err();
    assert!(matches!(error, DataError::Unreadable { .. }), "{error}");
}

/// Words with everything that formats quote or escape.
fn phrase() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        "[a-z]{1,6}",
        "[a,;\t\"'\\\\{}\\[\\]é算\n:]{1,5}",
        Just("007".to_string()),
        Just("1e3".to_string())
    ];
    vec(word, 1..6).prop_map(|words| words.join(" ").trim().to_string()).prop_filter("blank", |text| !text.is_empty())
}

fn labels() -> impl Strategy<Value = String> {
    prop_oneof![Just("yes".to_string()), Just("no, never".to_string()), Just("\"perhaps\"".to_string())]
}

fn composition() -> Composition {
    Composition { batch: 4, seed: 1, batching: Batching { buckets: Buckets::Auto, compose: Compose::Length } }
}

fn whole(data: &impl Dataset) -> Batch {
    let mut batch = Batch::new(data.fields(), data.len()).unwrap();
    batch.fill(data, 0..data.len()).unwrap();
    batch
}

/// What the files hold, written in every format and loaded by `load`, is the same.
fn same_in_every_format<T: PartialEq + std::fmt::Debug>(
    names: &[&str],
    rows: &[Vec<Cell<'_>>],
    load: impl Fn(&Path) -> T,
) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let mut first: Option<(Format, T)> = None;
    for format in Format::holding(&[Holds::Rows]) {
        let path = folder.path().join(format!("a.{}", format.extensions().first().unwrap_or(&"csv")));
        std::fs::write(&path, reader(format).unwrap().write(names, rows)).unwrap();
        let loaded = load(&path);
        match &first {
            None => first = Some((format, loaded)),
            Some((other, expected)) => prop_assert_eq!(&loaded, expected, "{} and {}", format, other),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_same_series_in_every_format_gives_the_same_windows(
        rows in vec((-1_000_000i32..1_000_000, 0u8..50, labels()), 12..40),
    ) {
        let cells = |(row, (price, volume, label)): (usize, &(i32, u8, String))| {
            vec![Cell::Number(row as f64), Cell::Number(f64::from(*price) / 1000.0), text(label), Cell::Number(f64::from(*volume))]
        };
        let rows: Vec<_> = rows.iter().enumerate().map(cells).collect();
        same_in_every_format(&["time", "price", "label", "volume"], &rows, |path| {
            let options = SeriesOptions { time: Some("time".into()), window: 3, validation_fraction: 0.0, ..SeriesOptions::new(path, LabelRule::Column("label".into())) };
            let data = load_series(&options).unwrap();
            (format!("{:?}", data.normalizer), whole(&data.train).f32(0, 0..data.train.len()).to_vec())
        })?;
    }

    #[test]
    fn the_same_texts_in_every_format_give_the_same_samples(rows in vec((phrase(), labels()), 2..20)) {
        let words = || word_tokenizer("made", ["a", "b", "c", "x", "007", "é", "算", ","], WordStyle::T5).unwrap();
        let cells: Vec<_> = rows.iter().map(|(phrase, label)| vec![text(phrase), text(label)]).collect();
        for memory_bytes in [u64::MAX, 0] {
            same_in_every_format(&["text", "label"], &cells, |path| {
                let options = LabelledOptions { memory_bytes, validation_fraction: 0.0, ..LabelledOptions::new(path, 3, 20, 20, composition()) };
                let data = load_labelled(&options, words()).unwrap();
                (data.classes.clone(), format!("{:?}", whole(&data.train)))
            })?;
            same_in_every_format(&["text", "label"], &cells, |path| {
                let options = PairsOptions { memory_bytes, validation_fraction: 0.0, source: "text".into(), target: "label".into(), ..PairsOptions::new(path, 12, 8, 20, composition()) };
                format!("{:?}", whole(&load_pairs(&options, words()).unwrap().train))
            })?;
        }
        same_in_every_format(&["text", "label"], &cells, |path| {
            let options = CorpusOptions { validation_fraction: 0.0, ..CorpusOptions::new(path, 8, 257) };
            load_corpus(&options).unwrap().train.tokens().to_vec()
        })?;
        same_in_every_format(&["text", "label"], &cells, |path| {
            let columns = TableColumns { image: Some("text"), caption: Some("label"), id: None };
            let listed = of_table(path, None, columns).unwrap().into_iter().map(|row| row.unwrap());
            listed.map(|row| (row.image.unwrap().file_name().map(|name| name.to_os_string()), row.caption)).collect::<Vec<_>>()
        })?;
    }
}
