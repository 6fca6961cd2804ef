//! What every trial of a study has in common: its recipe outside of what is searched. A study that goes on with another
//! one compares what cannot be compared, and says so.

use crate::order;
use std::collections::{BTreeMap, BTreeSet};

use plimsoll::search::Search;

/// Tables and keys that change nothing about what is learned.
const INDIFFERENT: [&str; 5] = ["name", "dir", "memory.", "track.", "notify."];
/// Differences that are told one by one.
const TOLD: usize = 5;

/// In words, what another text of a recipe says of keys that the search does not move; none where that is nothing.
pub(super) fn changed(before: &str, now: &str, search: &Search) -> Option<String> {
    let (before, now) = (by_key(before), by_key(now));
    let keys: BTreeSet<&String> = order::set(before.keys().chain(now.keys()));
    let counts = |key: &&&String| {
        let indifferent = INDIFFERENT.iter().any(|start| key.starts_with(start));
        !indifferent && !search.moves(key) && before.get(**key) != now.get(**key)
    };
    let told: Vec<String> = keys.iter().filter(counts).map(|key| difference(key, &before, &now)).collect();
    let more = told.len().saturating_sub(TOLD);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!told.is_empty()).then(|| format!("{}{more}", told[..told.len().min(TOLD)].join(", ")))
}

fn difference(key: &str, before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> String {
    match (before.get(key), now.get(key)) {
        (Some(before), Some(now)) => format!("{key} was {before} and is {now}"),
        (Some(before), None) => format!("{key} was {before} and is not set"),
        (_, now) => format!("{key} is {}, and was not set", now.map_or("", String::as_str)),
    }
}

/// The lines of a recipe as it is written out: tables in brackets, a key a line.
fn by_key(text: &str) -> BTreeMap<String, String> {
    let (mut table, mut found) = (String::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = format!("{name}.");
        } else if let Some((key, value)) = line.split_once(" = ") {
            found.insert(format!("{table}{key}"), value.to_string());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_learning_sees_and_the_search_does_not_move_is_told() {
        let draft = "[model]\npreset = \"bert-base-uncased\"\n[data]\ntrain = \"a.jsonl\"\ntokenizer = \"t.json\"\nmax_length = 8\n[train]\ntask = \"classify\"\neffective_batch = 8\nepochs = 1\n[search]\n\"train.seed\" = [1, 2]";
        let search = plimsoll::Draft::of_text(draft, "r.toml").search().unwrap();
        let before =
            "name = \"a\"\n\n[train]\nepochs = 4\nseed = 1\n\n[train.optimizer]\nlr = 0.1\n\n[memory]\nbudget = 1";
        let now = "name = \"b\"\n\n[train]\nepochs = 9\nseed = 2\nclip_norm = 1.0\n\n[memory]\nbudget = 2";
        let told = changed(before, now, &search).unwrap();
        assert_eq!(
            told,
            "train.clip_norm is 1.0, and was not set, train.epochs was 4 and is 9, train.optimizer.lr was 0.1 and is not set"
        );
        assert_eq!(changed(before, before, &search), None);
    }
}
