//! `[memory]`: what the planner may choose, and what the user pins.

use std::ops::RangeInclusive;

use serde::{Serialize, Serializer};

use crate::families::AttentionForm;
use crate::reading::about::{About, about};
use crate::reading::error::Problem;
use crate::reading::kind::KeyKind;
use crate::reading::section::Section;
use crate::reading::tree::{Node, Value};
use plimsoll_base::named;
use plimsoll_base::names::Named;
use plimsoll_base::units::{ADDRESSABLE_BYTES, Size, parse_size};

/// `[memory]`: what the planner may choose, and what is pinned.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// What a run may take of its device.
    pub budget: Budget,
    /// Samples in memory at a time; gradients are accumulated over the effective batch.
    pub micro_batch: Choice<usize>,
    /// What is computed and stored in.
    pub precision: Choice<Precision>,
    /// What is computed again instead of kept: activation checkpointing.
    pub recompute: Choice<RecomputeLevel>,
    /// Whether the scores exist as a value, or never (flash attention).
    pub attention: Choice<AttentionForm>,
    /// Blocks or heads computed at a time.
    pub block_group: Choice<usize>,
    /// Tokens whose logits exist at a time.
    pub loss_chunk: Choice<usize>,
    /// What moments are stored in.
    pub optimizer_state: Choice<OptimizerState>,
    /// What waits in host memory.
    pub offload: Choice<OffloadLevel>,
    /// `false` gives every buffer a place of its own, to compare with.
    pub sharing: bool,
    /// Off: kernels are launched one by one instead of as captured graphs.
    #[serde(skip_serializing_if = "Choice::is_auto")]
    pub cuda_graphs: Choice<CudaGraphs>,
}

/// Left to the planner, or decided by the recipe and then respected or refused, never changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Choice<T> {
    /// Left to the planner.
    #[default]
    Auto,
    /// Decided by the recipe.
    Pinned(T),
}

impl<T> Choice<T> {
    fn is_auto(&self) -> bool {
        matches!(self, Self::Auto)
    }

    /// What the recipe decided, if it did.
    pub fn pinned(self) -> Option<T> {
        match self {
            Self::Auto => None,
            Self::Pinned(value) => Some(value),
        }
    }

    fn read(section: &Section<'_>, key: &'static str, read: impl FnOnce(&Node) -> Option<T>) -> Self {
        match section.get(key) {
            None => Self::Auto,
            Some(node) if is_auto(node) => Self::Auto,
            Some(node) => read(node).map_or(Self::Auto, Self::Pinned),
        }
    }
}

impl Choice<usize> {
    pub(super) fn size(section: &Section<'_>, key: &'static str, range: RangeInclusive<usize>) -> Self {
        section.declare(key, || KeyKind::any([KeyKind::words(["auto"]), KeyKind::integer(&range)]));
        Self::read(section, key, |node| section.size_of(key, node, range, "\"auto\" or "))
    }
}

impl<T: Named> Choice<T> {
    fn named(section: &Section<'_>, key: &'static str) -> Self {
        section.declare(key, || KeyKind::Words(["auto"].into_iter().chain(T::names()).collect()));
        Self::read(section, key, |node| section.choice_of(key, node, &["auto"]))
    }
}

fn is_auto(node: &Node) -> bool {
    matches!(&node.value, Value::Text(text) if text == "auto")
}

impl<T: Serialize> Serialize for Choice<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Pinned(value) => value.serialize(serializer),
        }
    }
}

const BYTES: RangeInclusive<usize> = 1..=ADDRESSABLE_BYTES as usize;

/// What a run may take of its device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// 95 % of what is free.
    Auto,
    /// So many bytes.
    Bytes(u64),
    /// Of what is free.
    Percent(f64),
}

impl Serialize for Budget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Bytes(bytes) => serializer.serialize_u64(*bytes),
            Self::Percent(percent) => serializer.collect_str(&format_args!("{percent}%")),
        }
    }
}

named! {
    /// What a step computes and stores in.
    pub enum Precision {
        /// f32 throughout.
        F32 = "f32",
        /// f32, products rounded to tf32.
        Tf32 = "tf32",
        /// Activations in bf16, weights in f32.
        Bf16Mixed = "bf16-mixed",
        /// Activations in f16, weights in f32, the loss scaled.
        Fp16Mixed = "fp16-mixed",
        /// All in bf16; what is stored is rounded stochastically.
        Bf16 = "bf16",
    }
}

