//! Classes that count more than others: the weight of a sample is that of its class.

use super::shared::refused;
use crate::RunError;
use crate::loaded::LoadedData;
use plimsoll_data::{ClassReport, DataReport, Weighted};
use plimsoll_models::recipe::{ClassWeights, Recipe};
use std::sync::Arc;

/// The data with its samples weighed as the recipe says, in training and in evaluation alike.
pub(super) fn weigh(recipe: &Recipe, mut data: LoadedData) -> Result<LoadedData, RunError> {
    let Some(wanted) = &recipe.train.class_weights else { return Ok(data) };
    let Some(classes) = classes(&mut data.report) else {
        return refused("this data has no classes to weigh", "leave out train.class_weights");
    };
    let weights = match wanted {
        ClassWeights::Balanced => balanced(classes),
        ClassWeights::List(weights) => weights.clone(),
    };
    for (class, weight) in classes.iter_mut().zip(&weights) {
        class.weight = Some(*weight);
    }
    let weights: Arc<[f32]> = weights.iter().map(|&weight| weight as f32).collect();
    data.train = Arc::new(Weighted::new(data.train, Arc::clone(&weights)));
    data.validation = data.validation.map(|held_out| Arc::new(Weighted::new(held_out, weights)) as _);
    Ok(data)
}

fn classes(report: &mut DataReport) -> Option<&mut [ClassReport]> {
    match report {
        DataReport::Series(report) => Some(&mut report.classes),
        DataReport::Texts(report) if !report.classes.is_empty() => Some(&mut report.classes),
        _ => None,
    }
}

/// Samples ÷ (classes × samples of the class), over the classes that the training data has.
fn balanced(classes: &[ClassReport]) -> Vec<f64> {
    let samples: u64 = classes.iter().map(|class| class.train).sum();
    let present = classes.iter().filter(|class| class.train > 0).count();
    let weight = |class: &ClassReport| match class.train {
        0 => 1.0,
        own => samples as f64 / (present as f64 * own as f64),
    };
    classes.iter().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balanced_weights_are_those_of_scikit_learn() {
        for line in include_str!("../../tests/goldens/classes.jsonl").lines() {
            let golden: serde_json::Value = serde_json::from_str(line).unwrap();
            let Some(expected) = golden["balanced"].as_object() else { continue };
            let count =
                |class: u64| golden["truth"].as_array().unwrap().iter().filter(|t| t.as_u64() == Some(class)).count();
            let class =
                |i: u64| ClassReport { name: i.to_string(), train: count(i) as u64, validation: 0, weight: None };
            let classes: Vec<ClassReport> = (0..golden["classes"].as_u64().unwrap()).map(class).collect();
            for (class, weight) in classes.iter().zip(balanced(&classes)) {
                let expected = expected.get(&class.name).map_or(1.0, |w| w.as_f64().unwrap());
                assert!((weight - expected).abs() < 1e-12, "{}: {weight}, not {expected}", class.name);
            }
        }
    }
}
