//! How fast labelled texts become batches: read, tokenized, composed and padded, from the first byte of the file to the
//! last batch of an epoch. `loader_speed train.jsonl tokenizer.json [batch] [max_length] [workers] [memory|stream]`
//! prints one JSON line. With `stream`, texts stay in the file and the loader's workers tokenize them.

use plimsoll_base::batching::{Batching, Buckets, Compose};
use plimsoll_data::{
    Composition, DataError, DataReport, Dataset, LabelledOptions, Loader, LoaderOptions, Position, TextTokenizer,
    load_labelled,
};
use std::{path::Path, sync::Arc, time::Instant};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match measure(&arguments) {
        Ok(line) => println!("{line}"),
        Err(error) => {
            eprintln!("error: {error}\nhint: {}", error.hint());
            std::process::exit(1);
        }
    }
}

fn measure(arguments: &[String]) -> Result<String, DataError> {
    let text = |at: usize, default: &'static str| arguments.get(at).map_or(default, String::as_str);
    let number = |at: usize, default: usize| text(at, "").parse().unwrap_or(default);
    let (batch, max_length, workers) = (number(2, 32), number(3, 128), number(4, 2));
    let batching = Batching { buckets: Buckets::Auto, compose: Compose::Length };
    let options = LabelledOptions {
        validation_fraction: 0.0,
        threads: workers.max(1),
        memory_bytes: if text(5, "memory") == "stream" { 0 } else { u64::MAX },
        ..LabelledOptions::new(text(0, ""), 2, max_length, usize::MAX, Composition { batch, seed: 1, batching })
    };
    let tokenizer = TextTokenizer::open(Path::new(text(1, "")))?;
    let began = Instant::now();
    let data = load_labelled(&options, tokenizer)?;
    let loaded = began.elapsed().as_secs_f64();
    let loading = LoaderOptions {
        batch,
        workers,
        prefetch: 4,
        shuffle: Some(1),
        epochs: Some(2),
        compose: batching.compose,
        buckets: batching.buckets,
    };
    let samples = data.train.len();
    let resident = data.train.resident_bytes();
    let mut loader = Loader::new(Arc::new(data.train), &loading, Position::default())?;
    let (mut first, mut computed, mut real, mut id_sum) = (0.0, 0, 0, 0i64);
    while let Some(batch) = loader.next() {
        let batch = batch?;
        computed += batch.len() * batch.lengths()[0];
        real += batch.real()[0];
        // Padding has id 0: the sum is that of the texts, whoever made the batches.
        id_sum += batch.i32(0, 0..batch.len()).iter().map(|&id| i64::from(id)).sum::<i64>();
        if batch.end() == (Position { epoch: 0, index: samples as u64 }) {
            first = began.elapsed().as_secs_f64();
        }
    }
    let whole = began.elapsed().as_secs_f64();
    let DataReport::Texts(report) = data.report else { return Err(DataError::Worker { cause: "no report".into() }) };
    Ok(format!(
        "{{\"who\": \"plimsoll\", \"mode\": \"{}\", \"samples\": {samples}, \"batch\": {batch}, \"workers\": {workers}, \
         \"load_s\": {loaded:.4}, \"first_epoch_s\": {first:.4}, \"second_epoch_s\": {:.4}, \
         \"samples_per_s\": {:.0}, \"second_samples_per_s\": {:.0}, \"padding\": {:.4}, \"reported_padding\": {}, \
         \"resident_bytes\": {resident}, \"id_sum\": {}}}",
        text(5, "memory"),
        whole - first,
        samples as f64 / first,
        samples as f64 / (whole - first),
        computed as f64 / real as f64,
        report.padding.map_or("null".into(), |padding| format!("{padding:.4}")),
        id_sum / 2,
    ))
}
