//! The estimator against Optuna 5.0's own: split, weights, kernels and log-ratios of random histories, as
//! `tools/reference/tpe.py` wrote them down. `PLIMSOLL_TPE_GOLDENS` names another file to compare with.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use plimsoll_tune::samplers::History;
use plimsoll_tune::samplers::tpe::{Densities, Parzen, Split, Tpe};
use plimsoll_tune::{Direction, Distribution, Domain, Json, Param, State, Trial};

const TOLERANCE: f64 = 1e-12;

struct Golden {
    seed: i64,
    directions: Vec<Direction>,
    group: bool,
    joint: bool,
    trials: Vec<Arc<Trial>>,
    expected: Vec<Json>,
}

#[test]
fn splits_kernels_and_ratios_of_200_histories_are_optunas() {
    let goldens = read_goldens();
    assert!(goldens.len() >= 200);
    let mut worst = Worst::default();
    for golden in &goldens {
        check(golden, &mut worst);
    }
    eprintln!("{} numbers compared, the farthest apart by {:.1e} ({})", worst.compared, worst.apart, worst.place);
    assert!(worst.apart <= TOLERANCE, "{} is {:.1e} off", worst.place, worst.apart);
}

#[test]
fn the_histories_hold_what_the_comparison_is_meant_to_cover() {
    let goldens = read_goldens();
    let trials: Vec<&Arc<Trial>> = goldens.iter().flat_map(|golden| &golden.trials).collect();
    let count = |which: &dyn Fn(&Trial) -> bool| trials.iter().filter(|trial| which(trial)).count();
    assert!(State::ALL[..4].iter().all(|state| count(&|trial| trial.state == *state) > 100));
    assert!(count(&|trial| !trial.is_feasible()) > 100);
    assert!(count(&|trial| trial.state == State::Running && !trial.system_attrs.is_empty()) > 50);
    assert!(goldens.iter().filter(|golden| golden.group).count() > 20);
    assert!((1..=4).all(|objectives| goldens.iter().any(|golden| golden.directions.len() == objectives)));
    assert!(goldens.iter().any(|golden| golden.trials.len() > 300));
}

fn check(golden: &Golden, worst: &mut Worst) {
    let history = History { directions: &golden.directions, trials: &golden.trials };
    let tpe = Tpe { group: golden.group, ..Tpe::default() };
    let split = tpe.split(&history);
    if golden.joint {
        check_domains(golden, &tpe.joint_domains(&history));
    }
    for (index, expected) in golden.expected.iter().enumerate() {
        let place = format!("seed {} part {index}", golden.seed);
        check_split(&split, expected, &place);
        let domain = domain_of(expected.get("domain").unwrap());
        let joint = golden.group || golden.directions.len() == 1;
        let densities = Densities::new(&split, &domain, golden.directions.len(), joint);
        check_estimator(&densities.below, expected.get("good").unwrap(), &domain, &format!("{place} good"), worst);
        check_estimator(&densities.above, expected.get("other").unwrap(), &domain, &format!("{place} other"), worst);
        let ratios = densities.log_ratio(&points(expected, &domain));
        worst.compare_all(&ratios, &floats(expected.get("ratios").unwrap()), &format!("{place} ratios"));
    }
}

fn check_domains(golden: &Golden, found: &[Domain]) {
    let names = |domain: &Domain| domain.keys().cloned().collect::<Vec<String>>();
    let mut found: Vec<Vec<String>> = found.iter().map(names).collect();
    let mut expected: Vec<Vec<String>> =
        golden.expected.iter().map(|part| names(&domain_of(part.get("domain").unwrap()))).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "seed {}: parameters drawn together", golden.seed);
}

fn check_split(split: &Split, expected: &Json, place: &str) {
    let numbers = |trials: &[Arc<Trial>]| trials.iter().map(|trial| trial.number as f64).collect::<Vec<f64>>();
    assert_eq!(numbers(&split.below), floats(expected.get("below").unwrap()), "{place}: good trials");
    assert_eq!(numbers(&split.above), floats(expected.get("above").unwrap()), "{place}: other trials");
}

