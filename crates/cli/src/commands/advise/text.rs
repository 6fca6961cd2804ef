//! The answer for people.

use super::{Findings, Ours};
use crate::printer::{Paint, indented};
use plimsoll::advise::{Advice, Cause, CauseKind, Form, Likely, Reading};
use plimsoll_base::names::Named;
use plimsoll_base::units::format_bytes;
use plimsoll_report::{Side, Table};
use std::fmt::Write;

/// Tensors and causes shown unless all are asked for.
const TENSORS_SHOWN: usize = 3;
const CAUSES_SHOWN: usize = 2;

impl Findings {
    pub(crate) fn text(&self, explain: bool, paint: Paint) -> String {
        let mut parts = Vec::new();
        if let Some(reading) = &self.error {
            parts.push(reading_text(reading, explain, paint));
        }
        if let Some(mismatch) = &self.mismatch {
            parts.push(format!("{}\n{}", paint.bold("not this recipe"), indented(mismatch)));
        }
        if let Some(advice) = &self.pytorch {
            parts.push(settings_text(advice, self.plimsoll.as_ref(), paint));
        }
        if !self.cards.is_empty() {
            parts.push(cards_text(&self.cards, paint));
        }
        parts.join("\n")
    }
}

fn reading_text(reading: &Reading, explain: bool, paint: Paint) -> String {
    let mut text = format!("{}\n{}", paint.bold("what it says"), indented(&facts(reading)));
    let shown = if explain { usize::MAX } else { CAUSES_SHOWN };
    for cause in reading.causes.iter().take(shown) {
        let _ = write!(text, "\n{}", cause_text(cause, paint));
    }
    if !reading.tensors.is_empty() {
        let _ = write!(text, "\n{}\n{}", paint.bold("the request"), indented(&tensors_table(reading, explain)));
    }
    if !reading.remedies.is_empty() {
        let mut table = Table::new(&[("remedy", Side::Left), ("verdict", Side::Left), ("why", Side::Left)]);
        reading.remedies.iter().for_each(|r| table.row([r.name, r.verdict.word(), r.reason].map(String::from)));
        let _ = write!(text, "\n{}\n{}", paint.bold("folk remedies"), indented(&table.to_text()));
    }
    text
}

fn facts(reading: &Reading) -> String {
    let oom = &reading.oom;
    let mut facts: Vec<(&str, String)> = vec![("ran out", form_words(oom.form).into())];
    let mut add = |name, bytes: Option<u64>, why: &str| {
        facts.extend(bytes.map(|bytes| (name, format!("{:<12}{why}", format_bytes(bytes)).trim_end().to_string())));
    };
    add("asked for", oom.asked.map(|a| a.bytes), "the request that failed");
    add("card", oom.total_bytes, "all it has");
    add("free", oom.free_bytes, "");
    add("allowed", oom.allowed_bytes, "what this process may take");
    add("this process", oom.process_bytes, "everything, its context included");
    add("in tensors", oom.allocated_bytes, "alive at that moment");
    add("in private pools", oom.private_bytes, "of captured graphs");
    add("kept aside", oom.unallocated_bytes, "by PyTorch, in no tensor");
    for other in &oom.others {
        facts.push(("another process", format!("{:<12}pid {}", format_bytes(other.bytes), other.pid)));
    }
    if oom.spills() {
        facts.push(("note", "more is in use than the card has: the driver spills into the machine's memory (Windows does), which is slow".into()));
    }
    facts.extend(circumstances(reading).map(|words| ("when", words)));
    if oom.messages > 1 {
        facts.push(("repeated", format!("{} such errors; this is the last", oom.messages)));
    }
    facts.iter().map(|(name, text)| format!("{name:<17} {text}\n")).collect()
}

