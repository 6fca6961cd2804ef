//! The loop on a device that answers a step later tells, saves and ends as on one that answers at once.

use super::*;
use crate::run::RunOptions;
use plimsoll_core::plan::{Layout, Program};
use plimsoll_exec::cpu::CpuExecutor;
use plimsoll_exec::{Asked, ExecError, Fill, Scalars};
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::Device;
use std::borrow::Cow;
use std::path::Path;

/// The CPU behind a queue: what was asked for is handed out only when the answer is wanted.
struct Late {
    inner: CpuExecutor,
    slots: [Option<Scalars>; 2],
    next: usize,
    handed_out: std::cell::Cell<usize>,
}

impl Executor for Late {
    fn run(&mut self, phase: usize) {
        Executor::run(&mut self.inner, phase)
    }
    fn fill_input(&mut self, phase: usize, name: &str, bytes: usize, fill: &Fill<'_>) -> Result<(), ExecError> {
        self.inner.fill_input(phase, name, bytes, fill)
    }
    fn fill_resident(&mut self, name: &str, bytes: usize, fill: &Fill<'_>) -> Result<(), ExecError> {
        self.inner.fill_resident(name, bytes, fill)
    }
    fn clear_resident(&mut self, name: &str) -> Result<(), ExecError> {
        self.inner.clear_resident(name)
    }
    fn write_resident_at(&mut self, name: &str, offset: usize, data: &[u8]) -> Result<(), ExecError> {
        self.inner.write_resident_at(name, offset, data)
    }
    fn read_resident(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.inner.read_resident(name)
    }
    fn ask(&mut self, names: &[&str]) -> Asked {
        let slot = self.next % 2;
        assert!(self.next < self.handed_out.get() + 2, "a third question while two are open");
        self.next += 1;
        self.slots[slot] = Some(match self.inner.ask(names) {
            Asked::Known(scalars) => scalars,
            later => panic!("the CPU answers at once: {later:?}"),
        });
        Asked::Later { slot, count: names.len() }
    }
    fn answer(&self, asked: &Asked) -> Scalars {
        let &Asked::Later { slot, .. } = asked else { panic!("{asked:?} was never asked") };
        assert_eq!(slot, self.handed_out.get() % 2, "answers are taken in the order of the questions");
        self.handed_out.set(self.handed_out.get() + 1);
        self.slots[slot].clone().unwrap()
    }
    fn read_output(&self, phase: usize, name: &str) -> Option<Cow<'_, [u8]>> {
        self.inner.read_output(phase, name)
    }
    fn add_phases(&mut self, program: &Program, layout: &Layout) -> usize {
        self.inner.add_phases(program, layout)
    }
    fn measured_bytes(&self) -> u64 {
        self.inner.measured_bytes()
    }
}

const RECIPE: &str = "[model]\nfamily = \"hybrid-cnn-lstm\"\nfeatures = 3\nwindow = 8\nchannels = [4]\nhidden = 4\nheads = 2\n\
    classes = 3\n[data]\nsource = \"synthetic:regimes\"\nsamples = 300\n[train]\neffective_batch = 16\nsteps = 11\n\
    evaluate = { every = 5 }\ncheckpoint = { every = 4, keep = 9 }\n";

fn recipe(sets: &[&str]) -> Recipe {
    let sets: Vec<String> = sets.iter().map(|s| s.to_string()).collect();
    Recipe::parse(RECIPE, "late.toml", &sets).unwrap_or_else(|e| panic!("{e}"))
}

/// What is told of a run, without what a clock says; and how it ended.
fn told(recipe: &Recipe, out: &Path, late: bool) -> (Vec<String>, Result<Finished, RunError>) {
    told_until(recipe, out, late, "nothing")
}

