//! Copies from and to the host on streams of their own, one for each direction: both ways of the bus and the kernels are at
//! work at once. A launch waits for those of other lanes that touch the same bytes, and for no others; in its own lane
//! everything keeps its order. What is computed is what one lane would compute.

use super::driver::{Event, Stream};
use super::launches::{Joined, Lane, Touched};
use plimsoll_core::kernels::cuda::{CudaError, Recorded};
use smallvec::SmallVec;

const LANES: usize = 3;

/// What a copy touches is less than its node does, which may have a stretch of something large.
pub(super) fn touched_by_copy(launch: &Recorded) -> Option<Touched> {
    let Recorded::Copy { to, from, bytes } = *launch else { return None };
    let range = |start: u64| std::iter::once(start..start + bytes as u64).collect();
    Some(Touched { reads: range(from), writes: range(to) })
}

/// When a launch's turn is: after these events; and the event that tells others of its end. Events are numbered, and used
/// again once all who wait for them have said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub lane: Lane,
    pub after: SmallVec<[usize; 2]>,
    pub tells: Option<usize>,
}

/// The turns of a phase's launches; none where nothing goes to or comes from the host.
pub(super) fn turns(launches: &[Joined]) -> Vec<Turn> {
    if launches.iter().all(|launch| launch.lane == Lane::Kernels) {
        return Vec::new();
    }
    with_events(launches, &waits(launches))
}

/// How many events turns need.
pub(super) fn events(turns: &[Turn]) -> usize {
    turns.iter().filter_map(|turn| turn.tells).max().map_or(0, |last| last + 1)
}

/// Of each launch, the last one of every other lane that touches the same bytes, unless its lane is behind that already: it
/// has waited for it, or for something behind it.
fn waits(launches: &[Joined]) -> Vec<SmallVec<[usize; 2]>> {
    let mut lanes: [Vec<usize>; LANES] = Default::default();
    // How many launches of each lane a lane is behind of, and a launch when it has run.
    let mut known = [[0; LANES]; LANES];
    let mut behind: Vec<[usize; LANES]> = Vec::with_capacity(launches.len());
    let mut all = Vec::with_capacity(launches.len());
    for (index, launch) in launches.iter().enumerate() {
        let own = launch.lane as usize;
        let mut waits = SmallVec::new();
        for other in (0..LANES).filter(|&other| other != own) {
            let news = &lanes[other][known[own][other]..];
            let meets = |&earlier: &usize| !launches[earlier].touched.is_independent_of(&launch.touched);
            if let Some(at) = news.iter().rposition(meets) {
                waits.push(news[at]);
                let told = behind[news[at]];
                known[own].iter_mut().zip(told).for_each(|(known, told)| *known = told.max(*known));
            }
        }
        lanes[own].push(index);
        known[own][own] = lanes[own].len();
        behind.push(known[own]);
        all.push(waits);
    }
    all
}

fn with_events(launches: &[Joined], waits: &[SmallVec<[usize; 2]>]) -> Vec<Turn> {
    let mut last_waiter = vec![0; launches.len()];
    waits.iter().enumerate().for_each(|(waiter, on)| on.iter().for_each(|&on| last_waiter[on] = waiter));
    let (mut turns, mut free, mut count) = (Vec::<Turn>::with_capacity(launches.len()), Vec::new(), 0);
    for (index, (launch, waits)) in launches.iter().zip(waits).enumerate() {
        let after: SmallVec<[usize; 2]> = waits.iter().filter_map(|&on| turns[on].tells).collect();
        free.extend(waits.iter().filter(|&&on| last_waiter[on] == index).filter_map(|&on| turns[on].tells));
        let mut next = || {
            count += 1;
            count - 1
        };
        let tells = (last_waiter[index] > 0).then(|| free.pop().unwrap_or_else(&mut next));
        turns.push(Turn { lane: launch.lane, after, tells });
    }
    turns
}

/// The streams beside that of the kernels, and what launches on all of them wait for each other with.
pub(super) struct Lanes {
    from_host: Stream,
    to_host: Stream,
    /// The kernels' stream before a phase, and the others after it.
    began: Event,
    ended: [Event; 2],
    events: Vec<Event>,
}

impl Lanes {
    pub(crate) fn new() -> Result<Lanes, CudaError> {
        let (from_host, to_host) = (Stream::new()?, Stream::new()?);
        let (began, ended) = (Event::new()?, [Event::new()?, Event::new()?]);
        Ok(Lanes { from_host, to_host, began, ended, events: Vec::new() })
    }

    /// Has at least so many events.
    pub(crate) fn reserve(&mut self, events: usize) -> Result<(), CudaError> {
        while self.events.len() < events {
            self.events.push(Event::new()?);
        }
        Ok(())
    }

