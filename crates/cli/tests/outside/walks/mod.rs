//! Newcomers' walks: each takes data of his own from the file to predictions, meets what people meet on the way, and is told
//! how to go on. What he reads is written down as snapshots.

mod corpus;
mod fits;
mod logs;
mod pairs;
mod pictures;
mod series;
mod texts;

use crate::common::{Answer, Desk};
use serde_json::Value;

/// What is said on stderr, without the machine's own line, the folder masked.
fn told(desk: &Desk, name: &str, answer: &Answer) {
    let folder = desk.path("").display().to_string();
    let words = answer.stderr.lines().filter(|line| !line.starts_with("cpu: ")).map(|line| format!("{line}\n"));
    let plain = words.collect::<String>().replace(folder.trim_end_matches('/'), "DESK");
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(format!("walk-{name}"), format!("exit code {}\n{plain}", answer.code));
    });
}

/// The part of a command's words that is about data, without what a machine decides.
fn told_of_data(desk: &Desk, name: &str, answer: &Answer, starts: &[&str]) {
    let about = |line: &&str| starts.iter().any(|start| line.trim_start().starts_with(start));
    let stderr = answer.stderr.lines().filter(about).map(|line| format!("{line}\n")).collect();
    told(desk, name, &Answer { code: answer.code, stdout: String::new(), stderr });
}

/// Lines of JSON.
fn lines(answer: &Answer) -> Vec<Value> {
    answer.stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// Trains a recipe that must go well.
fn train(desk: &Desk, recipe: &str, out: &str) -> Answer {
    let answer = desk.run(&["train", recipe, "--out", out]);
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    answer
}
