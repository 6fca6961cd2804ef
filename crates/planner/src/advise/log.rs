//! What a log tells beside the message: where the program was, how far it had come, how memory had moved.

#![deny(missing_docs)]

use super::scan::{Amount, flowing, without_colours};
use serde::Serialize;

/// What the program was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The model came, or moved to the card.
    Loading,
    /// The forward pass.
    Forward,
    /// The backward pass.
    Backward,
    /// The update.
    Optimizer,
    /// Validation.
    Evaluation,
}

impl Stage {
    /// In words that end a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Stage::Loading => "while the model was being loaded or moved to the card",
            Stage::Forward => "in the forward pass",
            Stage::Backward => "in the backward pass",
            Stage::Optimizer => "in the optimizer's step",
            Stage::Evaluation => "during evaluation",
        }
    }
}

/// How far the run had come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Progress {
    /// As the log counts.
    pub step: Option<u64>,
    /// Counted from 1, as people do.
    pub epoch: Option<u64>,
}

/// What a log tells beside the error.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Log {
    /// What the program was doing.
    pub place: Option<Stage>,
    /// The user's own line in the traceback: file, line, function.
    pub line: Option<String>,
    /// How far it had come.
    pub progress: Progress,
    /// Memory in use as the log itself printed it, in order.
    pub memory_bytes: Vec<u64>,
}

impl Log {
    /// Reads a whole log, or a pasted part; what it does not tell is absent.
    pub fn read(text: &str) -> Log {
        let plain = without_colours(text);
        let frames: Vec<Frame> = plain.lines().filter_map(Frame::read).collect();
        let flowing = flowing(&plain).to_ascii_lowercase();
        Log {
            place: place_of(&frames, &plain).or_else(|| place_in_words(&flowing)),
            line: frames.iter().rev().find(|f| f.is_own()).map(Frame::words),
            progress: Progress { step: last_step(&plain), epoch: last_epoch(&flowing) },
            memory_bytes: plain.lines().filter_map(memory_of).collect(),
        }
    }

    /// Memory rises over the log and does not come back: most readings are higher than the one before, and the last
    /// is a tenth above the first.
    pub(crate) fn grows(&self) -> bool {
        let readings = &self.memory_bytes;
        let (Some(&first), Some(&last)) = (readings.first(), readings.last()) else { return false };
        let rises = readings.windows(2).filter(|pair| pair[1] > pair[0]).count();
        readings.len() >= 4 && 4 * rises >= 3 * (readings.len() - 1) && last / 11 >= first / 10
    }

    /// Well past the first steps: what did not fit then would have died then.
    pub(crate) fn is_late(&self) -> bool {
        self.progress.step.is_some_and(|step| step > EARLY_STEPS) || self.progress.epoch.is_some_and(|epoch| epoch > 1)
    }
}

/// Buffers, moments and libraries are all in place after these.
const EARLY_STEPS: u64 = 10;

/// One line of a traceback.
struct Frame<'t> {
    file: &'t str,
    line: &'t str,
    function: &'t str,
}

