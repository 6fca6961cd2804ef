use super::*;
use crate::formats::table::tests::file;
use crate::texts::tokenizer::tests::encoder;
use crate::{Batch, Composition, Loader, LoaderOptions, Position};
use plimsoll_base::batching::{Batching, Buckets, Compose};

fn options(train: &Path) -> LabelledOptions {
    let batching = Batching { buckets: Buckets::Auto, compose: Compose::Length };
    let composition = Composition { batch: 4, seed: 1, batching };
    LabelledOptions { validation_fraction: 0.0, ..LabelledOptions::new(train, 2, 6, 8, composition) }
}

fn load(
    name: &str,
    content: impl AsRef<[u8]>,
    adjust: impl Fn(&mut LabelledOptions),
) -> Result<LabelledData, DataError> {
    let (_folder, path) = file(name, content);
    let mut options = options(&path);
    adjust(&mut options);
    load_labelled(&options, encoder())
}

fn message(content: &str, adjust: impl Fn(&mut LabelledOptions)) -> String {
    let error = load("a.jsonl", content, adjust).unwrap_err();
    assert!(!error.hint().is_empty());
    let text = error.to_string();
    text[text.find("a.jsonl").unwrap_or(0)..].to_string()
}

fn batch(texts: &Texts) -> Batch {
    let mut batch = Batch::new(texts.fields(), texts.len()).unwrap();
    batch.fill(texts, 0..texts.len()).unwrap();
    batch
}

const TWO: &str = "{\"text\": \"a b\", \"label\": \"pos\"}\n{\"text\": \"c\", \"label\": \"neg\"}\n";

#[test]
fn a_file_becomes_tokens_masks_and_classes() {
    for (name, content) in [("a.jsonl", TWO), ("a.csv", "label,text\npos,a b\nneg,c\n")] {
        let data = load(name, content, |_| {}).unwrap();
        let batch = batch(&data.train);
        let field = |name: &str| batch.field(name).unwrap();
        assert_eq!(batch.i32(field("ids"), 0..2), [2, 4, 5, 3, 2, 6, 3, 0]);
        assert_eq!(batch.i32(field("mask"), 0..2), [1, 1, 1, 1, 1, 1, 1, 0]);
        assert_eq!(batch.i32(field("label"), 0..2), [1, 0]);
        assert_eq!(batch.f32(field("weight"), 0..2), [1.0, 1.0]);
        assert_eq!(batch.field("types"), None);
        assert_eq!(data.classes, ["neg", "pos"]);
        assert_eq!(data.train.fields(), Texts::sample_fields(6, 0, false, LabelKind::Single, 2));
    }
}

#[test]
fn pairs_have_segments_and_are_cut_to_length() {
    let content = "{\"text\": \"a b a b\", \"other\": \"c\", \"label\": 1}\n";
    let data = load("a.jsonl", content, |o| {
        o.text_pair = Some("other".into());
        o.types = true;
    })
    .unwrap();
    let batch = batch(&data.train);
    assert_eq!(batch.i32(0, 0..1), [2, 4, 5, 3, 6, 3]);
    assert_eq!(batch.i32(2, 0..1), [0, 0, 0, 0, 1, 1]);
    let DataReport::Texts(report) = &data.report else { panic!("a report of texts") };
    assert_eq!((report.truncated, report.lengths[0].longest), (Some(1), 6));
}

#[test]
fn numbers_and_lists_are_labels_too() {
    let content = "{\"text\": \"a\", \"label\": [0, 1, 0]}\n{\"text\": \"b\", \"label\": [1, 0, 0.5]}\n";
    let data = load("a.jsonl", content, |o| (o.kind, o.num_labels) = (LabelKind::Multi, 3)).unwrap();
    let batch = batch(&data.train);
    assert_eq!(batch.f32(batch.field("labels").unwrap(), 0..2), [0.0, 1.0, 0.0, 1.0, 0.0, 0.5]);
    let content = "text,x,y\na,1.5,-2\n";
    let data = load("a.csv", content, |o| {
        (o.kind, o.label) = (LabelKind::Regression, vec!["x".into(), "y".into()]);
    })
    .unwrap();
    assert_eq!(data.train.values(0).unwrap(), [1.5, -2.0]);
    assert_eq!(data.classes, ["x", "y"]);
}