fn check_estimator(parzen: &Parzen, expected: &Json, domain: &Domain, place: &str, worst: &mut Worst) {
    worst.compare_all(parzen.weights(), &floats(expected.get("weights").unwrap()), &format!("{place} weights"));
    let kernels = expected.get("kernels").and_then(Json::as_array).unwrap();
    assert_eq!(kernels.len(), domain.len());
    for (dimension, kernel) in kernels.iter().enumerate() {
        let place = format!("{place} dimension {dimension}");
        if let Some(rows) = kernel.get("rows").and_then(Json::as_array) {
            let found = parzen.choice_rows(dimension).unwrap();
            assert_eq!(found.len(), rows.len(), "{place}");
            rows.iter().zip(found).for_each(|(row, found)| worst.compare_all(found, &floats(row), &place));
        } else {
            let (mus, sigmas) = parzen.kernels(dimension).unwrap();
            worst.compare_all(mus, &floats(kernel.get("mus").unwrap()), &format!("{place} centres"));
            worst.compare_all(sigmas, &floats(kernel.get("sigmas").unwrap()), &format!("{place} widths"));
        }
    }
}

#[derive(Default)]
struct Worst {
    apart: f64,
    place: String,
    compared: usize,
}

impl Worst {
    fn compare_all(&mut self, found: &[f64], expected: &[f64], place: &str) {
        assert_eq!(found.len(), expected.len(), "{place}");
        for (found, expected) in found.iter().zip(expected) {
            self.compare(*found, *expected, place);
        }
    }

    /// Apart relative to the size where that is above 1, else absolutely.
    fn compare(&mut self, found: f64, expected: f64, place: &str) {
        self.compared += 1;
        if found == expected || (found.is_nan() && expected.is_nan()) {
            return;
        }
        let apart = (found - expected).abs() / expected.abs().max(1.0);
        if apart.is_nan() || apart > self.apart {
            self.apart = if apart.is_nan() { f64::INFINITY } else { apart };
            self.place = format!("{place}: {found:?} instead of {expected:?}");
        }
    }
}

fn points(expected: &Json, domain: &Domain) -> Vec<Vec<f64>> {
    let columns: Vec<Vec<f64>> =
        domain.keys().map(|name| floats(expected.get("points").unwrap().get(name).unwrap())).collect();
    (0..columns[0].len()).map(|row| columns.iter().map(|column| column[row]).collect()).collect()
}

fn domain_of(json: &Json) -> Domain {
    json.as_object().unwrap().iter().map(|(name, text)| (name.clone(), distribution_of(text))).collect()
}

fn distribution_of(text: &Json) -> Arc<Distribution> {
    Arc::new(Distribution::from_json(&Json::parse(text.as_str().unwrap()).unwrap()).unwrap())
}

fn floats(json: &Json) -> Vec<f64> {
    json.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn read_goldens() -> Vec<Golden> {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goldens/tpe.json.gz");
    let path = std::env::var("PLIMSOLL_TPE_GOLDENS").unwrap_or_else(|_| kept.into());
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    Json::parse(&text).unwrap().get("histories").and_then(Json::as_array).unwrap().iter().map(golden_of).collect()
}

fn golden_of(json: &Json) -> Golden {
    let distributions: BTreeMap<String, Arc<Distribution>> = domain_of(json.get("distributions").unwrap());
    let trials = json.get("trials").and_then(Json::as_array).unwrap();
    Golden {
        seed: json.get("seed").and_then(Json::as_i64).unwrap(),
        directions: floats(json.get("directions").unwrap())
            .into_iter()
            .map(|code| Direction::from_code(code as i64).unwrap())
            .collect(),
        group: json.get("group").and_then(Json::as_bool).unwrap(),
        joint: json.get("joint").and_then(Json::as_bool).unwrap(),
        trials: trials.iter().enumerate().map(|(number, trial)| trial_of(trial, number, &distributions)).collect(),
        expected: json.get("expected").and_then(Json::as_array).unwrap().to_vec(),
    }
}

fn trial_of(json: &Json, number: usize, distributions: &BTreeMap<String, Arc<Distribution>>) -> Arc<Trial> {
    let state = State::from_code(json.get("state").and_then(Json::as_i64).unwrap()).unwrap();
    let mut trial = Trial::new(number as i64, number as u64, state);
    trial.values = json.get("values").filter(|values| values.as_array().is_some()).map(floats);
    for (name, internal) in json.get("params").and_then(Json::as_object).unwrap() {
        let param = Param { internal: internal.as_f64().unwrap(), distribution: distributions[name].clone() };
        trial.params.insert(name.clone(), param);
    }
    let entries = |key: &str| json.get(key).and_then(Json::as_object).unwrap_or(&[]);
    trial.system_attrs = entries("attrs").iter().cloned().collect();
    trial.intermediate =
        entries("reported").iter().map(|(step, value)| (step.parse().unwrap(), value.as_f64().unwrap())).collect();
    Arc::new(trial)
}
