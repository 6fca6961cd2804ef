//! The GPU against the CPU and PyTorch: `cuda_check [ops] [goldens] [models] [--out FILE] [--only TEXT]`
//! from the root of the repository, on a machine with a GPU. Without a word it checks everything.
//!
//! - `ops`: every op's samples and gradients in f32, tf32, bf16 and f16 against f64 on the CPU;
//! - `goldens`: outputs, gradients and ten losses of every family against PyTorch's, in f32;
//! - `models`: ten updates of the shipped recipes against the CPU, in f32, tf32, bf16-mixed and fp16-mixed, with
//!   the gradients of the first, and the same updates without CUDA graphs bit for bit.
//!
//! `cuda_check hold PERCENT SECONDS` takes that share of the memory that is free and keeps it, for trying what happens
//! beside it.
//!
//! Prints what failed and a short table; everything goes to FILE as JSON lines. What has no kernel is listed, not failed.

#[path = "../tests/common/case.rs"]
#[allow(dead_code)]
mod case;
#[path = "cuda/models.rs"]
mod models;
#[path = "cuda/ops.rs"]
mod ops;
#[path = "../tests/common/parity.rs"]
#[allow(dead_code)]
mod parity;
#[path = "cuda/programs.rs"]
#[allow(dead_code)]
mod programs;
#[path = "cuda/session.rs"]
mod session;

use plimsoll_core::graph::Target;
use plimsoll_core::graph::{Component, Graph, Init, InputKind};
use plimsoll_core::plan::{LayoutOptions, Phase, Program, lay_out};
use plimsoll_core::types::{DType, Type};
use plimsoll_cuda::{CudaExecutor, CudaOptions, Gpu};
use plimsoll_exec::Executor;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What was checked and how it came out.
pub struct Report {
    file: Option<File>,
    counts: std::collections::BTreeMap<String, [usize; 3]>,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Outcome {
    Holds,
    Fails,
    Missing,
}

impl Report {
    pub fn add(&mut self, kind: &str, name: &str, outcome: Outcome, detail: String) {
        self.counts.entry(kind.into()).or_default()[outcome as usize] += 1;
        let word = ["ok", "FAIL", "missing"][outcome as usize];
        if outcome == Outcome::Fails {
            println!("FAIL {kind} {name}: {detail}");
        }
        let line = serde_json::json!({ "kind": kind, "name": name, "outcome": word, "detail": detail });
        self.file.as_mut().map(|file| writeln!(file, "{line}"));
    }

    fn table(&self) -> bool {
        for (kind, [holds, fails, missing]) in &self.counts {
            println!("{kind:<24} {holds:>5} hold {fails:>5} fail {missing:>5} without a kernel");
        }
        self.counts.values().all(|counts| counts[Outcome::Fails as usize] == 0)
    }
}

/// A program of its own on the GPU.
pub fn on_gpu(gpu: &Rc<Gpu>, program: &Program, options: CudaOptions) -> Result<CudaExecutor, Box<dyn Error>> {
    let layout = lay_out(program, LayoutOptions { target: Target::CUDA, sharing: true })?;
    Ok(CudaExecutor::new(gpu.clone(), program, &layout, options)?)
}

fn goldens(gpu: &Rc<Gpu>, report: &mut Report, only: Option<&str>) -> Result<(), Box<dyn Error>> {
    let gpu = gpu.clone();
    let take = move |program: &Program| -> Box<dyn Executor> {
        Box::new(on_gpu(&gpu, program, CudaOptions::default()).unwrap_or_else(|error| panic!("{error}")))
    };
    for family in ["hybrid", "mu-sota", "bert", "roberta", "xlm-roberta", "deberta-v3", "distilbert", "t5", "clip"] {
        let Ok(entries) = std::fs::read_dir(Path::new("crates/train/tests/goldens").join(family)) else { continue };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        for file in files.iter().filter(|file| only.is_none_or(|text| file.to_string_lossy().contains(text))) {
            let compared = catch_unwind(AssertUnwindSafe(|| parity::compare(file, &take)));
            let name = format!("{family}/{}", file.file_stem().unwrap_or_default().to_string_lossy());
            match compared {
                Ok(verdict) if verdict.holds() => report.add("goldens", &name, Outcome::Holds, verdict.to_string()),
                Ok(verdict) => report.add("goldens", &name, Outcome::Fails, verdict.to_string()),
                Err(cause) => report.add("goldens", &name, Outcome::Fails, cause_text(&cause)),
            }
        }
    }
    Ok(())
}

fn cause_text(cause: &Box<dyn std::any::Any + Send>) -> String {
    cause.downcast_ref::<String>().cloned().unwrap_or_else(|| "it panicked".into())
}

/// Takes a share of the free memory and says so; it goes back when the time is over.
fn hold(percent: &str, seconds: &str) -> Result<(), Box<dyn Error>> {
    let (percent, seconds): (f64, u64) = (percent.parse()?, seconds.parse()?);
    let gpu = Gpu::open(0)?;
    let bytes = (gpu.free_bytes()? as f64 * percent.clamp(0.0, 100.0) / 100.0) as usize;
    let mut graph = Graph::new("hold", DType::F32);
    let kind = InputKind::Resident { component: Component::Inputs, init: Init::Zeros };
    graph.input("held", Type::new(DType::F32, &[bytes / 4]), kind)?;
    let program = Program::new(vec![Phase { name: "hold".into(), graph, repeat: 1 }])?;
    let _held = on_gpu(&gpu, &program, CudaOptions::default())?;
    println!("holding {} MiB for {seconds} s", bytes >> 20);
    std::thread::sleep(Duration::from_secs(seconds));
    Ok(())
}

/// Runs one kind of check and says how long it took.
fn timed(
    word: &str,
    report: &mut Report,
    check: impl FnOnce(&mut Report) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    check(report)?;
    println!("{word}: {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, percent, seconds] = arguments.as_slice()
        && word == "hold"
    {
        return hold(percent, seconds).map(|()| ExitCode::SUCCESS);
    }
    let value = |flag: &str| arguments.windows(2).find(|w| w[0] == flag).map(|w| w[1].clone());
    let words = ["ops", "goldens", "models"];
    let chosen =
        |word: &str| arguments.iter().any(|a| a == word) || !arguments.iter().any(|a| words.contains(&a.as_str()));
    let file = value("--out").map(File::create).transpose()?;
    let only = value("--only");
    let mut report = Report { file, counts: Default::default() };
    let gpu = Gpu::open(0)?;
    println!("open: {} MiB of the device's memory", gpu.used_bytes()? >> 20);
    let only = only.as_deref();
    if chosen("ops") {
        timed("ops", &mut report, |report| ops::check(&gpu, report, only))?;
    }
    if chosen("goldens") {
        timed("goldens", &mut report, |report| goldens(&gpu, report, only))?;
    }
    if chosen("models") {
        timed("models", &mut report, |report| models::check(&gpu, report, only))?;
    }
    Ok(if report.table() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
