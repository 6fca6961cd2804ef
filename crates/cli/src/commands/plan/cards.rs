//! `plimsoll plan --cards`: one recipe on several cards.

use super::Arguments;
use crate::cards::devices;
use crate::counter::Counter;
use crate::failure::{Code, Failure};
use crate::printer::{self, say};
use plimsoll_base::units::format_bytes;
use plimsoll_models::recipe::{Budget, Draft};
use plimsoll_planner::whatif::{CardRow, on_cards};
use plimsoll_report::cards_table;
use plimsoll_train::tasks::expected_data;

pub(crate) fn run(arguments: &Arguments, draft: &Draft) -> Result<(), Failure> {
    let recipe = draft.with(&[])?;
    let cards = devices(&arguments.cards, &arguments.common.machine)?;
    if let Budget::Bytes(bytes) = recipe.memory.budget {
        say(&format!("note: the budget of {} is left out: each card gives 95 % of its own", format_bytes(bytes)));
    }
    let counter = Counter::new();
    let steps = expected_data(&recipe).map(|data| data.steps(&recipe.train).run);
    let rows = on_cards(&recipe, &cards, steps, &|done, of| counter.show(done, of))?;
    drop(counter);
    match arguments.common.json {
        true => printer::json(&rows)?,
        false => printer::out(&cards_table(&rows))?,
    };
    if rows.iter().any(|row| row.attempt.fits) { Ok(()) } else { Err(none_fits(&rows)) }
}

fn none_fits(rows: &[CardRow]) -> Failure {
    let plans = rows.iter().filter_map(|row| row.attempt.plan.as_ref());
    let hint = "`plimsoll plan RECIPE --device CARD` says what could be given up, and which card would do";
    match plans.map(|plan| plan.planned_peak_bytes).min() {
        Some(bytes) => Failure {
            code: Code::DoesNotFit,
            message: format!("it fits none of these cards: the smallest plan needs {}", format_bytes(bytes)),
            hints: vec![hint.into()],
        },
        // No card is to blame for what none can plan.
        None => {
            let cause = rows.iter().find_map(|row| row.attempt.refused.as_deref()).unwrap_or_default();
            Failure::bad_input(format!("it can be planned for none of these cards: {cause}"), hint)
        }
    }
}
