//! Runs a command on a card that is not there and leaves its notes in a folder: `ghost_run OUT STEPS -- python train.py`.

use plimsoll_ghost::card::Card;
use plimsoll_ghost::launch::{Ending, Launch};
use plimsoll_ghost::python::{Torch, interpreter_of};
use plimsoll_ghost::stand_in::StandIn;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (out, steps, command) = (&arguments[0], arguments[1].parse::<usize>()?, arguments[3..].to_vec());
    std::fs::create_dir_all(out)?;
    let torch = Torch::of(&interpreter_of(&command))?;
    let started = std::time::Instant::now();
    let folder = Path::new(out).join("libraries");
    std::fs::create_dir_all(&folder)?;
    let stand_in = StandIn::write(&torch, &folder)?;
    eprintln!(
        "{torch:?}\n{} libraries, {} unknown functions, {:?}",
        stand_in.preload.len(),
        stand_in.unknown.len(),
        started.elapsed()
    );
    let card = Card {
        name: "NVIDIA H200".into(),
        total_bytes: 150_109_880_320,
        context_bytes: 0,
        compute_capability: (9, 0),
        multiprocessors: 132,
        cache_bytes: 62_914_560,
    };
    let launch = Launch {
        command,
        card,
        steps: (steps > 0).then_some(steps),
        time_limit: Duration::from_secs(3600),
        environment: Vec::new(),
        show_output: true,
    };
    let ending = launch.run(&torch, &stand_in, Path::new(out), &AtomicBool::new(false))?;
    eprintln!("{ending:?}");
    std::process::exit(if let Ending::Exit(code) = ending { code } else { 1 })
}
