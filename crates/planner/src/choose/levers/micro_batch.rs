//! Gradient accumulation: how many samples of the effective batch are computed at a time.

use super::loss_chunk::chunk_in;
use super::{Lever, Move, Question, Situation, divisors, loss_rows, steps_beside};
use crate::choose::ChooseError;
use crate::program::Settings;
use plimsoll_models::recipe::{Choice, Memory};

pub(super) struct MicroBatch;

impl Lever for MicroBatch {
    fn key(&self) -> &'static str {
        "micro_batch"
    }

    fn is_pinned(&self, memory: &Memory) -> bool {
        memory.micro_batch != Choice::Auto
    }

    fn check(&self, at: &Situation<'_>) -> Result<(), ChooseError> {
        let effective = at.spec.effective_batch;
        match at.pins.micro_batch {
            Some(micro) if micro > effective => Err(ChooseError::Refused {
                cause: format!("micro-batch {micro} is larger than the effective batch {effective}"),
                hint: format!("set memory.micro_batch to at most {effective}"),
            }),
            Some(micro) if is_whole(at) && micro < effective => Err(ChooseError::Refused {
                cause: format!(
                    "batch norm sees the micro-batch: {micro} instead of {effective} would change what is learned"
                ),
                hint: "leave memory.micro_batch out, or accept it with model.batch_norm = \"micro\"".into(),
            }),
            _ => Ok(()),
        }
    }

    fn question(&self, at: &Situation<'_>, s: &Settings) -> Option<Question> {
        let by_statistics = at.family.batch_norm().is_some();
        let reason = match (by_statistics, s.accumulation) {
            (true, 1) => "batch statistics: the whole effective batch at once",
            (true, _) => "batch norm by micro-batch, as the recipe allows: this changes what is learned",
            (false, 1) => "the whole effective batch at once is fastest",
            (false, _) => "the fastest that fits",
        };
        Some(Question {
            choice: words(s.micro_batch, s.accumulation),
            other: with_micro_batch(at, s, at.spec.effective_batch),
            // What changes learning is said even if the recipe asked for it.
            is_pinned: at.pins.micro_batch.is_some() && (s.accumulation == 1 || !by_statistics),
            reason,
        })
    }

    fn neighbours(&self, at: &Situation<'_>, from: &Settings) -> Vec<Move> {
        if is_whole(at) {
            return Vec::new();
        }
        let effective = at.spec.effective_batch;
        let step = |micro_batch: usize| {
            let accumulation = effective.div_ceil(micro_batch);
            let (rows, rows_now) = (loss_rows(at, micro_batch), loss_rows(at, from.micro_batch));
            // What was not cut stays uncut.
            let loss_chunk = if from.loss_chunk >= rows_now { rows } else { from.loss_chunk.min(rows) };
            let other = Settings { micro_batch, accumulation, loss_chunk, ..from.clone() };
            let now = words(from.micro_batch, effective.div_ceil(from.micro_batch));
            Move::to(now, words(micro_batch, accumulation), other)
        };
        steps_beside(&divisors(effective), from.micro_batch).map(step).collect()
    }
}

fn words(micro_batch: usize, accumulation: usize) -> String {
    format!("{micro_batch} × {accumulation}")
}

/// Whether the micro-batch has to be the effective batch.
fn is_whole(at: &Situation<'_>) -> bool {
    at.family.batch_norm().is_some() && !at.pins.micro_statistics
}

/// Micro-batches without a ragged last one, largest first.
pub(in crate::choose) fn even_micro_batches(at: &Situation<'_>) -> Vec<usize> {
    let effective = at.spec.effective_batch;
    match at.pins.micro_batch {
        Some(micro) => vec![micro],
        None if is_whole(at) => vec![effective],
        None => divisors(effective).into_iter().rev().collect(),
    }
}

/// Micro-batches between two of those above, largest first: of each number of micro-steps the smallest. The last
/// micro-step is filled up with rows that count nothing, and takes as long as the others.
pub(in crate::choose) fn ragged_micro_batches(effective: usize, smaller: usize, larger: usize) -> Vec<usize> {
    let counts = effective.div_ceil(larger) + 1..effective.div_ceil(smaller.max(1));
    let mut sizes: Vec<usize> = counts.map(|count| effective.div_ceil(count)).collect();
    sizes.dedup();
    sizes.retain(|&m| smaller < m && m < larger);
    sizes
}

/// The same with another micro-batch.
pub(in crate::choose) fn with_micro_batch(at: &Situation<'_>, like: &Settings, micro_batch: usize) -> Settings {
    let accumulation = at.spec.effective_batch.div_ceil(micro_batch);
    Settings { micro_batch, accumulation, loss_chunk: chunk_in(at, like.loss_chunk, micro_batch), ..like.clone() }
}
