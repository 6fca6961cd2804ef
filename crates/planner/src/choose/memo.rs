//! What plans have in common. Trainings that differ in nothing but their effective batch run the same micro-steps, some
//! more often than others: one that was built for the first serves all.

use super::search::{Needs, Training, Update};
use crate::program::{MICRO_STEP, Settings};
use plimsoll_core::plan::{Layout, PlanError, Program};
use plimsoll_models::families::{AttentionForm, FeedForwardForm};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::rc::Rc;

/// The forms that phases beside a step are built in, and how many samples they evaluate.
pub(super) type OtherKey = (AttentionForm, usize, usize, FeedForwardForm, Option<usize>);

/// Settings whose accumulation is no more than whether there is one, and how many samples are evaluated.
type PlanKey = (Settings, Option<usize>);

/// What was built for one kind of training.
#[derive(Default)]
pub(crate) struct Memo {
    kind: RefCell<Option<String>>,
    pub(super) trainings: Shelf<Settings, Training>,
    /// Updates on their own, and bytes of what lives over steps, by settings without sizes.
    pub(super) updates: Shelf<Settings, Update>,
    pub(super) residents: Shelf<Settings, usize>,
    pub(super) others: Shelf<OtherKey, Needs>,
    /// None where nobody is going to ask again.
    placed: Option<Shelf<PlanKey, (Program, Layout)>>,
}

impl Memo {
    /// Keeps whole plans too: for many recipes, one after the other.
    pub(crate) fn for_many() -> Memo {
        Memo { placed: Some(Shelf::default()), ..Memo::default() }
    }

    /// What was built for another kind is of no use to this one.
    pub(super) fn turn_to(&self, kind: impl FnOnce() -> String) {
        let Some(placed) = &self.placed else { return };
        let kind = Some(kind());
        if *self.kind.borrow() != kind {
            self.trainings.clear();
            self.updates.clear();
            self.residents.clear();
            self.others.clear();
            placed.clear();
            self.kind.replace(kind);
        }
    }

    /// A program with its layout. Where a micro-step is has nothing to do with how often it runs.
    pub(super) fn placed(
        &self,
        settings: Settings,
        evaluate_batch: Option<usize>,
        repeat: usize,
        place: impl FnOnce() -> Result<(Program, Layout), PlanError>,
    ) -> Result<(Program, Layout), PlanError> {
        let Some(shelf) = &self.placed else { return place() };
        let (mut program, layout) = (*shelf.get((settings, evaluate_batch), place)?).clone();
        for phase in program.phases.iter_mut().filter(|phase| phase.name == MICRO_STEP) {
            phase.repeat = repeat;
        }
        Ok((program, layout))
    }
}

/// Things by what they were made from: each is made once.
pub(super) struct Shelf<K, V>(RefCell<HashMap<K, Rc<V>>>);

impl<K, V> Default for Shelf<K, V> {
    fn default() -> Shelf<K, V> {
        Shelf(RefCell::default())
    }
}

impl<K: Eq + Hash, V> Shelf<K, V> {
    pub(super) fn get(&self, key: K, make: impl FnOnce() -> Result<V, PlanError>) -> Result<Rc<V>, PlanError> {
        if let Some(known) = self.0.borrow().get(&key) {
            return Ok(known.clone());
        }
        let made = Rc::new(make()?);
        self.0.borrow_mut().insert(key, made.clone());
        Ok(made)
    }

    fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}
