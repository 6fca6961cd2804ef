//! The choices of recompute for one phase, from the fastest to the smallest: each rung runs more nodes again.

use super::doubled::Doubled;
use super::selection::{ForwardNames, Recompute, describe, select};
use super::{cut, exact, sketch_again, uses};
use crate::graph::Graph;
use crate::graph::Target;
use crate::plan::cost::NodeTimes;
use crate::plan::layout::ordered;
use crate::plan::lifetimes::live_bytes_in;
use crate::plan::order::{is_small, order_of};
use crate::plan::sketch::Sketch;
use crate::plan::{PlanError, Profile, place};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// What one rung needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Bytes of temporaries alive at the peak.
    pub live_bytes: usize,
    /// Seconds of what runs again.
    pub extra_seconds: f64,
}

/// A rung that was tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rung {
    pub index: usize,
    pub measured: Measured,
}

pub struct Ladder {
    sketch: Sketch,
    times: NodeTimes,
    names: ForwardNames,
    sharing: bool,
    rungs: Rungs,
    /// What was measured so far, by rung.
    known: BTreeMap<usize, Measured>,
}

enum Rungs {
    /// Too many to try all, and not looked for yet: most graphs are too slow, or need nothing run again. The first runs
    /// nothing again.
    Unknown,
    /// Every choice that nothing beats.
    All(Vec<Vec<bool>>),
    /// One step of one layer after the other; and, as rungs behind them, what goes by a name. Cuts leave alone what is
    /// alive at the peak only because something else runs again; there, more recompute can need less.
    Steps { steps: Vec<cut::Step>, named: [Named; 2] },
}

struct Named {
    choice: Recompute,
    again: Vec<bool>,
    extra_seconds: f64,
}

impl Ladder {
    /// All choices of a graph that computes nothing again yet.
    pub fn new(graph: &Graph, target: &Target, profile: &Profile, sharing: bool) -> Result<Ladder, PlanError> {
        let mut ladder = Ladder::bare(graph, target, profile, sharing);
        if let Some(choices) = exact::choices(&ladder.sketch, &ladder.times, sharing).transpose()? {
            ladder.known = choices.iter().map(|c| c.measured).enumerate().collect();
            ladder.rungs = Rungs::All(choices.into_iter().map(|c| c.again).collect());
        }
        Ok(ladder)
    }

    /// The one choice that a recipe pins.
    pub fn pinned(
        graph: &Graph,
        target: &Target,
        profile: &Profile,
        sharing: bool,
        choice: &Recompute,
    ) -> Result<Ladder, PlanError> {
        let mut ladder = Ladder::bare(graph, target, profile, sharing);
        ladder.rungs = Rungs::All(vec![select(&ladder.sketch, &ladder.names, choice)]);
        Ok(ladder)
    }

    fn bare(graph: &Graph, target: &Target, profile: &Profile, sharing: bool) -> Ladder {
        let ((sketch, times), names) = (Sketch::timed(graph, target, profile), ForwardNames::of(graph));
        Ladder { sketch, times, names, sharing, rungs: Rungs::Unknown, known: BTreeMap::new() }
    }

    /// Looks for the rungs, unless they are known.
    fn find(&mut self) -> Result<(), PlanError> {
        if let Rungs::Unknown = self.rungs {
            let counts = self.alive_at_peak()?;
            let steps = cut::steps(&self.sketch, self.times.seconds(), &counts);
            let named = [Recompute::Cheap, Recompute::Layers].map(|choice| self.named(choice));
            self.rungs = Rungs::Steps { steps, named };
        }
        Ok(())
    }

    fn named(&self, choice: Recompute) -> Named {
        let again = select(&self.sketch, &self.names, &choice);
        let extra_seconds = Doubled::new(&self.sketch, &again).extra_seconds(&self.times);
        Named { choice, again, extra_seconds }
    }

    /// Seconds of the graph with nothing run again.
    pub fn seconds(&self) -> f64 {
        self.times.seconds().iter().sum()
    }

    /// Nodes of the graph, which is what it takes memory by.
    pub fn nodes(&self) -> usize {
        self.sketch.nodes.len()
    }

    /// Number of rungs.
    fn len(&self) -> usize {
        match &self.rungs {
            Rungs::Unknown => 1,
            Rungs::All(choices) => choices.len(),
            Rungs::Steps { steps, named } => steps.len() + 1 + named.len(),
        }
    }

    /// Up to here each rung runs more again than the one before.
    fn end(&self) -> usize {
        match &self.rungs {
            Rungs::Steps { steps, .. } => steps.len() + 1,
            _ => self.len(),
        }
    }

