//! What a task makes of the data: settings that follow from it, and what the user should know about them.

use super::look::Seen;
use super::setting::Setting;
use crate::failure::Failure;

#[derive(Default)]
pub(super) struct Fitted {
    /// Of `[model]`.
    pub sizes: Vec<Setting>,
    /// Of `[data]`: columns, and what becomes of their rows.
    pub columns: Vec<Setting>,
    pub notes: Vec<String>,
}

pub(super) fn nothing_suits(seen: &Seen, cause: &str) -> Failure {
    let columns: Vec<&str> = seen.columns().iter().map(|column| column.name.as_str()).collect();
    let columns =
        if columns.is_empty() { "it holds no rows".into() } else { format!("columns are {}", columns.join(", ")) };
    Failure::bad_input(
        format!("{}: {cause}; {columns}", seen.path.display()),
        "name the architecture with --family, and see recipes/ and `plimsoll keys data` for the columns it wants",
    )
}
