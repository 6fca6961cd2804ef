//! From what a message and its log say to why it happened, and what to do about it, in order.

#![deny(missing_docs)]

use super::log::{Log, Stage};
use super::oom::{CONTEXT_BYTES, Form, Oom};
use plimsoll_base::units::format_bytes;
use serde::Serialize;

/// Why memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// The step needs more than the card has.
    TooBig,
    /// Enough is free, but not in one piece.
    Fragmentation,
    /// Somebody else holds what is missing.
    AnotherProcess,
    /// A batch longer than those before it.
    LongestBatch,
    /// It ran out while it was evaluated, not trained.
    Validation,
    /// Something is kept from step to step.
    Leak,
    /// The process was allowed less than the card has.
    Limit,
    /// No tensor can be meant to be that large.
    WrongShape,
    /// The machine's memory, not the card's.
    HostMemory,
    /// /dev/shm, through which the loader's workers hand over batches.
    SharedMemory,
}

/// How much speaks for a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Likely {
    /// The numbers say so.
    Certain,
    /// It looks like it.
    Likely,
    /// Nothing speaks against it.
    Possible,
}

/// One reason, what speaks for it, and what to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cause {
    /// Which.
    pub kind: CauseKind,
    /// How much speaks for it.
    pub likely: Likely,
    /// What speaks for it, in words.
    pub why: String,
    /// What to do, the best first.
    pub actions: Vec<&'static str>,
}

/// Every reason that the text speaks for, the likeliest first. Never empty.
pub(super) fn causes(oom: &Oom, log: &Log) -> Vec<Cause> {
    let mut causes: Vec<Cause> = REASONS.iter().filter_map(|reason| reason(oom, log)).collect();
    // Stable: among equals the order of the reasons stands.
    causes.sort_by_key(|cause| cause.likely as u8);
    let explained = causes.iter().any(|cause| cause.likely != Likely::Possible);
    // Where tensors take less than half of the card and something else explains it, size is not the matter.
    let half = oom.allocated_bytes.zip(oom.total_bytes).is_some_and(|(allocated, total)| allocated < total / 2);
    let other = explained && half || causes.iter().any(|cause| cause.kind == CauseKind::WrongShape);
    if oom.is_on_card() && !other {
        let likely = if explained { Likely::Possible } else { Likely::Likely };
        let at = if explained { causes.len() } else { 0 };
        causes
            .insert(at, Cause { kind: CauseKind::TooBig, likely, why: too_big_words(oom, log), actions: smaller(oom) });
    }
    causes
}

type Reason = fn(&Oom, &Log) -> Option<Cause>;

const REASONS: [Reason; 9] =
    [host_memory, shared_memory, wrong_shape, limit, another_process, leak, fragmentation, validation, longest_batch];

fn host_memory(oom: &Oom, _: &Log) -> Option<Cause> {
    let why = "the machine's own memory ran out: this is not about the card, and nothing that saves GPU memory helps";
    (oom.form == Form::Host).then(|| Cause {
        kind: CauseKind::HostMemory,
        likely: Likely::Certain,
        why: why.into(),
        actions: vec![
            "fewer loader workers and batches ahead: dataloader_num_workers=2, dataloader_prefetch_factor=2",
            "read the data lazily (memory-mapped or streamed) instead of as lists of Python objects, which every worker copies",
            "load checkpoints with low_cpu_mem_usage=True and in the type you train in: one copy, not two",
            "raise the container's limit; `docker inspect` and the kernel's log (`dmesg`) say who was ended",
        ],
    })
}

fn shared_memory(oom: &Oom, _: &Log) -> Option<Cause> {
    (oom.form == Form::SharedMemory).then(|| Cause {
        kind: CauseKind::SharedMemory,
        likely: Likely::Certain,
        why: "/dev/shm is full: the loader's workers hand batches over through it, and containers have 64 MiB of it"
            .into(),
        actions: vec![
            "start the container with --shm-size=8g (or --ipc=host)",
            "or dataloader_num_workers=0, slower but without shared memory",
        ],
    })
}

