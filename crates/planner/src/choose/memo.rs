//! What plans have in common. Trainings that differ in nothing but their effective batch run the same micro-steps, some
//! more often than others: one that was built for the first serves all.

use super::bases::{Main, Needs, Training, Update};
use super::setup::kind;
use crate::Device;
use crate::program::{MICRO_STEP, Settings};
use plimsoll_core::plan::{Layout, PlanError, Program};
use plimsoll_models::families::{AttentionForm, FeedForwardForm};
use plimsoll_models::recipe::Recipe;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What was built for the last few kinds of trainings, on any thread.
pub struct Memos {
    /// The one asked for last comes first.
    kinds: Mutex<Vec<(String, Arc<Memo>)>>,
    most: usize,
    most_nodes: usize,
    allows_gaps: bool,
}

/// Kinds that are remembered, and nodes of graphs over all of them: of flan-t5-xl each takes 310 bytes, of CLIP 440.
const FEW: usize = 12;
const MOST_NODES: usize = 600_000;

impl Default for Memos {
    fn default() -> Memos {
        Memos { kinds: Mutex::default(), most: FEW, most_nodes: MOST_NODES, allows_gaps: false }
    }
}

impl Memos {
    /// For recipes that are compared: all are remembered, and how much those need that do not fit is told but for gaps.
    pub(crate) fn to_compare() -> Memos {
        Memos { most: usize::MAX, most_nodes: usize::MAX, allows_gaps: true, ..Memos::default() }
    }

    /// What is known of trainings of this kind.
    pub(crate) fn of(&self, recipe: &Recipe, device: &Device) -> Arc<Memo> {
        // A device may be measured anew under its name.
        let kind = format!("{} {:?}", kind(recipe, device), device.profile);
        let mut kinds = locked(&self.kinds);
        // The oldest of those that are too much together; one alone begins anew.
        while kinds.iter().map(|(_, memo)| memo.nodes()).sum::<usize>() > self.most_nodes {
            kinds.pop();
        }
        let memo = match kinds.iter().position(|(known, _)| *known == kind) {
            Some(at) => kinds.remove(at).1,
            None => Arc::new(Memo { allows_gaps: self.allows_gaps, ..Memo::default() }),
        };
        kinds.insert(0, (kind, memo.clone()));
        kinds.truncate(self.most);
        memo
    }
}

/// What is kept is whole at any time, whoever panicked.
pub(super) fn locked<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The forms that phases beside a step are built in: the second is how many blocks go together.
pub(super) type Forms = (AttentionForm, usize, FeedForwardForm);

/// With how many logits at a time, and of how many samples.
type OtherKey = (Forms, usize, Option<usize>);

/// Settings whose accumulation is no more than whether there is one, and how many samples are evaluated.
type PlanKey = (Settings, Option<usize>);

/// What was built for one kind of training.
#[derive(Default)]
pub(crate) struct Memo {
    pub(super) trainings: Shelf<Settings, Training>,
    /// Micro-steps, whose update may come from the host or not.
    pub(super) mains: Shelf<Settings, Main>,
    /// Updates on their own, and bytes of what lives over steps, by settings without sizes.
    pub(super) updates: Shelf<Settings, Update>,
    pub(super) residents: Shelf<Settings, usize>,
    pub(super) others: Shelf<OtherKey, Needs>,
    pub(super) writings: Shelf<Forms, Needs>,
    /// None where nobody is going to ask again.
    placed: Option<Shelf<PlanKey, (Program, Layout)>>,
    /// Whether the smallest plan of what does not fit may have gaps that a search for another would close.
    pub(super) allows_gaps: bool,
}

impl Memo {
    /// Keeps whole plans too: for many recipes, one after the other.
    pub(crate) fn for_many() -> Memo {
        Memo { placed: Some(Shelf::default()), ..Memo::default() }
    }

    fn nodes(&self) -> usize {
        locked(&self.trainings.0).values().map(|training| training.nodes()).sum()
    }

