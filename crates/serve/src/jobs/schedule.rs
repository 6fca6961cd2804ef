//! When each job can run: bytes and places on a device are given out in the order of asking. A later job may run
//! before an earlier one only where that delays nobody.

/// What a job takes of a device, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Demand {
    pub bytes: u64,
    pub seconds: f64,
}

/// What a device has for jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Supply {
    pub bytes: u64,
    /// Jobs at one time.
    pub places: usize,
}

/// A job with its time, in seconds from now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slot {
    pub start: f64,
    pub end: f64,
    pub bytes: u64,
}

/// The times of the waiting jobs, in their order; `None` for one that the device never has room for.
pub(crate) fn schedule(supply: Supply, running: &[Demand], waiting: &[Demand]) -> Vec<Option<Slot>> {
    let mut placed: Vec<Slot> =
        running.iter().map(|job| Slot { start: 0.0, end: job.seconds.max(0.0), bytes: job.bytes }).collect();
    waiting
        .iter()
        .map(|job| {
            let slot = earliest(supply, &placed, *job)?;
            placed.push(slot);
            Some(slot)
        })
        .collect()
}

/// A job starts now or when another ends: nothing changes in between.
fn earliest(supply: Supply, placed: &[Slot], job: Demand) -> Option<Slot> {
    let mut starts: Vec<f64> = placed.iter().map(|slot| slot.end).chain([0.0]).collect();
    starts.sort_by(f64::total_cmp);
    let slot = |start: f64| Slot { start, end: start + job.seconds.max(0.0), bytes: job.bytes };
    starts.into_iter().map(slot).find(|slot| has_room(supply, placed, slot))
}

fn has_room(supply: Supply, placed: &[Slot], slot: &Slot) -> bool {
    // What is taken rises only where a job starts: looking there is enough.
    let moments = placed.iter().map(|other| other.start).filter(|&at| slot.start < at && at < slot.end);
    moments.chain([slot.start]).all(|at| {
        let there = placed.iter().filter(|other| other.start <= at && at < other.end);
        let (bytes, count) = there.fold((slot.bytes, 1), |(b, n), other| (b.saturating_add(other.bytes), n + 1));
        bytes <= supply.bytes && count <= supply.places
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator, so that a failing case can be named by its seed.
    fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        }
    }

    #[test]
    fn nothing_is_ever_overbooked_and_what_can_run_at_last_does() {
        for seed in 0..300 {
            let mut next = numbers(seed);
            let supply = Supply { bytes: 50 + next(100), places: 1 + next(5) as usize };
            let mut jobs = |most: u64| -> Vec<Demand> {
                (0..next(most)).map(|_| Demand { bytes: 1 + next(120), seconds: next(50) as f64 }).collect()
            };
            let mut running = jobs(4);
            running.truncate(supply.places);
            let mut left = supply.bytes;
            running.retain(|job| {
                job.bytes <= left && {
                    left -= job.bytes;
                    true
                }
            });
            let waiting = jobs(30);
            let slots = schedule(supply, &running, &waiting);
            let all: Vec<Slot> = running
                .iter()
                .map(|job| Slot { start: 0.0, end: job.seconds, bytes: job.bytes })
                .chain(slots.iter().flatten().copied())
                .collect();
            for at in all.iter().map(|slot| slot.start) {
                let there: Vec<&Slot> = all.iter().filter(|slot| slot.start <= at && at < slot.end).collect();
                assert!(there.len() <= supply.places, "seed {seed}");
                assert!(there.iter().map(|slot| slot.bytes).sum::<u64>() <= supply.bytes, "seed {seed}");
            }
            for (slot, job) in slots.iter().zip(&waiting) {
                assert_eq!(slot.is_some(), job.bytes <= supply.bytes, "seed {seed}");
            }
        }
    }

    #[test]
    fn a_later_job_passes_only_where_nobody_waits_longer() {
        let supply = Supply { bytes: 100, places: 8 };
        let running = [Demand { bytes: 60, seconds: 10.0 }];
        let large = Demand { bytes: 90, seconds: 5.0 };
        let [short, long] = [10.0, 11.0].map(|seconds| Demand { bytes: 40, seconds });
        let start = |waiting: &[Demand]| -> Vec<f64> {
            schedule(supply, &running, waiting).iter().map(|slot| slot.unwrap().start).collect()
        };
        assert_eq!(start(&[large, short]), [10.0, 0.0]);
        assert_eq!(start(&[large, long]), [10.0, 15.0]);
        assert_eq!(start(&[short, large]), [0.0, 10.0]);
    }
}
