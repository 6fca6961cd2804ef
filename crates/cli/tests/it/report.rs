//! `plimsoll report` and `plan --html` from the outside.

use crate::common::Desk;
use std::io::Write;

#[test]
fn a_run_becomes_a_page_finished_or_torn() {
    let desk = Desk::new();
    desk.run(&["train", "series.toml", "--out", "run", "--steps", "12"]).must(0, &[]);
    let answer = desk.json(&["report", "run", "--json"]);
    assert_eq!((answer["steps"].as_u64(), answer["finished"].as_bool()), (Some(12), Some(true)));
    let page = std::fs::read_to_string(desk.path("run/report.html")).unwrap();
    for words in
        ["completed", "Loss", "Time per step", "measured peak", "against planned", "Memory over one step", "Decisions"]
    {
        assert!(page.contains(words), "no `{words}`");
    }
    // A run that was killed while it wrote: the last line is torn, the end is missing.
    let events = desk.path("run/events.jsonl");
    let text = std::fs::read_to_string(&events).unwrap();
    let kept: Vec<&str> = text.lines().filter(|line| !line.contains("\"finished\"")).collect();
    let mut file = std::fs::File::create(&events).unwrap();
    write!(file, "{}\n{{\"event\":\"step\",\"st", kept.join("\n")).unwrap();
    desk.run(&["report", "run", "--out", "torn.html"]).must(0, &[]);
    assert!(std::fs::read_to_string(desk.path("torn.html")).unwrap().contains("not finished: step 12 of "));
    // Without its plan the rest is still shown.
    std::fs::write(desk.path("run/plan.json"), "{}").unwrap();
    desk.run(&["report", "run"]).must(0, &[]);
    assert!(std::fs::read_to_string(desk.path("run/report.html")).unwrap().contains("the plan cannot be shown"));
}

#[test]
fn a_plan_becomes_a_page_even_if_it_does_not_fit() {
    let desk = Desk::new();
    desk.run(&["plan", "text.toml", "--html", "plan.html"]).must(0, &["page: plan.html"]);
    assert!(std::fs::read_to_string(desk.path("plan.html")).unwrap().contains("fits, "));
    assert!(std::fs::read_to_string(desk.path("plan.html")).unwrap().contains("Frontier"));
    desk.run(&["plan", "text.toml", "--memory", "64KiB", "--html", "small.html"]).must(3, &["does not fit"]);
    assert!(std::fs::read_to_string(desk.path("small.html")).unwrap().contains("too much"));
}

#[test]
fn what_is_no_run_is_refused() {
    let desk = Desk::new();
    desk.run(&["report", "nowhere"]).must(2, &["nowhere", "not the folder of a run", "hint:"]);
    desk.run(&["report", "."]).must(2, &["no recipe.toml", "hint:"]);
    desk.run(&["plan", "text.toml", "--html", "no/such/folder.html"]).must(1, &["no/such/folder.html", "hint:"]);
}
