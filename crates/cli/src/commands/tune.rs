//! `plimsoll tune`: a search over a recipe, inside the memory there is.

mod dry;
mod parent;
mod screen;

use super::study;
use crate::arguments::RecipeFlags;
use crate::failure::{Code, Failure};
use crate::printer::say;
use clap::{Args, ValueEnum};
use parent::Parent;
use plimsoll::search::{Objective, PrunerName, SamplerName, Search};
use plimsoll::{Draft, Named};
use plimsoll_tune::MOST_OF_A_NAME;
use plimsoll_tune::report::{self, StudyReport, TrialReport};
use plimsoll_tune::trials::{Coordinator, Options, Parallel, StudyFolder};
use screen::Screen;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: RecipeFlags,
    /// The study's name (default: the recipe's)
    #[arg(long, value_name = "NAME")]
    study: Option<String>,
    /// Trials in all; the same command again goes on (default: search.trials of the recipe)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    trials: Option<u32>,
    /// Where the study is kept: journal:FILE, sqlite:FILE or postgresql://… (default: a journal in its folder)
    ///
    /// env:NAME takes the address from the environment or from .env, so that no password stands in a list of processes
    #[arg(long, value_name = "STORAGE")]
    storage: Option<String>,
    /// Where studies are: each has a folder, and in it a run's folder for every trial
    #[arg(long, value_name = "DIR", default_value = "studies")]
    studies: PathBuf,
    /// Trials side by side: as many as end the study soonest, or a number (default: PAR of the environment, or auto)
    #[arg(long, value_name = "auto|K", value_parser = parallel)]
    parallel: Option<Parallel>,
    /// One of several processes on the study, on this or other machines
    #[arg(long)]
    worker: bool,
    /// Plan every combination and run none
    #[arg(long)]
    dry_run: bool,
    /// What is sought: loss, accuracy, f1, pearson, spearman, seconds, bytes; several joined by commas
    #[arg(long, value_name = "NAME", value_parser = objectives)]
    objective: Option<Objectives>,
    /// How settings are drawn
    #[arg(long, value_name = "NAME", value_enum)]
    sampler: Option<SamplerFlag>,
    /// When a trial is laid aside
    #[arg(long, value_name = "NAME", value_enum)]
    pruner: Option<PrunerFlag>,
    /// Seconds of silence after which a worker counts as dead
    #[arg(long, value_name = "S", default_value_t = 60.0, value_parser = grace)]
    grace: f64,
    /// Take over the library's algorithms of another run's plan.json, for the same bits
    #[arg(long, value_name = "FILE", hide = true)]
    products: Option<PathBuf>,
    /// Write a page about the study when it is over
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone)]
struct Objectives(Vec<Objective>);

/// Names of samplers as the recipe has them.
#[derive(Clone, Copy, ValueEnum)]
enum SamplerFlag {
    Tpe,
    Random,
    Sobol,
    Nsga2,
    CmaEs,
    Grid,
    BruteForce,
}

/// Names of pruners as the recipe has them.
#[derive(Clone, Copy, ValueEnum)]
enum PrunerFlag {
    Asha,
    Hyperband,
    Median,
    Patience,
    None,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let draft = draft(arguments)?;
    let mut search = draft.search()?;
    choose_models(&mut search)?;
    if let Some(Objectives(objectives)) = &arguments.objective {
        search.objectives.clone_from(objectives);
    }
    check_pruner(arguments, &search)?;
    check_objectives(&draft, &search)?;
    arguments.html.as_deref().map_or(Ok(()), study::can_be_written)?;
    if arguments.dry_run {
        return dry::run(&arguments.common, &draft, &search);
    }
    let (name, address) = named(arguments, &draft)?;
    let recipe = draft.with(&[])?;
    let mut coordinator = Coordinator::open(options(arguments, draft, search, &name, &address)?)?;
    let parent = Parent::begin(&recipe, &name, &mut coordinator)?;
    say(&coordinator.announcement()?);
    let stop = stop_on_signals()?;
    let mut screen = Screen::new(parent);
    let summary = coordinator.run(&stop, &mut screen);
    screen.close(summary.as_ref().is_ok_and(|summary| !summary.interrupted));
    let summary = summary?;
    drop(coordinator);
    let found = report::study(&address, &name)?;
    if let Some(path) = &arguments.html {
        study::write_page(path, &found)?;
    }
    screen::closing(&summary);
    study::show(&found, arguments.common.json, false, false)?;
    match summary.interrupted {
        true => Err(Failure {
            code: Code::Interrupted,
            message: format!("interrupted; {} trials ended in this session", summary.ended),
            hints: vec!["the same command goes on where it was".into()],
        }),
        false => verdict(&found),
    }
}