    /// A program with its layout, which `place` makes in so many bytes; `None` if it needs more than `most`. Where a
    /// micro-step is has nothing to do with how often it runs.
    pub(super) fn placed(
        &self,
        settings: Settings,
        evaluate_batch: Option<usize>,
        repeat: usize,
        most: usize,
        place: impl FnOnce(usize) -> Result<Option<(Program, Layout)>, PlanError>,
    ) -> Result<Option<(Program, Layout)>, PlanError> {
        let Some(shelf) = &self.placed else { return place(most) };
        // What is kept serves others, who may have more.
        let make = || place(usize::MAX)?.ok_or(PlanError::TooLarge);
        let (mut program, layout) = (*shelf.get((settings, evaluate_batch), make)?).clone();
        for phase in program.phases.iter_mut().filter(|phase| phase.name == MICRO_STEP) {
            phase.repeat = repeat;
        }
        Ok(Some((program, layout)).filter(|(_, layout)| layout.arena_bytes <= most))
    }
}

/// Things by what they were made from: each is made once, or twice where two threads want it in the same moment.
pub(super) struct Shelf<K, V>(Mutex<HashMap<K, Arc<V>>>);

impl<K, V> Default for Shelf<K, V> {
    fn default() -> Shelf<K, V> {
        Shelf(Mutex::default())
    }
}

impl<K: Eq + Hash, V> Shelf<K, V> {
    pub(super) fn get(&self, key: K, make: impl FnOnce() -> Result<V, PlanError>) -> Result<Arc<V>, PlanError> {
        if let Some(known) = self.known(&key) {
            return Ok(known);
        }
        let made = Arc::new(make()?);
        Ok(locked(&self.0).entry(key).or_insert(made).clone())
    }

    pub(super) fn known(&self, key: &K) -> Option<Arc<V>> {
        locked(&self.0).get(key).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choose::{plan, plan_among};
    use std::path::Path;

    fn recipe(name: &str, sets: &[String]) -> Recipe {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../recipes/{name}.toml"));
        Recipe::load(&path, sets).unwrap()
    }

    /// Batches whose last micro-batch is filled up are among them: what was built for one must not be taken for another.
    #[test]
    fn what_is_shared_changes_no_plan() {
        let (memos, device) = (Memos::default(), Device::from_name("rtx-2060").unwrap());
        for name in ["encoder-small", "clip-small", "mu-sota-small"] {
            for (batch, micro) in [(8, "auto"), (7, "auto"), (8, "4"), (7, "4"), (12, "4"), (11, "4")] {
                let sets = [format!("train.effective_batch={batch}"), format!("memory.micro_batch={micro}")];
                let recipe = recipe(name, &sets);
                let (alone, among) = (plan(&recipe, &device).unwrap(), plan_among(&memos, &recipe, &device).unwrap());
                assert_eq!(alone.choice.settings, among.choice.settings, "{name}, {batch}");
                assert_eq!(alone.choice.layout, among.choice.layout, "{name}, {batch}");
                assert_eq!(alone.choice.predicted_step_ms, among.choice.predicted_step_ms, "{name}, {batch}");
            }
        }
    }

    #[test]
    fn a_few_kinds_are_remembered_the_last_ones() {
        let (memos, device) = (Memos::default(), Device::from_name("rtx-2060").unwrap());
        let of = |length: u64| memos.of(&recipe("encoder-small", &[format!("data.max_length={length}")]), &device);
        let first = of(8);
        assert!(Arc::ptr_eq(&first, &of(8)), "the same kind");
        (9..9 + FEW as u64 - 1).for_each(|length| drop(of(length)));
        assert!(Arc::ptr_eq(&first, &of(8)), "still there, and now the last again");
        (20..20 + FEW as u64).for_each(|length| drop(of(length)));
        assert!(!Arc::ptr_eq(&first, &of(8)), "forgotten");
    }

    #[test]
    fn what_is_too_much_together_is_forgotten_from_the_oldest_on() {
        let memos = Memos { most_nodes: 0, ..Memos::default() };
        let (recipe, device) = (recipe("encoder-small", &[]), Device::from_name("rtx-2060").unwrap());
        let first = memos.of(&recipe, &device);
        assert!(Arc::ptr_eq(&first, &memos.of(&recipe, &device)), "nothing was built for it");
        plan_among(&memos, &recipe, &device).unwrap();
        assert!(first.nodes() > 0);
        assert!(!Arc::ptr_eq(&first, &memos.of(&recipe, &device)), "it was more than there is room for");
    }
}
