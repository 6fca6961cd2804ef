//! `train.optimizer` and `train.schedule`.

use std::ops::RangeInclusive;

use serde::{Serialize, Serializer};

use crate::reading::about::{About, about};
use crate::reading::kind::KeyKind;
use crate::reading::section::{Range, Section};
use crate::reading::tree::Value;
use plimsoll_base::named;
use plimsoll_base::names::Named;

/// The optimizer: its rule, and what all rules have.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Optimizer {
    /// What becomes of a gradient.
    #[serde(flatten)]
    pub rule: Rule,
    /// The learning rate at the top of the schedule.
    pub lr: f64,
    /// What a weight loses in an update, as a part of itself times the learning rate.
    pub weight_decay: f64,
    /// Decay biases and norms too; by default they do not decay.
    pub decay_all: bool,
}

/// The update rule, with the numbers only it has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "name", rename_all = "lowercase")]
pub enum Rule {
    /// Moments of first and second order, decay apart from them.
    AdamW {
        /// How much of the first and second moment each step keeps.
        betas: [f64; 2],
        /// Added to the root of the second moment.
        eps: f64,
    },
    /// Along the gradient, with momentum or without.
    Sgd {
        /// How much of the last update each step keeps.
        momentum: f64,
    },
    /// Second moments of matrices as rows and columns.
    Adafactor,
}

named! {
    enum RuleName { AdamW = "adamw", Sgd = "sgd", Adafactor = "adafactor" }
}

const EPS: Range = Range::above(0.0, 1.0);
const MOMENTUM: Range = Range::closed(0.0, 0.999_999_9);
const FRACTION: Range = Range::closed(0.0, 1.0);
const WARMUP_STEPS: RangeInclusive<usize> = 0..=1_000_000_000;

/// What each key means.
pub(super) const ABOUT: &[About] = &[
    about("train.optimizer.name", "The update rule."),
    about("train.optimizer.lr", "The learning rate after the warm-up; with sgd and adafactor 0.01 unless written."),
    about("train.optimizer.weight_decay", "Decoupled weight decay; with sgd and adafactor 0 unless written."),
    about("train.optimizer.decay_all", "Decays biases and norms too."),
    about("train.optimizer.betas", "How much of the first and second moment each step keeps (adamw)."),
    about("train.optimizer.eps", "Added to the root of the second moment (adamw)."),
    about("train.optimizer.momentum", "How much of the last update each step keeps (sgd)."),
    about("train.schedule.name", "How the learning rate moves after the warm-up."),
    about(
        "train.schedule.warmup",
        "Steps (an integer) or a fraction of all steps (a number with a point) in which the learning rate rises from 0.",
    ),
    about("train.schedule.min_lr_fraction", "Where linear and cosine end, as a part of `lr`.").unset("0"),
];

impl Optimizer {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let name = section.choice("name").unwrap_or(RuleName::AdamW);
        let (lr, weight_decay) = match name {
            RuleName::AdamW => (1e-3, 0.01),
            RuleName::Sgd | RuleName::Adafactor => (1e-2, 0.0),
        };
        let optimizer = Self {
            rule: Rule::read(section, name),
            lr: section.number("lr", Range::above(0.0, 1000.0)).unwrap_or(lr),
            weight_decay: section.number("weight_decay", Range::closed(0.0, 1000.0)).unwrap_or(weight_decay),
            decay_all: section.flag("decay_all").unwrap_or(false),
        };
        section.finish();
        optimizer
    }
}

impl Rule {
    fn read(section: &Section<'_>, name: RuleName) -> Self {
        let refuse = |keys: &[&'static str]| keys.iter().for_each(|key| section.not_with(key, name));
        match name {
            RuleName::AdamW => {
                refuse(&["momentum"]);
                let beta = |node: &_| section.number_of("betas", node, MOMENTUM);
                let betas =
                    section.list("betas", 2..=2, KeyKind::Number(MOMENTUM), beta).and_then(|b| b.try_into().ok());
                Self::AdamW { betas: betas.unwrap_or([0.9, 0.999]), eps: section.number("eps", EPS).unwrap_or(1e-8) }
            }
            RuleName::Sgd => {
                refuse(&["betas", "eps"]);
                Self::Sgd { momentum: section.number("momentum", MOMENTUM).unwrap_or(0.0) }
            }
            RuleName::Adafactor => {
                refuse(&["betas", "momentum", "eps"]);
                Self::Adafactor
            }
        }
    }

    /// As `train.optimizer.name` has it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::AdamW { .. } => RuleName::AdamW.name(),
            Self::Sgd { .. } => RuleName::Sgd.name(),
            Self::Adafactor => RuleName::Adafactor.name(),
        }
    }
}

/// How the learning rate moves over the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Schedule {
    /// Its shape after the warm-up.
    pub name: ScheduleShape,
    /// How long it rises first.
    pub warmup: Warmup,
    /// Where linear and cosine end, as a part of `lr`; always 0 for constant.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_lr_fraction: f64,
}

named! {
    /// How the learning rate moves after the warm-up.
    pub enum ScheduleShape {
        /// Not at all.
        Constant = "constant",
        /// Down in a straight line.
        Linear = "linear",
        /// Down along half a wave.
        Cosine = "cosine",
    }
}

/// How long the learning rate rises from nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warmup {
    /// Of all steps.
    Fraction(f64),
    /// So many updates.
    Steps(usize),
}

impl Serialize for Warmup {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fraction(fraction) => fraction.serialize(serializer),
            Self::Steps(steps) => steps.serialize(serializer),
        }
    }
}

fn is_zero(x: &f64) -> bool {
    *x == 0.0
}

impl Schedule {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let schedule = Self {
            name: section.choice("name").unwrap_or(ScheduleShape::Constant),
            warmup: Warmup::read(section),
            min_lr_fraction: section.number("min_lr_fraction", Range::closed(0.0, 1.0)).unwrap_or(0.0),
        };
        if schedule.name == ScheduleShape::Constant {
            section.not_with("min_lr_fraction", "a constant schedule");
        }
        section.finish();
        schedule
    }
}

impl Warmup {
    /// An integer counts steps, a number with a point is a fraction.
    fn read(section: &Section<'_>) -> Self {
        section.declare("warmup", || KeyKind::any([KeyKind::Number(FRACTION), KeyKind::integer(&WARMUP_STEPS)]));
        let Some(node) = section.get("warmup") else { return Self::Steps(0) };
        let read = match node.value {
            Value::Float(_) => section.number_of("warmup", node, FRACTION).map(Self::Fraction),
            _ => section.size_of("warmup", node, WARMUP_STEPS, "a fraction such as 0.1, or ").map(Self::Steps),
        };
        read.unwrap_or(Self::Steps(0))
    }
}
