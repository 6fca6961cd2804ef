//! Texts of a column, each kept once: labels repeat in every row.

use std::collections::HashMap;

#[derive(Clone, Debug, Default)]
pub(crate) struct WordColumn {
    names: Vec<String>,
    index: HashMap<String, u32>,
    /// Of each row.
    ids: Vec<u32>,
}

impl WordColumn {
    pub(crate) fn push(&mut self, word: &str) {
        let id = match self.index.get(word) {
            Some(&id) => id,
            None => self.add(word),
        };
        self.ids.push(id);
    }

    /// A file has fewer than 2³² different words: its rows alone would take more than an address space.
    fn add(&mut self, word: &str) -> u32 {
        let id = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(word.into());
        self.index.insert(word.into(), id);
        id
    }

    pub(crate) fn get(&self, row: usize) -> Option<&str> {
        self.ids.get(row).map(|&id| self.names[id as usize].as_str())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.ids.iter().map(|&id| self.names[id as usize].as_str())
    }
}

impl PartialEq for WordColumn {
    fn eq(&self, other: &WordColumn) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a> FromIterator<&'a str> for WordColumn {
    fn from_iter<T: IntoIterator<Item = &'a str>>(words: T) -> WordColumn {
        let mut all = WordColumn::default();
        words.into_iter().for_each(|word| all.push(word));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_in_their_rows_and_are_kept_once() {
        let words: WordColumn = ["up", "down", "up", "", "down"].into_iter().collect();
        assert_eq!(words.iter().collect::<Vec<_>>(), ["up", "down", "up", "", "down"]);
        assert_eq!((words.ids.len(), words.names.len(), words.get(3), words.get(5)), (5, 3, Some(""), None));
    }
}
