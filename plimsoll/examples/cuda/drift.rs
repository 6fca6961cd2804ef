//! A thousand micro-steps of the shipped recipes: the device's memory is what was planned, and not a byte of it moves.

use crate::programs::{SHIPPED, Shipped};
use crate::session::{Session, batches, device};
use crate::{Outcome, Report};
use plimsoll::exec::cuda::{CudaExecutor, CudaOptions, Gpu};
use plimsoll::exec::devices::{GpuFacts, nearest_card};
use plimsoll::ops::Target;
use plimsoll::recipe::Precision;
use std::collections::HashSet;
use std::error::Error;

const MICRO_STEPS: usize = 1000;
/// The driver hands out memory in pieces of this size.
const GRAIN: u64 = 2 << 20;

/// Every family, and those that accumulate.
fn is_checked(shipped: &Shipped) -> bool {
    !shipped.name.contains(',') || shipped.name.contains("accumulated")
}

pub fn check(report: &mut Report, only: Option<&str>) -> Result<(), Box<dyn Error>> {
    // What plans for this card count with beside the arena.
    let reserve = nearest_card(&GpuFacts::gather(0)?).reserve_bytes;
    for shipped in SHIPPED.iter().filter(|s| is_checked(s) && only.is_none_or(|text| s.name.contains(text))) {
        match drift(shipped, reserve) {
            Ok((outcome, text)) => {
                println!("drift {}: {text}", shipped.name);
                report.add("drift", shipped.name, outcome, text);
            }
            Err(error) => report.add("drift", shipped.name, Outcome::Fails, error.to_string()),
        }
    }
    Ok(())
}

/// On a device opened for this alone, as a run has it.
fn drift(shipped: &Shipped, reserve_bytes: u64) -> Result<(Outcome, String), Box<dyn Error>> {
    let recipe = shipped.recipe(Precision::Bf16Mixed, &[])?;
    let gpu = Gpu::open(0)?;
    let opened = gpu.used_bytes()?;
    let mut session = Session::new(&recipe, &device("cuda", Target::CUDA, reserve_bytes), &|planned| {
        let options = CudaOptions { reserve_bytes, ..CudaOptions::default() };
        Ok(Box::new(CudaExecutor::new(gpu.clone(), &planned.choice.program, &planned.choice.layout, options)?))
    })?;
    let arena = (session.planned.choice.layout.arena_bytes as u64).next_multiple_of(GRAIN);
    let steps = MICRO_STEPS.div_ceil(session.planned.choice.settings.accumulation);
    let lengths = warm_up(&mut session, &recipe, steps)?;
    let warm = gpu.used_bytes()?;
    let mut most = warm;
    for _ in 0..steps {
        session.step()?;
        most = most.max(gpu.used_bytes()?);
    }
    let moved = (gpu.used_bytes()? as i64 - warm as i64).abs().max((most - warm) as i64);
    let beside = warm.saturating_sub(arena);
    let holds = moved == 0 && beside <= reserve_bytes;
    let text = format!(
        "{moved} bytes moved in {steps} steps of {lengths} lengths; arena {} MiB, {} MiB beside it ({} when opened) of {} \
         planned for",
        arena >> 20,
        beside >> 20,
        opened >> 20,
        reserve_bytes >> 20
    );
    Ok((if holds { Outcome::Holds } else { Outcome::Fails }, text))
}

/// Steps once on every length that the data will have; how many there are.
fn warm_up(session: &mut Session, recipe: &plimsoll::recipe::Recipe, steps: usize) -> Result<usize, Box<dyn Error>> {
    let (mut ahead, mut seen) = (batches(recipe)?, HashSet::new());
    for _ in 0..steps {
        let batch = ahead.next().ok_or("the data ended")??;
        if seen.insert(batch.lengths().to_vec()) {
            session.step_on(batch)?;
        }
    }
    Ok(seen.len())
}
