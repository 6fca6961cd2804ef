//! The reference as a page.

use super::{Key, table_rank};

const HEAD: &str = "\
# Recipe reference

Every key of a recipe: what it may be, its default, what it applies to. `plimsoll keys [PREFIX]` prints the same,
`plimsoll keys --json` as data; [recipe.schema.json](../recipe.schema.json) is the same as JSON Schema, for completion
and checks in editors (`#:schema ../recipe.schema.json` as the first line of a recipe, where the editor knows it).

Any key can be set from the command line, too: `--set train.effective_batch=32`. An unknown key, a wrong type and a
value out of range are errors that name the line, what is allowed and the nearest right name.

This page is written by `plimsoll keys --markdown`; a test compares it with the code.
";

const TABLES: [(&str, &str); 8] = [
    ("Outside of the tables", ""),
    (
        "`[model]`",
        "A family with a `preset` (sizes), a `checkpoint` (sizes and weights), or its sizes spelled out. What a preset \
         or a checkpoint says takes the place of the defaults below.",
    ),
    (
        "`[data]`",
        "Where samples come from and how they are cut. Either `train`, a file, or `source`, data made by code.",
    ),
    ("`[train]`", "What learning sees. Nothing in it is ever changed for memory."),
    ("`[memory]`", "What the planner may choose, and what is pinned. A pinned value is respected or refused."),
    (
        "`[search]`",
        "What `plimsoll tune` varies. Beside the words below, every entry is a parameter under the key that it sets: a \
         list of values, `{ low, high, step, log }`, `{ choices = … }` with a list or a table from label to value (or to \
         several settings), or `{ product = { NAME = …, NAME = … } }`, whose factors multiply to the key. `name` is what \
         the study calls it, `when = { NAME = value }` the condition under which it matters.",
    ),
    ("`[track]`", "Who draws curves of it. Nothing here slows a run or ends it; see [tracking](tracking.md)."),
    ("`[notify]`", "Who gets messages about it. Secrets are named here and stand in the environment."),
];

/// The whole page.
pub fn markdown(keys: &[Key]) -> String {
    let tables = TABLES.iter().enumerate().map(|(rank, (title, text))| {
        let rows: String = keys.iter().filter(|key| table_rank(&key.key) == rank).map(row).collect();
        let text = if text.is_empty() { String::new() } else { format!("{text}\n\n") };
        format!("\n## {title}\n\n{text}| key | type | default | applies to | |\n|---|---|---|---|---|\n{rows}")
    });
    HEAD.to_string() + &tables.collect::<String>()
}

fn row(key: &Key) -> String {
    let kinds: Vec<String> = key.kinds().iter().map(ToString::to_string).collect();
    let cells =
        [format!("`{}`", key.key), kinds.join("; or "), key.default_words(), key.scope(), key.about.to_string()];
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}
