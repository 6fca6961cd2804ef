//! `plimsoll calibrate` from the outside: what it measures is kept, and used by the next prediction.

use crate::common::Desk;
use serde_json::Value;

fn predicted(desk: &Desk) -> f64 {
    let plan = desk.json(&["plan", "series.toml", "--threads", "1", "--json"]);
    plan["predicted_step_ms"].as_f64().unwrap()
}

#[test]
fn what_is_measured_is_kept_and_predicts() {
    let desk = Desk::new();
    let built_in = predicted(&desk);
    let answer = desk.json(&["calibrate", "--seconds", "1", "--threads", "1", "--json"]);
    let file = answer["file"].as_str().unwrap();
    assert!(std::path::Path::new(file).starts_with(desk.path("cache")), "{file}");
    let models: Vec<&str> = answer["steps"].as_array().unwrap().iter().map(|s| s["model"].as_str().unwrap()).collect();
    for family in ["hybrid", "mu-sota", "bert", "roberta", "xlm-roberta", "deberta-v3", "distilbert", "t5", "clip"] {
        assert!(models.contains(&family), "no step of {family}: {models:?}");
    }
    assert!(answer["classes"].as_array().unwrap().iter().all(|class| class["measured_ms"].as_f64().unwrap() > 0.0));
    assert_ne!(predicted(&desk), built_in);

    // Ten times slower in the file is ten times slower in the prediction.
    let measured = predicted(&desk);
    let mut stored: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    for rates in stored["profile"]["seconds"].as_object_mut().unwrap().values_mut() {
        for rate in rates.as_array_mut().unwrap() {
            *rate = (10.0 * rate.as_f64().unwrap()).into();
        }
    }
    stored["profile"]["phase_s"] = (10.0 * stored["profile"]["phase_s"].as_f64().unwrap()).into();
    std::fs::write(file, stored.to_string()).unwrap();
    assert!((predicted(&desk) / measured - 10.0).abs() < 0.01);

    // A torn file is not an error: one line says so, and the built-in profile predicts.
    std::fs::write(file, &stored.to_string()[..100]).unwrap();
    let torn = desk.run(&["plan", "series.toml", "--threads", "1", "--json"]);
    torn.must(0, &["is not used", "plimsoll calibrate"]);
    assert_eq!(torn.json()["predicted_step_ms"].as_f64().unwrap(), built_in);
}

#[test]
fn a_card_is_not_measured() {
    Desk::new().run(&["calibrate", "--device", "h200"]).must(2, &["h200"]);
}
