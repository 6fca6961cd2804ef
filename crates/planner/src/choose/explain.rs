//! Why each decision was taken, and what it saves and costs against its plainest alternative.

use super::levers::{loss_rows, with_micro_batch};
use super::search::Search;
use crate::choose::{Choice, Decision};
use crate::program::Settings;
use plimsoll_core::plan::{Offload, PlanError, Recompute};
use plimsoll_models::families::{AttentionForm, FeedForwardForm};

pub(super) fn decisions(search: &mut Search<'_>, choice: &Choice) -> Result<Vec<Decision>, PlanError> {
    let here = search.measure(&choice.settings)?;
    let questions = questions(search, &choice.settings);
    questions.into_iter().map(|question| question.answer(search, &choice.settings, here)).collect()
}

/// A lever with what was chosen and what it is compared with.
struct Question {
    lever: &'static str,
    choice: String,
    other: Settings,
    is_pinned: bool,
    reason: &'static str,
}

impl Question {
    fn answer(self, search: &mut Search<'_>, chosen: &Settings, here: (usize, f64)) -> Result<Decision, PlanError> {
        // What the recipe pins has no alternative.
        let is_open = !self.is_pinned && self.other != *chosen;
        let there = if is_open { search.measure(&self.other)? } else { here };
        Ok(Decision {
            lever: self.lever.into(),
            choice: self.choice,
            saved_bytes: there.0 as i64 - here.0 as i64,
            predicted_ms: 1e3 * (here.1 - there.1),
            reason: if self.is_pinned { "pinned by the recipe".into() } else { self.reason.into() },
        })
    }
}

fn questions(search: &Search<'_>, s: &Settings) -> Vec<Question> {
    let (family, pins) = (search.family, search.pins);
    let mut questions = vec![micro_batch(search, s), recompute(search, s)];
    if family.has_attention_forms() {
        let (choice, attention, reason) = match s.attention {
            AttentionForm::Fused => ("fused", AttentionForm::Materialized, "the scores are never stored"),
            AttentionForm::Materialized => ("materialized", AttentionForm::Fused, "faster, and the scores fit"),
        };
        let (other, is_pinned) = (Settings { attention, ..s.clone() }, pins.attention.is_some());
        questions.push(Question { lever: "attention", choice: choice.into(), other, is_pinned, reason });
    }
    if family.blocks() > 1 {
        let other = Settings { block_group: family.blocks(), ..s.clone() };
        let reason = match s.block_group == family.blocks() {
            true => "all blocks in one batched product",
            false => "fewer blocks at a time need less memory",
        };
        let (choice, is_pinned) = (s.block_group.to_string(), pins.block_group.is_some());
        questions.push(Question { lever: "block_group", choice, other, is_pinned, reason });
    }
    if family.has_loss_chunks() {
        let rows = loss_rows(family, search.spec, s.micro_batch);
        let other = Settings { loss_chunk: rows, ..s.clone() };
        let reason = if s.loss_chunk == rows { "all logits at once fit" } else { "logits of one chunk at a time" };
        let (choice, is_pinned) = (s.loss_chunk.to_string(), pins.loss_chunk.is_some());
        questions.push(Question { lever: "loss_chunk", choice, other, is_pinned, reason });
    }
    if s.feed_forward == FeedForwardForm::Fused {
        let other = Settings { feed_forward: FeedForwardForm::Plain, ..s.clone() };
        let (choice, reason) = ("fused".into(), "hidden values are never stored");
        questions.push(Question { lever: "feed_forward", choice, other, is_pinned: false, reason });
    }
    if s.offload != Offload::NONE {
        let other = Settings { offload: Offload::NONE, ..s.clone() };
        let (choice, is_pinned) = (s.offload.name().into(), pins.offload.is_some());
        questions.push(Question {
            lever: "offload",
            choice,
            other,
            is_pinned,
            reason: "nothing fits without host memory",
        });
    }
    questions
}

fn micro_batch(search: &Search<'_>, s: &Settings) -> Question {
    let by_statistics = search.family.batch_norm().is_some();
    let reason = match (by_statistics, s.accumulation) {
        (true, 1) => "batch statistics: the whole effective batch at once",
        (true, _) => "batch norm by micro-batch, as the recipe allows: this changes what is learned",
        (false, 1) => "the whole effective batch at once is fastest",
        (false, _) => "the fastest that fits",
    };
    Question {
        lever: "micro_batch",
        choice: format!("{} × {}", s.micro_batch, s.accumulation),
        other: with_micro_batch(search.family, search.spec, s, search.spec.effective_batch),
        // What changes learning is said even if the recipe asked for it.
        is_pinned: search.pins.micro_batch.is_some() && (s.accumulation == 1 || !by_statistics),
        reason,
    }
}

fn recompute(search: &Search<'_>, s: &Settings) -> Question {
    Question {
        lever: "recompute",
        choice: s.recompute.name().into(),
        other: Settings { recompute: Recompute::None, ..s.clone() },
        is_pinned: search.pins.recompute.is_some(),
        reason: match s.recompute {
            Recompute::None => "everything saved fits",
            _ => "the cheapest to compute again of what would not fit",
        },
    }
}