fn wrong_shape(oom: &Oom, _: &Log) -> Option<Cause> {
    let (asked, total) = (oom.asked?.bytes, oom.total_bytes?);
    (asked > total).then(|| Cause {
        kind: CauseKind::WrongShape,
        likely: Likely::Certain,
        why: format!(
            "one tensor of {} was asked for, on a card of {}: no other setting can make room for it",
            format_bytes(asked),
            format_bytes(total)
        ),
        actions: vec![
            "look at the line that failed: a broadcast of (N,) against (N, 1), a missing dimension or a length in characters instead of tokens makes such shapes",
            "if it is an N × N matrix of attention scores, use attn_implementation=\"sdpa\": it never exists then",
            "if it is meant, compute it in pieces",
        ],
    })
}

fn limit(oom: &Oom, _: &Log) -> Option<Cause> {
    let (allowed, asked, free) = (oom.allowed_bytes?, oom.asked?.bytes, oom.free_bytes?);
    (free > asked).then(|| Cause {
        kind: CauseKind::Limit,
        likely: Likely::Certain,
        why: format!(
            "the card had {} free: the process may use {} only (set_per_process_memory_fraction)",
            format_bytes(free),
            format_bytes(allowed)
        ),
        actions: vec!["raise or remove torch.cuda.set_per_process_memory_fraction(…)"],
    })
}

fn another_process(oom: &Oom, _: &Log) -> Option<Cause> {
    let (foreign, total) = (oom.foreign_bytes()?, oom.total_bytes?);
    // Below a twentieth of the card it is the desktop, a driver, or rounding.
    if foreign < total / 20 {
        return None;
    }
    let would_do = oom.asked.is_some_and(|asked| foreign >= asked.bytes);
    let half = foreign >= total / 2;
    let who = match oom.others.iter().max_by_key(|p| p.bytes) {
        Some(most) => format!(
            "other processes hold {} (most: pid {} with {})",
            format_bytes(foreign),
            most.pid,
            format_bytes(most.bytes)
        ),
        None => format!("{} is held by something other than this process's tensors", format_bytes(foreign)),
    };
    Some(Cause {
        kind: CauseKind::AnotherProcess,
        likely: if half || (would_do && !oom.others.is_empty()) { Likely::Likely } else { Likely::Possible },
        why: format!("{who}, of {}", format_bytes(total)),
        actions: vec![
            "nvidia-smi lists them (inside a container also ask on the host); end those that are yours: an earlier run, a notebook kernel, a parallel trial",
            "several processes on purpose: give each its share, and plan each for that share (--memory)",
            "leave the desktop and the browser to another card or to the CPU graphics",
        ],
    })
}

fn leak(_: &Oom, log: &Log) -> Option<Cause> {
    let (first, last) = (*log.memory_bytes.first()?, *log.memory_bytes.last()?);
    log.grows().then(|| Cause {
        kind: CauseKind::Leak,
        likely: Likely::Likely,
        why: format!(
            "memory rose from {} to {} over the log and did not come back: something of every step is kept",
            format_bytes(first),
            format_bytes(last)
        ),
        actions: vec![
            "keep numbers, not tensors: total += loss.item(), not total += loss (which keeps the graph of every step)",
            "detach and move what you gather: outputs.append(logits.detach().cpu())",
            "no lists of batches, hidden states or attention maps that outlive their step",
            "torch.cuda.memory._record_memory_history() and _dump_snapshot() show which line allocated what stays",
        ],
    })
}

fn fragmentation(oom: &Oom, _: &Log) -> Option<Cause> {
    let (unallocated, asked) = (oom.unallocated_bytes?, oom.asked?.bytes);
    let spread = oom.reserved_bytes().is_some_and(|reserved| unallocated > reserved / 10);
    if unallocated < asked && !spread {
        return None;
    }
    let enough = unallocated >= asked;
    let held = format!("PyTorch held {} that no tensor used", format_bytes(unallocated));
    let why = match enough {
        true => format!("{held}, more than the {} asked for, but not in one piece", format_bytes(asked)),
        false => format!("{held}: not enough for the {} asked for, but a good part of it", format_bytes(asked)),
    };
    Some(Cause {
        kind: CauseKind::Fragmentation,
        likely: if enough { Likely::Likely } else { Likely::Possible },
        why,
        actions: vec![
            "PYTORCH_ALLOC_CONF=expandable_segments:True in the environment, before Python starts (PYTORCH_CUDA_ALLOC_CONF before version 2.9)",
            "batches of few different lengths: pad to a multiple of 64, or group by length",
            "where expandable segments are missing (Windows, before 2.1): max_split_size_mb:128 instead",
        ],
    })
}