#[test]
fn unusable_rows_are_named_by_line_and_column() {
    let row = |text: &str| format!("{TWO}{text}\n");
    assert_eq!(
        message(&row("{\"text\": \" \", \"label\": \"pos\"}"), |_| {}),
        "a.jsonl: line 3, column `text`: the text is empty"
    );
    assert_eq!(message(&row("{\"label\": \"pos\"}"), |_| {}), "a.jsonl: line 3, column `text`: the value is missing");
    assert_eq!(message(&row("{\"text\": \"a\"}"), |_| {}), "a.jsonl: line 3, column `label`: the value is missing");
    assert_eq!(
        message(&row("{\"text\": [1], \"label\": \"pos\"}"), |_| {}),
        "a.jsonl: line 3, column `text`: a list where a text is expected"
    );
    assert!(message(&row("{\"text\": "), |_| {}).starts_with("a.jsonl: line 3: "));
    let known = |o: &mut LabelledOptions| o.labels = Some(vec!["neg".into(), "pos".into()]);
    assert_eq!(
        message(&row("{\"text\": \"a\", \"label\": \"poz\"}"), known),
        "a.jsonl: line 3, column `label`: label `poz` is not among `neg`, `pos`"
    );
    assert!(
        message(&row("{\"text\": \"a\", \"label\": \"x\"}"), |_| {}).contains("3 different labels (`neg`, `pos`, `x`)")
    );
    assert!(message(TWO, |o| o.validation_fraction = 0.9).ends_with("of 2 rows none is left for training"));
    assert!(message(TWO, |o| o.text = "txt".into()).contains("no column `txt`"));
    assert!(message(TWO, |o| o.vocab = 5).contains("token `b` has id 5"));
    assert!(message(TWO, |o| o.max_length = 2).contains("special tokens"));
    assert!(message("", |_| {}).contains("holds no rows"));
}

#[test]
fn bad_rows_are_left_out_only_on_request() {
    let content =
        format!("{TWO}{{\"text\": \"\", \"label\": \"pos\"}}\nnonsense\n{{\"text\": \"b\", \"label\": \"neg\"}}\n");
    let data = load("a.jsonl", &content, |o| o.skip_bad_rows = true).unwrap();
    assert_eq!(data.train.len(), 3);
    let DataReport::Texts(report) = &data.report else { panic!("a report of texts") };
    assert_eq!((report.reading.rows, report.reading.skipped), (3, 2));
    assert!(report.reading.first_skipped.as_ref().unwrap().contains("line 3"));
    assert!(data.report.to_string().contains("2 rows were left out"));
}

fn many(rows: usize) -> String {
    let word = |i: usize| ["a", "b", "c", "d"][i % 4];
    let text = |row: usize| (0..1 + row % 7).map(word).collect::<Vec<_>>().join(" ");
    (0..rows).map(|row| format!("{{\"text\": \"{}\", \"label\": {}}}\n", text(row), row % 3 / 2)).collect()
}

#[test]
fn a_split_is_made_by_class_and_threads_do_not_matter() {
    let load =
        |threads| load("a.jsonl", many(10_000), |o| (o.threads, o.validation_fraction) = (threads, 0.1)).unwrap();
    let (one, three) = (load(1), load(3));
    assert_eq!((one.train.len(), one.validation.len()), (9000, 1000));
    let share = (0..1000).filter(|&s| one.validation.class(s) == Some(1)).count();
    assert_eq!(share, 333);
    assert!(batch(&one.train) == batch(&three.train) && batch(&one.validation) == batch(&three.validation));
    let DataReport::Texts(report) = &one.report else { panic!("a report of texts") };
    assert!(report.padding.unwrap() < 1.01, "{:?}", report.padding);
    assert_eq!(report.classes[0].train + report.classes[1].train, 9000);
    assert_eq!(one.train.resident_bytes() + one.validation.resident_bytes(), report.resident_bytes);
}

