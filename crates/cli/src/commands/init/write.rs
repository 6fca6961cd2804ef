//! The recipe's text: every key below the sentence that the reference has about it.

use super::propose::Proposal;
use super::setting::Setting;
use crate::failure::Failure;
use plimsoll_models::recipe::reference::{self, Key};

const WIDTH: usize = 100;

pub(super) fn text(proposal: &Proposal) -> Result<String, Failure> {
    let keys = reference::keys()?;
    let mut text = head(proposal);
    for table in ["model", "data", "train"] {
        let settings = proposal.settings.iter().filter(|setting| table_of(setting) == table);
        let lines: String = settings.map(|setting| line(setting, &keys)).collect();
        text += &format!("\n[{table}]{}\n{lines}", more(table));
    }
    Ok(text + FOOT)
}

const FOOT: &str = "
# No [memory]: the budget and every choice inside it are left to the planner. `plimsoll keys memory` lists what can be
# pinned, for example:
# [memory]
# budget = \"12GiB\"
";

fn head(proposal: &Proposal) -> String {
    let made_for = comment(&format!("A recipe for {}.", proposal.made_for));
    format!("{made_for}# `plimsoll plan` shows what it takes on any card, `plimsoll train` trains it.\n")
}

fn more(table: &str) -> String {
    format!("{:width$}# all keys: `plimsoll keys {table}`", "", width = 31usize.saturating_sub(table.len()))
}

fn table_of(setting: &Setting) -> &str {
    setting.key.split('.').next().unwrap_or_default()
}

fn line(setting: &Setting, keys: &[Key]) -> String {
    let name = setting.key.split_once('.').map_or(setting.key, |(_, name)| name);
    let about = keys.iter().find(|key| key.key == setting.key).map_or(String::new(), |key| comment(key.about));
    let remark = setting.remark.map_or(String::new(), comment);
    let off = if setting.commented_out { "# " } else { "" };
    format!("{about}{remark}{off}{name} = {}\n", setting.value)
}

/// Words as comment lines that are not too long. Names of files and columns may hold what no comment may.
fn comment(words: &str) -> String {
    let words: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut lines = vec![String::from("#")];
    for word in words.split_whitespace() {
        let last = lines.len() - 1;
        if lines[last].chars().count() + 1 + word.chars().count() > WIDTH && lines[last].len() > 1 {
            lines.push(String::from("#"));
        }
        let last = lines.len() - 1;
        lines[last] += &format!(" {word}");
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentences_are_broken_into_comments() {
        let text = comment(&"word ".repeat(60));
        assert!(text.lines().count() > 2 && text.lines().all(|line| line.starts_with("# ") && line.len() <= WIDTH));
        assert_eq!(comment("short"), "# short\n");
        assert_eq!(comment("a\u{1}b\u{7f}\r\nc"), "# a b c\n");
    }
}
