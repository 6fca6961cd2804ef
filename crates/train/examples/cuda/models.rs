//! Ten updates of every shipped recipe on the GPU, in every precision, against f32 on the CPU.

use crate::programs::{SHIPPED, Shipped};
use crate::session::{Session, Take, device};
use crate::{Outcome, Report};
use plimsoll_core::graph::Target;
use plimsoll_cuda::{CudaExecutor, CudaOptions, Gpu};
use plimsoll_exec::Executor;
use plimsoll_exec::cpu::CpuExecutor;
use plimsoll_models::recipe::Precision;
use plimsoll_planner::Device;
use plimsoll_planner::choose::{Choice, Planned};
use plimsoll_train::RunError;
use std::collections::BTreeMap;
use std::error::Error;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const STEPS: usize = 10;
/// How far the host is ahead of the device when a run begins: by its weights, and the first step's inputs.
const AHEAD_MS: u32 = 200;
const PRECISIONS: [Precision; 4] = [Precision::F32, Precision::Tf32, Precision::Bf16Mixed, Precision::Fp16Mixed];

/// Largest relative error of a loss and of a gradient, by the norm of the whole gradient.
fn allowed(precision: Precision) -> (f64, f64) {
    match precision {
        // Other orders of the same sums.
        Precision::F32 => (1e-4, 1e-3),
        // Factors of 11 bits instead of 8: an eighth of the error below.
        Precision::Tf32 | Precision::Fp16Mixed => (2.5e-3, 1.25e-2),
        // Activations of 8 bits through a whole model; gradients of single tensors are noisier than their norm.
        _ => (2e-2, 1e-1),
    }
}

pub(crate) fn check(gpu: &Rc<Gpu>, report: &mut Report, only: Option<&str>) -> Result<(), Box<dyn Error>> {
    let chosen: Vec<&Shipped> = SHIPPED.iter().filter(|s| only.is_none_or(|text| s.name.contains(text))).collect();
    let references = references(&chosen);
    println!("models: references of {} recipes by the CPU", references.len());
    for (shipped, reference) in chosen.iter().zip(references) {
        for precision in PRECISIONS {
            let compared = reference.as_ref().map_err(|cause| cause.clone().into());
            let compared = compared.and_then(|reference| compare(gpu, shipped, precision, reference));
            let (outcome, text) = compared.unwrap_or_else(|error| (outcome_of(error.as_ref()), error.to_string()));
            report.add(&format!("models in {precision}"), shipped.name, outcome, text);
        }
    }
    Ok(())
}

