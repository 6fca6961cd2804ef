//! Images per second through the loader: `images_speed TABLE.jsonl SIDE WORKERS BATCH`. Prints one JSON line. The
//! captions need a `tokenizer.json` beside the table; it is written if there is none.

use plimsoll_base::batching::BadRows;
use plimsoll_data::images::{CaptionOptions, CaptionSizes, Preparation, load_captions};
use plimsoll_data::{Loader, LoaderOptions, Position, SHAPES_END, SHAPES_VOCABULARY, shapes_tokenizer};
use std::{error::Error, path::PathBuf, sync::Arc, time::Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [table, side, workers, batch] = &arguments[..] else {
        return Err("images_speed TABLE.jsonl SIDE WORKERS BATCH".into());
    };
    let table = PathBuf::from(table);
    let tokenizer = table.with_file_name("tokenizer.json");
    if !tokenizer.exists() {
        std::fs::write(&tokenizer, shapes_tokenizer()?.json())?;
    }
    let data = load_captions(&CaptionOptions {
        format: None,
        train: table,
        validation: None,
        validation_fraction: 0.0,
        image: "image".into(),
        caption: "caption".into(),
        template: "{}".into(),
        on_bad_row: BadRows::Error,
        tokenizer,
        sizes: CaptionSizes { max_length: 20, vocab: SHAPES_VOCABULARY, end: SHAPES_END as usize },
        preparation: Preparation::clip(side.parse()?),
    })?;
    let options = LoaderOptions::evaluation(batch.parse()?, workers.parse()?, 2);
    let began = Instant::now();
    let mut loader = Loader::new(Arc::new(data.train), &options, Position::default())?;
    let mut sum = 0.0;
    while let Some(batch) = loader.next() {
        let batch = batch?;
        sum += f64::from(batch.f32(0, 0..batch.len()).iter().sum::<f32>());
    }
    let (images, wall) = (loader.stats().samples, began.elapsed().as_secs_f64());
    println!(
        "{{\"side\": \"plimsoll\", \"images\": {images}, \"wall_s\": {wall:.4}, \"images_per_s\": {:.1}, \
         \"sum\": {sum:.1}}}",
        images as f64 / wall
    );
    Ok(())
}