    fn again(&self, rung: usize) -> Vec<bool> {
        match &self.rungs {
            Rungs::Unknown => vec![false; self.sketch.nodes.len()],
            Rungs::All(choices) => choices[rung].clone(),
            Rungs::Steps { steps, named } if rung > steps.len() => named[rung - steps.len() - 1].again.clone(),
            Rungs::Steps { steps, .. } => {
                let mut again = vec![false; self.sketch.nodes.len()];
                steps[..rung].iter().flat_map(|step| &step.nodes).for_each(|node| again[node.index()] = true);
                exact::mark_views(&self.sketch, &mut again);
                again
            }
        }
    }

    /// A rung as a setting.
    pub fn choice(&self, rung: usize) -> Recompute {
        match &self.rungs {
            Rungs::Steps { steps, named } if rung > steps.len() => named[rung - steps.len() - 1].choice.clone(),
            _ => describe(&self.sketch, &self.names, &self.again(rung)),
        }
    }

    /// What the fastest rung needs.
    pub fn first(&mut self) -> Result<Measured, PlanError> {
        self.measure(0).map(|rung| rung.measured)
    }

    fn measure(&mut self, rung: usize) -> Result<Rung, PlanError> {
        let measured = match self.known.get(&rung) {
            Some(&known) => known,
            None => measure(&self.sketch, &self.times, &self.again(rung), self.sharing)?,
        };
        self.known.insert(rung, measured);
        Ok(Rung { index: rung, measured })
    }

    /// What a choice made elsewhere (for another micro-batch) would need here.
    pub fn measure_choice(&self, choice: &Recompute) -> Result<Measured, PlanError> {
        measure(&self.sketch, &self.times, &select(&self.sketch, &self.names, choice), self.sharing)
    }

    /// The fastest rung from `first` on, if there are as many, that fits `room` bytes and runs no more than `most` seconds
    /// again.
    pub fn fit(&mut self, first: usize, room: usize, most: f64) -> Result<Option<Rung>, PlanError> {
        if first == 0 && self.first_fits(room)? {
            return self.measure(0).map(Some);
        }
        self.find()?;
        let mut fastest = self.fitting_step(first.min(self.len().saturating_sub(1)), room, most)?;
        for (rung, seconds) in self.named_seconds() {
            if seconds <= most && fastest.is_none_or(|fastest| seconds < fastest.measured.extra_seconds) {
                let rung = self.measure(rung)?;
                fastest = Some(rung).filter(|rung| rung.measured.live_bytes <= room).or(fastest);
            }
        }
        Ok(fastest)
    }

    /// Whether the fastest rung fits: then no other has to be looked for.
    fn first_fits(&mut self, room: usize) -> Result<bool, PlanError> {
        Ok(self.len() > 0 && self.measure(0)?.measured.live_bytes <= room)
    }

    /// The rungs behind the steps, and the seconds of what each runs again.
    fn named_seconds(&self) -> SmallVec<[(usize, f64); 2]> {
        match &self.rungs {
            Rungs::Unknown | Rungs::All(_) => SmallVec::new(),
            Rungs::Steps { named, .. } => (self.end()..).zip(named.iter().map(|named| named.extra_seconds)).collect(),
        }
    }

    /// Whether any recompute fits `room` bytes.
    pub fn can_fit(&mut self, room: usize) -> Result<bool, PlanError> {
        if self.first_fits(room)? {
            return Ok(true);
        }
        self.find()?;
        // The last step mostly is the one with the fewest bytes, or near it.
        let last = self.end().saturating_sub(1);
        if self.len() > 0 && self.measure(last)?.measured.live_bytes <= room {
            return Ok(true);
        }
        Ok(self.lowest(0)?.is_some_and(|lowest| lowest.measured.live_bytes <= room))
    }

    /// The first step from `first` on that fits `room` bytes; none if it runs more than `most` seconds again. From layer to
    /// layer a kind of step needs less and less, but where a kind begins more may be needed for a while: the first that fits
    /// at its end is the one, however much room there is.
    fn fitting_step(&mut self, first: usize, room: usize, most: f64) -> Result<Option<Rung>, PlanError> {
        if self.len() == 0 {
            return Ok(None);
        }
        let start = self.measure(first)?;
        if start.measured.live_bytes <= room {
            return Ok(Some(start));
        }
        let mut low = first;
        for end in self.ends().into_iter().filter(|&end| end > first) {
            let Measured { live_bytes, extra_seconds } = self.measure(end)?.measured;
            if live_bytes <= room {
                let rung = self.first_between(low, end, room)?;
                return Ok(Some(rung).filter(|rung| rung.measured.extra_seconds <= most));
            }
            if extra_seconds > most {
                return Ok(None);
            }
            low = end;
        }
        Ok(None)
    }

    /// The first step behind `low`, which does not fit, up to `high`, which does, found by guessing and halving.
    fn first_between(&mut self, mut low: usize, mut high: usize, room: usize) -> Result<Rung, PlanError> {
        let mut guesses = true;
        while high - low > 1 {
            let (above, below) = (self.measure(low)?.measured.live_bytes, self.measure(high)?.measured.live_bytes);
            let middle = if guesses { between(low, high, (above, below), room) } else { low + (high - low) / 2 };
            let before = high - low;
            match self.measure(middle)?.measured.live_bytes <= room {
                true => high = middle,
                false => low = middle,
            }
            // A guess that took off little is followed by a half.
            guesses = !guesses || (high - low) * 2 <= before;
        }
        self.measure(high)
    }

