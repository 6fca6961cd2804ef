//! `plimsoll plan` and `plimsoll devices` from the outside.

use crate::common::{Desk, SERIES};
use serde_json::Value;

const FIELDS: [&str; 22] = [
    "fits",
    "device",
    "budget_bytes",
    "reserve_bytes",
    "arena_bytes",
    "live_peak_bytes",
    "headroom_bytes",
    "host_peak_bytes",
    "parameters",
    "effective_batch",
    "micro_batch",
    "accumulation",
    "precision",
    "attention",
    "recompute",
    "optimizer_state",
    "offload",
    "predicted_step_ms",
    "steps_per_epoch",
    "breakdown",
    "peak",
    "decisions",
];

fn number(plan: &Value, key: &str) -> i64 {
    plan[key].as_i64().unwrap_or_else(|| panic!("{key}: {plan}"))
}

#[test]
fn the_json_has_every_field_of_the_contract_and_adds_up() {
    let desk = Desk::new();
    for recipe in ["series.toml", "text.toml"] {
        let plan = desk.json(&["plan", recipe, "--json"]);
        for field in FIELDS {
            assert!(plan.get(field).is_some(), "{recipe}: no {field}");
        }
        assert_eq!(plan["fits"], true);
        let parts: i64 = plan["breakdown"].as_object().unwrap().values().map(|b| b.as_i64().unwrap()).sum();
        assert_eq!(parts, number(&plan, "live_peak_bytes"), "{recipe}");
        let layers: i64 = plan["layers"].as_object().unwrap().values().map(|b| b.as_i64().unwrap()).sum();
        assert_eq!(layers, parts, "{recipe}");
        let left = number(&plan, "budget_bytes") - number(&plan, "reserve_bytes") - number(&plan, "arena_bytes");
        assert_eq!(left, number(&plan, "headroom_bytes"));
        let batch = number(&plan, "micro_batch") * number(&plan, "accumulation");
        assert!(batch >= number(&plan, "effective_batch"));
        assert!(plan["steps_per_epoch"].as_u64().unwrap() > 0);
        for key in ["tick", "node", "phase"] {
            assert!(plan["peak"].get(key).is_some());
        }
        for key in ["lever", "choice", "saved_bytes", "predicted_ms", "reason"] {
            assert!(plan["decisions"][0].get(key).is_some(), "{key}");
        }
    }
}

#[test]
fn the_tables_name_the_verdict_and_the_peak() {
    let desk = Desk::new();
    let short = desk.run(&["plan", "series.toml"]);
    short.must(0, &[]);
    for words in ["fits: series on cpu", "budget", "headroom", "decisions", "memory at the peak", "alive at the peak"] {
        assert!(short.stdout.contains(words), "no `{words}` in {}", short.stdout);
    }
    let long = desk.run(&["plan", "series.toml", "--explain", "--timeline", "step.svg"]);
    assert!(long.stdout.lines().count() > short.stdout.lines().count());
    assert!(std::fs::read_to_string(desk.path("step.svg")).unwrap().starts_with("<svg"));
}

#[test]
fn the_smallest_budget_works_when_passed_back_in() {
    let desk = Desk::new();
    for (recipe, pin) in [("series.toml", "memory.recompute=none"), ("text.toml", "memory.micro_batch=8")] {
        let refused = desk.run(&["plan", recipe, "--memory", "64KiB", "--set", pin, "--json"]);
        refused.must(3, &["error:", "does not fit", "hint:", "--memory"]);
        let plan = refused.json();
        assert_eq!(plan["fits"], false);
        assert!(!plan["hints"].as_array().unwrap().is_empty());
        let smallest = number(&plan, "smallest_budget_bytes");
        let enough = desk.json(&["plan", recipe, "--memory", &smallest.to_string(), "--set", pin, "--json"]);
        assert_eq!(enough["fits"], true);
        assert!(number(&enough, "arena_bytes") <= smallest);
        assert!(refused.stderr.contains(&format!("--memory {smallest} ")), "{}", refused.stderr);
        // Starts differ by some pages, which it has room for.
        let less = (smallest - (4 << 20) - 1).to_string();
        desk.run(&["plan", recipe, "--memory", &less, "--set", pin, "--json"]).must(3, &[]);
    }
    desk.run(&["train", "series.toml", "--memory", "64KiB"]).must(3, &["does not fit", "hint:"]);
    assert!(!desk.path("runs").exists(), "nothing is written for a run that does not fit");
}

