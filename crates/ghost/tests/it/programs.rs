//! Whole programs on cards that are not there. They need a Python with a CUDA build of torch (no GPU): the one that
//! PLIMSOLL_GHOST_PYTHON names, or `python3`. Where there is none the tests say so and pass over it.

use plimsoll_ghost::card::Card;
use plimsoll_ghost::fit::{Search, search};
use plimsoll_ghost::python::Torch;
use plimsoll_ghost::report::{End, Report};
use plimsoll_ghost::run::{GhostError, Question};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

const GIB: u64 = 1 << 30;

/// A network of two products whose batch is given; it catches errors of memory if told to.
const PROGRAM: &str = r#"
import sys, torch
from torch import nn
batch, catch = int(sys.argv[1]), "catch" in sys.argv
model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)

def step(rows):
    loss = model(torch.randn(rows, 1024, device="cuda")).pow(2).mean()
    assert torch.isfinite(loss) and not torch.isnan(loss) and 1 / loss.item() > 0
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

while True:
    try:
        step(batch)
    except torch.OutOfMemoryError:
        if not catch:
            raise
        optimizer.zero_grad()
        batch //= 2
"#;

fn python() -> Option<String> {
    let python = std::env::var("PLIMSOLL_GHOST_PYTHON").unwrap_or_else(|_| "python3".into());
    match Torch::of(&python) {
        Ok(_) => Some(python),
        Err(error) => {
            eprintln!("passed over: {error} (PLIMSOLL_GHOST_PYTHON names another Python)");
            None
        }
    }
}

/// Programs in a folder of their own, run by a Python that has torch.
struct Programs {
    python: String,
    folder: TempDir,
}

impl Programs {
    /// `None` where no Python has torch: the test is passed over.
    fn new() -> Option<Programs> {
        Some(Programs { python: python()?, folder: tempfile::tempdir().unwrap() })
    }

    fn question(&self, program: &str, arguments: &[&str], memory: Option<u64>) -> Question {
        let script = self.folder.path().join("train.py");
        std::fs::write(&script, program).unwrap();
        let script = script.to_string_lossy().into_owned();
        let command =
            [self.python.as_str(), &script].into_iter().chain(arguments.iter().copied()).map(String::from).collect();
        let card = Card {
            name: "test-card".into(),
            total_bytes: memory.unwrap_or(GIB),
            context_bytes: 0,
            compute_capability: (8, 9),
            multiprocessors: 128,
            cache_bytes: 72 << 20,
        };
        Question {
            command,
            python: None,
            limited: memory.is_some(),
            cards: vec![card.clone()],
            card,
            steps: Some(3),
            time_limit: Duration::from_secs(900),
            world: None,
            environment: Vec::new(),
            show_output: true,
        }
    }

    fn report(&self, program: &str, arguments: &[&str], memory: Option<u64>) -> Report {
        ask(&self.question(program, arguments, memory))
    }
}

fn ask(question: &Question) -> Report {
    question.ask(&AtomicBool::new(false)).unwrap()
}

fn bytes_of(report: &Report, kind: &str) -> u64 {
    report.peak.kinds.iter().find(|share| share.name == kind).map_or(0, |share| share.bytes)
}

#[test]
fn a_program_that_fits_is_stopped_after_its_steps_and_accounted_for() {
    let Some(programs) = Programs::new() else { return };
    let report = programs.report(PROGRAM, &["4096"], None);
    assert_eq!((report.end, report.steps.len(), report.exit_code()), (End::Steps, 3, 0));
    // Two matrices of 4 Mi elements and their biases; activations of (4096, 4096), before and after the GELU.
    assert_eq!(bytes_of(&report, "weights"), 2 * (16 << 20) + 16384 + 4096);
    assert!(bytes_of(&report, "activations") >= 64 << 20, "{:?}", report.peak.kinds);
    assert_eq!(report.peak.kinds.iter().map(|share| share.bytes).sum::<u64>(), report.peak_allocated_bytes);
    assert!(report.peak.modules.iter().any(|share| share.name == "0"), "{:?}", report.peak.modules);
    assert!(report.peak.lines.iter().any(|share| share.name.contains("train.py:9 step")), "{:?}", report.peak.lines);
    assert!(report.remarks.is_empty() && !report.lower_bound, "{:?} {:?}", report.remarks, report.guessed);
    assert!(report.cards[0].fits && report.reserved_range.highest_bytes >= report.peak_allocated_bytes);
}

