//! Ten updates of every shipped recipe on the GPU against the processor, and a thousand to see whether memory moves.

use crate::programs::{SHIPPED, Shipped};
use crate::{Outcome, Report};
use plimsoll::data::{Batch, Loader, Position};
use plimsoll::exec::cpu::CpuExecutor;
use plimsoll::exec::cuda::{CudaExecutor, CudaOptions, Gpu};
use plimsoll::exec::{Executor, floats};
use plimsoll::graph::DType;
use plimsoll::ops::Target;
use plimsoll::plan::Profile;
use plimsoll::recipe::{Precision, Recipe};
use plimsoll::train::{Device, Planned, Stepper, initialize, load_data, loader_options, plan, shapes};
use std::collections::BTreeMap;
use std::error::Error;
use std::rc::Rc;

const STEPS: usize = 10;

/// Largest relative error of a loss and of a gradient, by the norm of the whole gradient.
fn allowed(precision: Precision) -> (f64, f64) {
    match precision {
        // Other orders of the same sums.
        Precision::F32 => (1e-4, 1e-3),
        // Activations of 8 or 11 bits through a whole model; gradients of single tensors are noisier than their norm.
        _ => (2e-2, 1e-1),
    }
}

pub fn check(gpu: &Rc<Gpu>, report: &mut Report, only: Option<&str>) -> Result<(), Box<dyn Error>> {
    for shipped in SHIPPED.iter().filter(|shipped| only.is_none_or(|text| shipped.name.contains(text))) {
        for precision in [Precision::F32, Precision::Bf16Mixed, Precision::Fp16Mixed] {
            let (kind, name) = (format!("models in {precision}"), shipped.name);
            match compare(gpu, shipped, precision) {
                Ok((holds, text)) => report.add(&kind, name, if holds { Outcome::Holds } else { Outcome::Fails }, text),
                Err(error) => report.add(&kind, name, Outcome::Fails, error.to_string()),
            }
        }
    }
    Ok(())
}

