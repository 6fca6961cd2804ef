//! `plimsoll devices`: what is here, what is free, and who holds the rest.

use crate::failure::Failure;
use crate::printer::{self, say};
use clap::Args;
use plimsoll::Facts;
use plimsoll_base::units::format_bytes;
use plimsoll_core::kernels::cuda::CudaError;
use plimsoll_cuda::{GpuFacts, gpus, missing_libraries};
use plimsoll_exec::host::{CpuFacts, Holder};
use plimsoll_planner::cards::{Card, catalog};
use serde::Serialize;
use std::thread;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The cards that plans can be made for
    #[arg(long)]
    catalog: bool,
    /// Show it again every two seconds
    #[arg(long, conflicts_with = "catalog")]
    watch: bool,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[serde(tag = "device", rename_all = "lowercase")]
enum Here {
    Cpu(CpuFacts),
    Cuda(GpuFacts),
}

const WATCH_EVERY: Duration = Duration::from_secs(2);

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match (arguments.catalog, arguments.json) {
        (true, true) => _ = printer::json(&catalog())?,
        (true, false) => _ = printer::out(&catalog().iter().map(card_line).collect::<String>())?,
        (false, _) => {
            let found = gpus();
            say_what_is_missing(&found);
            while show(arguments, gpus().unwrap_or_default())? && arguments.watch {
                thread::sleep(WATCH_EVERY);
            }
        }
    }
    Ok(())
}

/// False once nobody reads any more.
fn show(arguments: &Arguments, gpus: Vec<GpuFacts>) -> Result<bool, Failure> {
    let cpu = CpuFacts::gather();
    if arguments.json {
        return printer::json(
            &[Here::Cpu(cpu)].into_iter().chain(gpus.into_iter().map(Here::Cuda)).collect::<Vec<_>>(),
        );
    }
    printer::out(&(cpu_text(&cpu) + &gpus.iter().map(gpu_text).collect::<String>()))
}

/// Why no GPU can be used, and the one command that helps.
fn say_what_is_missing(gpus: &Result<Vec<GpuFacts>, CudaError>) {
    match gpus {
        Err(error) => {
            let failure = Failure::from(error.clone());
            say(&format!("no GPU: {}; {}", failure.message, failure.hints.join("; ")));
            say("`plimsoll devices --catalog` lists cards that plans can be made for");
        }
        Ok(_) => {
            let missing = missing_libraries();
            let names: Vec<&str> = missing.iter().map(|library| library.name()).collect();
            // The driver is here, and one command provides the rest.
            if let Some(library) = missing.first() {
                say(&format!("missing: {}; {}", names.join(", "), library.remedy()));
            }
        }
    }
}

/// The device of a run, as its start shows it: a CPU in a line, and of those who hold its memory only such that matter.
pub(crate) fn text(facts: &Facts) -> String {
    match facts {
        Facts::Cpu(facts) => cpu_line(facts),
        Facts::Gpu(facts) => gpu_text(facts),
    }
}

fn cpu_line(facts: &CpuFacts) -> String {
    let CpuFacts { name, threads, total_bytes, available_bytes, .. } = facts;
    let limit = if facts.limit_bytes.is_some() { " (limit of the container)" } else { "" };
    let [total, free] = [*total_bytes, *available_bytes].map(format_bytes);
    let matters = |holder: &&Holder| holder.bytes.saturating_mul(MATTERS) >= *total_bytes;
    let holders: Vec<Holder> = facts.holders.iter().filter(matters).cloned().collect();
    format!("cpu: {name}, {threads} threads, {free} of {total}{limit} free\n") + &holders_text(&holders)
}

/// The part of a machine's memory from which on a process is worth a line: a tenth.
const MATTERS: u64 = 10;

fn cpu_text(facts: &CpuFacts) -> String {
    let limit = if facts.limit_bytes.is_some() { " (limit of the container)" } else { "" };
    let text = format!(
        "cpu: {}, {} threads\n  total {}{limit}, free {}\n",
        facts.name,
        facts.threads,
        format_bytes(facts.total_bytes),
        format_bytes(facts.available_bytes)
    );
    text + &holders_text(&facts.holders)
}

fn gpu_text(facts: &GpuFacts) -> String {
    let (major, minor) = facts.compute_capability;
    let mut text = format!("cuda:{}: {}, compute capability {major}.{minor}\n", facts.ordinal, facts.name);
    text += &format!("  total {}, free {}", format_bytes(facts.total_bytes), format_bytes(facts.free_bytes));
    text += &facts.utilization.map_or(String::new(), |percent| format!(", {percent} % busy"));
    text += &facts.watts.map_or(String::new(), |watts| format!(", {watts:.0} W"));
    text += &facts.celsius.map_or(String::new(), |celsius| format!(", {celsius} °C"));
    text + "\n" + &holders_text(&facts.holders)
}

fn holders_text(holders: &[Holder]) -> String {
    let line =
        |holder: &Holder| format!("  {:>10}  {} (pid {})\n", format_bytes(holder.bytes), holder.name, holder.pid);
    holders.iter().map(line).collect()
}

fn card_line(card: &Card) -> String {
    let (major, minor) = card.compute_capability;
    format!(
        "{:<18} {:>11} total  {:>9} reserve  {:>4.0} GB/s  {:>5.1} TFLOP/s f32  {:>6.1} in 16 bits  sm_{major}{minor}{}\n",
        card.name,
        format_bytes(card.total_bytes),
        format_bytes(card.reserve_bytes),
        card.bandwidth_gb_per_s,
        card.f32_tflops,
        card.f16_tflops,
        if card.can_run() { "" } else { "  (plans only)" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_run_on_a_cpu_names_only_those_who_hold_much() {
        let holder = |name: &str, bytes| Holder { pid: 7, name: name.into(), bytes };
        let facts = CpuFacts {
            name: "Some CPU".into(),
            threads: 2,
            total_bytes: 16 << 30,
            available_bytes: 8 << 30,
            limit_bytes: None,
            holders: vec![holder("browser", 3 << 30), holder("bash", 4 << 20)],
        };
        let text = text(&Facts::Cpu(facts.clone()));
        assert_eq!(text, "cpu: Some CPU, 2 threads, 8 GiB of 16 GiB free\n       3 GiB  browser (pid 7)\n");
        assert!(cpu_text(&facts).contains("bash"), "`devices` names all");
    }

    #[test]
    fn a_gpu_is_shown_with_what_is_known_about_it() {
        let holders = vec![Holder { pid: 7, name: "python3".into(), bytes: 3 << 30 }];
        let (name, compute_capability) = ("NVIDIA H200".to_string(), (9, 0));
        let facts = GpuFacts {
            ordinal: 0,
            name,
            compute_capability,
            total_bytes: 140 << 30,
            free_bytes: 137 << 30,
            holders,
            utilization: Some(41),
            watts: Some(312.4),
            celsius: None,
        };
        let text = gpu_text(&facts);
        assert!(text.contains("free 137 GiB, 41 % busy, 312 W\n"), "{text}");
        assert!(text.contains("python3 (pid 7)") && !text.contains("°C"), "{text}");
    }
}
