//! Texts: with labels, in pairs, below images, or by themselves.

use super::fitted::{Fitted, nothing_suits};
use super::look::{Seen, by_name};
use super::setting::{Setting, set, set_text};
use super::target::{LABEL, Target, label};
use crate::failure::Failure;
use plimsoll_data::SurveyedColumn;
use plimsoll_models::recipe::ProblemType;
use std::path::Path;

pub(super) const TEXT: [&str; 10] =
    ["text", "sentence", "message", "review", "content", "body", "comment", "tweet", "question", "title"];
/// Columns that are read together.
const TWO_TEXTS: [[&str; 2]; 10] = [
    ["sentence1", "sentence2"],
    ["premise", "hypothesis"],
    ["question1", "question2"],
    ["text1", "text2"],
    ["text_a", "text_b"],
    ["sentence_a", "sentence_b"],
    ["text", "text_pair"],
    ["question", "sentence"],
    ["question", "passage"],
    ["query", "passage"],
];
pub(super) const SOURCE: [&str; 9] =
    ["source", "input", "document", "article", "question", "prompt", "instruction", "ingredients", "text"];
pub(super) const TARGET: [&str; 9] =
    ["target", "output", "summary", "highlights", "answer", "response", "completion", "steps", "translation"];
pub(super) const IMAGE: [&str; 7] = ["image", "picture", "img", "file_name", "filename", "file", "path"];
pub(super) const CAPTION: [&str; 4] = ["caption", "text", "description", "title"];

/// Texts with labels. `own_length`: that of a checkpoint, which may know fewer positions.
pub(super) fn labelled(seen: &Seen, own_length: bool) -> Result<Fitted, Failure> {
    let texts = two_texts(seen).map_or_else(|| one_text(seen), Ok)?;
    let names: Vec<&str> = texts.iter().map(|text| text.name.as_str()).collect();
    let (label, target) = label(seen, &names)?;
    let second = names.get(1).map(|name| set_text("data.text_pair", name));
    let length: usize = texts.iter().map(|text| tokens(text)).sum();
    let columns = [set_text("data.text", names[0])].into_iter().chain(second);
    let columns = columns.chain([set_text("data.label", &label.name), max_length(length.min(LONGEST), own_length)]);
    let used: Vec<&SurveyedColumn> = texts.into_iter().chain([label]).collect();
    let mut notes: Vec<String> = about(label, target).into_iter().collect();
    let skipped = skip(&used, &mut notes);
    Ok(Fitted { sizes: outputs(target), columns: columns.chain(skipped).collect(), notes })
}

fn one_text(seen: &Seen) -> Result<Vec<&SurveyedColumn>, Failure> {
    let text = seen.text_column(&TEXT, &LABEL);
    text.map(|text| vec![text]).ok_or_else(|| nothing_suits(seen, "there is no column of texts"))
}

fn two_texts(seen: &Seen) -> Option<Vec<&SurveyedColumn>> {
    let texts = || seen.columns().iter().filter(|column| column.is_text());
    TWO_TEXTS.iter().find_map(|names| names.iter().map(|name| by_name(texts(), &[name])).collect())
}

/// What the model has to learn of the labels.
fn outputs(target: Target) -> Vec<Setting> {
    let problem = |problem: ProblemType| set_text("model.problem_type", &problem.to_string());
    match target {
        Target::Classes(count) => vec![set("model.num_labels", count)],
        Target::Several(count) => vec![set("model.num_labels", count), problem(ProblemType::Multi)],
        Target::Numbers(count) => vec![set("model.num_labels", count), problem(ProblemType::Regression)],
    }
}