fn validation(_: &Oom, log: &Log) -> Option<Cause> {
    (log.place == Some(Stage::Evaluation)).then(|| Cause {
        kind: CauseKind::Validation,
        likely: Likely::Likely,
        why: "it died during evaluation, beside everything that training keeps".into(),
        actions: vec![
            "with torch.no_grad() (or inference_mode) and model.eval(): otherwise evaluation keeps activations as training does",
            "per_device_eval_batch_size no larger than the training batch; the result does not depend on it",
            "eval_accumulation_steps=1 moves predictions to host memory; preprocess_logits_for_metrics keeps labels instead of logits",
        ],
    })
}

fn longest_batch(oom: &Oom, log: &Log) -> Option<Cause> {
    let late = log.is_late() && log.place != Some(Stage::Evaluation) && oom.is_on_card() && !log.grows();
    let Log { progress, .. } = log;
    let when = match (progress.epoch, progress.step) {
        (Some(epoch), Some(step)) => format!("epoch {epoch}, step {step}"),
        (Some(epoch), None) => format!("epoch {epoch}"),
        (None, step) => format!("step {}", step.unwrap_or(0)),
    };
    late.then(|| Cause {
        kind: CauseKind::LongestBatch,
        likely: Likely::Likely,
        why: format!("it ran until {when}: batches before it fitted, this one was longer, or something was left over"),
        actions: vec![
            "try the longest batch first: sort by length once, or one step with every sample at max_length; what survives that survives the epoch",
            "truncate at the length you mean (max_length), and group by length so that long texts meet long ones",
            "if every batch has the same shape, look for what evaluation or a checkpoint left behind between epochs",
        ],
    })
}

/// The ways to need less, from the cheapest to the dearest. None of them but the last changes what is learned.
const SMALLER: [&str; 6] = [
    "mixed precision (bf16=True from Ampere on, fp16=True before): activations halve",
    "attn_implementation=\"sdpa\": attention scores are never stored",
    "a smaller per_device_train_batch_size with gradient_accumulation_steps raised by the same factor: the effective batch stays (not for contrastive losses and batch norm)",
    "gradient_checkpointing=True: only the layers' inputs are kept; 1.6 to 1.9 times as long, measured",
    "an optimizer with less state: adamw_bnb_8bit (2 bytes per weight instead of 8) or adafactor; it learns differently",
    "a shorter length or a smaller model, last: both change what is learned",
];

/// The same in the words of JAX and TensorFlow, which know no Trainer.
const SMALLER_XLA: [&str; 5] = [
    "mixed precision: keras.mixed_precision.set_global_policy(\"mixed_bfloat16\"), or bfloat16 activations in JAX",
    "jax.checkpoint (remat) around each layer, tf.recompute_grad in TensorFlow: only the layers' inputs are kept",
    "gradients accumulated over smaller batches (optax.MultiSteps), so that the effective batch stays",
    "XLA takes three quarters of the card at once: XLA_PYTHON_CLIENT_PREALLOCATE=false, or tf.config.experimental.set_memory_growth, where something else needs the rest",
    "a shorter length or a smaller model, last: both change what is learned",
];

fn smaller(oom: &Oom) -> Vec<&'static str> {
    if oom.form == Form::Xla { SMALLER_XLA.to_vec() } else { SMALLER.to_vec() }
}

