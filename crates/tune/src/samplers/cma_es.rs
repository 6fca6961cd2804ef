//! CMA-ES (Hansen, 2016) over the numeric parameters, in coordinates where each range is the unit interval. Choices are
//! drawn at random. The state is a function of the trials' past generations: nothing else needs to be kept.

use std::sync::Arc;

use super::{History, Sampler, Suggestion, random};
use crate::json::Json;
use crate::order;
use crate::rng::Rng;
use crate::space::{Distribution, Parameter, Point, Space};
use crate::trial::{State, Trial};

/// Settings; the population follows from the number of parameters unless it is given.
#[derive(Clone, Debug)]
pub struct CmaEs {
    /// The first step size, as a share of each range.
    pub sigma: f64,
    pub population: Option<usize>,
    cached: Option<(i64, Strategy)>,
}

impl Default for CmaEs {
    fn default() -> Self {
        Self { sigma: 1.0 / 6.0, population: None, cached: None }
    }
}

const GENERATION: &str = "plimsoll:cma:generation";
/// A point that leaves the unit cube is drawn again so often before it is put onto the border.
const REDRAWS: usize = 100;

impl Sampler for CmaEs {
    fn suggest(&mut self, history: &History, space: &Space, fixed: &Point, rng: &mut Rng) -> Suggestion {
        let numeric: Vec<&Parameter> = space.parameters().iter().filter(|parameter| is_numeric(parameter)).collect();
        if numeric.is_empty() {
            return random::Random.suggest(history, space, fixed, rng);
        }
        let (generation, strategy) = self.strategy(history, &numeric);
        let coordinates = strategy.draw(rng);
        let place = |name: &str| numeric.iter().position(|parameter| parameter.name == name);
        let point = space.walk(|parameter| {
            let drawn = place(&parameter.name).map_or_else(|| rng.uniform(), |at| coordinates[at]);
            super::fixed_value(parameter, fixed)
                .unwrap_or_else(|| random::at(&parameter.distribution, drawn.clamp(0.0, 1.0 - 1e-12)))
        });
        let system_attrs = vec![(GENERATION.to_string(), Json::Int(generation))];
        Suggestion { point, system_attrs, exhausted: false }
    }
}

fn is_numeric(parameter: &Parameter) -> bool {
    let choices = matches!(*parameter.distribution, Distribution::Categorical { .. });
    !choices && parameter.when.is_empty() && !parameter.distribution.is_single()
}

impl CmaEs {
    /// The strategy after all generations that are full, and the number of the next.
    fn strategy(&mut self, history: &History, numeric: &[&Parameter]) -> (i64, Strategy) {
        let start = || (0, Strategy::new(numeric.len(), self.sigma, self.population));
        let (mut generation, mut strategy) = self.cached.take().unwrap_or_else(start);
        loop {
            let members = ranked(generation, history, numeric);
            if members.len() < strategy.population {
                self.cached = Some((generation, strategy.clone()));
                return (generation, strategy);
            }
            strategy.learn(&members[..strategy.population]);
            generation += 1;
        }
    }
}

/// A generation's points, the best first.
fn ranked(generation: i64, history: &History, numeric: &[&Parameter]) -> Vec<Vec<f64>> {
    let direction = history.directions[0];
    let is_member = |trial: &&Arc<Trial>| {
        let own = trial.system_attrs.get(GENERATION).and_then(Json::as_i64) == Some(generation);
        own && trial.state == State::Complete
    };
    let shares = |trial: &Trial| -> Option<Vec<f64>> {
        let share = |parameter: &&Parameter| {
            let param = trial.params.get(&parameter.name)?;
            Some(random::share_of(&parameter.distribution, param.internal))
        };
        numeric.iter().map(share).collect()
    };
    let members = history.trials.iter().filter(is_member);
    let mut points: Vec<(f64, Vec<f64>)> = members
        .filter_map(|trial| Some((direction.loss(trial.value()?) + infeasible(trial), shares(trial)?)))
        .collect();
    order::sort_by(&mut points, |a, b| a.0.total_cmp(&b.0));
    points.into_iter().map(|(_, point)| point).collect()
}

/// What breaks a constraint comes after everything else.
fn infeasible(trial: &Trial) -> f64 {
    if trial.is_feasible() { 0.0 } else { f64::INFINITY }
}

/// Mean, step size, covariance and evolution paths, with the constants of the tutorial.
#[derive(Clone, Debug)]
struct Strategy {
    population: usize,
    weights: Vec<f64>,
    mean: Vec<f64>,
    sigma: f64,
    covariance: Vec<Vec<f64>>,
    /// Columns are eigenvectors of the covariance, with the roots of its eigenvalues.
    axes: (Vec<Vec<f64>>, Vec<f64>),
    path_sigma: Vec<f64>,
    path_c: Vec<f64>,
    generation: i32,
}