/// What this version refuses to run is missing, not wrong.
fn outcome_of(error: &(dyn Error + 'static)) -> Outcome {
    match error.downcast_ref::<RunError>() {
        Some(RunError::Refused { .. }) => Outcome::Missing,
        _ => Outcome::Fails,
    }
}

/// What the CPU makes of each recipe, or why it does not: on all cores, each on one.
fn references(chosen: &[&Shipped]) -> Vec<Result<Trace, String>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some((index, shipped)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            chosen.get(index).map(|shipped| (index, shipped))
        } {
            let reference = on_cpu(shipped).map_err(|error| error.to_string());
            done.lock().unwrap_or_else(|e| e.into_inner()).insert(index, reference);
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(chosen.len());
    std::thread::scope(|scope| (0..workers).for_each(|_| _ = scope.spawn(work)));
    done.into_inner().unwrap_or_else(|e| e.into_inner()).into_values().collect()
}

fn compare(
    gpu: &Rc<Gpu>,
    shipped: &Shipped,
    precision: Precision,
    reference: &Trace,
) -> Result<(Outcome, String), Box<dyn Error>> {
    let found = trace(shipped, precision, &card(), &taken(gpu, precision, true))?;
    let plain = losses(shipped, precision, &card(), &taken(gpu, precision, false))?;
    let (loss_limit, gradient_limit) = allowed(precision);
    let apart = |(a, b): (&f64, &f64)| (a - b).abs() / b.abs().max(1e-3);
    let losses = worst(found.losses.iter().zip(&reference.losses).map(apart));
    let (gradient, which) = gradient_error(&found.first_change, &reference.first_change);
    let same = found.losses.iter().zip(&plain).all(|(a, b)| a.to_bits() == b.to_bits());
    let text = format!(
        "losses off by {losses:.1e} of {loss_limit:.0e}, gradient by {gradient:.1e} of {gradient_limit:.0e} ({which}), \
         {} graphs; loss {:.5} → {:.5}, CPU {:.5} → {:.5}",
        if same { "same bits without" } else { "OTHER BITS without" },
        found.losses[0],
        found.losses[STEPS - 1],
        reference.losses[0],
        reference.losses[STEPS - 1],
    );
    // Written so that NaN does not hold.
    let holds = losses <= loss_limit && gradient <= gradient_limit && same;
    Ok((if holds { Outcome::Holds } else { Outcome::Fails }, text))
}

fn worst(errors: impl Iterator<Item = f64>) -> f64 {
    errors.fold(0.0, |worst, error| if error > worst || error.is_nan() { error } else { worst })
}

/// ‖a − b‖ over max(‖b‖, 1e-2 of the whole): the worst weight.
fn gradient_error(found: &BTreeMap<String, Vec<f64>>, exact: &BTreeMap<String, Vec<f64>>) -> (f64, String) {
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let whole = norm(&mut exact.values().flatten().copied());
    let error = |(name, b): (&String, &Vec<f64>)| {
        let none = Vec::new();
        let a = found.get(name).unwrap_or(&none);
        let difference = norm(&mut b.iter().enumerate().map(|(i, b)| a.get(i).copied().unwrap_or(f64::NAN) - b));
        (difference / norm(&mut b.iter().copied()).max(1e-2 * whole), name.clone())
    };
    let larger = |a: (f64, String), b: (f64, String)| if b.0 > a.0 || b.0.is_nan() { b } else { a };
    exact.iter().map(error).fold((0.0, String::new()), larger)
}

/// Losses of ten updates, and what the first, of plain gradient descent, changed.
struct Trace {
    losses: Vec<f64>,
    first_change: BTreeMap<String, Vec<f64>>,
}

fn on_cpu(shipped: &Shipped) -> Result<Trace, Box<dyn Error>> {
    let cpu = device("cpu", Target::cpu(1));
    trace(shipped, Precision::F32, &cpu, &|planned| {
        let threads = planned.choice.options.target.threads;
        Ok(Box::new(CpuExecutor::new(&planned.choice.program, &planned.choice.layout, threads)?))
    })
}

fn card() -> Device {
    device("cuda", Target::CUDA)
}

/// Takes the arena of a plan on the GPU. With graphs, the host is far ahead of the device, and what nothing was written to
/// is no number: what is read too early shows.
fn taken(
    gpu: &Rc<Gpu>,
    precision: Precision,
    graphs: bool,
) -> impl Fn(&Planned) -> Result<Box<dyn Executor>, Box<dyn Error>> {
    let options = CudaOptions { graphs, tf32: precision == Precision::Tf32, ..CudaOptions::default() };
    move |planned| {
        let Choice { program, layout, .. } = &planned.choice;
        let mut executor = CudaExecutor::new(gpu.clone(), program, layout, options)?;
        if graphs {
            executor.poison_temporaries();
            executor.pause(AHEAD_MS);
        }
        Ok(Box::new(executor))
    }
}

fn trace(shipped: &Shipped, precision: Precision, device: &Device, take: &Take<'_>) -> Result<Trace, Box<dyn Error>> {
    let first_change = first_change(shipped, precision, device, take)?;
    Ok(Trace { losses: losses(shipped, precision, device, take)?, first_change })
}

/// How the first update, of plain gradient descent, moves the weights: by exactly lr · gradient, so what moved is the
/// gradient, to the rounding of the weights.
fn first_change(
    shipped: &Shipped,
    precision: Precision,
    device: &Device,
    take: &Take<'_>,
) -> Result<BTreeMap<String, Vec<f64>>, Box<dyn Error>> {
    let descent = ["train.optimizer={ name = \"sgd\", lr = 1.0, weight_decay = 0.0 }", "train.clip_norm=1e6"];
    let mut session = Session::new(&shipped.recipe(precision, &descent.map(String::from))?, device, take)?;
    let before = session.weights();
    session.step()?;
    let after = session.weights();
    let change = |(name, before): (&String, &Vec<f64>)| {
        (name.clone(), after[name].iter().zip(before).map(|(a, b)| a - b).collect())
    };
    Ok(before.iter().map(change).collect())
}

fn losses(
    shipped: &Shipped,
    precision: Precision,
    device: &Device,
    take: &Take<'_>,
) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut session = Session::new(&shipped.recipe(precision, &[])?, device, take)?;
    (0..STEPS).map(|_| session.step()).collect()
}
