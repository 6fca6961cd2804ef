//! Why each decision was taken, and what it saves and costs against its plainest alternative.

use super::levers::{LEVERS, Question};
use super::search::PlanSearch;
use crate::choose::{Choice, Decision};
use crate::program::Settings;
use plimsoll_core::plan::PlanError;

pub(super) fn decisions(search: &mut PlanSearch<'_>, choice: &Choice) -> Result<Vec<Decision>, PlanError> {
    let here = search.measure(&choice.settings)?;
    let (at, chosen) = (search.task.place(), &choice.settings);
    let questions = LEVERS.iter().filter_map(|lever| Some((lever.key(), lever.question(&at, chosen)?)));
    questions.map(|(lever, question)| answer(lever, question, search, chosen, here)).collect()
}

fn answer(
    lever: &str,
    question: Question,
    search: &mut PlanSearch<'_>,
    chosen: &Settings,
    here: (usize, f64),
) -> Result<Decision, PlanError> {
    let is_open = !question.is_pinned && question.other != *chosen;
    let there = if is_open { search.measure(&question.other)? } else { here };
    Ok(Decision {
        lever: lever.into(),
        choice: question.choice,
        saved_bytes: there.0 as i64 - here.0 as i64,
        predicted_ms: 1e3 * (here.1 - there.1),
        reason: if question.is_pinned { "pinned by the recipe".into() } else { question.reason.into() },
    })
}
