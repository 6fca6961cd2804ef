//! Reports as tables for people.

use crate::report::{End, Report, Share, Verdict};
use std::fmt::Write;

pub fn bytes(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 { format!("{mib:.1} MiB") } else { format!("{:.2} GiB", mib / 1024.0) }
}

/// The whole report.
pub fn report(report: &Report) -> String {
    let mut text = head(report);
    steps(&mut text, report);
    shares(&mut text, "alive at the peak, by kind", &report.peak.kinds, report.peak_allocated_bytes);
    shares(&mut text, "by module", &report.peak.modules, report.peak_allocated_bytes);
    shares(&mut text, "by line", &report.peak.lines, report.peak_allocated_bytes);
    cards(&mut text, &report.cards);
    for remark in &report.remarks {
        let _ = writeln!(text, "note: {remark}");
    }
    if report.lower_bound {
        let _ = writeln!(
            text,
            "note: a lower bound: sizes that are not known were asked for by {}",
            report.guessed.join(", ")
        );
    }
    text
}

fn head(report: &Report) -> String {
    let limit = report.card.total_bytes.map_or_else(|| "no limit".into(), bytes);
    let mut text = format!("{} ({limit}), torch {}: {}\n", report.card.name, report.torch, verdict(report));
    if let Some(oom) = &report.out_of_memory {
        let _ = writeln!(text, "  dies in step {} at {}", oom.step, oom.line);
        let _ = writeln!(text, "  asked for {}, {} free", bytes(oom.wanted_bytes), bytes(oom.free_bytes));
        if let Some(message) = &oom.message {
            let _ = writeln!(text, "  {message}");
        }
    }
    if let Some(error) = &report.error {
        let _ = writeln!(text, "  {}: {} at {}", error.kind, error.text, error.line);
    }
    for line in &report.last_words {
        let _ = writeln!(text, "  | {line}");
    }
    let (allocated, range) = (&report.allocated_range, &report.reserved_range);
    let _ = write!(text, "  peak allocated {} in step {}", bytes(report.peak_allocated_bytes), report.peak.step);
    if allocated.lowest_bytes < allocated.highest_bytes {
        let _ = write!(text, "; {} to {}", bytes(allocated.lowest_bytes), bytes(allocated.highest_bytes));
    }
    text.push('\n');
    let _ = writeln!(
        text,
        "  peak reserved  {}; {} to {} by the addresses that the driver gives; and {} of context",
        bytes(report.peak_reserved_bytes),
        bytes(range.lowest_bytes),
        bytes(range.highest_bytes),
        bytes(report.card.context_bytes)
    );
    text
}

fn verdict(report: &Report) -> String {
    let caught =
        if report.caught > 0 { format!(", after catching {} errors of memory", report.caught) } else { String::new() };
    match report.end {
        End::Steps => format!("fits{caught} ({} steps in {:.1} s)", report.steps.len(), report.seconds),
        End::Done => format!("fits{caught} (to its own end, {} steps in {:.1} s)", report.steps.len(), report.seconds),
        End::OutOfMemory => "does not fit".into(),
        End::Failed => "the program failed before it could be told".into(),
        End::TimeLimit => format!("stopped after {:.0} s, in step {}", report.seconds, report.steps.len() + 1),
        End::Interrupted => "interrupted".into(),
    }
}

fn steps(text: &mut String, report: &Report) {
    if report.steps.is_empty() {
        return;
    }
    text.push_str("step   allocated    reserved\n");
    for step in &report.steps {
        let (allocated, reserved) = (bytes(step.peak_allocated_bytes), bytes(step.peak_reserved_bytes));
        let _ = writeln!(text, "{:4} {allocated:>11} {reserved:>11}", step.step);
    }
}

pub(crate) fn shares(text: &mut String, title: &str, shares: &[Share], whole: u64) {
    if shares.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}");
    for share in shares {
        let percent = 100.0 * share.bytes as f64 / whole.max(1) as f64;
        let name = if share.name.is_empty() { "(outside of modules)" } else { &share.name };
        let _ = writeln!(text, "{:>12} {percent:5.1} % {:6} x  {name}", bytes(share.bytes), share.blocks);
    }
}

fn cards(text: &mut String, cards: &[Verdict]) {
    if cards.is_empty() {
        return;
    }
    text.push_str("cards\n");
    for card in cards {
        let word = if card.fits { "fits" } else { "dies" };
        let unsure = if card.same_architecture { "" } else { "  (as run, with other kernels: try it with --card)" };
        let _ = writeln!(text, "  {:18} {:>11}  {word}{unsure}", card.card, bytes(card.total_bytes));
    }
}
