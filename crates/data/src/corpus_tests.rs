use super::*;
use crate::Batch;
use crate::formats::table::tests::file;
use crate::vocabulary::tests::TOKENIZER;

fn load(name: &str, content: impl AsRef<[u8]>, adjust: impl Fn(&mut CorpusOptions)) -> Result<CorpusData, DataError> {
    let (_folder, path) = file(name, content);
    let mut options = CorpusOptions::new(path, 4, 257);
    adjust(&mut options);
    load_corpus(&options)
}

fn rows(data: &Sequences) -> Vec<(Vec<i32>, i32)> {
    let mut batch = Batch::new(data.fields(), 1).unwrap();
    let mut row = |sample| {
        batch.fill(data, [sample].into_iter()).unwrap();
        // Targets are the next ids, and count where there is one.
        let (ids, targets, weights) = (batch.i32(0, 0..1), batch.i32(1, 0..1), batch.f32(2, 0..1));
        let counted = weights.iter().filter(|&&weight| weight == 1.0).count();
        assert_eq!(targets[..counted], ids[1..=counted]);
        assert!(targets[counted..].iter().all(|&id| id == 0) && weights[counted..].iter().all(|&w| w == 0.0));
        (ids.to_vec(), counted as i32 + 1)
    };
    (0..data.len()).map(&mut row).collect()
}

fn ids(text: &str) -> Vec<i32> {
    text.bytes().map(i32::from).collect()
}

#[test]
fn text_is_packed_with_a_padded_tail() {
    let data = load("a.txt", "abcdefghijk", |o| o.validation_fraction = 0.0).unwrap();
    let expected = [(ids("abcd"), 4), (ids("efgh"), 4), (vec![105, 106, 107, 0], 3)];
    assert_eq!(rows(&data.train), expected);
    assert!(data.validation.is_empty());
    let single = load("a.txt", "abcde", |o| o.validation_fraction = 0.0).unwrap();
    assert_eq!(rows(&single.train), [(ids("abcd"), 4)], "one id has no target");
}

#[test]
fn the_end_of_the_only_document_is_held_out() {
    let data = load("a.txt", "abcdefghij", |o| o.validation_fraction = 0.4).unwrap();
    assert_eq!(rows(&data.train), [(ids("abcd"), 4), (vec![101, 102, 0, 0], 2)]);
    assert_eq!(rows(&data.validation), [(ids("ghij"), 4)]);
}

#[test]
fn documents_are_separated_and_held_out_whole() {
    let content = "{\"text\":\"ab\"}\n{\"text\":\"\"}\n{\"id\":1,\"text\":\"cde\"}\n{\"text\":\"fg\"}\n";
    let data = load("a.jsonl", content, |o| o.validation_fraction = 0.2).unwrap();
    assert_eq!(data.train.tokens(), [&ids("ab")[..], &[256], &ids("cde"), &[256]].concat());
    assert_eq!(data.validation.tokens(), ids("fg"));
    let text = data.report.to_string();
    assert!(text.contains("3 documents") && text.contains("vocabulary bytes of 257"), "{text}");
    let other = load("a.jsonl", content.replace("fg", "xyz"), |o| o.validation_fraction = 0.2).unwrap();
    assert_eq!(other.train.tokens(), data.train.tokens());
}

/// Two long documents are not one to learn from and one to be judged by, where a tenth was asked for.
#[test]
fn a_document_is_cut_where_none_begins_near_the_fraction() {
    let document = |letters: usize| format!("{{\"text\":\"{}\"}}\n", "a".repeat(letters));
    let held_out = |letters: &[usize]| {
        let content: String = letters.iter().map(|&letters| document(letters)).collect();
        load("a.jsonl", content, |o| o.validation_fraction = 0.1).unwrap().validation.tokens().len()
    };
    // With the id between two documents.
    assert_eq!(held_out(&[500, 499]), 100);
    assert_eq!(held_out(&[99, 900]), 100);
    assert_eq!(
        (held_out(&[849, 150]), held_out(&[848, 151])),
        (150, 100),
        "half more is about as much, and no further"
    );
    assert_eq!((held_out(&[949, 50]), held_out(&[950, 49])), (50, 100));
}

