//! `plimsoll ghost -- python train.py`: a PyTorch program on a card that is not there.

use crate::failure::{Code, Failure};
use crate::printer::{self, say};
use clap::Args;
use plimsoll_base::units::{Size, parse_size};
use plimsoll_ghost::card::Card;
use plimsoll_ghost::fit::{self, CardFit, Fit, FitError, Search, Try};
use plimsoll_ghost::report::{End, Report};
use plimsoll_ghost::run::{GhostError, Question};
use plimsoll_ghost::text;
use plimsoll_planner::cards::{Card as CatalogCard, card, catalog};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The card to run on, of `plimsoll devices --catalog`; without it memory is only counted
    #[arg(long, value_name = "NAME")]
    card: Option<String>,
    /// Memory of the card, over what the catalog says: 24GiB, 12000MB, 90%
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Optimizer steps after which the program is stopped; 0 lets it run to its end
    #[arg(long, value_name = "N", default_value_t = 3)]
    steps: usize,
    /// Seconds after which the program is stopped
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    time_limit: u64,
    /// Ranks of a distributed training (DDP, FSDP): the program runs as the first of so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    world: Option<u32>,
    /// The Python that has torch, where the command does not show it
    #[arg(long, value_name = "PATH")]
    python: Option<String>,
    /// Set a variable of the program's environment: --set-env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    #[arg(long, value_name = "KEY=VALUE")]
    set_env: Vec<String>,
    /// Find the largest that fits: --fit batch=1..64, with {batch} in the command; without --card or --memory for every
    /// card of the catalog, doubling
    #[arg(long, value_name = "NAME=LOWEST..HIGHEST")]
    fit: Option<String>,
    /// With --fit: the name that keeps the effective batch, HIGHEST / batch: --keep-effective accum, with {accum} in the command
    #[arg(long, value_name = "NAME", requires = "fit")]
    keep_effective: Option<String>,
    /// Compare with the command under more arguments: --try "--gradient-checkpointing" (repeatable)
    #[arg(long = "try", value_name = "ARGUMENTS", conflicts_with = "fit", allow_hyphen_values = true)]
    tries: Vec<String>,
    /// Show what the program prints, on stderr
    #[arg(long)]
    show_output: bool,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
    /// The command, as you would run it
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// PyTorch's context, with its own and its libraries' kernels, is larger than ours: 767 MiB on an H200, where the
/// catalog's reserve counts 628.
const LARGER_CONTEXT: u64 = 139 << 20;
/// What runs where no card is named.
const DEFAULT_CARD: &str = "h200";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let question = question(arguments)?;
    let stop = stop_by_ctrl_c()?;
    if let Some(word) = starter(&arguments.command) {
        return Err(Failure::bad_input(
            format!("{word} starts processes of its own, which are not there"),
            "give the program itself: `plimsoll ghost --world 8 -- python train.py` runs it as the first of 8 ranks",
        ));
    }
    match &arguments.fit {
        Some(range) if !question.limited => find_for_cards(arguments, &question, range, &stop),
        Some(range) => find_fit(arguments, &question, range, &stop),
        None if arguments.tries.is_empty() => answer(arguments, &question, &stop),
        None => compare(arguments, &question, &stop),
    }
}

/// A program that starts ranks, rather than one that is one.
fn starter(command: &[String]) -> Option<&str> {
    let first = command.first()?;
    let name = first.rsplit('/').next()?;
    matches!(name, "torchrun" | "deepspeed" | "mpirun").then_some(first.as_str())
}

fn stop_by_ctrl_c() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let set = ctrlc::set_handler(move || seen.store(true, Ordering::Relaxed));
    set.map_err(|e| {
        Failure::failed(format!("Ctrl-C cannot be caught: {e}"), "this is a defect of plimsoll: please report it")
    })?;
    Ok(stop)
}

fn question(arguments: &Arguments) -> Result<Question, Failure> {
    Ok(Question {
        command: arguments.command.clone(),
        python: arguments.python.clone(),
        card: chosen_card(arguments)?,
        limited: arguments.card.is_some() || arguments.memory.is_some(),
        steps: Some(arguments.steps).filter(|steps| *steps > 0),
        time_limit: Duration::from_secs(arguments.time_limit),
        world: arguments.world.map(|ranks| ranks as usize),
        environment: environment(&arguments.set_env)?,
        show_output: arguments.show_output,
        cards: catalog().iter().map(as_ghost).collect(),
    })
}

