//! `regimes`: a hidden Markov chain switches between falling, calm and rising; every channel is an autoregression
//! whose drift, autocorrelation and volatility depend on the regime:
//!
//! `x[t] = drift[s] · sign + persistence[s] · x[t−1] + volatility[s] · noise`
//!
//! The label of a window is the regime at its last row. The generating model is known, so is its forward filter: the
//! posterior of the regime given the window. Its most likely regime is the Bayes-optimal answer, and how often it is
//! right is the best accuracy a model can hope for.

use super::Noise;
use crate::formats::table::{Selection, Table};
use crate::report::DataReport;
use crate::series::{assemble, check};
use crate::{DataError, Dataset, LabelRule, SeriesData, SeriesOptions, Windows};

/// Classes of the series.
pub const REGIMES: usize = 3;
const NAMES: [&str; REGIMES] = ["falling", "calm", "rising"];
/// Chance that the next row has the same regime: 50 rows on average, about a window.
const STAY: f64 = 0.98;
/// How far regimes differ in one channel when it is the only one. With n channels each differs by 1/√n of it, so that
/// the best accuracy is about 0.94 for any number of channels.
const DRIFT: [f64; REGIMES] = [-1.0, 0.0, 1.0];
const PERSISTENCE: [f64; REGIMES] = [0.5, 0.0, -0.5];
const LOG_VOLATILITY: [f64; REGIMES] = [0.4, -0.4, 0.4];
const MEAN_PERSISTENCE: f64 = 0.3;
/// Rows × features beyond which the options are a slip of the pen (32 GiB of numbers).
const MOST_CELLS: usize = 1 << 32;
const LABEL: &str = "regime";

#[derive(Clone, Debug, PartialEq)]
pub struct RegimesOptions {
    pub seed: u64,
    pub rows: usize,
    pub features: usize,
    pub window: usize,
    pub stride: usize,
    pub validation_fraction: f64,
}

impl Default for RegimesOptions {
    fn default() -> Self {
        RegimesOptions { seed: 1, rows: 10_000, features: 8, window: 60, stride: 1, validation_fraction: 0.2 }
    }
}

/// A regime-switching series with `best_accuracy` known: that of the optimal classifier on the validation windows
/// (on the training windows if nothing is held out).
pub fn regimes(options: &RegimesOptions) -> Result<SeriesData, DataError> {
    let series = series_options(options)?;
    let model = Model::new(options.seed, options.features);
    let (values, states) = model.generate(options.seed, options.rows);
    let table = table(options.features, &values, &states);
    let selection = Selection { others: vec![LABEL.into()], ..Selection::default() };
    let mut data = assemble(&table, &series, &selection)?;
    data.normalizer.classes = NAMES.map(String::from).to_vec();
    let evidence = model.evidence(&values);
    let held_out = (options.rows as f64 * options.validation_fraction).round() as usize;
    let best = match data.validation.is_empty() {
        true => accuracy(&data.train, &evidence, options.window),
        false => accuracy(&data.validation, &evidence[options.rows - held_out..], options.window),
    };
    data.best_accuracy = Some(best);
    if let DataReport::Series(report) = &mut data.report {
        report.best_accuracy = Some(best);
        report.classes.iter_mut().zip(NAMES).for_each(|(class, name)| class.name = name.into());
    }
    Ok(data)
}

fn series_options(options: &RegimesOptions) -> Result<SeriesOptions, DataError> {
    if options.features == 0 {
        return Err(DataError::option("features", "must be at least 1"));
    }
    if options.rows.checked_mul(options.features).is_none_or(|cells| cells > MOST_CELLS) {
        let cause = format!("{} × {} features is more than can be made", options.rows, options.features);
        return Err(DataError::option("rows", cause));
    }
    let series = SeriesOptions {
        window: options.window,
        stride: options.stride,
        validation_fraction: options.validation_fraction,
        classes: Some(REGIMES),
        ..SeriesOptions::new("synthetic:regimes", LabelRule::Column(LABEL.into()))
    };
    check(&series)?;
    Ok(series)
}

fn table(features: usize, values: &[f64], states: &[usize]) -> Table {
    let channel = |feature: usize| values.iter().skip(feature).step_by(features).copied().collect();
    let mut columns: Vec<(String, Vec<f64>)> =
        (0..features).map(|feature| (format!("channel-{feature}"), channel(feature))).collect();
    columns.push((LABEL.into(), states.iter().map(|&state| state as f64).collect()));
    Table::made("synthetic:regimes", columns)
}

