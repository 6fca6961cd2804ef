use super::*;
use crate::formats::table::tests::file;
use crate::synthetic::word_tokenizer;
use crate::{Batch, Composition, Loader, LoaderOptions, Position, WordStyle};
use plimsoll_base::batching::{Batching, Buckets, Compose};

fn options(train: &Path) -> PairsOptions {
    let batching = Batching { buckets: Buckets::Auto, compose: Compose::Length };
    let composition = Composition { batch: 4, seed: 1, batching };
    PairsOptions {
        validation_fraction: 0.0,
        decoder_start: 0,
        prefix: "x ".into(),
        ..PairsOptions::new(train, 5, 4, 20, composition)
    }
}

fn tokenizer() -> TextTokenizer {
    // <pad> 0, </s> 1, <unk> 2, a 3, b 4, c 5, x 6
    word_tokenizer("made", ["a", "b", "c", "x"], WordStyle::T5).unwrap()
}

fn batch(texts: &PairedTexts) -> Batch {
    let mut batch = Batch::new(texts.fields(), texts.len()).unwrap();
    batch.fill(texts, 0..texts.len()).unwrap();
    batch
}

#[test]
fn targets_are_shifted_right_and_padding_counts_nothing() {
    let (_folder, path) = file("a.csv", "source,target\na b,c\nc,a b c a b\n");
    let data = load_pairs(&options(&path), tokenizer()).unwrap();
    let batch = batch(&data.train);
    assert_eq!(batch.lengths(), [4, 4]);
    assert_eq!(batch.i32(0, 0..2), [6, 3, 4, 1, 6, 5, 1, 0]);
    assert_eq!(batch.i32(1, 0..2), [1, 1, 1, 1, 1, 1, 1, 0]);
    assert_eq!(batch.i32(2, 0..2), [0, 5, 0, 0, 0, 3, 4, 5], "decoder_ids begin with the start and lag by one");
    assert_eq!(batch.i32(3, 0..2), [5, 1, 0, 0, 3, 4, 5, 1], "a target that was cut still ends");
    assert_eq!(batch.f32(4, 0..2), [1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
    let DataReport::Texts(report) = &data.report else { panic!("a report of texts") };
    assert_eq!((report.truncated, report.lengths.len()), (Some(1), 2));
    assert_eq!(data.train.fields(), PairedTexts::sample_fields(5, 4, 0));
    let (sources, asked) = read_sources(&path, &options(&path), None, data.tokenizer).unwrap();
    assert_eq!((sources, asked.row(1)), (vec![vec![6, 3, 4, 1], vec![6, 5, 1]], 1));
}

#[test]
fn sources_without_a_text_are_told_and_move_nothing() {
    let (_folder, path) =
        file("q.jsonl", "{\"source\": \"a\", \"n\": 7}\n{\"source\": \"\", \"n\": 8}\n{\"source\": \"b\"}\n");
    let (sources, asked) = read_sources(&path, &options(&path), Some("n"), Arc::new(tokenizer())).unwrap();
    assert_eq!((sources.len(), asked.row(1), asked.id(0)), (2, 2, Some(&7.into())));
    assert_eq!(asked.unanswered().iter().map(|u| (u.row, u.id.clone())).collect::<Vec<_>>(), [(1, Some(8.into()))]);
}

#[test]
fn pairs_that_stay_in_their_file_give_the_same_batches() {
    let rows: String =
        (0..40).map(|i| format!("{{\"target\": \"{}\", \"source\": \"a b\"}}\n", ["a", "b c"][i % 2])).collect();
    let (_folder, path) = file("a.jsonl", rows);
    let load = |bytes| load_pairs(&PairsOptions { memory_bytes: bytes, ..options(&path) }, tokenizer()).unwrap();
    let (memory, stream) = (load(u64::MAX), load(0));
    assert!(stream.train.lengths(0).is_none());
    assert!(batch(&memory.train) == batch(&stream.train));
    assert!(stream.train.resident_bytes() <= memory.train.resident_bytes());
}

#[test]
fn a_pair_needs_both_texts() {
    let (_folder, path) =
        file("a.jsonl", "{\"source\": \"a\", \"target\": \"b\"}\n{\"source\": \"a\", \"target\": null}\n");
    let error = load_pairs(&options(&path), tokenizer()).unwrap_err().to_string();
    assert!(error.ends_with("line 2, column `target`: the value is missing"), "{error}");
    let skipping = PairsOptions { skip_bad_rows: true, ..options(&path) };
    assert_eq!(load_pairs(&skipping, tokenizer()).unwrap().train.len(), 1);
}

/// Both axes of a batch are about even.
#[test]
fn composition_looks_at_both_lengths() {
    let text = |n: usize| vec!["a"; n].join(" ");
    let rows: String = (0..4000usize)
        .map(|i| (1 + i * 7 % 60, 1 + i * 13 % 50))
        .map(|(s, t)| format!("{{\"source\": \"{}\", \"target\": \"{}\"}}\n", text(s), text(t)))
        .collect();
    let (_folder, path) = file("a.jsonl", rows);
    let cost = |compose| {
        let batching = Batching { buckets: Buckets::Auto, compose };
        let composition = Composition { batch: 16, seed: 1, batching };
        let options = PairsOptions { max_length: 64, max_target_length: 64, composition, ..options(&path) };
        let DataReport::Texts(report) = load_pairs(&options, tokenizer()).unwrap().report else { panic!("texts") };
        report.padding.unwrap()
    };
    let (length, random) = (cost(Compose::Length), cost(Compose::Random));
    assert!(length < 1.2 && random > 1.7, "{length} against {random}");
}

/// What `data.buckets` says costs memory and time, and changes nothing that is learned.
#[test]
fn the_same_pairs_come_together_whatever_lengths_batches_may_have() {
    let text = |n: usize| vec!["a"; n].join(" ");
    let rows: String = (0..600usize)
        .map(|i| format!("{{\"source\": \"{}\", \"target\": \"{}\"}}\n", text(1 + i * 7 % 60), text(1 + i * 13 % 50)))
        .collect();
    let (_folder, path) = file("a.jsonl", rows);
    let batches = |buckets| -> Vec<Vec<i32>> {
        let composition = Composition { batch: 16, seed: 1, batching: Batching { buckets, compose: Compose::Length } };
        let options = PairsOptions { max_length: 64, max_target_length: 64, composition, ..options(&path) };
        let data = Arc::new(load_pairs(&options, tokenizer()).unwrap().train);
        let usual = LoaderOptions::evaluation(16, 0, 1);
        let asked = LoaderOptions { shuffle: Some(1), compose: Compose::Length, buckets, ..usual };
        let mut loader = Loader::new(data, &asked, Position::default()).unwrap();
        let mut found = Vec::new();
        while let Some(batch) = loader.next() {
            // Without padding, whose ids are 0.
            let batch = batch.unwrap();
            found.push(batch.i32(3, 0..batch.len()).iter().copied().filter(|&id| id > 0).collect());
        }
        found
    };
    let auto = batches(Buckets::Auto);
    for buckets in [Buckets::Off, Buckets::Steps(1), Buckets::Steps(3), Buckets::Steps(32)] {
        assert!(batches(buckets) == auto, "{buckets:?}");
    }
}
