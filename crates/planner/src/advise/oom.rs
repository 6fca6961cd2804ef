//! What an out-of-memory message says, whoever printed it.

#![deny(missing_docs)]

use super::scan::{Amount, flowing};
use serde::Serialize;

/// Who ran out of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// PyTorch's allocator, with its numbers.
    Allocator,
    /// The driver, with no numbers.
    Driver,
    /// cuBLAS or cuDNN could not take its own workspace.
    Library,
    /// NCCL could not take its buffers.
    Communication,
    /// Apple's unified memory.
    Mps,
    /// JAX or TensorFlow.
    Xla,
    /// The memory of the machine, not of the card.
    Host,
    /// /dev/shm, through which the loader's workers hand over batches.
    SharedMemory,
    /// Somebody's words.
    Prose,
}

/// Another process on the card.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Process {
    /// Its number.
    pub pid: u64,
    /// What it holds.
    pub bytes: u64,
}

/// The numbers of a message; what it does not say is absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Oom {
    /// Whose words it is in.
    pub form: Form,
    /// Which card, as CUDA numbers them.
    pub gpu: Option<u64>,
    /// Which rank of several.
    pub rank: Option<u64>,
    /// The request that failed.
    pub asked: Option<Amount>,
    /// What the card has.
    pub total_bytes: Option<u64>,
    /// What nobody held.
    pub free_bytes: Option<u64>,
    /// In tensors that are alive.
    pub allocated_bytes: Option<u64>,
    /// Taken from the driver by PyTorch and not in a tensor.
    pub unallocated_bytes: Option<u64>,
    /// Of this process, its context and libraries included.
    pub process_bytes: Option<u64>,
    /// In private pools of captured graphs.
    pub private_bytes: Option<u64>,
    /// What the process was allowed (a memory fraction).
    pub allowed_bytes: Option<u64>,
    /// Who else holds memory of the card.
    pub others: Vec<Process>,
    /// How many such messages the text holds; the last is the one described.
    pub messages: usize,
}

/// Words that give a form away, the most telling first.
const SIGNS: [(&str, Form); 25] = [
    ("mps backend out of memory", Form::Mps),
    ("tried to allocate", Form::Allocator),
    ("resource_exhausted: out of memory", Form::Xla),
    ("resourceexhaustederror", Form::Xla),
    ("oom when allocating tensor", Form::Xla),
    ("cublas_status_alloc_failed", Form::Library),
    ("cudnn_status_alloc_failed", Form::Library),
    ("cusolver_status_alloc_failed", Form::Library),
    ("cuda failure 2 'out of memory'", Form::Communication),
    ("cuda failure 'out of memory'", Form::Communication),
    ("out of shared memory", Form::SharedMemory),
    ("no space left on device: '/dev/shm", Form::SharedMemory),
    ("out of memory: killed process", Form::Host),
    ("oom-kill", Form::Host),
    ("killed by signal: killed", Form::Host),
    ("exit code 137", Form::Host),
    ("exitcode: -9", Form::Host),
    ("exitcode : -9", Form::Host),
    ("signal 9 (sigkill)", Form::Host),
    ("arraymemoryerror", Form::Host),
    ("memoryerror", Form::Host),
    ("cuda error: out of memory", Form::Driver),
    ("cuda_error_out_of_memory", Form::Driver),
    ("hip error: out of memory", Form::Driver),
    ("out of memory", Form::Prose),
];

/// Sentences of the host's own allocators; the first two contain the words of PyTorch's.
const HOST_SIGNS: [&str; 3] = ["defaultcpuallocator", "you tried to allocate", "cannot allocate memory"];

/// No message is longer; what stands further on belongs to something else.
const LONGEST_MESSAGE: usize = 1600;

