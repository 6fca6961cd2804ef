//! What a run on a card that is not there has shown.

use crate::account::{Account, Held, Range};
use crate::allocator::Addresses;
use crate::card::Card;
use crate::launch::Ending;
use crate::notes::{Line, Note, Notes};
use crate::settings::Settings;
use serde::Serialize;
use std::collections::HashMap;

/// How the program came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// After the steps that were asked for.
    Steps,
    /// By itself.
    Done,
    OutOfMemory,
    /// By an error of its own, or of the stand-in.
    Failed,
    TimeLimit,
    Interrupted,
}

impl End {
    fn fits(self) -> Option<bool> {
        match self {
            End::Steps | End::Done => Some(true),
            End::OutOfMemory => Some(false),
            End::Failed | End::TimeLimit | End::Interrupted => None,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Step {
    pub step: usize,
    pub peak_allocated_bytes: u64,
    pub peak_reserved_bytes: u64,
}

/// A share of the peak.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    pub name: String,
    pub bytes: u64,
    pub blocks: usize,
}

/// What is alive when the most is allocated.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Peak {
    /// In which step, counted from 1; 0 for before the first.
    pub step: usize,
    pub kinds: Vec<Share>,
    pub modules: Vec<Share>,
    pub lines: Vec<Share>,
}

#[derive(Clone, Debug, Serialize)]
pub struct OutOfMemory {
    pub wanted_bytes: u64,
    pub free_bytes: u64,
    /// In which step, counted from 1.
    pub step: usize,
    /// PyTorch's own words, where the program let them through.
    pub message: Option<String>,
    /// The program's own innermost line.
    pub line: String,
}

/// An error of the program's own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramError {
    /// As Python names it.
    pub kind: String,
    pub text: String,
    /// The program's own innermost line.
    pub line: String,
}

/// Whether a card would do.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    pub card: String,
    pub total_bytes: u64,
    pub fits: bool,
    /// Reserved at the peak, and the context: what a monitor would show.
    pub needs_bytes: u64,
    /// Whether its kernels and workspaces are those of the card that the program ran on.
    pub same_architecture: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct OnCard {
    pub name: String,
    pub total_bytes: Option<u64>,
    pub context_bytes: u64,
    pub compute_capability: (u32, u32),
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub card: OnCard,
    pub torch: String,
    pub end: End,
    /// Whether it came to its steps or its end; none where something else than memory kept it from that.
    pub fits: Option<bool>,
    /// Sizes that the stand-in does not know went into it: it may take more.
    pub lower_bound: bool,
    pub peak_allocated_bytes: u64,
    pub peak_reserved_bytes: u64,
    /// Over orders of the addresses that a driver may give.
    pub allocated_range: Range,
    pub reserved_range: Range,
    /// Reserved and not allocated when the most is allocated.
    pub fragmentation_bytes: u64,
    pub steps: Vec<Step>,
    pub peak: Peak,
    pub out_of_memory: Option<OutOfMemory>,
    /// What the program failed with, where it was not memory.
    pub error: Option<ProgramError>,
    /// The last lines that a program that failed wrote to stderr, where they were not shown.
    pub last_words: Vec<String>,
    /// Times that the program ran out of memory and went on.
    pub caught: usize,
    /// Empty where the run does not tell: see `remarks`.
    pub cards: Vec<Verdict>,
    /// Functions that answered a size that the stand-in does not know.
    pub guessed: Vec<String>,
    pub remarks: Vec<String>,
    pub seconds: f64,
}

/// Everything that a report is made of.
pub struct Findings<'a> {
    pub card: &'a Card,
    /// Whether the card's memory was a limit.
    pub limited: bool,
    pub notes: &'a Notes,
    pub account: &'a Account,
    pub settings: &'a Settings,
    pub ending: Ending,
    pub last_words: &'a [String],
    /// Ranks of a distributed training.
    pub world: Option<usize>,
    pub seconds: f64,
    /// Cards to judge.
    pub cards: &'a [Card],
}

