//! Samplers: given what was tried and what came of it, what to try next.

pub mod brute_force;
pub mod cma_es;
pub mod grid;
pub mod nsga2;
pub mod random;
pub mod sobol;
pub mod tpe;

use std::sync::Arc;

use crate::json::Json;
use crate::rng::Rng;
use crate::space::{Parameter, Point, Space};
use crate::trial::{Direction, Trial};

pub use brute_force::BruteForce;
pub use cma_es::CmaEs;
pub use grid::Grid;
pub use nsga2::Nsga2;
pub use random::Random;
pub use sobol::Sobol;
pub use tpe::Tpe;

/// All trials of a study so far, in the order of their numbers.
#[derive(Clone, Copy)]
pub struct History<'a> {
    pub directions: &'a [Direction],
    pub trials: &'a [Arc<Trial>],
}

/// What to try next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Suggestion {
    pub point: Point,
    /// What the sampler wants to find again in the trial, such as its generation.
    pub system_attrs: Vec<(String, Json)>,
    /// Nothing is left to try.
    pub exhausted: bool,
}

impl From<Point> for Suggestion {
    fn from(point: Point) -> Self {
        Self { point, ..Self::default() }
    }
}

pub trait Sampler: Send {
    /// A point of the space, with the values in `fixed` as given.
    fn suggest(&mut self, history: &History, space: &Space, fixed: &Point, rng: &mut Rng) -> Suggestion;
}

impl Sampler for Box<dyn Sampler> {
    fn suggest(&mut self, history: &History, space: &Space, fixed: &Point, rng: &mut Rng) -> Suggestion {
        self.as_mut().suggest(history, space, fixed, rng)
    }
}

/// The value asked for, if it is one the parameter can take.
fn fixed_value(parameter: &Parameter, fixed: &Point) -> Option<f64> {
    fixed.get(&parameter.name).copied().filter(|internal| parameter.distribution.contains(*internal))
}
