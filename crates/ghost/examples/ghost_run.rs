//! `plimsoll ghost` without the rest of plimsoll, for a quick look: `ghost_run [--json] MEMORY_MIB STEPS -- python train.py`.
//! WORLD, TIME_LIMIT and QUIET of the environment are --world, --time-limit and no --show-output.

use plimsoll_ghost::card::Card;
use plimsoll_ghost::run::Question;
use plimsoll_ghost::text;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.first().is_some_and(|first| first == "--json");
    arguments.drain(..usize::from(json));
    let (memory, steps, command) = (arguments[0].parse::<u64>()?, arguments[1].parse::<usize>()?, &arguments[3..]);
    let card = |name: &str, mib: u64| Card {
        name: name.into(),
        total_bytes: mib << 20,
        context_bytes: 767 << 20,
        compute_capability: (9, 0),
        multiprocessors: 132,
        cache_bytes: 60 << 20,
    };
    let question = Question {
        command: command.to_vec(),
        python: None,
        card: card("h200", if memory == 0 { 143_771 } else { memory }),
        limited: memory > 0,
        steps: (steps > 0).then_some(steps),
        time_limit: Duration::from_secs(number("TIME_LIMIT").unwrap_or(3600)),
        world: number("WORLD").map(|ranks| ranks as usize),
        environment: Vec::new(),
        show_output: std::env::var_os("QUIET").is_none(),
        cards: vec![card("8 GiB", 8 << 10), card("24 GiB", 24 << 10)],
    };
    let report = question.ask(&AtomicBool::new(false)).map_err(|error| format!("{error}\nhint: {}", error.hint()))?;
    if json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", text::report(&report));
    }
    std::process::exit(report.exit_code().into())
}

fn number(key: &str) -> Option<u64> {
    std::env::var(key).ok()?.parse().ok()
}
