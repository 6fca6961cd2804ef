//! What `plimsoll plan` answers beyond the one plan: frontier, neighbours, cards, grids and the ladder.

use crate::common::Desk;
use serde_json::Value;

fn bytes(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key}: {value}"))
}

fn ms(value: &Value) -> f64 {
    value["predicted_step_ms"].as_f64().unwrap_or_else(|| panic!("no time: {value}"))
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}

#[test]
fn the_frontier_trades_memory_for_time() {
    let desk = Desk::new();
    let plan = desk.json(&["plan", "text.toml", "--frontier", "frontier.svg", "--json"]);
    let points = list(&plan["frontier"]);
    assert!(points.len() >= 2, "{points:?}");
    for pair in points.windows(2) {
        assert!(bytes(&pair[0], "planned_peak_bytes") < bytes(&pair[1], "planned_peak_bytes"));
        assert!(ms(&pair[0]) > ms(&pair[1]));
    }
    let svg = std::fs::read_to_string(desk.path("frontier.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.matches("<circle").count() == points.len());
    // Every point is a plan: its bytes are enough for one that is as fast.
    let point = &points[points.len() / 2];
    let budget = bytes(point, "planned_peak_bytes").to_string();
    let again = desk.json(&["plan", "text.toml", "--memory", &budget, "--json"]);
    assert!(bytes(&again, "arena_bytes") <= bytes(point, "arena_bytes") && ms(&again) <= 1.0001 * ms(point));
    let text = desk.run(&["plan", "--frontier", "text.toml"]);
    text.must(0, &[]);
    assert!(text.stdout.contains("memory against time") && text.stdout.contains("← the fastest that fits"));
    desk.run(&["plan", "text.toml", "image.svg"]).must(2, &["--frontier"]);
}

#[test]
fn a_frontier_that_the_budget_cuts_off() {
    let desk = Desk::new();
    let refused = desk.run(&["plan", "text.toml", "--memory", "64KiB", "--frontier", "--json"]);
    refused.must(3, &["does not fit"]);
    assert!(list(&refused.json()["frontier"]).iter().all(|point| point["fits"] == false));
}

#[test]
fn an_explained_plan_knows_its_neighbours() {
    let desk = Desk::new();
    let pins = ["memory.recompute=none", "memory.attention=fused", "memory.block_group=2", "memory.loss_chunk=16"];
    let plan_of = |micro_batch: &str, more: &[&str]| {
        let flags: Vec<&str> = ["plan", "text.toml", "--json"].into_iter().chain(more.iter().copied()).collect();
        let sets = pins.into_iter().chain([micro_batch]).flat_map(|set| ["--set", set]);
        desk.json(&flags.into_iter().chain(sets).collect::<Vec<_>>())
    };
    let plan = plan_of("memory.micro_batch=2", &["--explain"]);
    let steps: Vec<&Value> = list(&plan["neighbours"]).iter().filter(|n| n["lever"] == "micro_batch").collect();
    let to: Vec<&str> = steps.iter().filter_map(|step| step["to"].as_str()).collect();
    assert_eq!(to, ["4 × 2", "1 × 8"]);
    // The step is the plan that pinning it gives.
    let larger = plan_of("memory.micro_batch=4", &[]);
    let extra = bytes(&larger, "arena_bytes") as i64 - bytes(&plan, "arena_bytes") as i64;
    assert_eq!(steps[0]["extra_bytes"].as_i64(), Some(extra));
    assert!((steps[0]["extra_ms"].as_f64().unwrap() - (ms(&larger) - ms(&plan))).abs() < 1e-9);
    let levers: Vec<&str> = list(&plan["neighbours"]).iter().filter_map(|n| n["lever"].as_str()).collect();
    for lever in ["recompute", "attention", "block_group"] {
        assert!(levers.contains(&lever), "{lever}: {levers:?}");
    }
    for answer in ["another_gib", "largest_micro_batch", "smallest_card", "full_speed_card"] {
        assert!(plan["margins"][answer].is_object(), "{answer}: {}", plan["margins"]);
    }
    let text = desk.run(&["plan", "text.toml", "--explain"]).stdout;
    for words in ["one step up or down", "another GiB", "largest micro-batch", "smallest card", "at full speed"] {
        assert!(text.contains(words), "no `{words}` in {text}");
    }
}

#[test]
fn batch_statistics_leave_the_micro_batch_alone() {
    let desk = Desk::new();
    let plan = desk.json(&["plan", "series.toml", "--explain", "--json"]);
    assert!(list(&plan["neighbours"]).iter().all(|n| n["lever"] != "micro_batch"));
    assert_eq!(plan["margins"]["largest_micro_batch"]["micro_batch"], 16);
}

#[test]
fn a_table_of_cards() {
    let desk = Desk::new();
    let rows = desk.json(&["plan", "text.toml", "--cards", "12GiB,t4,rtx-4090,3GiB", "--json"]);
    let rows = list(&rows);
    let names: Vec<&str> = rows.iter().filter_map(|row| row["card"].as_str()).collect();
    assert!(names[0].starts_with("12GiB (") && names[1..3] == ["t4", "rtx-4090"], "{names:?}");
    assert!(names[3].starts_with("3GiB (as fast as "), "{names:?}");
    assert_eq!(bytes(&rows[3], "total_bytes"), 3 << 30);
    for row in rows {
        assert_eq!(row["fits"], true, "{row}");
        assert!(bytes(row, "planned_peak_bytes") <= bytes(row, "budget_bytes"));
        let speed = row["samples_per_s"].as_f64().unwrap();
        assert!((speed * ms(row) / 1e3 - 8.0).abs() < 1e-6, "{row}");
        assert!(row["run_seconds"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(rows[1]["precision"], "fp16-mixed");
    let alike = desk.json(&["plan", "text.toml", "--cards", "8GiB", "--device", "h200", "--json"]);
    assert_eq!(alike[0]["card"], "8GiB (as fast as h200)");
    let variants = desk.json(&["plan", "text.toml", "--cards", "h100,8GB", "--json"]);
    let names: Vec<&str> = list(&variants).iter().filter_map(|row| row["card"].as_str()).collect();
    assert_eq!(names[..3], ["h100-80gb", "h100-pcie", "h100-nvl"]);
    assert!(names[3].starts_with("8GB (") && names.len() == 4, "{names:?}");
    let text = desk.run(&["plan", "text.toml", "--cards", "t4,rtx-4090"]);
    text.must(0, &[]);
    for column in ["card", "budget", "fits", "batch", "recompute", "peak", "step", "samples/s", "run"] {
        assert!(text.stdout.lines().next().unwrap().contains(column), "{column}: {}", text.stdout);
    }
    assert_eq!(text.stdout.lines().count(), 4);
}

#[test]
fn cards_that_are_not_there_or_too_small() {
    let desk = Desk::new();
    desk.run(&["plan", "text.toml", "--cards", "t4,rtx-4900"]).must(2, &["rtx-4900", "did you mean `rtx-4090`?"]);
    desk.run(&["plan", "text.toml", "--cards", "12Gig"]).must(2, &["12Gig", "hint:"]);
    desk.run(&["plan", "text.toml", "--cards", "90%"]).must(2, &["a name or a size"]);
    desk.run(&["plan", "text.toml", "--cards", "t4,"]).must(2, &["a name is missing", "hint:"]);
    // No card is to blame for what none can plan.
    let narrow = ["plan", "text.toml", "--cards", "t4,h200", "--set", "memory.optimizer_state=8bit"];
    desk.run(&narrow).must(2, &["none of these cards", "memory.optimizer_state", "hint:"]);
    desk.run(&["plan", "text.toml", "--cards", "t4", "--frontier"]).must(2, &["--cards", "--frontier"]);
    let refused = desk.run(&["plan", "text.toml", "--cards", "64MiB,128MiB", "--json"]);
    refused.must(3, &["fits none of these cards", "hint:"]);
    assert_eq!(list(&refused.json()).len(), 2);
}

#[test]
fn a_grid_plans_every_combination() {
    let desk = Desk::new();
    let grid = ["--grid", "train.effective_batch=2,4x1,2", "--grid", "data.max_length=8..16:4"];
    let rows = desk.json(&[&["plan", "text.toml", "--json"], &grid[..]].concat());
    let rows = list(&rows);
    assert_eq!(rows.len(), 12);
    assert_eq!(rows[3]["settings"]["train.effective_batch"], "4");
    assert_eq!(rows[3]["settings"]["data.max_length"], "8");
    assert!(rows.iter().all(|row| row["fits"] == true));
    // 2 × 2 and 4 × 1 are the same training.
    assert_eq!(bytes(&rows[3], "arena_bytes"), bytes(&rows[6], "arena_bytes"));
    let row = &rows[11];
    let one =
        desk.json(&["plan", "text.toml", "--set", "train.effective_batch=8", "--set", "data.max_length=16", "--json"]);
    assert_eq!(bytes(row, "arena_bytes"), bytes(&one, "arena_bytes"));
    assert_eq!(row["micro_batch"], one["micro_batch"]);
    let text = desk.run(&[&["plan", "text.toml"], &grid[..]].concat());
    text.must(0, &[]);
    assert!(text.stdout.ends_with("\n12 of 12 fit (9 different plans)\n"), "{}", text.stdout);
    assert!(text.stdout.contains("2x2"), "{}", text.stdout);
}

#[test]
fn a_grid_counts_what_does_not_fit_and_what_is_refused() {
    let desk = Desk::new();
    let pin = ["--set", "memory.micro_batch=8", "--set", "memory.recompute=none"];
    let one = desk.json(&[&["plan", "text.toml", "--set", "data.max_length=4", "--json"], &pin[..]].concat());
    let budget = (bytes(&one, "arena_bytes") + bytes(&one, "reserve_bytes")).to_string();
    let grid = ["plan", "text.toml", "--memory", &budget, "--grid", "data.max_length=4,16"];
    let text = desk.run(&[&grid[..], &pin].concat());
    text.must(0, &[]);
    assert!(text.stdout.contains("1 of 2 fit"), "{}", text.stdout);
    let refused = desk.run(&["plan", "text.toml", "--memory", "64KiB", "--grid", "data.max_length=8,16"]);
    refused.must(3, &["none of 2 combinations fits"]);
    let narrow = ["plan", "text.toml", "--grid", "data.max_length=8,16", "--set", "memory.optimizer_state=8bit"];
    desk.run(&narrow).must(2, &["none of 2 combinations can be planned", "memory.optimizer_state", "hint:"]);
    let mixed =
        desk.run(&["plan", "text.toml", "--grid", "train.effective_batch=4,8", "--grid", "memory.micro_batch=4,8"]);
    mixed.must(0, &[]);
    assert!(mixed.stdout.contains("refused") && mixed.stdout.contains("3 of 4 fit"), "{}", mixed.stdout);
}

#[test]
fn grids_that_are_wrong() {
    let desk = Desk::new();
    let grid = |values: &str| desk.run(&["plan", "text.toml", "--grid", values]);
    grid("train.epoch=1,2").must(2, &["--grid train.epoch=1", "did you mean `epochs`?", "hint:"]);
    grid("train.effective_batch=4,many").must(2, &["--grid train.effective_batch=many", "hint:"]);
    grid("train.effective_batch").must(2, &["no `=`", "hint:"]);
    grid("train.effective_batch=4,,8").must(2, &["a value is missing"]);
    grid("train.seed=1..20000").must(2, &["more than 10000 combinations", "hint:"]);
    let twice = ["plan", "text.toml", "--grid", "train.seed=1,2", "--grid", "train.seed=3"];
    desk.run(&twice).must(2, &["train.seed twice"]);
    desk.write("wrong.toml", &crate::common::TEXT.replace("vocab", "vocabulary"));
    desk.run(&["plan", "wrong.toml", "--grid", "train.seed=1,2"]).must(2, &["wrong.toml", "model.vocabulary"]);
}

#[test]
fn the_ladder_says_what_could_be_given_up_and_takes_nothing() {
    let desk = Desk::new();
    let whole = desk.json(&["plan", "series.toml", "--json"]);
    // Enough for half of the batch.
    let half = desk.json(&["plan", "series.toml", "--set", "train.effective_batch=8", "--json"]);
    assert!(bytes(&half, "arena_bytes") < bytes(&whole, "arena_bytes"));
    let smallest = desk.run(&["plan", "series.toml", "--memory", "1KiB", "--json"]).json();
    let budget = (bytes(&smallest, "smallest_budget_bytes") - (4 << 20) - 1).to_string();
    let refused = desk.run(&["plan", "series.toml", "--memory", &budget, "--json"]);
    refused.must(3, &["does not fit", "it changes what is learned", "--set train.effective_batch="]);
    let plan = refused.json();
    assert_eq!((plan["fits"].clone(), plan["effective_batch"].clone()), (false.into(), 16.into()));
    let rungs = list(&plan["ladder"]);
    for rung in rungs {
        let sets: Vec<String> = list(&rung["set"]).iter().map(|set| set.as_str().unwrap().to_string()).collect();
        let mut flags = vec!["plan", "series.toml", "--memory", &budget, "--json"];
        sets.iter().for_each(|set| flags.extend(["--set", set]));
        // The flag --memory wins over a setting of the budget.
        if rung["kind"] != "budget" {
            desk.run(&flags).must(if rung["fits"] == true { 0 } else { 3 }, &[]);
        }
    }
    let kinds: Vec<&str> = rungs.iter().filter_map(|rung| rung["kind"].as_str()).collect();
    for kind in ["budget", "optimizer", "batch norm", "batch", "length"] {
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
    let changing = |kind: &str| rungs.iter().filter(|r| r["kind"] == kind).all(|r| r["changes_learning"] == true);
    assert!(changing("batch") && changing("length") && changing("optimizer") && !changing("budget"));
    assert!(plan["hints"].as_array().unwrap().last().unwrap().as_str().unwrap().starts_with("--memory "));
    let text = desk.run(&["plan", "series.toml", "--memory", &budget]);
    assert!(text.stdout.contains("what could be given up") && text.stdout.contains("batch 16 →"), "{}", text.stdout);
}

#[test]
fn on_a_card_precision_and_state_are_rungs_too() {
    let desk = Desk::new();
    // With the moments in host memory their type would save nothing.
    let near = ["--set", "memory.offload=none"];
    let refused =
        desk.run(&[&["plan", "text.toml", "--device", "rtx-4090", "--memory", "600MiB", "--json"], &near[..]].concat());
    refused.must(3, &["is the smallest card of the catalog"]);
    let plan = refused.json();
    let kinds: Vec<&str> = list(&plan["ladder"]).iter().filter_map(|rung| rung["kind"].as_str()).collect();
    assert!(kinds.contains(&"precision") && kinds.contains(&"optimizer state"), "{kinds:?}");
}