/// A study without one complete trial is no success: nothing fits, nothing runs, or nothing can be planned.
fn verdict(found: &StudyReport) -> Result<(), Failure> {
    let all = found.trials.len();
    if all == 0 || found.trials.iter().any(TrialReport::is_complete) {
        return Ok(());
    }
    let kinds: [fn(&TrialReport) -> bool; 4] = [
        TrialReport::fits_nowhere,
        TrialReport::has_failed,
        |trial| trial.refusal().is_some(),
        TrialReport::has_diverged,
    ];
    let counts = kinds.map(|is| found.trials.iter().filter(|trial| is(trial)).count());
    match counts {
        [unfit, ..] if unfit == all => Err(Failure {
            code: Code::DoesNotFit,
            message: format!("none of {unfit} trials fits"),
            hints: vec!["--dry-run says from which budget on all of them fit".into()],
        }),
        [_, failed, ..] if failed == all => Err(failure(format!("all {failed} trials failed"))),
        [_, _, refused, _] if refused == all => Err(all_refused(found)),
        [unfit, failed, refused, diverged] if unfit + failed + refused + diverged == all => Err(failure(format!(
            "no trial is complete: {failed} failed, {diverged} diverged, {unfit} do not fit, {refused} were refused"
        ))),
        // Some were only laid aside.
        _ => Ok(()),
    }
}

fn failure(message: String) -> Failure {
    Failure::failed(message, "the study's folder logs/ holds what each of them said")
}

fn all_refused(found: &StudyReport) -> Failure {
    let first = found.trials.iter().find_map(TrialReport::refusal).unwrap_or_default();
    let cause = format!("no trial is complete: all {} were refused, the first because: {first}", found.trials.len());
    Failure::bad_input(cause, "correct the recipe or what [search] varies; --dry-run plans every combination")
}

/// The recipe with what the environment says; flags win over it.
fn draft(arguments: &Arguments) -> Result<Draft, Failure> {
    let epochs = std::env::var("HPO_EPOCHS").ok().filter(|text| !text.is_empty());
    if let Some(text) = epochs.as_deref().filter(|text| text.parse::<usize>().is_err()) {
        return Err(Failure::bad_input(format!("HPO_EPOCHS is `{text}`"), "it is a number of epochs, such as 1"));
    }
    let mut sets: Vec<String> = epochs.map(|epochs| format!("train.epochs={epochs}")).into_iter().collect();
    sets.extend(arguments.common.overrides.settings(&arguments.common.usual.settings(!arguments.dry_run)?));
    Ok(Draft::read(&arguments.common.recipe, &sets)?)
}

/// `HPO_MODEL_CHOICES=bert-base-uncased,roberta-base` leaves only these.
fn choose_models(search: &mut Search) -> Result<(), Failure> {
    let Some(text) = std::env::var("HPO_MODEL_CHOICES").ok().filter(|text| !text.trim().is_empty()) else {
        return Ok(());
    };
    let wanted: Vec<&str> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let restricted = search.restrict(&["model.name", "model.preset", "model.checkpoint"], &wanted);
    restricted.map_err(|cause| Failure::bad_input(format!("HPO_MODEL_CHOICES: {cause}"), "name choices of the recipe"))
}

/// What the flags make of pruner and objectives; the recipe's own were checked where they were read.
fn check_pruner(arguments: &Arguments, search: &Search) -> Result<(), Failure> {
    let pruner = arguments.pruner.map(PrunerFlag::name).or(search.pruner);
    let judged = search.objectives.len() == 1 && search.objectives[0].is_score();
    if judged || matches!(pruner, None | Some(PrunerName::None)) {
        return Ok(());
    }
    let names: Vec<&str> = search.objectives.iter().map(|objective| objective.name()).collect();
    let cause = format!("trials cannot be judged half-way by {}", names.join(" and "));
    Err(Failure::bad_input(cause, "--pruner none, or one objective that evaluations say, such as --objective loss"))
}

/// What no evaluation says, no trial would have at its end. Where the search itself decides what they say, each trial is
/// looked at before it trains.
fn check_objectives(draft: &Draft, search: &Search) -> Result<(), Failure> {
    match search.unsaid(&draft.with(&[])?) {
        Some(cause) if !search.moves_what_is_said() => {
            Err(Failure::bad_input(cause, "seek one of these, or seconds or bytes: --objective, or search.objective"))
        }
        _ => Ok(()),
    }
}