struct Model {
    /// Direction of the drift in each channel.
    signs: Vec<f64>,
    drift: [f64; REGIMES],
    persistence: [f64; REGIMES],
    volatility: [f64; REGIMES],
}

impl Model {
    fn new(seed: u64, features: usize) -> Self {
        let share = 1.0 / (features as f64).sqrt();
        let mut noise = Noise::new(seed, "regimes.signs");
        Model {
            signs: (0..features).map(|_| if noise.uniform() < 0.5 { -1.0 } else { 1.0 }).collect(),
            drift: DRIFT.map(|drift| drift * share),
            persistence: PERSISTENCE.map(|persistence| MEAN_PERSISTENCE + persistence * share),
            volatility: LOG_VOLATILITY.map(|volatility| (volatility * share).exp()),
        }
    }

    /// Values (rows, features) and the regime of each row.
    fn generate(&self, seed: u64, rows: usize) -> (Vec<f64>, Vec<usize>) {
        let (mut chain, mut noise) = (Noise::new(seed, "regimes.chain"), Noise::new(seed, "regimes.noise"));
        let mut state = ((chain.uniform() * REGIMES as f64) as usize).min(REGIMES - 1);
        let mut row = vec![0.0; self.signs.len()];
        let (mut values, mut states) = (Vec::with_capacity(rows * row.len()), Vec::with_capacity(rows));
        for _ in 0..rows {
            let [change, which] = chain.pair();
            if change >= STAY {
                state = (state + 1 + usize::from(which < 0.5)) % REGIMES;
            }
            for (x, sign) in row.iter_mut().zip(&self.signs) {
                *x = self.expected(state, *sign, *x) + self.volatility[state] * noise.normal();
            }
            values.extend_from_slice(&row);
            states.push(state);
        }
        (values, states)
    }

    fn expected(&self, state: usize, sign: f64, before: f64) -> f64 {
        self.drift[state] * sign + self.persistence[state] * before
    }

    /// For every row and regime the likelihood of the row given the row before, up to a factor per row. The first row
    /// has none before it and says nothing.
    fn evidence(&self, values: &[f64]) -> Vec<[f64; REGIMES]> {
        let width = self.signs.len();
        let pairs = values.windows(2 * width).step_by(width).map(|pair| pair.split_at(width));
        let rows = pairs.map(|(before, now)| likelihoods(|state| self.log_density(state, before, now)));
        std::iter::once([1.0; REGIMES]).chain(rows).collect()
    }

    fn log_density(&self, state: usize, before: &[f64], now: &[f64]) -> f64 {
        let errors = self.signs.iter().zip(before.iter().zip(now));
        let squares = errors.map(|(sign, (before, now))| (now - self.expected(state, *sign, *before)).powi(2));
        let volatility = self.volatility[state];
        -0.5 * squares.sum::<f64>() / volatility.powi(2) - now.len() as f64 * volatility.ln()
    }
}

/// Scaled so that the largest is 1: sums of many channels would underflow.
fn likelihoods(log_density: impl Fn(usize) -> f64) -> [f64; REGIMES] {
    let logs: [f64; REGIMES] = std::array::from_fn(log_density);
    let most = logs.iter().copied().fold(f64::MIN, f64::max);
    logs.map(|log| (log - most).exp())
}

/// The forward filter: the posterior of the regime at the last of `rows`, from a uniform (the stationary) prior.
fn filter(rows: &[[f64; REGIMES]]) -> [f64; REGIMES] {
    let leave = (1.0 - STAY) / (REGIMES - 1) as f64;
    rows.iter().fold([1.0 / REGIMES as f64; REGIMES], |belief, likelihood| {
        let next: [f64; REGIMES] =
            std::array::from_fn(|state| (leave + (STAY - leave) * belief[state]) * likelihood[state]);
        let sum: f64 = next.iter().sum();
        next.map(|share| share / sum)
    })
}