named! {
    /// What is computed again in the backward pass instead of kept.
    pub enum RecomputeLevel {
        /// Nothing.
        None = "none",
        /// Norms, activations, softmax.
        Cheap = "cheap",
        /// Some layers.
        Some = "some",
        /// All layers.
        Layers = "layers",
    }
}

named! {
    /// What moments are stored in.
    pub enum OptimizerState {
        /// Four bytes a number: nothing is lost.
        F32 = "f32",
        /// Two, rounded stochastically.
        Bf16 = "bf16",
        /// One: planned for, not run.
        EightBit = "8bit",
    }
}

named! {
    /// What can be said of captured graphs beside `auto`.
    pub enum CudaGraphs {
        /// Kernels are launched one by one.
        Off = "off",
    }
}

named! {
    /// What waits in host memory.
    pub enum OffloadLevel {
        /// Nothing.
        None = "none",
        /// Moments.
        Optimizer = "optimizer",
        /// What the backward pass reads.
        Activations = "activations",
    }
}

/// What each key means.
pub(super) const ABOUT: &[About] = &[
    about(
        "memory.budget",
        "The most that everything on the device may take: a size, a share of what is free, or a number of bytes; `auto` is 95 % of what is free (on a CPU, where nothing fits that, all of it).",
    ),
    about("memory.micro_batch", "Samples computed at a time; the effective batch is reached by gradient accumulation."),
    about(
        "memory.precision",
        "Number formats of the computation; `auto` depends on the device alone (bf16-mixed from sm_80, fp16-mixed on sm_70 and sm_75, f32 on CPU), never on the budget.",
    ),
    about(
        "memory.recompute",
        "What is computed again in the backward pass instead of kept (activation checkpointing): nothing, cheap operations, some layers or all layers.",
    ),
    about(
        "memory.attention",
        "Whether attention scores are stored (`materialized`) or never exist as a whole (`fused`, flash attention).",
    ),
    about("memory.block_group", "Blocks (mu-sota) or heads computed at a time, at most as many as the model has."),
    about("memory.loss_chunk", "Tokens whose logits exist at a time; not for task series."),
    about(
        "memory.optimizer_state",
        "Number format of the moments; `auto` is f32, for anything less exact changes what is learned.",
    ),
    about("memory.offload", "What waits in host memory while it is not needed."),
    about("memory.sharing", "`false` gives every buffer a place of its own, to compare with."),
    about("memory.cuda_graphs", "Off: every kernel is launched on its own instead of as part of a CUDA graph.")
        .unset("\"auto\""),
];

impl Memory {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let count = 1..=1 << 24;
        let memory = Self {
            budget: Budget::read(section),
            micro_batch: Choice::size(section, "micro_batch", count.clone()),
            precision: Choice::named(section, "precision"),
            recompute: Choice::named(section, "recompute"),
            attention: Choice::named(section, "attention"),
            block_group: Choice::size(section, "block_group", count.clone()),
            loss_chunk: Choice::size(section, "loss_chunk", count),
            optimizer_state: Choice::named(section, "optimizer_state"),
            offload: Choice::named(section, "offload"),
            sharing: section.flag("sharing").unwrap_or(true),
            cuda_graphs: Choice::named(section, "cuda_graphs"),
        };
        section.finish();
        memory
    }
}

impl Budget {
    fn read(section: &Section<'_>) -> Self {
        let key = "budget";
        section.declare(key, || KeyKind::any([KeyKind::words(["auto"]), KeyKind::Size, KeyKind::integer(&BYTES)]));
        let Some(node) = section.get(key) else { return Self::Auto };
        match &node.value {
            _ if is_auto(node) => Self::Auto,
            Value::Text(text) => match parse_size(text) {
                Ok(Size::Bytes(bytes)) => Self::Bytes(bytes),
                Ok(Size::Percent(percent)) => Self::Percent(percent),
                Err(error) => {
                    section.report(Problem::new(section.path(key), error.to_string(), node.place));
                    Self::Auto
                }
            },
            _ => {
                let words = "\"auto\", a size such as \"12GiB\", a percentage such as \"90%\" or ";
                let bytes = section.size_of(key, node, BYTES, words);
                bytes.map_or(Self::Auto, |n| Self::Bytes(n as u64))
            }
        }
    }
}