/// The study's name and where it is kept.
fn named(arguments: &Arguments, draft: &Draft) -> Result<(String, String), Failure> {
    let name = match &arguments.study {
        Some(name) => name.clone(),
        None => draft.with(&[])?.name,
    };
    if name.trim().is_empty() || name.chars().count() > MOST_OF_A_NAME {
        let cause = format!("a study's name has between 1 and {MOST_OF_A_NAME} characters");
        return Err(Failure::bad_input(cause, "--study NAME, such as --study encoders"));
    }
    if [".", ".."].contains(&name.as_str()) {
        let cause = format!("the study's name {name:?} is a folder's own");
        return Err(Failure::bad_input(cause, "--study NAME, such as --study encoders"));
    }
    if name.chars().any(char::is_control) {
        let cause = format!("the study's name {name:?} holds characters that cannot be shown");
        return Err(Failure::bad_input(cause, "--study NAME, such as --study encoders"));
    }
    let address = study::address(arguments.storage.as_deref(), &arguments.studies, &name)?;
    if arguments.worker && address.starts_with("journal:") && arguments.storage.is_none() {
        return Err(Failure::bad_input(
            "--worker needs a storage that all workers reach",
            "name it with --storage postgresql://…, sqlite:FILE or journal:FILE on a shared disk",
        ));
    }
    Ok((name, address))
}

fn options(arguments: &Arguments, draft: Draft, search: Search, name: &str, address: &str) -> Result<Options, Failure> {
    let trials = arguments.trials.map(|n| n as usize).or(search.trials);
    let Some(trials) = trials else {
        return Err(Failure::bad_input(
            "nothing says how many trials",
            "add --trials N, or search.trials to the recipe",
        ));
    };
    let program = std::env::current_exe()
        .map_err(|cause| Failure::failed(format!("cannot find this program: {cause}"), "start it by its full path"))?;
    let folder = StudyFolder::of(&arguments.studies, name);
    Ok(Options {
        program,
        draft,
        search,
        study: name.into(),
        folder,
        storage: address.into(),
        device: arguments.common.machine.device.clone(),
        threads: arguments.common.machine.threads.map(usize::from),
        trials,
        parallel: parallel_of(arguments)?,
        worker: arguments.worker,
        shared: arguments.storage.is_some(),
        sampler: arguments.sampler.map(SamplerFlag::name),
        pruner: arguments.pruner.map(PrunerFlag::name),
        products: arguments.products.clone(),
        grace: arguments.grace,
        settings: Vec::new(),
        secret: arguments.storage.as_deref().and_then(|storage| storage.strip_prefix("env:")).map(String::from),
    })
}

impl SamplerFlag {
    fn name(self) -> SamplerName {
        match self {
            SamplerFlag::Tpe => SamplerName::Tpe,
            SamplerFlag::Random => SamplerName::Random,
            SamplerFlag::Sobol => SamplerName::Sobol,
            SamplerFlag::Nsga2 => SamplerName::Nsga2,
            SamplerFlag::CmaEs => SamplerName::CmaEs,
            SamplerFlag::Grid => SamplerName::Grid,
            SamplerFlag::BruteForce => SamplerName::BruteForce,
        }
    }
}

impl PrunerFlag {
    fn name(self) -> PrunerName {
        match self {
            PrunerFlag::Asha => PrunerName::Asha,
            PrunerFlag::Hyperband => PrunerName::Hyperband,
            PrunerFlag::Median => PrunerName::Median,
            PrunerFlag::Patience => PrunerName::Patience,
            PrunerFlag::None => PrunerName::None,
        }
    }
}

/// The flag, or what `PAR` says.
fn parallel_of(arguments: &Arguments) -> Result<Parallel, Failure> {
    let said = || std::env::var("PAR").ok().filter(|text| !text.is_empty());
    match (arguments.parallel, said()) {
        (Some(parallel), _) => Ok(parallel),
        (None, None) => Ok(Parallel::Auto),
        (None, Some(text)) => {
            parallel(&text).map_err(|cause| Failure::bad_input(format!("PAR is `{text}`: it is {cause}"), "unset it"))
        }
    }
}

fn parallel(text: &str) -> Result<Parallel, String> {
    match (text, text.parse::<usize>()) {
        ("auto" | "", _) => Ok(Parallel::Auto),
        (_, Ok(count @ 1..=256)) => Ok(Parallel::Fixed(count)),
        _ => Err("`auto` or a number from 1 to 256".into()),
    }
}

fn objectives(text: &str) -> Result<Objectives, String> {
    let found = Objective::parse_list(text)?;
    let repeated = (1..found.len()).find(|at| found[..*at].contains(&found[*at]));
    repeated.map_or(Ok(Objectives(found.clone())), |at| Err(format!("{} is named twice", found[at].name())))
}

fn grace(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|s: &f64| (1.0..=86_400.0).contains(s)).ok_or_else(|| "seconds from 1 to 86400".into())
}

/// The first signal asks the trials to save and leave; the second leaves at once.
fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    let handler = move || {
        if asked.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        say("stopping: trials write a checkpoint; once more leaves at once");
    };
    ctrlc::set_handler(handler).map_err(|cause| Failure::deaf(&cause))?;
    Ok(stop)
}
