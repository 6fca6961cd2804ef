//! Variables: of the environment, and of a file .env for those that it does not have.

use plimsoll_track::Environment;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

/// Names another file than .env in the working directory: `plimsoll serve` tells its trainings, which start elsewhere.
pub(crate) const FILE: &str = "PLIMSOLL_ENV_FILE";

/// The environment goes first: a variable that is empty there is none, whatever the file says.
pub(crate) fn variable(name: &str) -> Option<String> {
    let found = env::var_os(name).map_or_else(|| written(name), of_environment);
    found.filter(|value| !value.trim().is_empty())
}

/// What is no text is no value.
fn of_environment(value: OsString) -> Option<String> {
    value.into_string().ok()
}

/// Where the file is.
pub(crate) fn file() -> PathBuf {
    env::var_os(FILE).map_or_else(|| ".env".into(), PathBuf::from)
}

fn written(name: &str) -> Option<String> {
    value_in(&fs::read_to_string(file()).ok()?, name)
}

fn value_in(text: &str, name: &str) -> Option<String> {
    let of = |line: &str| {
        let (key, value) = line.trim().trim_start_matches("export ").split_once('=')?;
        (key.trim() == name).then(|| value.trim().trim_matches(['"', '\'']).to_string())
    };
    text.lines().find_map(of)
}

/// For trackers and notifications.
pub(crate) struct Surroundings;

impl Environment for Surroundings {
    fn get(&self, name: &str) -> Option<String> {
        variable(name)
    }

    fn is_of_file(&self, name: &str) -> bool {
        env::var_os(name).is_none() && written(name).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_names_and_values_with_or_without_quotes() {
        let text = "# A=no\nA = one\nexport B='two words'\nC=\nA=later\nno line\n";
        let found = ["A", "B", "C", "D"].map(|name| value_in(text, name));
        assert_eq!(found.map(|value| value.unwrap_or("-".into())), ["one", "two words", "", "-"]);
    }
}