#[test]
fn a_pinned_micro_batch_is_answered_with_one_that_fits() {
    let desk = Desk::new();
    let one = desk.json(&["plan", "text.toml", "--set", "memory.micro_batch=1", "--json"]);
    let budget = (number(&one, "arena_bytes") + number(&one, "reserve_bytes") + 4096).to_string();
    let refused = desk.run(&["plan", "text.toml", "--set", "memory.micro_batch=8", "--memory", &budget]);
    refused.must(3, &["without memory.micro_batch pinned, micro-batch"]);
}

#[test]
fn settings_and_flags_reach_the_plan() {
    let desk = Desk::new();
    let plan = desk.json(&[
        "plan",
        "series.toml",
        "--json",
        "--set",
        "train.effective_batch=4",
        "--set",
        "memory.budget=2GiB",
        "--memory",
        "1GiB",
    ]);
    assert_eq!((number(&plan, "effective_batch"), number(&plan, "budget_bytes")), (4, 1 << 30));
}

#[test]
fn bad_recipes_are_refused_with_place_and_advice() {
    let desk = Desk::new();
    desk.write("key.toml", &SERIES.replace("hidden", "hiden"));
    desk.run(&["plan", "key.toml"]).must(2, &["error:", "key.toml:7:1", "model.hiden", "did you mean `hidden`?"]);
    desk.write("heads.toml", &SERIES.replace("heads = 2", "heads = 5"));
    desk.run(&["plan", "heads.toml"]).must(2, &["heads.toml:8", "do not divide", "hint:"]);
    desk.run(&["plan", "nowhere.toml"]).must(2, &["nowhere.toml", "hint:"]);
    desk.run(&["plan", "series.toml", "--set", "train.epoch=3"]).must(2, &["--set train.epoch=3", "`epochs`"]);
    desk.run(&["plan", "series.toml", "--memory", "12Gigs"]).must(2, &["12Gigs"]);
    desk.run(&["plan", "series.toml", "--set", "memory.precision=bf16"]).must(0, &["cannot be run here"]);
    desk.run(&["train", "series.toml", "--set", "memory.precision=bf16"]).must(2, &["not available", "hint:"]);
    desk.run(&["plan"]).must(2, &["RECIPE"]);
}

#[test]
fn devices_that_are_not_here() {
    let desk = Desk::new();
    desk.run(&["plan", "series.toml", "--device", "cuda:0"]).must(2, &["libcuda is not on this machine", "driver"]);
    let mixed = desk.json(&["plan", "series.toml", "--device", "h200", "--json"]);
    assert_eq!(mixed["precision"], "bf16-mixed");
    desk.run(&["plan", "series.toml", "--device", "h2000"]).must(2, &["did you mean `h200`?"]);
    desk.run(&["train", "series.toml", "--device", "t4"]).must(2, &["it can only be planned for"]);
    let plan = desk.json(&["plan", "series.toml", "--device", "t4", "--set", "memory.precision=f32", "--json"]);
    assert_eq!(plan["device"], "t4");
    assert!(number(&plan, "reserve_bytes") > 0);
}

#[test]
fn devices_answer() {
    let desk = Desk::new();
    let here = desk.json(&["devices", "--json"]);
    assert_eq!(here[0]["device"], "cpu");
    assert!(here[0]["total_bytes"].as_u64().unwrap() >= here[0]["available_bytes"].as_u64().unwrap());
    let catalog = desk.json(&["devices", "--catalog", "--json"]);
    assert!(catalog.as_array().unwrap().iter().any(|card| card["name"] == "h200"));
    desk.run(&["devices"]).must(0, &["no GPU", "--catalog"]);
}
