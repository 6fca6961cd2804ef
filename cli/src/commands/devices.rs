//! `plimsoll devices`: what is here, what is free, and who holds the rest.

use crate::failure::Failure;
use crate::printer::{self, say};
use clap::Args;
use plimsoll::exec::devices::{Card, CpuFacts, catalog};
use plimsoll::units::format_bytes;
use serde::Serialize;

#[derive(Args)]
pub struct Arguments {
    /// The cards that plans can be made for
    #[arg(long)]
    catalog: bool,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Here {
    device: &'static str,
    #[serde(flatten)]
    facts: CpuFacts,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match (arguments.catalog, arguments.json) {
        (true, true) => printer::json(&catalog())?,
        (true, false) => printer::out(&catalog().iter().map(card_line).collect::<String>()),
        (false, true) => printer::json(&[Here { device: "cpu", facts: CpuFacts::gather() }])?,
        (false, false) => {
            let shown = printer::out(&processor_text(&CpuFacts::gather()));
            say(
                "no GPU support is in this version; `plimsoll devices --catalog` lists cards that plans can be made for",
            );
            shown
        }
    };
    Ok(())
}

/// The processor, its memory and who holds it; the start of every run shows it too.
pub fn processor_text(facts: &CpuFacts) -> String {
    let limit = if facts.limit_bytes.is_some() { " (limit of the container)" } else { "" };
    let mut text = format!(
        "cpu: {}, {} threads\n  total {}{limit}, free {}\n",
        facts.name,
        facts.threads,
        format_bytes(facts.total_bytes),
        format_bytes(facts.available_bytes)
    );
    for holder in &facts.holders {
        text += &format!("  {:>10}  {} (pid {})\n", format_bytes(holder.bytes), holder.name, holder.pid);
    }
    text
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