impl Oom {
    /// The last out-of-memory message of a text, if there is one.
    pub fn find(text: &str) -> Option<Oom> {
        let (rank, was_killed) = (rank(text), ends_killed(text));
        let text = flowing(text);
        // Byte for byte as long as the text, so that places in one are places in the other.
        let lower = text.to_ascii_lowercase();
        let Some((form, sign)) = form_of(&lower) else {
            return was_killed.then(|| Oom { rank, ..Oom::empty(Form::Host) });
        };
        let start = lower.rfind(sign)?;
        let messages = lower.matches(sign).count();
        let message = piece(&text, start, LONGEST_MESSAGE);
        let mut oom = Oom { messages, rank, ..Oom::empty(form) };
        oom.read(message);
        Some(oom)
    }

    fn empty(form: Form) -> Oom {
        Oom {
            form,
            gpu: None,
            rank: None,
            asked: None,
            total_bytes: None,
            free_bytes: None,
            allocated_bytes: None,
            unallocated_bytes: None,
            process_bytes: None,
            private_bytes: None,
            allowed_bytes: None,
            others: Vec::new(),
            messages: 1,
        }
    }

    fn read(&mut self, text: &str) {
        let before = |phrases: &[&str]| phrases.iter().find_map(|p| Amount::before(text, p)).map(|a| a.bytes);
        let after = |phrases: &[&str]| phrases.iter().find_map(|p| Amount::after(text, p));
        self.gpu = number_after(text, "GPU ");
        self.asked = after(&[
            "Tried to allocate",
            "tried to allocate",
            "trying to allocate",
            "Out of memory allocating",
            "Unable to allocate",
        ]);
        self.asked = self.asked.or_else(|| tensor_with_shape(text));
        // Version 2.1 misspelt "capacity".
        let total = after(&["total capacity of", "total capacty of"]).map(|a| a.bytes);
        self.total_bytes = total.or_else(|| before(&["total capacity", "total,"]));
        self.free_bytes = before(&["is free", "free"]);
        self.allocated_bytes = before(&["already allocated", "is allocated by PyTorch", "is allocated"])
            .or_else(|| after(&["MPS allocated"]).map(|a| a.bytes));
        self.private_bytes = before(&["allocated in private pools"]);
        self.allowed_bytes = before(&["allowed"]).or_else(|| after(&["max allowed"]).map(|a| a.bytes));
        // "Cached" was what no tensor held (1.0 to 1.3); "reserved in total" has the tensors in it.
        let reserved = before(&["reserved in total by PyTorch"]);
        self.unallocated_bytes =
            before(&["is reserved by PyTorch but unallocated", "is reserved but unallocated", "cached"])
                .or_else(|| Some(reserved?.saturating_sub(self.allocated_bytes?)));
        // Newer messages speak of "this process"; people and wrappers shorten it.
        self.process_bytes = after(&[
            "this process has",
            "Process has",
            "process has",
            "Process using",
            "process using",
            "Process is using",
            "process is using",
        ])
        .map(|a| a.bytes);
        self.others = processes(text);
        self.find_myself();
    }

    /// In a container a process does not know its own number and is listed like a stranger.
    fn find_myself(&mut self) {
        let (None, Some(allocated)) = (self.process_bytes, self.allocated_bytes) else { return };
        let held = allocated.saturating_add(self.unallocated_bytes.unwrap_or(0));
        // Printed with two decimals: a hundredth of a GiB may be lost.
        let mine = self.others.iter().position(|p| p.bytes.saturating_add(1 << 24) >= held && held > p.bytes / 2);
        self.process_bytes = mine.map(|at| self.others.remove(at).bytes);
    }

    /// PyTorch's share: tensors and what it keeps for later ones.
    pub(crate) fn reserved_bytes(&self) -> Option<u64> {
        Some(self.allocated_bytes?.saturating_add(self.unallocated_bytes.unwrap_or(0)))
    }

    /// What neither this process nor the free list accounts for. Without the process's own total, PyTorch's share
    /// stands in for it, and the process's context counts as foreign.
    pub(crate) fn foreign_bytes(&self) -> Option<u64> {
        if !self.others.is_empty() {
            return Some(self.others.iter().fold(0, |sum, p| p.bytes.saturating_add(sum)));
        }
        let mine = self.process_bytes.or_else(|| Some(self.reserved_bytes()?.saturating_add(CONTEXT_BYTES)))?;
        Some(self.total_bytes?.saturating_sub(self.free_bytes?).saturating_sub(mine))
    }

