//! Longest first: where settings are drawn without regard to what others reached, a few trials are drawn ahead, and of those
//! the one that takes longest is started first. So no long one is left to run alone in the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll::search::SamplerName;

use super::Coordinator;
use crate::error::{Error, Result};
use crate::order;
use crate::space::Value;
use crate::study::{Asked, Study};
use crate::trial::{State, Trial};
use crate::trials::space::values_of;

impl Coordinator {
    /// Draws trials until as many are in line as run side by side.
    pub(super) fn draw_ahead(&mut self) -> Result<()> {
        while self.looks_ahead() {
            let trials = self.trials()?;
            let in_line = trials.iter().filter(|trial| trial.state == State::Waiting).count();
            if trials.len() >= self.options.trials || in_line >= self.room.slots {
                break;
            }
            let suggestion = self.study.suggest()?;
            let of = |(name, internal): (&String, &f64)| {
                let parameter = self.study.space().get(name)?;
                Some((name.clone(), parameter.distribution.external(*internal)))
            };
            let values: BTreeMap<String, Value> = order::map(suggestion.point.iter().filter_map(of));
            match self.study.put_in_line(&values) {
                Err(Error::StudyFull) => break,
                made => made?,
            }
        }
        Ok(())
    }

    fn looks_ahead(&self) -> bool {
        let sampler = self.options.sampler.or(self.options.search.sampler);
        let learns_nothing = matches!(sampler, Some(SamplerName::Random | SamplerName::Sobol));
        learns_nothing && self.room.slots > 1 && !self.options.worker
    }

    /// The next in line: what somebody enqueued, in that order, then what takes longest.
    pub(super) fn claim_next(&mut self) -> Result<Option<Asked>> {
        let waiting = self.trials()?.into_iter().filter(|trial| trial.state == State::Waiting);
        let mut line: Vec<(f64, Arc<Trial>)> = Vec::new();
        for trial in waiting.collect::<Vec<_>>() {
            line.push((self.predicted(&trial)?, trial));
        }
        // Equal ones stay in their order.
        order::sort_by(&mut line, |a, b| b.0.total_cmp(&a.0));
        for (_, trial) in line {
            if let Some(asked) = self.study.claim(&trial)? {
                self.lengths.remove(&trial.id);
                return Ok(Some(asked));
            }
        }
        Ok(None)
    }

    /// Seconds of a trial that was drawn ahead; what somebody else enqueued goes before all of them.
    fn predicted(&mut self, trial: &Trial) -> Result<f64> {
        if !Study::is_drawn_ahead(trial) {
            return Ok(f64::INFINITY);
        }
        if let Some(known) = self.lengths.get(&trial.id) {
            return Ok(*known);
        }
        let prospect = self.prospect(&values_of(&self.study.wanted(trial)))?;
        let seconds = prospect.map_or(f64::MAX, |prospect| prospect.seconds().unwrap_or(0.0));
        self.lengths.insert(trial.id, seconds);
        Ok(seconds)
    }
}