/// What is reported before training is what the loader then does.
#[test]
fn the_padding_reported_is_that_of_the_batches() {
    let data = load("a.jsonl", many(999), |_| {}).unwrap();
    let DataReport::Texts(report) = &data.report else { panic!("a report of texts") };
    let (compose, buckets) = (Compose::Length, Buckets::Auto);
    let options =
        LoaderOptions { batch: 4, workers: 1, prefetch: 2, shuffle: Some(1), epochs: Some(1), compose, buckets };
    let mut loader = Loader::new(Arc::new(data.train.clone()), &options, Position::default()).unwrap();
    let (mut computed, mut real) = (0, 0);
    while let Some(batch) = loader.next() {
        let batch = batch.unwrap();
        computed += batch.len() * batch.lengths()[0];
        real += batch.real()[0];
    }
    assert_eq!(report.padding, Some(computed as f64 / real as f64));
}

#[test]
fn texts_that_stay_in_their_file_give_the_same_batches() {
    let csv: String = "label,text\n".to_string()
        + &(0..50)
            .map(|row| format!("{},\"a{}b\"\n", row % 2, if row % 3 == 0 { "\n" } else { " " }))
            .collect::<String>();
    for (name, content) in [("a.jsonl", many(50)), ("a.csv", csv)] {
        let (_folder, path) = file(name, content);
        let load =
            |bytes| load_labelled(&LabelledOptions { memory_bytes: bytes, ..options(&path) }, encoder()).unwrap();
        let (memory, stream) = (load(u64::MAX), load(0));
        assert!(stream.train.length(0).is_none() && memory.train.length(0).is_some());
        assert!(batch(&memory.train) == batch(&stream.train), "{name}");
        assert_eq!(stream.classes, memory.classes);
        assert!(stream.train.size(6) >= stream.train.size(0));
    }
}

#[test]
fn validation_files_use_the_classes_of_the_training_file() {
    let (_a, validation) = file("v.jsonl", "{\"text\": \"d\", \"label\": \"pos\"}\n");
    let data = load("a.jsonl", TWO, |o| o.validation = Some(validation.clone())).unwrap();
    assert_eq!((data.validation.len(), data.validation.class(0)), (1, Some(1)));
    let (_b, other) = file("v.jsonl", "{\"text\": \"d\", \"label\": \"maybe\"}\n");
    let error = load("a.jsonl", TWO, |o| o.validation = Some(other.clone())).unwrap_err();
    assert!(matches!(error, DataError::UnknownLabel { .. }), "{error}");
}

#[test]
fn texts_to_predict_have_no_weight() {
    let (_folder, path) = file("a.jsonl", "{\"text\": \"d\"}\n{\"text\": \"a b\"}\n");
    let (texts, asked) = read_texts(&path, &options(&path), None, Arc::new(encoder())).unwrap();
    let batch = batch(&texts);
    assert_eq!(batch.f32(batch.field("weight").unwrap(), 0..2), [0.0, 0.0]);
    assert_eq!((texts.len(), asked.row(1), asked.id(1)), (2, 1, None));
}

/// The fixture's texts use ids up to 5 only; what a text further on would use is not known before it is read.
#[test]
fn a_file_that_is_streamed_is_refused_at_once_if_its_tokenizer_knows_more_than_the_model() {
    let (_folder, path) = file("a.csv", "text,label\na,x\nb,y\n");
    let load = |memory_bytes| load_labelled(&LabelledOptions { memory_bytes, vocab: 6, ..options(&path) }, encoder());
    assert!(load(u64::MAX).is_ok());
    assert!(matches!(load(0).err(), Some(DataError::TokenBeyondVocabulary { id: 7, vocab: 6, .. })));
}