fn too_big_words(oom: &Oom, log: &Log) -> String {
    let mut words = match (oom.allocated_bytes, oom.total_bytes) {
        (Some(allocated), Some(total)) => {
            format!(
                "live tensors took {} of {}: the step itself is that large",
                format_bytes(allocated),
                format_bytes(total)
            )
        }
        (None, Some(total)) => match oom.free_bytes {
            Some(free) => format!("{} of {} was in use", format_bytes(total.saturating_sub(free)), format_bytes(total)),
            None => format!("the card has {}", format_bytes(total)),
        },
        _ => "the step needs more than the card has".into(),
    };
    if let Some(place) = log.place {
        words += &format!("; it died {}", place.words());
    }
    if oom.form == Form::Library {
        words += &format!(
            "; the library could not even take its workspace (context and workspaces take {})",
            format_bytes(CONTEXT_BYTES)
        );
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(CauseKind, Likely)> {
        let oom = Oom::find(text).expect("a message");
        causes(&oom, &Log::read(text)).iter().map(|c| (c.kind, c.likely)).collect()
    }

    const CROWDED: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 42.00 MiB. GPU 0 has a total capacity of 47.27 GiB of which 9.38 MiB is free. Process 3053273 has 29.04 GiB memory in use. Process 3120922 has 14.74 GiB memory in use. Including non-PyTorch memory, this process has 3.14 GiB memory in use. Of the allocated memory 2.92 GiB is allocated by PyTorch, and 34.62 MiB is reserved by PyTorch but unallocated.";

    #[test]
    fn the_numbers_decide() {
        assert_eq!(kinds(CROWDED), [(CauseKind::AnotherProcess, Likely::Likely)]);
        let pieces = "CUDA out of memory. Tried to allocate 1.65 GiB (GPU 1; 7.79 GiB total capacity; 3.53 GiB already allocated; 0.40 GiB free; 5.28 GiB reserved in total by PyTorch)";
        assert_eq!(kinds(pieces)[0].0, CauseKind::Fragmentation);
        let full = "CUDA out of memory. Tried to allocate 128.00 MiB. GPU 0 has a total capacity of 14.56 GiB of which 111.81 MiB is free. Including non-PyTorch memory, this process has 14.45 GiB memory in use. Of the allocated memory 14.25 GiB is allocated by PyTorch, and 60.81 MiB is reserved by PyTorch but unallocated.";
        assert_eq!(kinds(full), [(CauseKind::TooBig, Likely::Likely)]);
        let absurd = full.replace("128.00 MiB", "900.00 GiB");
        assert_eq!(kinds(&absurd), [(CauseKind::WrongShape, Likely::Certain)]);
        let limited = "CUDA out of memory. Tried to allocate 96.00 MiB (GPU 0; 15.78 GiB total capacity; 3.90 GiB already allocated; 11.20 GiB free; 4.00 GiB allowed; 3.95 GiB reserved in total by PyTorch)";
        assert_eq!(kinds(limited)[0].0, CauseKind::Limit);
        assert_eq!(
            kinds("DataLoader worker (pid 12) is killed by signal: Killed."),
            [(CauseKind::HostMemory, Likely::Certain)]
        );
        assert_eq!(kinds("workers are out of shared memory"), [(CauseKind::SharedMemory, Likely::Certain)]);
    }

    #[test]
    fn the_log_decides_where_numbers_are_silent() {
        let message = "CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacity of 14.74 GiB of which 4.19 MiB is free";
        assert_eq!(kinds(message), [(CauseKind::TooBig, Likely::Likely)]);
        assert_eq!(kinds(&format!("99%|## | 900/910 [1:00<2:00]\n{message}"))[0].0, CauseKind::LongestBatch);
        assert_eq!(kinds(&format!("step 3, during validation\n{message}"))[0].0, CauseKind::Validation);
        let rising: String = [4.0, 4.8, 5.5, 6.1].iter().map(|s| format!("step 50 mem {s} GiB\n")).collect();
        assert_eq!(kinds(&format!("{rising}{message}"))[0].0, CauseKind::Leak);
        assert_eq!(kinds("Out of memory in the backward pass of epoch 2 of 20")[0].0, CauseKind::LongestBatch);
    }

    #[test]
    fn jax_and_tensorflow_get_no_settings_of_the_trainer() {
        let text = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.";
        let actions = causes(&Oom::find(text).unwrap(), &Log::read(text)).remove(0).actions.join(" ");
        assert!(actions.contains("jax.checkpoint") && !actions.contains("gradient_checkpointing"), "{actions}");
    }

    #[test]
    fn every_cause_says_why_and_what_to_do() {
        let texts = [CROWDED, "out of memory", "exit code 137", "CUDNN_STATUS_ALLOC_FAILED"];
        for cause in texts.iter().flat_map(|text| causes(&Oom::find(text).unwrap(), &Log::read(text))) {
            assert!(!cause.why.is_empty() && !cause.actions.is_empty(), "{cause:?}");
        }
    }
}