/// The same where somebody interrupts as soon as a line begins so.
fn told_until(recipe: &Recipe, out: &Path, late: bool, end: &str) -> (Vec<String>, Result<Finished, RunError>) {
    let options = RunOptions { out: out.into(), resume: false, plan: None, stop_at: None };
    let run = Run::open(recipe.clone(), &Device::cpu(1, 1 << 32), &options).unwrap();
    let inner = CpuExecutor::new(run.program(), &run.planned.choice.layout, 1).unwrap();
    let executor: Box<dyn Executor> = match late {
        true => Box::new(Late { inner, slots: [None, None], next: 0, handed_out: Default::default() }),
        false => Box::new(inner),
    };
    run.write_start().unwrap();
    let (mut told, stop) = (Vec::new(), AtomicBool::new(false));
    let mut sink = |event: &Event| {
        let line = match event {
            Event::Step(StepEvent { step, epoch, loss, norm, lr, .. }) => {
                format!("step {step} of epoch {epoch}: {loss} {norm} {lr}")
            }
            Event::Evaluation(Evaluation { step, scores, best, .. }) => format!("evaluation {step}: {scores:?} {best}"),
            Event::Checkpoint { step, bytes, .. } => format!("checkpoint {step}: {bytes}"),
            Event::Finished(finished) => format!("finished {}: {:?}", finished.steps, finished.last),
            _ => String::new(),
        };
        stop.fetch_or(line.starts_with(end), Ordering::Relaxed);
        told.push(line);
    };
    let log = EventLog::open(&out.join("events.jsonl")).unwrap();
    let ended = Trainer::new(&run, executor, log, &mut sink).unwrap().train(&stop);
    (told, ended)
}

#[test]
fn a_late_answer_changes_nothing_that_is_told_or_saved() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [at_once, late] =
        [false, true].map(|late| told(&recipe(&[]), &folders[usize::from(late)].path().join("run"), late));
    assert_eq!(at_once.0, late.0);
    assert!(late.0.iter().any(|line| line.starts_with("checkpoint 8")), "{:?}", late.0);
    assert_eq!((at_once.1.unwrap().steps, late.1.unwrap().steps), (11, 11));
    let weights =
        |folder: &tempfile::TempDir| std::fs::read(folder.path().join("run/model/model.safetensors")).unwrap();
    assert_eq!(weights(&folders[0]), weights(&folders[1]));
}

#[test]
fn an_interruption_saves_where_nothing_is_saved_yet() {
    let folder = tempfile::tempdir().unwrap();
    for (end, saved) in
        [("checkpoint 4", &["checkpoint 4"][..]), ("step 6", &["checkpoint 4", "checkpoint 5", "checkpoint 6"])]
    {
        let (told, ended) = told_until(&recipe(&[]), &folder.path().join(end), false, end);
        assert!(ended.unwrap().end == End::Interrupted);
        let checkpoints: Vec<&str> = told.iter().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
        let checkpoints: Vec<&str> = checkpoints.into_iter().filter(|line| line.starts_with("checkpoint")).collect();
        assert_eq!(checkpoints, saved, "{told:?}");
    }
}

/// The step that is named is the one whose loss it was, and nothing is saved after it.
#[test]
fn a_run_that_diverges_ends_alike_and_saves_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let wild = recipe(&[
        "train.optimizer={ name = \"sgd\", lr = 1000.0, weight_decay = 1.0 }",
        "train.checkpoint={ every = 1, keep = 99 }",
        "train.steps=60",
    ]);
    let ends = [false, true].map(|late| {
        let out = folder.path().join(late.to_string());
        let Err(RunError::Diverged { step, last_good, .. }) = told(&wild, &out, late).1 else { panic!("it goes on") };
        let saved: Vec<usize> = checkpoints::list(&out.join("checkpoints")).into_iter().map(|(step, _)| step).collect();
        assert_eq!(last_good, saved.last().map(|step| out.join(format!("checkpoints/step-{step}"))));
        (step, saved)
    });
    assert_eq!(ends[0], ends[1]);
    assert!(ends[0].1.iter().all(|&saved| saved < ends[0].0), "{ends:?}");
}

/// Of 240 rows 233 windows are cut; batches of 200 are a whole one and one of 33.
#[test]
fn samples_a_second_are_those_that_were_seen() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = recipe(&["train.effective_batch=200", "train.steps=4"]);
    let (_, ended) = told(&recipe, &folder.path().join("run"), false);
    let finished = ended.unwrap();
    let seen = finished.samples_per_s * finished.seconds;
    assert!((seen - 2.0 * 233.0).abs() < 1e-6, "{seen}");
}
