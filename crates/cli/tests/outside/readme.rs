//! What README.md says of plans is what the command says.

use crate::common::Desk;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// How each row of the table begins, and what it is about.
const ROWS: [(&str, &[&str]); 4] = [
    ("| `encoder` bert-large, 192 × 480", &["encoder.toml", "--device", "rtx-4090"]),
    ("| `flan-t5-xl` 2.85 billion, 128 × 256", &["flan-t5-xl.toml", "--device", "rtx-5090"]),
    ("| the same | rtx-4090", &["flan-t5-xl.toml", "--device", "rtx-4090"]),
    ("| `clip` ViT-B/32, 128 pairs", &["clip.toml", "--device", "rtx-4090", "--memory", "4GiB"]),
];

/// What the table has to say about a plan.
fn words(plan: &Value) -> Vec<String> {
    let number = |key: &str| plan[key].as_u64().unwrap();
    let gib = (number("arena_bytes") + number("reserve_bytes")) as f64 / (1_u64 << 30) as f64;
    let batch = match number("accumulation") {
        1 => "at once".into(),
        times => format!("micro-batch {} × {times}", number("micro_batch")),
    };
    let recompute = match plan["recompute"].as_str().unwrap() {
        "none" => "nothing recomputed",
        "some" => "some values recomputed",
        other => other,
    };
    let materialized = (plan["attention"] == "materialized").then_some("materialized attention");
    let away = (plan["offload"] == "optimizer").then_some("the optimizer in host memory");
    let more = [Some(recompute), materialized, away].into_iter().flatten().map(String::from);
    [batch, format!("| {gib:.2} GiB |")].into_iter().chain(more).collect()
}

#[test]
fn the_table_of_plans_is_what_plan_says() {
    let (desk, text) = (Desk::new(), fs::read_to_string(root().join("README.md")).unwrap());
    for (beginning, arguments) in ROWS {
        let row = text.lines().find(|line| line.starts_with(beginning));
        let row = row.unwrap_or_else(|| panic!("README.md has no row {beginning:?}"));
        let recipe = root().join("recipes").join(arguments[0]);
        let plan = desk.json(&[&["plan", recipe.to_str().unwrap()], &arguments[1..], &["--json"]].concat());
        for words in words(&plan) {
            assert!(row.contains(&words), "no {words:?} in {row}");
        }
        assert_eq!(row.contains("materialized"), plan["attention"] == "materialized", "{row}");
        assert_eq!(row.contains("host memory"), plan["offload"] != "none", "{row}");
    }
}