fn compare(gpu: &Rc<Gpu>, shipped: &Shipped, precision: Precision) -> Result<(bool, String), Box<dyn Error>> {
    let reference = on_processor(shipped)?;
    let found = on_gpu(gpu, shipped, precision, true)?;
    let plain = on_gpu(gpu, shipped, precision, false)?;
    let (loss_limit, gradient_limit) = allowed(precision);
    let apart = |(a, b): (&f64, &f64)| (a - b).abs() / b.abs().max(1e-3);
    let losses = worst(found.losses.iter().zip(&reference.losses).map(apart));
    let (gradient, which) = gradient_error(&found.first_change, &reference.first_change);
    let same = found.losses.iter().zip(&plain.losses).all(|(a, b)| a.to_bits() == b.to_bits());
    let text = format!(
        "losses off by {losses:.1e} of {loss_limit:.0e}, gradient by {gradient:.1e} of {gradient_limit:.0e} ({which}), \
         {} graphs; loss {:.5} → {:.5}, processor {:.5} → {:.5}",
        if same { "same bits without" } else { "OTHER BITS without" },
        found.losses[0],
        found.losses[STEPS - 1],
        reference.losses[0],
        reference.losses[STEPS - 1],
    );
    // Written so that NaN does not hold.
    Ok((losses <= loss_limit && gradient <= gradient_limit && same, text))
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

fn on_processor(shipped: &Shipped) -> Result<Trace, Box<dyn Error>> {
    trace(shipped, Precision::F32, &cpu(), &mut |planned, _| {
        let threads = planned.choice.options.target.threads;
        Ok(Box::new(CpuExecutor::new(&planned.choice.program, &planned.choice.layout, threads)?))
    })
}

fn on_gpu(gpu: &Rc<Gpu>, shipped: &Shipped, precision: Precision, graphs: bool) -> Result<Trace, Box<dyn Error>> {
    trace(shipped, precision, &card(), &mut |planned, precision| {
        let options = CudaOptions { graphs, tf32: precision == Precision::Tf32, ..CudaOptions::default() };
        Ok(Box::new(CudaExecutor::new(gpu.clone(), &planned.choice.program, &planned.choice.layout, options)?))
    })
}

type Take<'a> = dyn FnMut(&Planned, Precision) -> Result<Box<dyn Executor>, Box<dyn Error>> + 'a;

fn trace(
    shipped: &Shipped,
    precision: Precision,
    device: &Device,
    take: &mut Take<'_>,
) -> Result<Trace, Box<dyn Error>> {
    // Weights move by exactly lr · gradient: what moved is the gradient, to the rounding of the weights.
    let descent = ["train.optimizer={ name = \"sgd\", lr = 1.0, weight_decay = 0.0 }", "train.clip_norm=1e6"];
    let first = shipped.recipe(precision, &descent.map(String::from))?;
    let mut session = Session::new(&first, device, precision, take)?;
    let before = session.weights();
    session.step()?;
    let after = session.weights();
    let change = |(name, before): (&String, &Vec<f64>)| {
        (name.clone(), after[name].iter().zip(before).map(|(a, b)| a - b).collect())
    };
    let first_change = before.iter().map(change).collect();
    drop(session);
    let mut session = Session::new(&shipped.recipe(precision, &[])?, device, precision, take)?;
    let losses = (0..STEPS).map(|_| session.step()).collect::<Result<_, _>>()?;
    Ok(Trace { losses, first_change })
}

/// A planned run that is stepped by hand over its own data.
struct Session {
    planned: Planned,
    executor: Box<dyn Executor>,
    stepper: Stepper,
    shapes: plimsoll::train::Shapes,
    loader: Loader,
    lr: f64,
    done: usize,
}

impl Session {
    fn new(
        recipe: &Recipe,
        device: &Device,
        precision: Precision,
        take: &mut Take<'_>,
    ) -> Result<Session, Box<dyn Error>> {
        let planned = plan(recipe, device)?;
        let mut executor = take(&planned, precision)?;
        initialize(&planned.choice.program, &mut executor, recipe.train.seed);
        let loader = Loader::new(load_data(recipe)?.train, &loader_options(recipe), Position::default())?;
        let (stepper, shapes) = (Stepper::new(recipe, &planned.choice), shapes(recipe, &planned));
        Ok(Session { planned, executor, stepper, shapes, loader, lr: recipe.train.optimizer.lr, done: 0 })
    }

    /// One update. A step that is skipped because the loss is scaled too far is done again on the same batch.
    fn step(&mut self) -> Result<f64, Box<dyn Error>> {
        let batch: &Batch = self.loader.next().ok_or("the data ended")??;
        let Session { planned, executor, stepper, shapes, lr, done, .. } = self;
        loop {
            let stepped = stepper.step(executor, &planned.choice, shapes, batch, *done, *lr, Executor::run)?;
            if stepped.has_diverged() || !stepped.is_skipped() {
                self.done += 1;
                return Ok(stepped.loss);
            }
        }
    }

    fn weights(&self) -> BTreeMap<String, Vec<f64>> {
        let residents = self.planned.choice.program.residents.iter().filter(|r| r.is_parameter);
        let values = |name: &str| {
            let bytes = self.executor.read_resident(name).unwrap_or_default();
            floats(DType::F32, &bytes).into_iter().map(f64::from).collect()
        };
        residents.map(|r| (r.name.clone(), values(&r.name))).collect()
    }
}

/// Not a byte of the device's memory may move once everything is warm.
pub fn check_drift(gpu: &Rc<Gpu>, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let shipped = SHIPPED.iter().find(|shipped| shipped.name == "bert").ok_or("no such recipe")?;
    let recipe = shipped.recipe(Precision::Bf16Mixed, &[])?;
    let mut session = Session::new(&recipe, &card(), Precision::Bf16Mixed, &mut |planned, _| {
        let options = CudaOptions::default();
        Ok(Box::new(CudaExecutor::new(gpu.clone(), &planned.choice.program, &planned.choice.layout, options)?))
    })?;
    // Every length that the data has comes up in an epoch.
    (0..250).try_for_each(|_| session.step().map(|_| ()))?;
    let before = gpu.used_bytes()?;
    (0..1000).try_for_each(|_| session.step().map(|_| ()))?;
    let moved = gpu.used_bytes()? as i64 - before as i64;
    let arena = session.planned.choice.layout.arena_bytes as u64;
    let outcome = if moved == 0 { Outcome::Holds } else { Outcome::Fails };
    let text = format!(
        "{moved} bytes moved in 1000 steps; {} MiB beside an arena of {} MiB",
        (before - arena) >> 20,
        arena >> 20
    );
    println!("drift: {text}");
    report.add("drift", shipped.name, outcome, text);
    Ok(())
}

fn cpu() -> Device {
    let target = Target::cpu(std::thread::available_parallelism().map_or(1, usize::from).min(8));
    device("cpu", target)
}

fn card() -> Device {
    device("cuda", Target::CUDA)
}

fn device(name: &str, target: Target) -> Device {
    Device {
        name: name.into(),
        total_bytes: 16 << 30,
        free_bytes: 16 << 30,
        reserve_bytes: 0,
        profile: Profile::cpu(1),
        target,
        precision: Precision::F32,
        runs: true,
        ordinal: 0,
    }
}