    /// The last steps of each kind; of few choices, each.
    fn ends(&self) -> Vec<usize> {
        match &self.rungs {
            Rungs::Unknown | Rungs::All(_) => (0..self.len()).collect(),
            Rungs::Steps { steps, .. } => {
                let turns = (1..steps.len()).filter(|&i| steps[i].layer <= steps[i - 1].layer);
                [0].into_iter().chain(turns).chain([steps.len()]).collect()
            }
        }
    }

    /// The rung with the fewest bytes, from `first` on if there are as many.
    pub fn lowest(&mut self, first: usize) -> Result<Option<Rung>, PlanError> {
        self.find()?;
        let mut lowest = self.lowest_step(first.min(self.len().saturating_sub(1)))?;
        for rung in self.end()..self.len() {
            let rung = self.measure(rung)?;
            lowest = lowest.filter(|lowest| lowest.measured.live_bytes <= rung.measured.live_bytes).or(Some(rung));
        }
        Ok(lowest)
    }

    /// More recompute needs less until the layer that is recomputed sets the peak: from the last step back to where it
    /// needs more again, in steps of a kind.
    fn lowest_step(&mut self, first: usize) -> Result<Option<Rung>, PlanError> {
        let mut lowest: Option<Rung> = None;
        for rung in self.ends().into_iter().rev().filter(|&rung| rung >= first) {
            let rung = self.measure(rung)?;
            let live_bytes = rung.measured.live_bytes;
            match lowest.map(|other| other.measured.live_bytes) {
                Some(fewest) if live_bytes > fewest => break,
                // Of equals the one with less recompute.
                _ => lowest = Some(rung),
            }
        }
        Ok(lowest)
    }

    /// Values whose memory is taken at the moment of most memory.
    fn alive_at_peak(&self) -> Result<Vec<bool>, PlanError> {
        use crate::plan::Storage;
        let (_, lives) = ordered(&self.sketch, self.sharing)?;
        let (_, tick) = place::device_peak(&lives.buffers);
        let alive = |place: &crate::plan::Place| match place.storage {
            Storage::Buffer(at) => lives.buffers.get(at).is_some_and(|b| b.first <= tick && tick <= b.last),
            Storage::Resident(_) => false,
        };
        Ok(lives.places.iter().map(alive).collect())
    }
}

/// Where between two rungs `room` would be, if every step on the way saved as much; neither of the two.
fn between(low: usize, high: usize, (above, below): (usize, usize), room: usize) -> usize {
    let share = above.saturating_sub(room) as f64 / above.saturating_sub(below).max(1) as f64;
    (low + (share * (high - low) as f64).round() as usize).clamp(low + 1, high - 1)
}

/// Bytes and seconds of running `again` again.
pub(super) fn measure(
    sketch: &Sketch,
    times: &NodeTimes,
    again: &[bool],
    sharing: bool,
) -> Result<Measured, PlanError> {
    let doubled = Doubled::new(sketch, again);
    let extra_seconds = doubled.extra_seconds(times);
    let live_bytes = match is_small(sketch) {
        // Its order is searched.
        true => ordered(&sketch_again(sketch, &uses(sketch, again)), sharing)?.1.live_bytes(sharing),
        false => live_bytes_in(&doubled, &order_of(&doubled)?, sharing)?,
    };
    Ok(Measured { live_bytes, extra_seconds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::{layers, with_gradients};

    /// Whatever was measured before, and though a rung may need more than the one before it.
    #[test]
    fn more_room_never_runs_more_again() {
        let (graph, loss) = layers(12, 64);
        let graph = with_gradients(graph, loss);
        let new = || Ladder::new(&graph, &Target::CUDA, &Profile::cpu(1), true).unwrap();
        let mut all = new();
        all.find().unwrap();
        let mut rooms: Vec<usize> = (0..all.len()).map(|rung| all.measure(rung).unwrap().measured.live_bytes).collect();
        rooms.sort_unstable();
        rooms.dedup();
        assert!(rooms.len() > 12, "{} rooms", rooms.len());
        let mut least = f64::INFINITY;
        for room in rooms {
            let Some(fresh) = new().fit(0, room, f64::INFINITY).unwrap() else { continue };
            assert_eq!(all.fit(0, room, f64::INFINITY).unwrap(), Some(fresh));
            let Measured { live_bytes, extra_seconds } = fresh.measured;
            assert!(live_bytes <= room && extra_seconds <= least, "{extra_seconds} s in {room} bytes, {least} in less");
            least = extra_seconds;
        }
        assert!(least <= 0.0, "nothing runs again where all fits");
    }
}
