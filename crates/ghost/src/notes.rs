//! What the side that lives in the program wrote down: steps, addresses of weights, errors.

use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// A place in the program: file, line, function.
pub type Line = (String, i64, String);

/// One line of the notes. What is unknown is passed over, so that both sides may change one after the other.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum Note {
    Torch {
        version: String,
        cuda: String,
    },
    CpuOnly {
        version: String,
    },
    Compiled,
    /// It came to use the card.
    Cuda,
    BeforeStep(Mark),
    Step(Mark),
    Oom(Mark),
    /// The first step of an optimizer after memory ran out.
    WentOn,
    End(Mark),
    Error {
        r#type: String,
        text: String,
        stack: Vec<Line>,
    },
    History {
        why: String,
        stats: Value,
        card_peak: u64,
        guessed: Vec<String>,
        /// Whether it was too long to be kept whole.
        #[serde(default)]
        cut: bool,
    },
    Problem {
        text: String,
    },
}

/// Where things lay at a moment of the history.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Mark {
    pub step: usize,
    /// How many allocations came before.
    pub allocations: usize,
    /// Kind, name, address.
    pub tensors: Vec<(String, String, u64)>,
    pub workspaces: Vec<u64>,
    /// For out of memory: what was asked for, what the card has, what was free, and where the program was.
    pub wanted: u64,
    pub total: u64,
    pub free: u64,
    pub stack: Vec<Line>,
}

/// The notes of one process.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    pub notes: Vec<Note>,
    /// Its memory history, where it got to write one.
    pub history: Option<PathBuf>,
}

impl Notes {
    /// Of the process that used the card most; of programs that never got that far, any process's.
    pub(crate) fn of_run(folder: &Path) -> Notes {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let all = entries.filter(|path| path.extension().is_some_and(|name| name == "notes"));
        all.map(|path| Notes::read(&path)).max_by_key(Notes::weight).unwrap_or_default()
    }

    fn read(path: &Path) -> Notes {
        let text = fs::read_to_string(path).unwrap_or_default();
        let notes = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let history = path.with_extension("pickle");
        Notes { notes, history: history.is_file().then_some(history) }
    }

    fn weight(&self) -> (u64, usize) {
        let peak = self
            .notes
            .iter()
            .find_map(|note| if let Note::History { card_peak, .. } = note { Some(*card_peak) } else { None });
        (peak.unwrap_or(0), self.notes.len())
    }

    /// What PyTorch counted at its highest, where the history does not go back to the beginning.
    pub(crate) fn counted(&self) -> Option<(u64, u64)> {
        self.notes.iter().find_map(|note| match note {
            Note::History { stats, cut: true, .. } => {
                let peak = |key: &str| stats[key]["all"]["peak"].as_u64().unwrap_or(0);
                Some((peak("allocated_bytes"), peak("reserved_bytes")))
            }
            _ => None,
        })
    }

    /// The moments at which addresses were written down, in order.
    pub(crate) fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.notes.iter().filter_map(|note| match note {
            Note::BeforeStep(mark) | Note::Step(mark) | Note::Oom(mark) | Note::End(mark) => Some(mark),
            _ => None,
        })
    }

    pub fn steps(&self) -> impl Iterator<Item = &Mark> {
        self.notes.iter().filter_map(|note| if let Note::Step(mark) = note { Some(mark) } else { None })
    }

    /// Whether memory ran out, and no optimizer stepped after that.
    pub(crate) fn gave_up(&self) -> bool {
        let telling = self.notes.iter().rev().find(|note| matches!(note, Note::Step(_) | Note::WentOn | Note::Oom(_)));
        matches!(telling, Some(Note::Oom(_)))
    }

    pub(crate) fn out_of_memory(&self) -> impl Iterator<Item = &Mark> {
        self.notes.iter().filter_map(|note| if let Note::Oom(mark) = note { Some(mark) } else { None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_far_as_they_go_and_the_busiest_process_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let busy = r#"{"note": "torch", "version": "2.11.0", "cuda": "13.0"}
{"note": "step", "step": 1, "allocations": 9, "tensors": [["weights", "a.b", 512]], "workspaces": []}
{"note": "something newer", "x": 1}
{"note": "history", "why": "steps", "stats": {}, "card_peak": 77, "guessed": []}
{"note": "st"#;
        fs::write(folder.path().join("1.notes"), busy).unwrap();
        fs::write(folder.path().join("2.notes"), "{\"note\": \"torch\", \"version\": \"a\", \"cuda\": \"b\"}\n")
            .unwrap();
        let notes = Notes::of_run(folder.path());
        assert_eq!(notes.notes.len(), 3);
        assert_eq!(notes.steps().map(|mark| (mark.step, mark.allocations)).collect::<Vec<_>>(), [(1, 9)]);
        assert_eq!(notes.marks().next().unwrap().tensors[0].1, "a.b");
    }

    #[test]
    fn what_pytorch_counted_stands_in_for_a_history_that_was_cut() {
        let history = |cut: bool| Note::History {
            why: "end".into(),
            stats: serde_json::json!({"allocated_bytes": {"all": {"peak": 5}}, "reserved_bytes": {"all": {"peak": 9}}}),
            card_peak: 9,
            guessed: Vec::new(),
            cut,
        };
        let counted = |cut| Notes { notes: vec![history(cut)], history: None }.counted();
        assert_eq!((counted(true), counted(false)), (Some((5, 9)), None));
    }

    #[test]
    fn a_program_gave_up_where_no_step_follows_the_last_error_of_memory() {
        let gave_up = |notes: &[Note]| Notes { notes: notes.to_vec(), history: None }.gave_up();
        let (step, oom) = (Note::Step(Mark::default()), Note::Oom(Mark::default()));
        assert!(!gave_up(&[]) && !gave_up(std::slice::from_ref(&step)));
        assert!(gave_up(&[step.clone(), oom.clone(), Note::End(Mark::default())]));
        assert!(!gave_up(&[oom.clone(), oom.clone(), step]) && !gave_up(&[oom, Note::WentOn]));
    }
}
