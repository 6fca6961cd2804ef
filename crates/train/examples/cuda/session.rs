//! A planned run of a shipped recipe that is stepped by hand over its own data.

use crate::programs::card_profile;
use plimsoll_core::graph::Target;
use plimsoll_core::plan::Profile;
use plimsoll_core::types::DType;
use plimsoll_data::{Batch, Loader, Position};
use plimsoll_exec::initialize;
use plimsoll_exec::{Executor, floats};
use plimsoll_models::recipe::{Precision, Recipe};
use plimsoll_planner::Device;
use plimsoll_planner::choose::{Planned, plan};
use plimsoll_train::steps::shapes;
use plimsoll_train::steps::{Shapes, Stepper};
use plimsoll_train::tasks::{load_data, loader_options};
use std::collections::BTreeMap;
use std::error::Error;

/// Takes the arena of a plan.
pub(crate) type Take<'a> = dyn Fn(&Planned) -> Result<Box<dyn Executor>, Box<dyn Error>> + 'a;

pub(crate) struct Session {
    pub planned: Planned,
    executor: Box<dyn Executor>,
    stepper: Stepper,
    shapes: Shapes,
    loader: Loader,
    lr: f64,
    done: usize,
}

impl Session {
    pub(crate) fn new(recipe: &Recipe, device: &Device, take: &Take<'_>) -> Result<Session, Box<dyn Error>> {
        let planned = plan(recipe, device)?;
        let mut executor = take(&planned)?;
        initialize(&planned.choice.program, &mut executor, recipe.train.seed)?;
        let (stepper, shapes) = (Stepper::new(recipe, &planned.choice)?, shapes(recipe, &planned));
        let loader = Loader::new(load_data(recipe)?.train, &loader_options(recipe), Position::default())?;
        let lr = recipe.train.optimizer.lr;
        Ok(Session { planned, executor, stepper, shapes, loader, lr, done: 0 })
    }

    /// The loss of the next update. One that is skipped because the loss is scaled too far is done again on its batch.
    pub(crate) fn step(&mut self) -> Result<f64, Box<dyn Error>> {
        let batch: &Batch = self.loader.next().ok_or("the data ended")??;
        let Session { planned, executor, stepper, shapes, lr, done, .. } = self;
        loop {
            let stepped = stepper.step(executor, &planned.choice, shapes, batch, *done, *lr, Executor::run)?;
            if stepped.has_diverged() || !stepped.is_skipped() {
                *done += 1;
                return Ok(stepped.loss);
            }
        }
    }

    pub(crate) fn weights(&self) -> BTreeMap<String, Vec<f64>> {
        let residents = self.planned.choice.program.residents.iter().filter(|r| r.is_parameter);
        let values = |name: &str| {
            let bytes = self.executor.read_resident(name).unwrap_or_default();
            floats(DType::F32, &bytes).into_iter().map(f64::from).collect()
        };
        residents.map(|r| (r.name.clone(), values(&r.name))).collect()
    }
}

/// A device with plenty of memory.
pub(crate) fn device(name: &str, target: Target) -> Device {
    Device {
        name: name.into(),
        total_bytes: 16 << 30,
        free_bytes: 16 << 30,
        reserve_bytes: 0,
        beside: Default::default(),
        profile: if target == Target::CUDA { card_profile() } else { Profile::cpu(1) },
        target,
        precision: Precision::F32,
        runs: true,
        ordinal: 0,
    }
}