/// Rows without an answer lie between the others; nothing moves up.
#[test]
fn rows_to_predict_keep_their_number_and_their_name() {
    let jsonl = "{\"text\": \"a\", \"id\": 12345678901234567891}\n{\"text\": \"  \", \"id\": \"x\"}\n{\"text\": \"b c\", \"id\": null}\n\
                 {\"text\"\n{\"text\": \"d\", \"id\": 0.5}\n";
    let csv = "id,text\n007,a\nx,\n,\"b\nc\"\n9,a,b\n12,d\n";
    for memory_bytes in [u64::MAX, 0] {
        for (name, content, ids) in
            [("a.jsonl", jsonl, ["12345678901234567891", "", "0.5"]), ("a.csv", csv, ["007", "", "12"])]
        {
            let (_folder, path) = file(name, content);
            let options = LabelledOptions { memory_bytes, ..options(&path) };
            let (texts, asked) = read_texts(&path, &options, Some("id"), Arc::new(encoder())).unwrap();
            assert_eq!((texts.len(), [0, 1, 2].map(|s| asked.row(s))), (3, [0, 2, 4]), "{name}");
            let id =
                |s: usize| asked.id(s).map_or(String::new(), |id| id.as_str().map_or(id.to_string(), String::from));
            assert_eq!([0, 1, 2].map(id), ids, "{name}");
            let missing: Vec<_> = asked.unanswered().iter().map(|row| (row.row, row.id.clone())).collect();
            assert_eq!(missing, [(1, Some("x".into())), (3, None)], "{name}");
            assert!(
                asked.unanswered()[0].cause.contains("the text is empty") || name == "a.csv",
                "{:?}",
                asked.unanswered()
            );
        }
    }
}

#[test]
fn all_rows_that_cannot_be_used_are_told_at_once() {
    let rows = "text,label\na,pos\n,neg\nb,\nc,pos\n  ,pos\n";
    let error = load("a.csv", rows, |_| {}).unwrap_err();
    let text = error.to_string();
    assert!(matches!(&error, DataError::Several { problems, more: 0, .. } if problems.len() == 3), "{text}");
    assert!(text.contains("3 places") && ["line 3", "line 4", "line 6"].iter().all(|l| text.contains(l)), "{text}");
}

#[test]
fn a_text_that_spells_out_padding_is_refused_where_it_has_no_place() {
    let rows = "{\"text\": \"a\", \"label\": 0}\n{\"text\": \"a [PAD] b\", \"label\": 1}\n";
    assert_eq!(load("a.jsonl", rows, |_| {}).unwrap().train.len(), 2);
    let error = load("a.jsonl", rows, |o| o.pad_has_no_place = true).unwrap_err();
    assert!(error.to_string().contains("line 2: the text spells out the padding token"), "{error}");
}

#[test]
fn parquet_is_read_by_its_columns() {
    use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use parquet::file::{properties::WriterProperties, writer::SerializedFileWriter};
    let schema = "message m { required binary text (UTF8); required int64 label; required binary other (UTF8); }";
    let schema = Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let (_folder, path) = file("a.parquet", "");
    let created = std::fs::File::create(&path).unwrap();
    let mut writer = SerializedFileWriter::new(created, schema, Arc::new(WriterProperties::default())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for texts in [Some(["a b", "c", "d"]), None, Some(["x", "y", "z"])] {
        let mut column = group.next_column().unwrap().unwrap();
        match texts {
            Some(texts) => {
                column.typed::<ByteArrayType>().write_batch(&texts.map(ByteArray::from), None, None).unwrap()
            }
            None => column.typed::<Int64Type>().write_batch(&[1, 0, 1], None, None).unwrap(),
        };
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    let data = load_labelled(&options(&path), encoder()).unwrap();
    let batch = batch(&data.train);
    assert_eq!(batch.i32(0, 0..3), [2, 4, 5, 3, 2, 6, 3, 0, 2, 7, 3, 0]);
    assert_eq!(batch.i32(2, 0..3), [1, 0, 1]);
    let missing = LabelledOptions { text: "texts".into(), ..options(&path) };
    assert_eq!(
        load_labelled(&missing, encoder()).unwrap_err().hint(),
        "did you mean `text`? The column is named by data.text"
    );
    std::fs::write(&path, b"PAR1 nonsense PAR1").unwrap();
    assert!(matches!(load_labelled(&options(&path), encoder()), Err(DataError::Parquet { .. })));
}

/// Damage gives an error or other texts, never a panic.
#[test]
fn damaged_files_do_not_panic() {
    let (_folder, path) = file("a.jsonl", "");
    for seed in 0..300 {
        std::fs::write(&path, crate::formats::table::tests::mutated(TWO, seed)).unwrap();
        let skip = LabelledOptions { skip_bad_rows: seed % 2 == 0, threads: 1, ..options(&path) };
        if let Ok(data) = load_labelled(&skip, encoder()) {
            assert!(data.train.len() <= 3);
        }
    }
}
