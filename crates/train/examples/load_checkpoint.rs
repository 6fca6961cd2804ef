//! Loads a checkpoint folder into an arena of its own size and says what that took: bytes of the arena and of the
//! largest tensor, the process's peak in memory, seconds. `load_checkpoint DIR`

use plimsoll_core::graph::Target;
use plimsoll_core::graph::{Graph, Init};
use plimsoll_core::plan::{LayoutOptions, Phase, Program, lay_out};
use plimsoll_core::types::DType;
use plimsoll_exec::cpu::CpuExecutor;
use plimsoll_models::families::HuggingFace;
use plimsoll_models::hf::Checkpoint;
use plimsoll_train::weights::load_into;
use std::error::Error;
use std::path::Path;
use std::time::Instant;

/// Every tensor is a parameter under its own name.
const NAMES: HuggingFace =
    HuggingFace { architecture: "", model_type: "", prefix: "", aliases: &[], ignored: &[], fresh: &[] };

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args().nth(1).ok_or("which folder? load_checkpoint DIR")?;
    let checkpoint = Checkpoint::open(Path::new(&dir))?;
    let mut graph = Graph::new("weights", DType::F32);
    let mut largest = 0;
    for name in checkpoint.names() {
        let shape = checkpoint.info(name).map(|info| info.shape.clone()).unwrap_or_default();
        let value = graph.parameter(name, if shape.is_empty() { &[1] } else { &shape }, Init::Zeros, true)?;
        largest = largest.max(graph.ty(value).span_bytes());
    }
    let program = Program::new(vec![Phase { name: "weights".into(), graph, repeat: 1 }])?;
    let layout = lay_out(&program, LayoutOptions { target: Target::cpu(1), sharing: true })?;
    let mut executor = CpuExecutor::new(&program, &layout, 1)?;
    let start = Instant::now();
    let report = load_into(&checkpoint, &program, &NAMES, &mut executor)?;
    let seconds = start.elapsed().as_secs_f64();
    let peak = peak_bytes().ok_or("/proc/self/status has no VmHWM")?;
    let mib = |bytes: usize| bytes >> 20;
    println!("{} tensors in {seconds:.2} s, converted from {:?}", report.loaded, report.converted_from);
    println!("arena {} MiB, largest tensor {} MiB", mib(layout.arena_bytes), mib(largest));
    println!("host peak {} MiB: {} MiB beyond the arena", mib(peak), mib(peak.saturating_sub(layout.arena_bytes)));
    Ok(())
}

/// The most physical memory that the process had.
fn peak_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<usize>().ok()? << 10)
}