impl Strategy {
    fn new(dimensions: usize, sigma: f64, population: Option<usize>) -> Self {
        let n = dimensions as f64;
        let population = population.unwrap_or(4 + (3.0 * n.ln()).floor() as usize).max(2);
        let half = population / 2;
        let raw: Vec<f64> = (0..half).map(|i| ((population as f64 + 1.0) / 2.0).ln() - ((i + 1) as f64).ln()).collect();
        let sum: f64 = raw.iter().sum();
        let covariance = identity(dimensions);
        Self {
            population,
            weights: raw.iter().map(|weight| weight / sum).collect(),
            mean: vec![0.5; dimensions],
            sigma,
            axes: (covariance.clone(), vec![1.0; dimensions]),
            covariance,
            path_sigma: vec![0.0; dimensions],
            path_c: vec![0.0; dimensions],
            generation: 0,
        }
    }

    /// A point inside the unit cube.
    fn draw(&self, rng: &mut Rng) -> Vec<f64> {
        let mut point = self.mean.clone();
        for _ in 0..REDRAWS {
            let normals: Vec<f64> = self.axes.1.iter().map(|root| root * rng.normal()).collect();
            let step = multiply(&self.axes.0, &normals);
            point = self.mean.iter().zip(step).map(|(mean, step)| mean + self.sigma * step).collect();
            if point.iter().all(|x| (0.0..1.0).contains(x)) {
                break;
            }
        }
        point
    }

    /// Moves on by one generation, given its points from best to worst.
    fn learn(&mut self, ranked: &[Vec<f64>]) {
        self.generation += 1;
        let n = self.mean.len() as f64;
        let mu_eff = 1.0 / self.weights.iter().map(|weight| weight * weight).sum::<f64>();
        let steps: Vec<Vec<f64>> = ranked
            .iter()
            .map(|point| point.iter().zip(&self.mean).map(|(x, mean)| (x - mean) / self.sigma).collect())
            .collect();
        let step = weighted_sum(&self.weights, &steps, self.mean.len());
        self.mean.iter_mut().zip(&step).for_each(|(mean, step)| *mean += self.sigma * step);

        let c_sigma = (mu_eff + 2.0) / (n + mu_eff + 5.0);
        let whitened = self.whiten(&step);
        follow(&mut self.path_sigma, c_sigma, mu_eff, 1.0, &whitened);
        let expected = n.sqrt() * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n * n));
        let length = norm(&self.path_sigma);
        let settled = (1.0 - (1.0 - c_sigma).powi(2 * self.generation)).sqrt();
        let keeps_on = if length / settled < (1.4 + 2.0 / (n + 1.0)) * expected { 1.0 } else { 0.0 };
        self.adapt_covariance(&step, &steps, mu_eff, keeps_on);
        let damping = 1.0 + 2.0 * (((mu_eff - 1.0) / (n + 1.0)).sqrt() - 1.0).max(0.0) + c_sigma;
        self.sigma = (self.sigma * ((c_sigma / damping) * (length / expected - 1.0)).exp()).clamp(1e-12, 1.0);
    }

    fn adapt_covariance(&mut self, step: &[f64], steps: &[Vec<f64>], mu_eff: f64, keeps_on: f64) {
        let n = self.mean.len() as f64;
        let c_c = (4.0 + mu_eff / n) / (n + 4.0 + 2.0 * mu_eff / n);
        follow(&mut self.path_c, c_c, mu_eff, keeps_on, step);
        let c_1 = 2.0 / ((n + 1.3).powi(2) + mu_eff);
        let c_mu = (1.0 - c_1).min(2.0 * (mu_eff - 2.0 + 1.0 / mu_eff) / ((n + 2.0).powi(2) + mu_eff));
        let fill = (1.0 - keeps_on) * c_c * (2.0 - c_c);
        for row in 0..self.mean.len() {
            for column in 0..self.mean.len() {
                let best = self.weights.iter().zip(steps);
                let rank_mu: f64 = best.map(|(weight, step)| weight * step[row] * step[column]).sum();
                let rank_one = self.path_c[row] * self.path_c[column];
                let old = self.covariance[row][column];
                self.covariance[row][column] =
                    (1.0 - c_1 - c_mu) * old + c_1 * (rank_one + fill * old) + c_mu * rank_mu;
            }
        }
        self.axes = axes_of(&self.covariance);
    }

    /// C^(−1/2) · step
    fn whiten(&self, step: &[f64]) -> Vec<f64> {
        let (vectors, roots) = &self.axes;
        let n = step.len();
        let along: Vec<f64> =
            (0..n).map(|axis| (0..n).map(|row| vectors[row][axis] * step[row]).sum::<f64>() / roots[axis]).collect();
        multiply(vectors, &along)
    }
}

fn identity(size: usize) -> Vec<Vec<f64>> {
    (0..size).map(|row| (0..size).map(|column| if row == column { 1.0 } else { 0.0 }).collect()).collect()
}