/// Threads that step with one optimizer at once, so that several come to the last step.
const THREADS: &str = r#"
import threading, torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)

def train():
    for _ in range(10):
        model(torch.randn(8, 64, device="cuda")).sum().backward()
        optimizer.step()

threads = [threading.Thread(target=train) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"#;

#[test]
fn a_program_that_steps_on_several_threads_is_told_whole() {
    let Some(programs) = Programs::new() else { return };
    for _ in 0..3 {
        let report = programs.report(THREADS, &[], None);
        assert_eq!((report.end, report.exit_code()), (End::Steps, 0));
        assert!(report.peak_allocated_bytes > 0);
    }
}

#[test]
fn a_program_that_does_not_fit_dies_with_pytorchs_own_words_at_its_own_line() {
    let Some(programs) = Programs::new() else { return };
    let report = programs.report(PROGRAM, &["65536"], Some(GIB));
    assert_eq!((report.end, report.exit_code(), report.fits), (End::OutOfMemory, 3, Some(false)));
    let oom = report.out_of_memory.unwrap();
    assert!(oom.line.contains("train.py:9 in step"), "{}", oom.line);
    let message = oom.message.unwrap();
    assert!(
        message.contains("Tried to allocate 1024.00 MiB") || message.contains("Tried to allocate 1.00 GiB"),
        "{message}"
    );
    assert!(message.contains("capacity of 1024.00 MiB") || message.contains("capacity of 1.00 GiB"), "{message}");
}

#[test]
fn a_program_that_catches_the_error_and_goes_on_fits_in_the_end() {
    let Some(programs) = Programs::new() else { return };
    let report = programs.report(PROGRAM, &["65536", "catch"], Some(GIB));
    assert_eq!((report.end, report.exit_code()), (End::Steps, 0));
    assert!(report.caught >= 1 && report.cards.is_empty());
}

/// Programs that run out of memory and hide it, each in its own way.
const HIDES: &str = r#"
import sys, threading, torch
how = sys.argv[1]
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)

def step():
    model(torch.zeros(1 << 20, 1024, device="cuda")).sum().backward()
    optimizer.step()

if how == "thread":
    thread = threading.Thread(target=step)
    thread.start()
    thread.join()
else:
    try:
        step()
    except torch.OutOfMemoryError as error:
        if how == "wraps":
            raise RuntimeError("training failed") from error
        if how == "exits":
            sys.exit(4)
"#;

#[test]
fn a_program_that_hides_that_it_ran_out_of_memory_does_not_fit() {
    let Some(programs) = Programs::new() else { return };
    for how in ["passes", "exits", "wraps", "thread"] {
        let report = programs.report(HIDES, &[how], Some(GIB));
        assert_eq!((report.end, report.exit_code(), report.fits), (End::OutOfMemory, 3, Some(false)), "{how}");
        assert!(report.out_of_memory.unwrap().line.contains("train.py:8 in step") && report.cards.is_empty(), "{how}");
    }
}

/// It would fit with half its batch if nothing held on to what the first try had allocated.
const TRIES_AGAIN: &str = r#"
import gc, torch
gc.disable()

def hold(elements):
    first = torch.empty(elements, device="cuda")
    return first, torch.empty(elements, device="cuda")

try:
    hold(150 << 20)
except torch.OutOfMemoryError:
    pass
assert torch.cuda.memory_allocated() == 0, torch.cuda.memory_allocated()
optimizer = torch.optim.SGD([torch.zeros(4, device="cuda", requires_grad=True)], 0.1)
optimizer.step()
"#;

