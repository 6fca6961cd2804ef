//! "Does it fit?": a recipe, cards, and no data on the machine.

use super::told;
use crate::common::Desk;

const RECIPE: &str = r#"
[model]
preset = "bert-base-uncased"
num_labels = 4

[data]
train = "not-here.jsonl"
max_length = 128

[train]
task = "classify"
effective_batch = 32
epochs = 3
"#;

#[test]
fn a_question_about_cards_needs_neither_card_nor_data() {
    let desk = Desk::new();
    desk.write("bert.toml", RECIPE);
    let plan = desk.json(&["plan", "bert.toml", "--device", "rtx-3060-12gb", "--json"]);
    assert_eq!(plan["fits"], true, "{plan}");
    let refused = desk.run(&["plan", "bert.toml", "--device", "rtx-3060-12gb", "--memory", "64MiB", "--json"]);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    let smallest = refused.json()["smallest_budget_bytes"].as_u64().unwrap();
    let enough = smallest.to_string();
    let plan = desk.json(&["plan", "bert.toml", "--device", "rtx-3060-12gb", "--memory", &enough, "--json"]);
    assert_eq!(plan["fits"], true, "what is said to be enough is enough");
    // Slips of the pen.
    told(&desk, "fits-card", &desk.run(&["plan", "bert.toml", "--device", "rtx-3060"]));
    desk.write("slip.toml", &RECIPE.replace("effective_batch", "efective_batch"));
    told(&desk, "fits-key", &desk.run(&["plan", "slip.toml"]));
}