fn multiply(matrix: &[Vec<f64>], vector: &[f64]) -> Vec<f64> {
    matrix.iter().map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum()).collect()
}

fn norm(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn weighted_sum(weights: &[f64], vectors: &[Vec<f64>], size: usize) -> Vec<f64> {
    (0..size).map(|at| weights.iter().zip(vectors).map(|(weight, vector)| weight * vector[at]).sum()).collect()
}

/// An evolution path forgets at a rate and takes up the newest step.
fn follow(path: &mut [f64], rate: f64, mu_eff: f64, keeps_on: f64, step: &[f64]) {
    let gain = keeps_on * (rate * (2.0 - rate) * mu_eff).sqrt();
    path.iter_mut().zip(step).for_each(|(path, step)| *path = (1.0 - rate) * *path + gain * step);
}

/// Eigenvectors as columns and roots of eigenvalues of a symmetric matrix, by Jacobi rotations.
fn axes_of(matrix: &[Vec<f64>]) -> (Vec<Vec<f64>>, Vec<f64>) {
    let size = matrix.len();
    let (mut left, mut vectors) = (matrix.to_vec(), identity(size));
    for _ in 0..60 {
        let outside: f64 = (0..size).flat_map(|r| (0..r).map(move |c| (r, c))).map(|(r, c)| left[r][c].abs()).sum();
        if outside < 1e-15 * (0..size).map(|at| left[at][at].abs()).sum::<f64>() {
            break;
        }
        for row in 0..size {
            for column in 0..row {
                rotate(&mut left, &mut vectors, row, column);
            }
        }
    }
    let roots = (0..size).map(|at| left[at][at].max(1e-20).sqrt()).collect();
    (vectors, roots)
}

/// Turns the plane of two axes so that their entry outside the diagonal vanishes.
fn rotate(matrix: &mut [Vec<f64>], vectors: &mut [Vec<f64>], p: usize, q: usize) {
    if matrix[p][q] == 0.0 {
        return;
    }
    let theta = (matrix[q][q] - matrix[p][p]) / (2.0 * matrix[p][q]);
    let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
    let t = if theta == 0.0 { 1.0 } else { t };
    let c = 1.0 / (t * t + 1.0).sqrt();
    let s = t * c;
    for row in matrix.iter_mut().chain(vectors.iter_mut()) {
        let (a, b) = (row[p], row[q]);
        (row[p], row[q]) = (c * a - s * b, s * a + c * b);
    }
    // q < p: the matrix is gone through below its diagonal.
    let (above, below) = matrix.split_at_mut(p);
    for (a, b) in below[0].iter_mut().zip(above[q].iter_mut()) {
        (*a, *b) = (c * *a - s * *b, s * *a + c * *b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{Direction, Param};

    #[test]
    fn axes_put_a_matrix_back_together() {
        let mut rng = Rng::new(4);
        let raw: Vec<Vec<f64>> = (0..6).map(|_| (0..6).map(|_| rng.normal()).collect()).collect();
        let dot = |a: usize, b: usize| (0..6).map(|k| raw[a][k] * raw[b][k]).sum::<f64>();
        let matrix: Vec<Vec<f64>> = (0..6).map(|a| (0..6).map(|b| dot(a, b)).collect()).collect();
        let (vectors, roots) = axes_of(&matrix);
        for a in 0..6 {
            for b in 0..6 {
                let again: f64 = (0..6).map(|k| vectors[a][k] * roots[k] * roots[k] * vectors[b][k]).sum();
                assert!((again - matrix[a][b]).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn a_turned_and_stretched_valley_is_found() {
        let mut space = Space::new();
        for name in ["a", "b", "c", "d", "e"] {
            space.add(name, Distribution::float(-5.0, 5.0).unwrap()).unwrap();
        }
        let (mut sampler, mut rng) = (CmaEs::default(), Rng::new(1));
        let mut trials: Vec<Arc<Trial>> = Vec::new();
        for number in 0..1200 {
            let history = History { directions: &[Direction::Minimize], trials: &trials };
            let suggestion = sampler.suggest(&history, &space, &Point::new(), &mut rng);
            let x: Vec<f64> = suggestion.point.values().copied().collect();
            let rosenbrock: f64 =
                x.windows(2).map(|w| 100.0 * (w[1] - w[0] * w[0]).powi(2) + (1.0 - w[0]).powi(2)).sum();
            let mut trial = Trial::new(number, number as u64, State::Complete);
            trial.values = Some(vec![rosenbrock]);
            trial.system_attrs.extend(suggestion.system_attrs);
            for (name, internal) in suggestion.point {
                let distribution = space.get(&name).unwrap().distribution.clone();
                trial.params.insert(name, Param { internal, distribution });
            }
            trials.push(Arc::new(trial));
        }
        let best = trials.iter().filter_map(|trial| trial.value()).fold(f64::INFINITY, f64::min);
        assert!(best < 1.0, "{best}");
    }
}