#[test]
fn what_a_program_held_when_memory_ran_out_is_let_go() {
    let Some(programs) = Programs::new() else { return };
    let report = programs.report(TRIES_AGAIN, &[], Some(GIB));
    assert_eq!((report.end, report.caught), (End::Done, 1), "{:?}", report.error);
}

#[test]
fn the_largest_batch_that_fits_is_found() {
    let Some(programs) = Programs::new() else { return };
    let question = programs.question(PROGRAM, &["{batch}", "{accum}"], Some(GIB));
    let range = Search::parse("batch=4096..32768", Some("accum")).unwrap();
    let fit = search(&question, &range, &AtomicBool::new(false), |_| {}).unwrap();
    let best = fit.batch.unwrap();
    assert!(fit.tries.iter().all(|one| one.fits == (one.batch <= best)), "{:?}", fit.tries);
    assert_eq!(fit.accumulation, Some(32768 / best));
}

#[test]
fn programs_that_never_come_to_a_card_are_told_apart() {
    let Some(programs) = Programs::new() else { return };
    let without_torch = programs.question("print('hello')", &[], None);
    let error = without_torch.ask(&AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, GhostError::NoTorch { .. }) && error.is_input(), "{error}");
    let steps = "import torch\nx = torch.ones(2, requires_grad=True)\noptimizer = torch.optim.SGD([x], 0.1)\nx.sum().backward()\noptimizer.step()";
    for program in ["import torch; torch.ones(2)", steps] {
        let on_the_cpu = programs.question(program, &[], None);
        let error = on_the_cpu.ask(&AtomicBool::new(false)).unwrap_err();
        assert!(matches!(error, GhostError::NoCuda { .. }), "{error}");
    }
}

#[test]
fn a_program_that_is_interrupted_says_so_and_leaves_no_process() {
    let Some(programs) = Programs::new() else { return };
    let ready = programs.folder.path().join("ready");
    let program = "import subprocess, sys, torch\nx = torch.ones(4, device='cuda')\n\
                   subprocess.Popen(['sleep', '98765'])\nsubprocess.Popen(['sleep', '98766'], start_new_session=True)\nopen(sys.argv[1], 'w').close()\nwhile True: pass\n";
    let endless = programs.question(program, &[&ready.to_string_lossy()], None);
    let stop = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ready.exists() {
                std::thread::sleep(Duration::from_millis(50));
            }
            stop.store(true, Ordering::Relaxed);
        });
        endless.ask(&stop)
    });
    let report = report.unwrap();
    assert_eq!((report.end, report.exit_code()), (End::Interrupted, 130));
    let processes = std::process::Command::new("ps").args(["-eo", "args"]).output().unwrap();
    let processes = String::from_utf8_lossy(&processes.stdout);
    assert!(!processes.contains("sleep 98765") && !processes.contains("sleep 98766"), "{processes}");
}

/// Sizes that depend on values: the largest, the known, or a guess that is named.
const SIZES: &str = r#"
import torch
x = torch.randn(1000, 8, device="cuda")
found, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
assert (found.shape, inverse.shape, counts.shape) == ((8000,), (1000, 8), (8000,))
assert torch.unique(x, dim=0).shape == x.shape and torch.unique_consecutive(x).shape == (8000,)
assert torch.unique_consecutive(x, dim=0).shape == x.shape
sparse = torch.sparse_coo_tensor(torch.randint(0, 9, (2, 100), device="cuda"), torch.ones(100, device="cuda"), (9, 9))
assert sparse.coalesce()._nnz() == 81
numbers = torch.randint(0, 4, (1000,), device="cuda")
assert torch.bincount(numbers, minlength=4).shape == (4,)
assert torch.bincount(torch.tensor([1, 5, 2]).cuda()).shape == (6,)
assert torch.repeat_interleave(x, torch.full((1000,), 3).cuda(), dim=0).shape == (3000, 8)
assert torch.repeat_interleave(x, numbers, dim=0, output_size=1500).shape == (1500, 8)
assert torch.repeat_interleave(x, numbers, dim=0).shape == x.shape
"#;

