//! Tells TensorBoard and MLflow about a run, and prints it as Prometheus sees it:
//! `cargo run -p plimsoll-track --example follow -- runs/mine-1 board [http://127.0.0.1:5000]`

use plimsoll_track::{Exposed, FollowOptions, Mlflow, RunFacts, Settings, Watch, follow, openmetrics};
use std::error::Error;
use std::path::Path;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [run, board, server @ ..] = &arguments[..] else {
        return Err("give a run's folder and one for event files".into());
    };
    let mlflow = match server.first() {
        Some(uri) => Mlflow::find(Some(uri), "plimsoll", &())?,
        None => None,
    };
    let settings = Settings { mlflow, tensorboard: Some(board.into()), every: Some(1), ..Settings::default() };
    // The run has ended: what its log holds is all there is.
    let watch = Watch::new();
    watch.end();
    let options = FollowOptions { grace: Duration::from_secs(10), patience: Duration::ZERO };
    for delivery in follow(Path::new(run), &settings, &watch, options)? {
        eprintln!("{}: {} bytes left {}", delivery.sink, delivery.left_bytes, delivery.trouble);
    }
    let facts = RunFacts::read(Path::new(run))?;
    print!("{}", openmetrics(&[Exposed { run: "mine", facts: &facts, components: &[] }], &[]));
    Ok(())
}