fn as_ghost(card: &CatalogCard) -> Card {
    Card {
        name: card.name.into(),
        total_bytes: card.total_bytes,
        context_bytes: card.reserve_bytes + LARGER_CONTEXT,
        compute_capability: card.compute_capability,
        multiprocessors: card.multiprocessors,
        cache_bytes: (card.cache_mib * f64::from(1 << 20)) as u64,
    }
}

fn chosen_card(arguments: &Arguments) -> Result<Card, Failure> {
    let named = |name: &str| card(name).map_err(|error| Failure::bad_input(error.to_string(), error.hint()));
    let size = arguments.memory.as_deref().map(parse_size).transpose();
    let size = size.map_err(|error| Failure::bad_input(format!("--memory: {error}"), "for example --memory 24GiB"))?;
    let base = match (&arguments.card, size) {
        (Some(name), _) => named(name)?,
        (None, Some(Size::Bytes(bytes))) => nearest(bytes),
        (None, _) => named(DEFAULT_CARD)?,
    };
    let total_bytes = match size {
        None => base.total_bytes,
        Some(Size::Bytes(bytes)) => bytes,
        Some(Size::Percent(percent)) => (base.total_bytes as f64 * percent / 100.0) as u64,
    };
    Ok(Card { total_bytes, ..as_ghost(base) })
}

/// The newest of the cards that are sold with about so much memory.
fn nearest(bytes: u64) -> &'static CatalogCard {
    let distance = |card: &CatalogCard| (card.total_bytes >> 30).abs_diff(bytes >> 30);
    let recent = catalog().iter().filter(|card| card.compute_capability >= (8, 0));
    let found = recent.min_by_key(|card| (distance(card), std::cmp::Reverse(card.compute_capability)));
    found.unwrap_or(&catalog()[0])
}

fn environment(settings: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let pair = |setting: &String| {
        let (key, value) = setting.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(|| {
            Failure::bad_input(
                format!("--set-env {setting}: it is KEY=VALUE"),
                "for example --set-env OMP_NUM_THREADS=1",
            )
        })?;
        Ok((key.to_string(), value.to_string()))
    };
    settings.iter().map(pair).collect()
}

/// A program on a card of the catalog, for other commands: what it takes, without a limit.
pub(crate) fn look_at(command: &[String], card_name: Option<&str>) -> Result<Report, Failure> {
    let card = card(card_name.unwrap_or(DEFAULT_CARD));
    let card = card.map_err(|error| Failure::bad_input(error.to_string(), error.hint()))?;
    let question = Question {
        command: command.to_vec(),
        python: None,
        card: as_ghost(card),
        limited: false,
        steps: Some(3),
        time_limit: Duration::from_secs(1800),
        world: None,
        environment: Vec::new(),
        show_output: false,
        cards: catalog().iter().map(as_ghost).collect(),
    };
    let stop = stop_by_ctrl_c()?;
    question.ask(&stop).map_err(failure)
}

/// The answer, and for a program that died what it would have taken.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    report: Report,
    without_limit: Option<Report>,
}

fn answer(arguments: &Arguments, question: &Question, stop: &AtomicBool) -> Result<(), Failure> {
    let report = question.ask(stop).map_err(failure)?;
    let died = report.end == End::OutOfMemory;
    let without_limit = if died { question.without_limit().ask(stop).ok() } else { None };
    let answer = Answer { report, without_limit };
    if arguments.json {
        printer::json(&answer)?;
    } else {
        printer::out(&text::report(&answer.report))?;
        if let Some(whole) = &answer.without_limit {
            printer::out(&format!("without a limit:\n{}", text::report(whole)))?;
        }
    }
    verdict(&answer)
}

fn verdict(answer: &Answer) -> Result<(), Failure> {
    let report = &answer.report;
    let code = match report.exit_code() {
        0 => return Ok(()),
        3 => Code::DoesNotFit,
        130 => Code::Interrupted,
        _ => Code::Failed,
    };
    Err(Failure { code, message: cause(report), hints: hints(answer) })
}

