//! Answers that were given, the latest ones, inside a bound of bytes. Who asks what is being asked waits for it.

use crate::problem::Problem;
use axum::body::Bytes;
use plimsoll::PlanReport;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OnceCell;

const MOST_BYTES: usize = 24 << 20;
const MOST_ANSWERS: usize = 4096;

/// What was found, before it is told to somebody.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// A plan, for every number of epochs.
    Plan(Arc<PlanReport>),
    Json(Bytes),
}

impl Found {
    fn bytes(&self) -> usize {
        match self {
            // Layers, modules, decisions and the largest buffers, with their names.
            Found::Plan(plan) => 4096 + 128 * (plan.layers.len() + plan.modules.len() + plan.live.len()),
            Found::Json(json) => json.len(),
        }
    }
}

pub(crate) type Answer = Result<Found, Problem>;
pub(crate) type Key = [u8; 32];
pub(crate) type Cell = Arc<OnceCell<Answer>>;

#[derive(Default)]
pub(crate) struct Cache(Mutex<VecDeque<(Key, Cell)>>);

impl Cache {
    /// The place of an answer, given or not.
    pub(crate) fn cell(&self, key: Key) -> Cell {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().rposition(|(other, _)| *other == key).and_then(|at| kept.remove(at));
        let entry = found.unwrap_or_else(|| (key, Cell::default()));
        kept.push_back(entry.clone());
        shrink(&mut kept);
        entry.1
    }
}

fn shrink(kept: &mut VecDeque<(Key, Cell)>) {
    let size = |cell: &Cell| cell.get().and_then(|answer| answer.as_ref().ok()).map_or(512, Found::bytes);
    let mut bytes: usize = kept.iter().map(|(_, cell)| size(cell)).sum();
    while kept.len() > MOST_ANSWERS || bytes > MOST_BYTES && kept.len() > 1 {
        let Some((_, oldest)) = kept.pop_front() else { return };
        bytes -= size(&oldest).min(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_are_kept_inside_the_bound_and_the_latest_stay() {
        let cache = Cache::default();
        let key = |n: u64| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&n.to_le_bytes());
            key
        };
        for n in 0..100 {
            let cell = cache.cell(key(n));
            cell.get_or_init(|| async { Ok(Found::Json(Bytes::from(vec![0; 1 << 20]))) }).await.as_ref().unwrap();
        }
        assert!(cache.0.lock().unwrap().len() <= 26);
        assert!(cache.cell(key(99)).get().is_some() && cache.cell(key(0)).get().is_none());
    }
}