    /// More is in use than there is: the driver spills into the machine's memory, as it does on Windows.
    pub fn spills(&self) -> bool {
        let (Some(total), Some(reserved)) = (self.total_bytes, self.reserved_bytes()) else { return false };
        reserved > total.saturating_add(total / 100)
    }

    /// Whether it is a card's memory, not the machine's.
    pub fn is_on_card(&self) -> bool {
        !matches!(self.form, Form::Host | Form::SharedMemory)
    }
}

/// Context and libraries of one process on a card, as measured (526 MiB and 68 MiB of cuBLAS), rounded up.
pub(super) const CONTEXT_BYTES: u64 = 640 << 20;

fn form_of(lower: &str) -> Option<(Form, &'static str)> {
    if let Some(sign) = HOST_SIGNS.iter().find(|sign| lower.contains(**sign)) {
        let on_card = lower.contains("cuda out of memory") || lower.contains("hip out of memory");
        if !on_card {
            return Some((Form::Host, sign));
        }
    }
    SIGNS.iter().find(|(sign, _)| lower.contains(sign)).map(|&(sign, form)| (form, sign))
}

/// Lines at the end of a log in which a shell says that the kernel ended the program.
const LAST_LINES: usize = 5;

/// `Killed`, or as bash says it in a script: `train.sh: line 3:  4242 Killed                  python train.py`.
fn ends_killed(text: &str) -> bool {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    let by_shell = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.windows(2).any(|pair| is_number(pair[0]) && pair[1] == "Killed")
    };
    lines.rev().take(LAST_LINES).any(|line| line == "Killed" || line.ends_with(": Killed") || by_shell(line))
}

/// At most `bytes` of a text from a place on, whole characters only.
fn piece(text: &str, start: usize, bytes: usize) -> &str {
    let rest = &text[start..];
    let end = (0..=bytes.min(rest.len())).rev().find(|&i| rest.is_char_boundary(i)).unwrap_or(0);
    &rest[..end]
}

fn number_after(text: &str, phrase: &str) -> Option<u64> {
    text.match_indices(phrase).find_map(|(at, _)| leading_number(&text[at + phrase.len()..]))
}

fn leading_number(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..digits].parse().ok()
}

/// `[rank3]:`, as torchrun marks lines; the last one.
fn rank(text: &str) -> Option<u64> {
    text.rmatch_indices("[rank").find_map(|(at, sign)| leading_number(&text[at + sign.len()..]))
}

/// `Process 47694 has 44.17 GiB memory in use.`
fn processes(text: &str) -> Vec<Process> {
    let read = |(at, sign): (usize, &str)| {
        let rest = &text[at + sign.len()..];
        let pid = leading_number(rest)?;
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(" has ")?;
        Amount::at_start(rest).map(|(amount, _)| Process { pid, bytes: amount.bytes })
    };
    text.match_indices("Process ").filter_map(read).collect()
}

/// TensorFlow names the tensor: `OOM when allocating tensor with shape[256,512,28,28] and type float`.
fn tensor_with_shape(text: &str) -> Option<Amount> {
    let rest = &text[text.find("with shape[")? + "with shape[".len()..];
    let (shape, rest) = rest.split_once(']')?;
    let elements = shape.split(',').try_fold(1u64, |n, d| n.checked_mul(d.trim().parse().ok()?))?;
    let word = rest.split_whitespace().skip_while(|word| *word != "type").nth(1)?;
    let width = match word.trim_end_matches([',', '.']) {
        "double" | "int64" => 8,
        "half" | "bfloat16" => 2,
        "bool" | "int8" | "uint8" => 1,
        _ => 4,
    };
    Some(Amount { bytes: elements.checked_mul(width)?, grain_bytes: 1 })
}

#[cfg(test)]
mod tests;