/// An error where a program did not come far enough to be told about.
pub(crate) fn told(report: &Report) -> Result<(), Failure> {
    match report.exit_code() {
        0 => Ok(()),
        130 => Err(Failure::interrupted()),
        _ => Err(Failure::failed(cause(report), "`plimsoll ghost --show-output` shows what it says")),
    }
}

fn cause(report: &Report) -> String {
    match (&report.out_of_memory, report.end) {
        (Some(oom), _) => format!(
            "it does not fit: step {} asks for {} at {}, {} are free on {}",
            oom.step,
            text::bytes(oom.wanted_bytes),
            oom.line,
            text::bytes(oom.free_bytes),
            report.card.name
        ),
        (None, End::OutOfMemory) => format!("it does not fit on {}", report.card.name),
        (None, End::TimeLimit) => "the time limit came before the steps were done".into(),
        (None, End::Interrupted) => Failure::interrupted().message,
        (None, _) => report.error.as_ref().map_or_else(
            || "the program failed".into(),
            |error| format!("the program failed: {}: {} at {}", error.kind, error.text, error.line),
        ),
    }
}

fn hints(answer: &Answer) -> Vec<String> {
    match (&answer.without_limit, answer.report.end) {
        (Some(whole), _) => {
            let fitting = whole.cards.iter().find(|card| card.fits);
            let needs = format!("it takes {} of memory, context aside", text::bytes(whole.peak_reserved_bytes));
            let card = fitting.map(|card| format!("the smallest card of the catalog that it fits is {}", card.card));
            [needs].into_iter().chain(card).chain(["--fit finds the largest batch that fits".into()]).collect()
        }
        (None, End::TimeLimit) => vec!["give it more with --time-limit, or fewer steps with --steps".into()],
        (None, End::Interrupted) => Vec::new(),
        (None, _) => vec!["--show-output shows what it says".into()],
    }
}

fn failure(error: GhostError) -> Failure {
    if matches!(error, GhostError::Interrupted) {
        return Failure::interrupted();
    }
    let (message, hint) = (error.to_string(), error.hint());
    if error.is_input() { Failure::bad_input(message, hint) } else { Failure::failed(message, hint) }
}

// --fit

fn find_fit(arguments: &Arguments, question: &Question, range: &str, stop: &AtomicBool) -> Result<(), Failure> {
    let search = Search::parse(range, arguments.keep_effective.as_deref());
    let search = search.map_err(|error| Failure::bad_input(error.to_string(), FIT_EXAMPLE))?;
    let fit = fit::search(question, &search, stop, |one| say(&try_line(&search, one))).map_err(fit_failure)?;
    if arguments.json {
        printer::json(&fit)?;
    } else {
        printer::out(&fit_text(&search, &fit))?;
    }
    match fit.batch {
        Some(_) => Ok(()),
        None if stop.load(Ordering::Relaxed) => Err(Failure::interrupted()),
        None => Err(Failure {
            code: Code::DoesNotFit,
            message: format!("not even {} = {} fits on {}", search.name, search.lowest, question.card.name),
            hints: vec!["try it with --try \"--gradient-checkpointing\", shorter inputs, or a larger --card".into()],
        }),
    }
}

const FIT_EXAMPLE: &str = "for example `plimsoll ghost --card rtx-4090 --fit batch=1..64 --keep-effective accum -- \
                           python train.py --batch {batch} --accum {accum}`";

fn fit_failure(error: FitError) -> Failure {
    match error {
        FitError::Ghost(error) => failure(error),
        FitError::Search(error) => Failure::bad_input(error.to_string(), FIT_EXAMPLE),
        FitError::Interrupted => Failure::interrupted(),
        FitError::Failed { .. } => Failure::failed(error.to_string(), "--show-output shows what it says"),
    }
}

/// The largest batch of every card.
#[derive(Serialize)]
struct CardTable {
    cards: Vec<CardFit>,
    tries: Vec<Try>,
}