#[test]
fn sizes_that_depend_on_values_are_the_largest_or_named_as_guessed() {
    let Some(programs) = Programs::new() else { return };
    let report = programs.report(SIZES, &[], None);
    assert_eq!(report.end, End::Done, "{:?}", report.error);
    assert_eq!((report.lower_bound, &report.guessed[..]), (true, &["repeat_interleave".to_string()][..]));
}

/// Trains in a child that is forked before CUDA is used, or replays what a graph captured.
const ELSEWHERE: &str = r#"
import multiprocessing, sys, torch

def train(graph):
    model = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inputs = torch.zeros(1024, 1024, device="cuda")
    def step():
        model(inputs).sum().backward()
        optimizer.step()
    step()
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            step()
        captured.replay()

if sys.argv[1] == "graph":
    train(True)
else:
    child = multiprocessing.get_context("fork").Process(target=train, args=(False,))
    child.start()
    child.join()
"#;

#[test]
fn a_training_in_a_forked_child_and_one_in_a_graph_are_seen() {
    let Some(programs) = Programs::new() else { return };
    for (how, steps) in [("fork", 1), ("graph", 2)] {
        let report = programs.report(ELSEWHERE, &[how], None);
        assert_eq!((report.end, report.steps.len()), (End::Done, steps), "{how}: {:?}", report.error);
        assert!(report.peak_allocated_bytes > 8 << 20);
    }
}

/// A distributed training whose other ranks are not there.
const RANKS: &str = r#"
import os, sys, torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
assert dist.get_world_size() == 4 and os.environ["RANK"] == "0"
model = nn.Sequential(nn.Linear(1024, 1024), nn.Linear(1024, 1024)).cuda()
if sys.argv[1] == "ddp":
    model = nn.parallel.DistributedDataParallel(model, device_ids=[0])
else:
    from torch.distributed.fsdp import fully_shard
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    model(torch.randn(8, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    dist.barrier()
"#;

#[test]
fn the_first_of_several_ranks_runs_alone_and_shards_take_their_share() {
    let Some(programs) = Programs::new() else { return };
    let optimizer = |kind: &str| {
        let alone = programs.question(RANKS, &[kind], None);
        let report = ask(&Question { world: Some(4), time_limit: Duration::from_secs(300), ..alone });
        assert_eq!((report.end, report.steps.len()), (End::Steps, 3), "{kind}");
        bytes_of(&report, "optimizer")
    };
    let (whole, shared) = (optimizer("ddp"), optimizer("fsdp"));
    // Two moments of two layers, whole or a quarter; AdamW's temporaries may be among them.
    assert!(whole >= 2 * 2 * (4 << 20) && shared * 3 < whole, "{whole} {shared}");
}

#[test]
fn an_error_of_the_program_is_told_with_its_line() {
    let Some(programs) = Programs::new() else { return };
    let program = "import torch\nx = torch.ones(4, device='cuda')\nraise ValueError('no such column')\n";
    let report = programs.report(program, &[], None);
    let error = report.error.unwrap();
    assert_eq!((report.end, error.kind.as_str(), error.text.as_str()), (End::Failed, "ValueError", "no such column"));
    assert!(error.line.contains("train.py:3"), "{}", error.line);
}

/// It ends with an error of its own where a length, a count or a mask is not what the host gave the card.
const READS_LENGTHS: &str = include_str!("../../../../tools/ghost/programs/reads_lengths.py");

#[test]
fn a_program_that_reads_lengths_back_sees_those_it_gave() {
    let Some(programs) = Programs::new() else { return };
    let report = programs.report(READS_LENGTHS, &[], None);
    assert_eq!((report.end, report.steps.len()), (End::Steps, 3), "{:?}", report.error);
}
