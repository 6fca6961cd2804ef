//! How many tokens have their logits at a time.

use super::{Lever, Move, Question, Situation, loss_rows, steps_beside};
use crate::program::Settings;
use plimsoll_models::recipe::{Choice, Memory};

/// Tokens of the loss head at a time where nothing forces fewer: large enough for full speed.
const USUAL: usize = 2048;

/// The fewest tokens of the loss head at a time.
const SMALLEST: usize = 64;

/// The same chunk where so many samples are computed at a time: no more than all of their rows, and all of them where there
/// are no chunks, so that what is the same is called the same.
pub(in crate::choose) fn chunk_in(at: &Situation<'_>, chunk: usize, batch: usize) -> usize {
    let rows = loss_rows(at, batch);
    if at.family.has_loss_chunks() || at.pins.loss_chunk.is_some() { chunk.min(rows) } else { rows }
}

pub(super) struct LossChunk;

impl Lever for LossChunk {
    fn key(&self) -> &'static str {
        "loss_chunk"
    }

    fn is_pinned(&self, memory: &Memory) -> bool {
        memory.loss_chunk != Choice::Auto
    }

    fn start(&self, at: &Situation<'_>, settings: &mut Settings) {
        settings.loss_chunk = at.pins.loss_chunk.unwrap_or(USUAL);
    }

    fn candidates(&self, at: &Situation<'_>, like: &Settings) -> Vec<Settings> {
        if at.pins.loss_chunk.is_some() || !at.family.has_loss_chunks() {
            return Vec::new();
        }
        let rows = loss_rows(at, like.micro_batch);
        let powers = std::iter::successors(Some(SMALLEST), |chunk| chunk.checked_mul(2));
        let chunks = powers.take_while(|&chunk| chunk < rows).chain([rows]);
        chunks.map(|loss_chunk| Settings { loss_chunk, ..like.clone() }).collect()
    }

    fn question(&self, at: &Situation<'_>, s: &Settings) -> Option<Question> {
        let rows = loss_rows(at, s.micro_batch);
        let reason = if s.loss_chunk == rows { "all logits at once fit" } else { "logits of one chunk at a time" };
        let other = Settings { loss_chunk: rows, ..s.clone() };
        let (choice, is_pinned) = (s.loss_chunk.to_string(), at.pins.loss_chunk.is_some());
        at.family.has_loss_chunks().then_some(Question { choice, other, is_pinned, reason })
    }

    fn neighbours(&self, at: &Situation<'_>, from: &Settings) -> Vec<Move> {
        if !at.family.has_loss_chunks() {
            return Vec::new();
        }
        let (rows, now) = (loss_rows(at, from.micro_batch), from.loss_chunk);
        let sizes = [(now / 2).max(SMALLEST.min(now)), now, now.saturating_mul(2).min(rows).max(now)];
        let step = |loss_chunk: usize| Move::to(now, loss_chunk, Settings { loss_chunk, ..from.clone() });
        steps_beside(&sizes, now).map(step).collect()
    }
}