/// Where and when, as far as the text tells.
fn circumstances(reading: &Reading) -> Option<String> {
    let log = &reading.log;
    let words = [
        log.place.map(|place| place.words().to_string()),
        log.progress.epoch.map(|epoch| format!("epoch {epoch}")),
        log.progress.step.map(|step| format!("step {step}")),
        reading.oom.rank.map(|rank| format!("rank {rank}")),
        log.line.clone(),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn tensors_table(reading: &Reading, explain: bool) -> String {
    let columns = [("tensor", Side::Left), ("batch × length", Side::Right), ("type", Side::Left)];
    let more = [("places", Side::Right), ("name", Side::Left)];
    let mut table = Table::new(&[&columns[..], &more[..]].concat());
    let shown = if explain { usize::MAX } else { TENSORS_SHOWN };
    for tensor in reading.tensors.iter().take(shown) {
        let dims = tensor.shape.iter().skip_while(|d| **d == 1).map(usize::to_string).collect::<Vec<_>>().join(" × ");
        let element = if tensor.element_bytes == 4 { "f32" } else { "16 bit" };
        table.row([
            format!("{}{}", tensor.what, if tensor.largest { ", the largest of its step" } else { "" }),
            format!("{} × {}", tensor.batch, tensor.length),
            format!("{element} ({dims})"),
            tensor.places.to_string(),
            tensor.name.clone(),
        ]);
    }
    let rest = reading.tensors.len().saturating_sub(shown);
    let more = if rest > 0 {
        format!("{rest} more with --explain; `--set memory.micro_batch=…` narrows it down\n")
    } else {
        String::new()
    };
    table.to_text() + &more
}

fn form_words(form: Form) -> &'static str {
    match form {
        Form::Allocator => "the card, as PyTorch's allocator says",
        Form::Driver => "the card, as the driver says, without numbers",
        Form::Library => "the card: cuBLAS or cuDNN could not take its workspace",
        Form::Communication => "the card: NCCL could not take its buffers",
        Form::Mps => "Apple's unified memory",
        Form::Xla => "the card, as XLA or TensorFlow says",
        Form::Host => "the machine's memory, not the card's",
        Form::SharedMemory => "/dev/shm, not the card",
        Form::Prose => "the card, it seems; without numbers only guesses are left: paste the error itself",
    }
}

fn cause_text(cause: &Cause, paint: Paint) -> String {
    let heading = match cause.likely {
        Likely::Certain => "cause",
        Likely::Likely => "likely cause",
        Likely::Possible => "possible too",
    };
    let name = match cause.kind {
        CauseKind::TooBig => "the step is too big",
        CauseKind::Fragmentation => "fragmentation",
        CauseKind::AnotherProcess => "another process",
        CauseKind::LongestBatch => "a late, longer batch",
        CauseKind::Validation => "validation",
        CauseKind::Leak => "a leak over time",
        CauseKind::Limit => "a limit",
        CauseKind::WrongShape => "a wrong shape",
        CauseKind::HostMemory => "host memory",
        CauseKind::SharedMemory => "shared memory",
    };
    let mut text = format!("{}: {}\n  {}\n", paint.bold(heading), paint.red(name), cause.why);
    for (index, action) in cause.actions.iter().enumerate() {
        let _ = writeln!(text, "  {}. {action}", index + 1);
    }
    text
}

fn settings_text(advice: &Advice, ours: Option<&Ours>, paint: Paint) -> String {
    let verdict = if advice.fits { paint.green("fits") } else { paint.red("does not fit") };
    let need = &advice.need;
    let mut text = format!(
        "{verdict} in PyTorch on {}: about {} of {}\n  weights {}, gradients {}, optimizer {}, activations {}, passing {}; and the allocator's slack and context\n",
        advice.device,
        format_bytes(advice.card_bytes),
        format_bytes(advice.budget_bytes),
        format_bytes(need.weights_bytes),
        format_bytes(need.gradients_bytes),
        format_bytes(need.optimizer_bytes),
        format_bytes(need.activations_bytes),
        format_bytes(need.passing_bytes),
    );
    let columns = ["setting", "value", "memory", "speed", "learning"].map(|name| (name, Side::Left));
    let mut table = Table::new(&columns);
    for s in &advice.settings {
        table.row([s.name.into(), s.value.clone(), s.memory.clone(), s.speed.into(), s.learning.into()]);
    }
    let _ = write!(text, "\n{}\n{}", paint.bold("settings"), indented(&table.to_text()));
    let _ = write!(text, "\n{}\n{}", paint.bold("as Python"), indented(&advice.code));
    let _ = write!(text, "\n{}\n", paint.bold("to know"));
    advice.notes.iter().for_each(|note| text += &format!("  - {note}\n"));
    if !advice.ways_out.is_empty() {
        let _ = write!(
            text,
            "\n{}\n{}",
            paint.bold("ways out, all of which learn differently"),
            indented(&ways_table(advice))
        );
    }
    if let Some(ours) = ours {
        let _ = writeln!(text, "\n{}", ours_line(ours));
    }
    text
}

fn ways_table(advice: &Advice) -> String {
    let columns = [("setting", Side::Left), ("needs about", Side::Right), ("", Side::Left), ("learning", Side::Left)];
    let mut table = Table::new(&columns);
    for way in &advice.ways_out {
        let fits = if way.fits { "fits" } else { "still too much" };
        table.row([way.what.into(), format_bytes(way.card_bytes), fits.into(), way.learning.into()]);
    }
    table.to_text()
}

fn ours_line(ours: &Ours) -> String {
    let Ours { micro_batch, accumulation, recompute, .. } = ours;
    let peak = format_bytes(ours.planned_peak_bytes);
    match ours.fits {
        true => format!(
            "in plimsoll: micro-batch {micro_batch} × {accumulation}, recompute {recompute}, {peak} to the byte"
        ),
        false => format!("in plimsoll: does not fit either; its smallest plan needs {peak}"),
    }
}

fn cards_text(cards: &[Advice], paint: Paint) -> String {
    let columns = [
        ("card", Side::Left),
        ("precision", Side::Left),
        ("batch", Side::Right),
        ("checkpointing", Side::Left),
        ("needs about", Side::Right),
        ("of", Side::Right),
        ("", Side::Left),
    ];
    let mut table = Table::new(&columns);
    for card in cards {
        table.row([
            card.device.clone(),
            card.precision.name().into(),
            format!("{} × {}", card.per_device_train_batch_size, card.gradient_accumulation_steps),
            if card.gradient_checkpointing { "yes" } else { "no" }.into(),
            format_bytes(card.card_bytes),
            format_bytes(card.budget_bytes),
            if card.fits { "fits" } else { "does not fit" }.into(),
        ]);
    }
    let heading = paint.bold("PyTorch by card");
    format!("{heading}\n{}\n`--device CARD` prints the settings for one of them\n", indented(&table.to_text()))
}
