//! What only several tables together tell.

use super::Recipe;
use super::train::Every;
use crate::families::{BatchNormMode, Task};
use crate::reading::section::Section;
use plimsoll_base::units::{ADDRESSABLE_BYTES, format_bytes};

/// Reports choices that are fine alone and do not go together.
pub fn check(recipe: &Recipe, data: &Section<'_>, train: &Section<'_>, memory: &Section<'_>) {
    recipe.data.check(data, recipe.model.family().input());
    check_micro_batch(recipe, memory);
    check_groups(recipe, memory);
    check_batch_size(recipe, train);
    check_evaluation(recipe, train);
}

fn check_micro_batch(recipe: &Recipe, memory: &Section<'_>) {
    let effective = recipe.train.effective_batch;
    let Some(micro) = recipe.memory.micro_batch.pinned() else { return };
    if micro > effective {
        memory.refuse(
            "micro_batch",
            format!("{micro} samples are more than the effective batch of {effective}"),
            format!("at most {effective}, or \"auto\""),
        );
    } else if micro < effective && recipe.model.family().batch_norm() == Some(BatchNormMode::Effective) {
        memory.refuse(
            "micro_batch",
            format!("batch norm takes its statistics from the effective batch of {effective}, which {micro} would split"),
            "leave it \"auto\", or allow statistics per micro-batch, which changes learning: model.batch_norm = \"micro\"",
        );
    }
}

fn check_groups(recipe: &Recipe, memory: &Section<'_>) {
    let groups = recipe.model.family().groups();
    if recipe.memory.block_group.pinned().is_some_and(|k| k > groups) {
        let cause = format!("the model has only {groups} to group");
        memory.refuse("block_group", cause, format!("at most {groups}, or \"auto\""));
    }
    if recipe.memory.loss_chunk.pinned().is_some() && recipe.train.task == Task::Series {
        memory.refuse("loss_chunk", "does not apply to task `series`: its loss has no tokens", "leave it \"auto\"");
    }
}

fn check_batch_size(recipe: &Recipe, train: &Section<'_>) {
    let (batch, evaluated) = (recipe.train.effective_batch, recipe.train.evaluate.batch.pinned());
    let batch = batch.max(evaluated.unwrap_or(0));
    let bytes = recipe.model.family().largest_value().and_then(|n| n.checked_mul(batch as u64)?.checked_mul(4));
    if bytes.is_none_or(|b| b > ADDRESSABLE_BYTES) {
        let size = bytes.map_or("more than 16 EiB".into(), format_bytes);
        train.refuse(
            "effective_batch",
            format!("absurd together with the model's sizes: the largest value of one batch takes {size}"),
            format!(
                "a process can address {}: make the batch, length or width smaller",
                format_bytes(ADDRESSABLE_BYTES)
            ),
        );
    }
}

fn check_evaluation(recipe: &Recipe, train: &Section<'_>) {
    if recipe.data.validation.is_none() && recipe.train.evaluate.every != Every::Never {
        train.refuse(
            "evaluate",
            "there is nothing to evaluate on: data.validation is 0",
            "set evaluate = { every = \"never\" }, or give validation a file or a fraction",
        );
    }
}