#[test]
fn a_tokenizer_file_gives_the_ids() {
    let (_folder, tokenizer) = file("tokenizer.json", TOKENIZER);
    let adjust = |o: &mut CorpusOptions| {
        o.vocabulary = VocabularyChoice::Tokenizer(tokenizer.clone());
        o.validation_fraction = 0.0;
    };
    let content = "{\"text\":\"the ship\"}\n{\"text\":\"floats\"}\n";
    let data = load("a.jsonl", content, adjust).unwrap();
    assert_eq!(data.train.tokens(), [1, 2, 4, 3]);
    let narrow = load("a.jsonl", content, |o| {
        adjust(o);
        o.vocab = 4;
    });
    assert!(matches!(narrow, Err(DataError::IdBeyondVocabulary { id: 4, vocab: 4, .. })));
}

#[test]
fn a_separate_validation_file_leaves_training_whole() {
    let (_folder, path) = file("b.txt", "xyz");
    let data = load("a.txt", "abcdefgh", |o| o.validation = Some(path.clone())).unwrap();
    assert_eq!((data.train.tokens().len(), data.validation.tokens().len()), (8, 3));
}

#[test]
fn bad_corpora_are_refused() {
    use DataError as E;
    let refuse = |name: &str, content: &[u8], adjust: &dyn Fn(&mut CorpusOptions)| {
        let error = load(name, content, adjust).unwrap_err();
        assert!(!error.hint().is_empty() && !error.to_string().is_empty());
        error
    };
    assert!(matches!(refuse("a.txt", b"", &|_| {}), E::Empty { .. }));
    assert!(matches!(refuse("a.jsonl", b"{\"text\":\"\"}\n", &|_| {}), E::Empty { .. }));
    assert!(matches!(refuse("a.txt", b"ab\nc\xffd", &|_| {}), E::BadUtf8 { byte: 4, line: 2, .. }));
    assert!(matches!(refuse("a.txt", b"abc", &|_| {}), E::TooFewTokens { part: "validation", .. }));
    assert!(matches!(refuse("a.txt", b"abcd", &|o| o.validation_fraction = 0.9), E::TooFewTokens { .. }));
    assert!(matches!(refuse("a.csv", b"a\n1\n", &|_| {}), E::MissingColumn { .. }));
    assert!(matches!(refuse("a.jsonl", b"{\"text\":\"a\"}\n{}\n", &|_| {}), E::Malformed { .. }));
    assert!(matches!(refuse("a", b"x", &|o| o.format = Some(Format::Folder)), E::UnknownFormat { .. }));
    assert!(matches!(refuse("a.jsonl", b"{\"text\":\"a\"}\n{", &|_| {}), E::Malformed { .. }));
    assert!(matches!(refuse("a.jsonl", b"{\"text\":7}", &|_| {}), E::Malformed { .. }));
    let missing = refuse("a.jsonl", b"{\"texts\":\"a\"}", &|_| {});
    assert_eq!(missing.hint(), "did you mean `texts`? The column is named by data.text_field");
    assert!(matches!(refuse("a.txt", b"abcdefgh", &|o| o.vocab = 100), E::IdBeyondVocabulary { .. }));
    assert!(matches!(refuse("a.txt", b"abcd", &|o| o.max_length = 1), E::BadOption { name: "max_length", .. }));
    assert!(matches!(refuse("a.txt", b"abcd", &|o| o.validation_fraction = -0.1), E::BadOption { .. }));
    let gone = load_corpus(&CorpusOptions::new("/nowhere/a.txt", 4, 257));
    assert!(matches!(gone, Err(E::Unreadable { .. })));
}