/// How often the filter, which sees nothing but the window, names the right regime. The first row of a window only
/// conditions the second, as the row before it is not seen; what it says by itself is forgotten within some ten rows,
/// so this is the optimum for windows longer than that and an estimate from below for shorter ones.
fn accuracy(windows: &Windows, evidence: &[[f64; REGIMES]], window: usize) -> f64 {
    let right = |sample: &usize| {
        let last = windows.last_row(*sample);
        let belief = filter(&evidence[last + 2 - window..=last]);
        let best = (0..REGIMES).max_by(|&a, &b| belief[a].total_cmp(&belief[b]));
        best == usize::try_from(windows.label(*sample)).ok()
    };
    (0..windows.len()).filter(right).count() as f64 / windows.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Batch;

    #[test]
    fn the_best_accuracy_is_far_above_chance_and_below_one() {
        for (seed, features) in [(1, 1), (2, 8), (3, 64)] {
            let data = regimes(&RegimesOptions { seed, features, ..Default::default() }).unwrap();
            let best = data.best_accuracy.unwrap();
            assert!((0.90..=0.97).contains(&best), "seed {seed}, {features} features: {best}");
            assert_eq!(data.normalizer.classes, NAMES);
            let counts = data.train.class_counts(REGIMES);
            let share = *counts.iter().max().unwrap() as f64 / data.train.len() as f64;
            assert!(share < 0.5, "one regime has {share} of the windows");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bits() {
        let make = |seed| {
            let data = regimes(&RegimesOptions { seed, rows: 500, ..Default::default() }).unwrap();
            let mut batch = Batch::new(data.train.fields(), 4).unwrap();
            batch.fill(&data.train, 0..4).unwrap();
            (batch, data.best_accuracy)
        };
        assert_eq!(make(5), make(5));
        assert_ne!(make(5).0, make(6).0);
    }

    /// A window of 60 rows is nearly as good as the whole past, and the filter knows how sure it is.
    #[test]
    fn the_filter_is_calibrated_and_a_window_is_enough() {
        let model = Model::new(9, 4);
        let (values, states) = model.generate(9, 40_000);
        let evidence = model.evidence(&values);
        let (mut windowed, mut whole, mut sure) = (0, 0, 0.0);
        for last in (200..states.len()).step_by(7) {
            let best = |belief: [f64; REGIMES]| (0..REGIMES).max_by(|&a, &b| belief[a].total_cmp(&belief[b])).unwrap();
            let belief = filter(&evidence[last - 58..=last]);
            windowed += usize::from(best(belief) == states[last]);
            whole += usize::from(best(filter(&evidence[last - 200..=last])) == states[last]);
            sure += belief[best(belief)];
        }
        let n = ((states.len() - 200) as f64 / 7.0).ceil();
        let (windowed, whole, sure) = (windowed as f64 / n, whole as f64 / n, sure / n);
        assert!((windowed - whole).abs() < 0.003, "{windowed} from windows, {whole} from the past");
        assert!((windowed - sure).abs() < 0.015, "right {windowed}, expected to be right {sure}");
    }

    /// Another classifier, which knows the model but not the order of rows, must do worse.
    #[test]
    fn the_order_of_rows_matters() {
        let data = regimes(&RegimesOptions { seed: 4, ..Default::default() }).unwrap();
        let model = Model::new(4, 8);
        let evidence = model.evidence(&model.generate(4, 10_000).0);
        let orderless = |sample: &usize| {
            let rows = &evidence[data.train.last_row(*sample) - 58..=data.train.last_row(*sample)];
            let sums: [f64; REGIMES] = std::array::from_fn(|state| rows.iter().map(|row| row[state].ln()).sum());
            (0..REGIMES).max_by(|&a, &b| sums[a].total_cmp(&sums[b])) == Some(data.train.label(*sample) as usize)
        };
        let right = (0..data.train.len()).filter(orderless).count() as f64 / data.train.len() as f64;
        assert!((0.5..data.best_accuracy.unwrap() - 0.05).contains(&right), "{right}");
    }

    #[test]
    fn impossible_options_are_refused() {
        let refuse = |options: RegimesOptions| regimes(&options).unwrap_err();
        use DataError as E;
        assert!(matches!(refuse(RegimesOptions { features: 0, ..Default::default() }), E::BadOption { .. }));
        assert!(matches!(refuse(RegimesOptions { rows: usize::MAX, ..Default::default() }), E::BadOption { .. }));
        assert!(matches!(refuse(RegimesOptions { rows: 10, ..Default::default() }), E::TooShort { .. }));
        assert!(matches!(refuse(RegimesOptions { window: 0, ..Default::default() }), E::BadOption { .. }));
        let single = regimes(&RegimesOptions { window: 1, rows: 200, ..Default::default() }).unwrap();
        assert!((0.0..=1.0).contains(&single.best_accuracy.unwrap()));
    }
}