fn find_for_cards(arguments: &Arguments, question: &Question, range: &str, stop: &AtomicBool) -> Result<(), Failure> {
    let search = Search::parse(range, arguments.keep_effective.as_deref());
    let search = search.map_err(|error| Failure::bad_input(error.to_string(), FIT_EXAMPLE))?;
    let found = fit::search_cards(question, &search, stop, |one| say(&try_line(&search, one)));
    let (cards, tries) = found.map_err(fit_failure)?;
    let table = CardTable { cards, tries };
    if arguments.json {
        printer::json(&table)?;
    } else {
        printer::out(&table.cards.iter().map(|card| card_line(&search, card)).collect::<String>())?;
    }
    match table.cards.iter().any(|card| card.batch.is_some()) {
        true => Ok(()),
        false => Err(Failure {
            code: Code::DoesNotFit,
            message: format!("not even {} = {} fits on any card", search.name, search.lowest),
            hints: vec![],
        }),
    }
}

fn card_line(search: &Search, card: &CardFit) -> String {
    let accumulation = match (&search.keep, card.accumulation) {
        (Some(name), Some(times)) => format!(", {name} = {times}"),
        _ => String::new(),
    };
    let found = card.batch.map_or_else(|| "none".into(), |batch| format!("{} = {batch}{accumulation}", search.name));
    let unsure = if card.same_architecture { "" } else { "  (as run, with other kernels: try it with --card)" };
    format!("{:18} {:>11}  {found}{unsure}\n", card.card, text::bytes(card.total_bytes))
}

fn try_line(search: &Search, one: &Try) -> String {
    let accumulation = one.accumulation.map_or_else(String::new, |times| format!(" x {times}"));
    let word = if one.fits { "fits" } else { "dies" };
    let (allocated, reserved) = (text::bytes(one.peak_allocated_bytes), text::bytes(one.peak_reserved_bytes));
    format!(
        "{} = {}{accumulation}: {word}, allocated {allocated}, reserved {reserved}, {:.1} s",
        search.name, one.batch, one.seconds
    )
}

fn fit_text(search: &Search, fit: &Fit) -> String {
    let Some(batch) = fit.batch else { return String::new() };
    let accumulation = match (&search.keep, fit.accumulation) {
        (Some(name), Some(times)) => format!(", {name} = {times}"),
        _ => String::new(),
    };
    let rest = fit.report.as_ref().map_or_else(String::new, text::report);
    format!("{} = {batch}{accumulation} fits\n{rest}", search.name)
}

// --try

#[derive(Serialize)]
struct Tried {
    arguments: String,
    report: Report,
}

/// The command as it is and with each set of arguments: a table of bytes.
fn compare(arguments: &Arguments, question: &Question, stop: &AtomicBool) -> Result<(), Failure> {
    let mut all = Vec::new();
    for more in std::iter::once("").chain(arguments.tries.iter().map(String::as_str)) {
        let command = question.command.iter().cloned().chain(more.split_whitespace().map(String::from)).collect();
        let report = Question { command, ..question.clone() }.ask(stop).map_err(failure)?;
        if report.end == End::Interrupted {
            return Err(Failure::interrupted());
        }
        say(&compared_line(more, &report));
        all.push(Tried { arguments: more.into(), report });
    }
    if arguments.json {
        printer::json(&all)?;
    } else {
        printer::out(&all.iter().map(|one| compared_line(&one.arguments, &one.report) + "\n").collect::<String>())?;
    }
    let best = all.iter().map(|one| one.report.exit_code()).min().unwrap_or(1);
    match best {
        0 => Ok(()),
        3 => Err(Failure {
            code: Code::DoesNotFit,
            message: format!("none of them fits on {}", question.card.name),
            hints: vec![],
        }),
        _ => Err(Failure::failed("none of them ran", "--show-output shows what they say")),
    }
}

fn compared_line(more: &str, report: &Report) -> String {
    let word = match report.exit_code() {
        0 => "fits",
        3 => "dies",
        _ => "failed",
    };
    let name = if more.is_empty() { "as it is" } else { more };
    let (allocated, reserved) = (text::bytes(report.peak_allocated_bytes), text::bytes(report.peak_reserved_bytes));
    format!("{name:40} {word:6} allocated {allocated:>11}, reserved {reserved:>11}")
}
