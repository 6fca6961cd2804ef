//! The recipes that the reference is read from: every family with every task it can learn, from a file and from data
//! made by code, and with every choice that brings keys of its own.

use crate::families::{FamilyName, Task, presets_of};
use crate::recipe::data::Synthetic;
use plimsoll_base::names::Named;

/// What `[train]` may hold that brings other keys.
const TRAIN: [&str; 3] = [
    "",
    "optimizer = { name = \"sgd\" }\nschedule = { name = \"cosine\" }",
    "optimizer = { name = \"adafactor\" }\nschedule = { name = \"linear\" }",
];

/// Every recipe, the plainest of each family first: defaults are taken from it.
pub(super) fn texts() -> Vec<String> {
    FamilyName::ALL.iter().flat_map(|&family| of_family(family)).collect()
}

fn of_family(family: FamilyName) -> Vec<String> {
    let tasks = family.tasks();
    let plain = tasks.iter().flat_map(|&task| {
        data(task).into_iter().flat_map(move |data| {
            TRAIN.map(|train| recipe(&format!("family = \"{family}\""), &data, &format!("task = \"{task}\"\n{train}")))
        })
    });
    plain.chain(by_preset(family)).collect()
}

/// The family may follow from a preset.
fn by_preset(family: FamilyName) -> Option<String> {
    let preset = presets_of(family).next()?;
    let task = *family.tasks().first()?;
    Some(recipe(&format!("preset = \"{preset}\""), &synthetic(task), ""))
}

/// From a file, in each way that brings other keys, and made by code.
fn data(task: Task) -> Vec<String> {
    let files: &[&str] = match task {
        Task::Series => &["train = \"a.csv\"\nlabel = \"y\"", "train = \"a.csv\"\nlabel_from = { column = \"y\" }"],
        Task::LanguageModel => &["train = \"a.txt\""],
        Task::Classify | Task::Seq2seq | Task::Contrastive => &["train = \"a.csv\""],
    };
    files.iter().map(ToString::to_string).chain([synthetic(task)]).collect()
}

fn synthetic(task: Task) -> String {
    format!("source = \"{}\"", Synthetic::made_for(task))
}

fn recipe(model: &str, data: &str, train: &str) -> String {
    format!("[model]\n{model}\n[data]\n{data}\n[train]\neffective_batch = 8\n{train}\n")
}