impl Findings<'_> {
    pub fn report(&self) -> Report {
        let end = self.end();
        let oom = self.out_of_memory();
        let guessed = self.guessed();
        let ranges = self.account.ranges(self.settings);
        Report {
            card: self.on_card(),
            torch: self.torch(),
            end,
            fits: end.fits(),
            lower_bound: !guessed.is_empty(),
            peak_allocated_bytes: self.account.peak.allocated,
            peak_reserved_bytes: self.account.peak_reserved,
            allocated_range: ranges.allocated,
            reserved_range: ranges.reserved,
            fragmentation_bytes: self.account.peak.reserved.saturating_sub(self.account.peak.allocated),
            steps: self.steps(),
            peak: self.peak(),
            caught: self.notes.out_of_memory().count() - usize::from(end == End::OutOfMemory && oom.is_some()),
            out_of_memory: oom.filter(|_| end == End::OutOfMemory),
            error: self.program_error(end),
            last_words: if end == End::Failed { self.last_words.to_vec() } else { Vec::new() },
            cards: if self.tells_of_other_cards(end) { self.verdicts() } else { Vec::new() },
            guessed,
            remarks: self.remarks(end),
            seconds: self.seconds,
        }
    }

    fn on_card(&self) -> OnCard {
        OnCard {
            name: self.card.name.clone(),
            total_bytes: self.limited.then_some(self.card.total_bytes),
            context_bytes: self.card.context_bytes,
            compute_capability: self.card.compute_capability,
        }
    }

    fn torch(&self) -> String {
        let mut notes = self.notes.notes.iter();
        notes
            .find_map(|note| if let Note::Torch { version, .. } = note { Some(version.clone()) } else { None })
            .unwrap_or_default()
    }

    fn error(&self) -> Option<(&str, &str, &[Line])> {
        self.notes.notes.iter().rev().find_map(|note| match note {
            Note::Error { r#type, text, stack } => Some((r#type.as_str(), text.as_str(), &stack[..])),
            _ => None,
        })
    }

    fn program_error(&self, end: End) -> Option<ProgramError> {
        let (kind, text, stack) = self.error().filter(|_| end == End::Failed)?;
        Some(ProgramError { kind: kind.into(), text: text.into(), line: own_line(stack) })
    }

    fn end(&self) -> End {
        let reason = self
            .notes
            .notes
            .iter()
            .find_map(|note| if let Note::History { why, .. } = note { Some(why.as_str()) } else { None });
        let out_of_memory = match self.error() {
            Some((kind, ..)) => kind == "OutOfMemoryError",
            None => self.notes.gave_up(),
        };
        match (self.ending, reason) {
            (Ending::Interrupted, _) => End::Interrupted,
            (Ending::TimeLimit, _) => End::TimeLimit,
            (_, Some("steps")) => End::Steps,
            // Also where it caught the error and ended as if all were well: it did not train.
            _ if out_of_memory => End::OutOfMemory,
            (Ending::Exit(0), _) => End::Done,
            _ => End::Failed,
        }
    }

    fn guessed(&self) -> Vec<String> {
        let found = self
            .notes
            .notes
            .iter()
            .find_map(|note| if let Note::History { guessed, .. } = note { Some(guessed) } else { None });
        found.cloned().unwrap_or_default()
    }

    /// A step ends where the next begins: right after the optimizer.
    fn steps(&self) -> Vec<Step> {
        let mut from = 0;
        let step = |mark: &crate::notes::Mark| {
            let peak = self.account.peak_between(from, mark.allocations);
            from = mark.allocations;
            Step { step: mark.step, peak_allocated_bytes: peak.allocated, peak_reserved_bytes: peak.reserved }
        };
        self.notes.steps().map(step).collect()
    }

    fn step_at(&self, allocation: usize) -> usize {
        self.notes.steps().filter(|mark| mark.allocations < allocation).count() + 1
    }

    fn peak(&self) -> Peak {
        let held = &self.account.held;
        Peak {
            step: self.step_at(self.account.peak_at),
            kinds: shares(held, |held| held.kind.name().into(), usize::MAX),
            modules: shares(held, |held| held.module.clone(), 12),
            lines: shares(held, |held| held.line.clone(), 12),
        }
    }

    fn out_of_memory(&self) -> Option<OutOfMemory> {
        let last = self.notes.out_of_memory().last()?;
        let error = self.error().filter(|(kind, ..)| *kind == "OutOfMemoryError");
        let stack = error.map_or(&last.stack[..], |(_, _, stack)| stack);
        Some(OutOfMemory {
            wanted_bytes: last.wanted,
            free_bytes: last.free,
            step: self.step_at(last.allocations),
            message: error.map(|(_, text, _)| text.to_string()),
            line: own_line(stack),
        })
    }

    /// A run that was cut short took less than the program takes, and one that caught errors of memory took what this
    /// card has.
    fn tells_of_other_cards(&self, end: End) -> bool {
        let came_far = match end {
            End::Steps | End::Done => true,
            End::TimeLimit | End::Interrupted => self.notes.steps().next().is_some(),
            End::OutOfMemory | End::Failed => false,
        };
        came_far && self.notes.out_of_memory().next().is_none()
    }

    fn verdicts(&self) -> Vec<Verdict> {
        self.cards.iter().map(|card| self.verdict(card)).collect()
    }

    /// Between what is allocated and what is reserved the allocator may save itself by releasing its cache.
    fn verdict(&self, card: &Card) -> Verdict {
        let room = card.total_bytes.saturating_sub(card.context_bytes);
        let fits = if self.account.peak_reserved <= room {
            true
        } else {
            self.account.peak.allocated <= room && self.account.replay(self.settings, room, Addresses::Rising).is_ok()
        };
        Verdict {
            card: card.name.clone(),
            total_bytes: card.total_bytes,
            fits,
            needs_bytes: self.account.peak_reserved + card.context_bytes,
            same_architecture: card.compute_capability == self.card.compute_capability,
        }
    }

    fn remarks(&self, end: End) -> Vec<String> {
        let mut remarks = Vec::new();
        let compiled = self.notes.notes.contains(&Note::Compiled);
        if compiled {
            remarks.push(
                "torch.compile: modules are not named from there on, and numbers that the program looks at are zeros"
                    .into(),
            );
        }
        if self.notes.counted().is_some() {
            remarks.push("the history is longer than what is kept of it: peaks are PyTorch's own, shares and steps are those of its end".into());
        }
        if self.settings.collects_garbage {
            remarks.push("garbage_collection_threshold is PyTorch's own in the run, and left out of the verdicts for other cards".into());
        }
        if let Some(world) = self.world {
            remarks.push(format!(
                "rank 0 of {world}: the other ranks are not there, and NCCL's own buffers are not counted"
            ));
        }
        if matches!(end, End::Steps | End::Done) && !self.tells_of_other_cards(end) {
            remarks.push("other cards are not judged: the program goes by the memory that it finds".into());
        }
        if self.steps().is_empty() && end != End::OutOfMemory {
            remarks.push("no optimizer step was seen".into());
        }
        if !self.account.exact && !self.account.ops.is_empty() {
            remarks.push("the history could not be followed to the byte (several streams or pools); shares of the peak are close, not exact".into());
        }
        remarks
    }
}

/// The largest shares, largest first.
pub(crate) fn shares(held: &[Held], name: impl Fn(&Held) -> String, most: usize) -> Vec<Share> {
    let mut sums: HashMap<String, (u64, usize)> = HashMap::new();
    for block in held {
        let sum = sums.entry(name(block)).or_default();
        sum.0 += block.bytes;
        sum.1 += 1;
    }
    let mut shares: Vec<Share> =
        sums.into_iter().map(|(name, (bytes, blocks))| Share { name, bytes, blocks }).collect();
    shares.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    shares.truncate(most);
    shares
}

/// The innermost line that is not PyTorch's.
fn own_line(stack: &[Line]) -> String {
    let own =
        |line: &&Line| !line.0.contains("/torch/") && !line.0.ends_with("plimsoll_ghost.py") && line.0.ends_with(".py");
    let line = stack.iter().rev().find(own).or(stack.last());
    line.map_or_else(|| "?".into(), |(file, line, name)| format!("{file}:{line} in {name}"))
}