impl<'t> Frame<'t> {
    /// `File "train.py", line 88, in main`
    fn read(text: &'t str) -> Option<Frame<'t>> {
        let (file, rest) = text.split_once("File \"")?.1.split_once("\", line ")?;
        let (line, function) = rest.split_once(", in ").unwrap_or((rest, ""));
        Some(Frame { file, line: line.trim(), function: function.trim() })
    }

    fn is_own(&self) -> bool {
        !["site-packages", "dist-packages", "/torch/", "/lib/python", "<frozen"].iter().any(|p| self.file.contains(p))
    }

    fn words(&self) -> String {
        format!("{}:{} in {}", self.file, self.line, self.function)
    }

    fn place(&self) -> Option<Stage> {
        let named = |names: &[&str]| names.iter().any(|name| self.function.contains(name));
        let evaluation = ["evaluat", "validat", "prediction_step", "eval_step", "eval_epoch"];
        if named(&evaluation) {
            return Some(Stage::Evaluation);
        }
        if self.file.contains("/optim/") || named(&["optimizer_step", "clip_grad"]) {
            return Some(Stage::Optimizer);
        }
        if named(&["backward"]) || self.file.contains("/autograd/") {
            return Some(Stage::Backward);
        }
        let loading = ["from_pretrained", "load_state_dict", "_apply", "cuda", "_load", "move_to_device"];
        if named(&loading) || self.function == "to" {
            return Some(Stage::Loading);
        }
        named(&["forward", "_call_impl", "attention", "training_step"]).then_some(Stage::Forward)
    }
}

/// Evaluation counts wherever it stands (its own forward pass is further in), then a backward pass (checkpointing runs
/// forward inside of it); of the rest the innermost counts.
fn place_of(frames: &[Frame<'_>], text: &str) -> Option<Stage> {
    let places: Vec<Stage> = frames.iter().filter_map(Frame::place).collect();
    if places.contains(&Stage::Evaluation) {
        return Some(Stage::Evaluation);
    }
    if places.contains(&Stage::Backward) || !frames.is_empty() && text.contains(".backward(") {
        return Some(Stage::Backward);
    }
    places.last().copied()
}

/// Phrases of people who describe what happened.
const WORDS: [(&str, Stage); 10] = [
    ("backward pass", Stage::Backward),
    ("loss.backward", Stage::Backward),
    ("during validation", Stage::Evaluation),
    ("during evaluation", Stage::Evaluation),
    ("trainer.evaluate", Stage::Evaluation),
    ("optimizer.step", Stage::Optimizer),
    ("start of training", Stage::Loading),
    ("from_pretrained", Stage::Loading),
    ("loading the model", Stage::Loading),
    ("forward pass", Stage::Forward),
];

fn place_in_words(lower: &str) -> Option<Stage> {
    WORDS.iter().find(|(words, _)| lower.contains(words)).map(|&(_, place)| place)
}

/// `463/1250 [` of a progress bar, or `step 463`, `step: 463`, `iter 463`; the last in the text.
fn last_step(text: &str) -> Option<u64> {
    text.lines().rev().find_map(|line| {
        bar_step(line).or_else(|| word_number(&line.to_ascii_lowercase(), &["step", "iter", "iteration", "batch_idx"]))
    })
}

fn bar_step(line: &str) -> Option<u64> {
    line.rmatch_indices('/').find_map(|(at, _)| {
        let (head, tail) = (&line[..at], &line[at + 1..]);
        let digits = tail.find(|c: char| !c.is_ascii_digit()).filter(|&end| end > 0)?;
        let from = head
            .rfind(|c: char| !c.is_ascii_digit())
            .map_or(0, |i| i + head[i..].chars().next().map_or(1, char::len_utf8));
        tail[digits..].trim_start().starts_with('[').then(|| head[from..].parse().ok())?
    })
}

/// `epoch 2`, `epoch: 2/20`, or the fraction `'epoch': 1.32` that counts from 0.
fn last_epoch(lower: &str) -> Option<u64> {
    lower.rmatch_indices("epoch").find_map(|(at, word)| {
        let rest = lower[at + word.len()..].trim_start_matches(['\'', '"', ':', '=', ' ', '[', '#']);
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let number = rest[..end].trim_end_matches('.');
        match number.contains('.') {
            true => number.parse::<f64>().ok().map(|done| (done as u64).saturating_add(1)),
            false => number.parse().ok(),
        }
    })
}

fn word_number(lower: &str, words: &[&str]) -> Option<u64> {
    words.iter().find_map(|word| {
        lower.match_indices(word).find_map(|(at, word)| {
            let rest = lower[at + word.len()..].trim_start_matches(['\'', '"', ':', '=', ' ', '[', '#']);
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..end].parse().ok()
        })
    })
}

/// A line in which the program itself reports its memory; the message is none of them.
fn memory_of(line: &str) -> Option<u64> {
    let lower = line.to_ascii_lowercase();
    let reports = ["mem", "alloc", "vram"].iter().any(|word| lower.contains(word));
    let message = ["tried to allocate", "out of memory", "total capac"].iter().any(|word| lower.contains(word));
    if !reports || message {
        return None;
    }
    let named = ["allocated", "alloc", "mem", "memory", "vram"].iter().find_map(|word| Amount::after(&lower, word));
    named.or_else(|| Amount::all(line).first().copied()).map(|amount| amount.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BACKWARD: &str = r#" 37%|███▋      | 463/1250 [12:01<20:11,  1.54s/it]
{'loss': 0.31, 'epoch': 1.32}
Traceback (most recent call last):
  File "/home/a/train.py", line 88, in main
    loss.backward()
  File "/opt/venv/lib/python3.12/site-packages/torch/_tensor.py", line 581, in backward
    torch.autograd.backward(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."#;

    #[test]
    fn a_traceback_tells_where_and_a_bar_tells_when() {
        let log = Log::read(BACKWARD);
        assert_eq!(log.place, Some(Stage::Backward));
        assert_eq!(log.line.as_deref(), Some("/home/a/train.py:88 in main"));
        assert_eq!(log.progress, Progress { step: Some(463), epoch: Some(2) });
        assert!(log.is_late() && !log.grows());
    }

    #[test]
    fn evaluation_counts_even_though_its_forward_pass_died() {
        let text = r#"step 12
  File "/a/lib/python3.12/site-packages/transformers/trainer.py", line 1, in evaluation_loop
  File "/a/lib/python3.12/site-packages/torch/nn/modules/module.py", line 2, in _call_impl"#;
        let log = Log::read(text);
        assert_eq!((log.place, log.progress.step, log.line), (Some(Stage::Evaluation), Some(12), None));
        let step = r#"  File "/x/lib/python3.12/site-packages/torch/optim/adamw.py", line 9, in step"#;
        assert_eq!(Log::read(step).place, Some(Stage::Optimizer));
        let load = r#"  File "/x/lib/python3.12/site-packages/torch/nn/modules/module.py", line 9, in _apply"#;
        assert_eq!(Log::read(load).place, Some(Stage::Loading));
    }

    #[test]
    fn memory_that_only_rises_is_growth() {
        let lines = |sizes: &[f64]| sizes.iter().map(|s| format!("step 5 | gpu mem {s:.2} GiB\n")).collect::<String>();
        assert!(Log::read(&lines(&[4.0, 4.3, 4.9, 5.2, 5.8])).grows());
        assert!(!Log::read(&lines(&[4.0, 4.3, 4.0, 4.3, 4.1])).grows());
        assert!(!Log::read(&lines(&[4.0, 5.0])).grows());
        assert!(Log::read("CUDA out of memory. Tried to allocate 2 MiB").memory_bytes.is_empty());
    }

    #[test]
    fn words_tell_too() {
        let log = Log::read("Out of memory in the backward pass of epoch 2 of 20 at batch 96");
        assert_eq!((log.place, log.progress.epoch), (Some(Stage::Backward), Some(2)));
        assert_eq!(Log::read("Out of memory at the start of training.").place, Some(Stage::Loading));
        assert_eq!(Log::read("").progress, Progress::default());
    }

    proptest! {
        #[test]
        fn arbitrary_logs_never_panic(text in any::<String>(), number in any::<f64>()) {
            let _ = Log::read(&text);
            let _ = Log::read(&format!("epoch {number} {text}/{number} [ step={text} File \"{text}\", line {text}"));
        }
    }
}