    /// Puts launches on their streams, all of them between what is on `kernels` so far and what comes after.
    pub(crate) fn put(
        &self,
        kernels: &Stream,
        turns: &[Turn],
        mut put: impl FnMut(usize, &Stream) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let beside = [&self.from_host, &self.to_host];
        self.began.record(kernels)?;
        beside.iter().try_for_each(|stream| stream.wait_for(&self.began))?;
        for (index, turn) in turns.iter().enumerate() {
            let stream = match turn.lane {
                Lane::Kernels => kernels,
                Lane::FromHost => &self.from_host,
                Lane::ToHost => &self.to_host,
            };
            turn.after.iter().try_for_each(|&event| stream.wait_for(&self.events[event]))?;
            put(index, stream)?;
            turn.tells.map_or(Ok(()), |event| self.events[event].record(stream))?;
        }
        for (stream, ended) in beside.into_iter().zip(&self.ended) {
            ended.record(stream)?;
            kernels.wait_for(ended)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::launches::Shares;
    use super::*;
    use plimsoll_core::ops::SampleRng;
    use std::ops::Range;

    fn launch(lane: Lane, reads: Range<u64>, writes: Range<u64>) -> Joined {
        let touched = Touched { reads: vec![reads], writes: vec![writes] };
        Joined { launch: Recorded::Fill { address: 0, byte: 0, bytes: 0 }, shares: Shares::new(), touched, lane }
    }

    /// Fetches two ahead into three places, one update and one store each; the host's bytes are from 1000 on.
    fn pipeline(units: u64) -> Vec<Joined> {
        let slot = |unit: u64| 10 * (unit % 3)..10 * (unit % 3) + 10;
        let home = |unit: u64| 1000 + 10 * unit..1010 + 10 * unit;
        let fetch = |unit: u64| launch(Lane::FromHost, home(unit), slot(unit));
        let mut all: Vec<Joined> = (0..2.min(units)).map(fetch).collect();
        for unit in 0..units {
            all.extend((unit + 2 < units).then(|| fetch(unit + 2)));
            all.push(launch(Lane::Kernels, slot(unit), slot(unit)));
            all.push(launch(Lane::ToHost, slot(unit), home(unit)));
        }
        all
    }

    #[test]
    fn copies_each_way_and_kernels_wait_only_for_what_they_share() {
        let launches = pipeline(5);
        // fetch 0, 1, 2, update 0, store 0, fetch 3, update 1, store 1, fetch 4, ...
        let waits = waits(&launches);
        let expected: [&[usize]; 9] = [&[], &[], &[], &[0], &[3], &[3, 4], &[1], &[6], &[6, 7]];
        for (found, expected) in waits.iter().zip(expected) {
            assert_eq!(found.as_slice(), expected, "{waits:?}");
        }
        let turns = turns(&launches);
        assert!(events(&turns) <= 6, "{} events", events(&turns));
    }

    #[test]
    fn a_phase_without_the_host_has_no_turns() {
        assert!(turns(&[launch(Lane::Kernels, 0..4, 4..8), launch(Lane::Kernels, 4..8, 0..4)]).is_empty());
    }

    /// What each launch is surely behind of, as events tell it: a set of launches.
    fn behind(turns: &[Turn]) -> Vec<Vec<bool>> {
        let mut told: Vec<Option<usize>> = vec![None; events(turns)];
        let mut last: [Option<usize>; LANES] = [None; LANES];
        let mut all: Vec<Vec<bool>> = Vec::new();
        for (index, turn) in turns.iter().enumerate() {
            let before = turn.after.iter().map(|&event| told[event].expect("an event that was recorded"));
            let mut known = vec![false; turns.len()];
            for earlier in before.chain(last[turn.lane as usize]) {
                known[earlier] = true;
                known.iter_mut().zip(&all[earlier]).for_each(|(known, &also)| *known |= also);
            }
            all.push(known);
            last[turn.lane as usize] = Some(index);
            turn.tells.into_iter().for_each(|event| told[event] = Some(index));
        }
        all
    }

    #[test]
    fn whatever_shares_bytes_keeps_its_order() {
        let mut rng = SampleRng::new(11);
        let mut apart = 0;
        for _ in 0..300 {
            let launches: Vec<Joined> = (0..40)
                .map(|_| {
                    let mut range = || {
                        let start = rng.size(0, 99) as u64;
                        start..start + rng.size(1, 4) as u64
                    };
                    let (reads, writes) = (range(), range());
                    let lane = [Lane::Kernels, Lane::FromHost, Lane::ToHost][rng.size(0, 2)];
                    launch(lane, reads, writes)
                })
                .collect();
            let turns = turns(&launches);
            if turns.is_empty() {
                continue;
            }
            let behind = behind(&turns);
            for (later, earlier) in
                (0..launches.len()).flat_map(|later| (0..later).map(move |earlier| (later, earlier)))
            {
                let shares = !launches[earlier].touched.is_independent_of(&launches[later].touched);
                assert!(!shares || behind[later][earlier], "{later} does not wait for {earlier}: {turns:?}");
                apart += usize::from(!behind[later][earlier]);
            }
        }
        assert!(apart > 30_000, "only {apart} pairs may run at once");
    }
}