fn about(label: &SurveyedColumn, target: Target) -> Option<String> {
    let name = &label.name;
    match target {
        Target::Classes(_) if label.texts == 0 => {
            let mut numbers: Vec<f64> = label.values()?.iter().filter_map(|value| value.parse().ok()).collect();
            numbers.sort_by(f64::total_cmp);
            let are_places = numbers.iter().enumerate().all(|(at, number)| at as f64 == *number);
            let numbers: Vec<String> = numbers.iter().take(12).map(f64::to_string).collect();
            (!are_places).then(|| format!("the numbers of `{name}` are classes, in this order: {}", numbers.join(", ")))
        }
        Target::Classes(_) => None,
        Target::Several(count) => Some(format!("`{name}` holds lists: each of {count} labels is there or not")),
        Target::Numbers(_) => {
            Some(format!("`{name}` holds numbers that are no classes: they are predicted as they are"))
        }
    }
}

/// Source and target.
pub(super) fn pairs(seen: &Seen, own_length: bool) -> Result<Fitted, Failure> {
    let missing = || nothing_suits(seen, "there are no two columns of texts, source and target");
    let source = seen.text_column(&SOURCE, &TARGET).ok_or_else(missing)?;
    let target = seen.text_column(&TARGET, &[source.name.as_str()]).ok_or_else(missing)?;
    let columns = [
        set_text("data.text", &source.name),
        set_text("data.target", &target.name),
        max_length(tokens(source), own_length),
        set("data.max_target_length", tokens(target)),
    ];
    let mut notes = Vec::new();
    let skipped = skip(&[source, target], &mut notes);
    Ok(Fitted { columns: columns.into_iter().chain(skipped).collect(), notes, ..Fitted::default() })
}

/// Images in a table, and what is said about them.
pub(super) fn captions(seen: &Seen) -> Result<Fitted, Failure> {
    let missing = || nothing_suits(seen, "there are no columns of images and captions");
    let image = seen.named(&IMAGE).ok_or_else(missing)?;
    let caption = seen.text_column(&CAPTION, &[image.name.as_str()]).ok_or_else(missing)?;
    let columns = [set_text("data.image", &image.name), set_text("data.caption", &caption.name)];
    let mut notes: Vec<String> = absent(seen, image).into_iter().collect();
    let skipped = skip(&[image, caption], &mut notes);
    Ok(Fitted { columns: columns.into_iter().chain(skipped).collect(), notes, ..Fitted::default() })
}

/// Images that the table names and that are not there.
fn absent(seen: &Seen, image: &SurveyedColumn) -> Option<String> {
    let folder = seen.path.parent().unwrap_or(Path::new(""));
    let gone: Vec<&String> = image.values()?.iter().filter(|name| !folder.join(name).is_file()).collect();
    let first = gone.first()?;
    Some(format!("{} images of the table are not there, {} first: paths are relative to the table", gone.len(), first))
}

/// Texts that a language model goes on with.
pub(super) fn corpus(seen: &Seen) -> Result<Fitted, Failure> {
    let text = seen.text_column(&TEXT, &[]).ok_or_else(|| nothing_suits(seen, "there is no column of texts"))?;
    Ok(Fitted { columns: vec![set_text("data.text_field", &text.name)], ..Fitted::default() })
}

/// Rows that lack what they are read for are left out, and that is said.
fn skip(used: &[&SurveyedColumn], notes: &mut Vec<String>) -> Option<Setting> {
    let gappy: Vec<String> =
        used.iter().filter(|column| column.missing > 0).map(|c| format!("{} in `{}`", c.missing, c.name)).collect();
    if gappy.is_empty() {
        return None;
    }
    notes.push(format!("rows that lack a value are left out (data.on_bad_row): {}", gappy.join(", ")));
    Some(set_text("data.on_bad_row", "skip"))
}

const LONGEST: usize = 512;

/// Tokens for the longest text seen, at about three characters each, within what base models know.
fn tokens(column: &SurveyedColumn) -> usize {
    (column.longest / 3 + 2).next_multiple_of(32).clamp(32, LONGEST)
}

fn max_length(tokens: usize, own_length: bool) -> Setting {
    Setting { commented_out: own_length, ..set("data.max_length", tokens) }
}
