//! What the rows of a file look like, from the first of them: columns, their types, how many values they take. It is
//! what a recipe for the file is proposed from.

use crate::formats::looks::{has_decimal_comma, is_moment, is_sortable_moment, is_time_of_day, stands_for_nothing};
use crate::formats::table::Moment;
use crate::formats::{Cell, Columns, Wanted, open};
use crate::{DataError, Place, whole::whole};
use plimsoll_base::formats::Format;
use std::collections::BTreeSet;
use std::path::Path;

/// Rows that are looked at.
pub(crate) const SURVEYED_ROWS: usize = 20_000;

/// A column that takes more values than this is no list of classes.
const MOST_VALUES: usize = 1000;

/// The columns of a file, in its order.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    pub columns: Vec<SurveyedColumn>,
    /// Rows that were looked at.
    pub rows: usize,
    /// Whether these were all.
    pub whole: bool,
    /// Whether the file says of a cell what it is. Where not, its first row is one like all others.
    pub typed: bool,
}

/// What one column holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SurveyedColumn {
    pub name: String,
    /// Finite ones.
    pub numbers: usize,
    pub texts: usize,
    /// Cells without a value; among numbers, also what stands for none (`NA`, `-`).
    pub missing: usize,
    /// Words among numbers that stand for none: a column of texts has them as texts.
    pub stand_ins: usize,
    pub infinite: usize,
    pub zeros: usize,
    /// Numbers that are not whole.
    pub fractions: usize,
    /// Texts that are numbers with a decimal comma, or in groups.
    pub commas: Misread,
    /// Texts of a file with types that are numbers in quotes.
    pub quoted: Misread,
    /// Of these, those with a fraction.
    quoted_fractions: usize,
    /// Numbers that could be times of day.
    times_of_day: usize,
    /// Where a value is less than the one before it, as a column of times must not be.
    pub backwards: Option<Place>,
    pub lists: Lists,
    /// Cells that are neither.
    pub others: usize,
    /// Characters of the longest text.
    pub longest: usize,
    /// Characters of all texts.
    characters: usize,
    /// Texts of one word in plain letters, digits and signs, as names of things are.
    single_words: usize,
    /// Texts that are a date or a time, and those whose order is that of their texts.
    moments: usize,
    sortable: usize,
    before: Option<Moment>,
    values: Values,
    stand_in_words: BTreeSet<String>,
}

/// Numbers to people that programs take for words: how many there are, and the first of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Misread {
    pub count: usize,
    pub first: Option<(Place, String)>,
}

impl Misread {
    fn take(&mut self, place: Place, text: &str) {
        self.count += 1;
        self.first.get_or_insert_with(|| (place, text.into()));
    }
}

/// What the lists of a column hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lists {
    pub count: usize,
    /// Items that are no texts, and no numbers.
    pub others: usize,
    /// The different words; `None` once they are too many.
    pub words: Values,
    pub numbers: usize,
    /// The fewest and the most items.
    pub shortest: usize,
    pub longest: usize,
    /// Whether every number is between 0 and 1.
    pub are_shares: bool,
}

/// Different values, as long as they are few enough to be classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Values(Option<BTreeSet<String>>);

impl Default for Values {
    fn default() -> Self {
        Values(Some(BTreeSet::new()))
    }
}

impl Values {
    pub fn get(&self) -> Option<&BTreeSet<String>> {
        self.0.as_ref()
    }

    fn take(&mut self, value: &str) {
        let Some(values) = &mut self.0 else { return };
        if !values.contains(value) {
            values.insert(value.into());
        }
        if values.len() > MOST_VALUES {
            self.0 = None;
        }
    }
}

impl Lists {
    fn take(&mut self, items: &[Cell<'_>]) {
        (self.shortest, self.are_shares) = match self.count {
            0 => (items.len(), true),
            _ => (self.shortest.min(items.len()), self.are_shares),
        };
        self.count += 1;
        self.longest = self.longest.max(items.len());
        items.iter().for_each(|item| self.take_item(item));
    }

    fn take_item(&mut self, item: &Cell<'_>) {
        match item {
            Cell::Text(word) => self.words.take(word),
            Cell::Number(number) => {
                self.numbers += 1;
                self.are_shares &= (0.0..=1.0).contains(number);
            }
            _ => self.others += 1,
        }
    }
}

impl SurveyedColumn {
    fn new(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    /// Every value that is there is a number.
    pub fn is_numeric(&self) -> bool {
        self.numbers > 0 && self.texts + self.infinite + self.lists.count + self.others == 0
    }

    /// No value is a list, and most are no numbers.
    pub fn is_text(&self) -> bool {
        self.texts > self.numbers && self.lists.count + self.others == 0
    }

    /// Texts that are dates or times.
    pub fn is_time(&self) -> bool {
        self.is_text() && self.moments == self.texts
    }

    /// Texts to read: neither few different words nor times, nor numbers that are written as texts.
    pub fn is_prose(&self) -> bool {
        self.is_text() && !self.is_time() && !self.repeats() && !self.has_decimal_commas() && !self.has_quoted_numbers()
    }

    /// Whether most texts are one word: names of rows or things, hardly anything to read. Where words stand side by side
    /// without spaces, letters are no plain ones.
    pub fn is_of_single_words(&self) -> bool {
        self.is_text() && 2 * self.single_words > self.texts
    }

    /// Numbers to people, and texts to programs.
    pub fn has_decimal_commas(&self) -> bool {
        self.texts > 0 && self.commas.count == self.texts
    }

    /// The same where the file has types: what it quotes is no number.
    pub fn has_quoted_numbers(&self) -> bool {
        self.texts > 0 && self.quoted.count == self.texts
    }

    /// Whether some of these have a fraction, which no code or name of a thing has.
    pub fn has_quoted_fractions(&self) -> bool {
        self.has_quoted_numbers() && self.quoted_fractions > 0
    }

    /// Whether every number could be a time of day, which begins again every day.
    pub fn is_time_of_day(&self) -> bool {
        self.is_numeric() && self.times_of_day == self.numbers
    }

    /// Whether it is called what could be one of its values, as it is where the first row is no row of names; `None` where one
    /// text stands above others, and nobody knows.
    pub fn is_called_like_a_value(&self) -> Option<bool> {
        let name = self.name.trim();
        match self.classes() {
            _ if self.is_numeric() => Some(name.parse::<f64>().is_ok()),
            _ if self.is_time() => Some(is_moment(name)),
            Some(classes) if self.is_text() => Some(classes.contains(name)),
            // One word above texts of several names them.
            _ if self.is_prose() && !name.contains(' ') && self.longest > name.chars().count() => Some(false),
            _ => None,
        }
    }

    /// Whether no row has a value.
    pub fn is_empty(&self) -> bool {
        self.numbers + self.texts + self.infinite + self.lists.count + self.others == 0
    }

    /// Whether rows can be held to the order of this column as it is written.
    pub fn has_order(&self) -> bool {
        let is_sortable = self.is_time() && self.sortable == self.texts && self.numbers == 0;
        self.missing == 0 && (is_sortable || self.is_numeric() && self.stand_ins == 0)
    }

    /// Whether its values are few: at most a thousand, and each seen twice on average.
    fn repeats(&self) -> bool {
        let seen = self.numbers + self.texts;
        self.values().is_some_and(|values| 2 * values.len() <= seen)
    }

    /// The different values, where they are few enough to be classes, and more than one.
    pub fn classes(&self) -> Option<&BTreeSet<String>> {
        self.values().filter(|values| values.len() >= 2 && self.repeats())
    }

    /// The different values, where they are at most a thousand.
    pub fn values(&self) -> Option<&BTreeSet<String>> {
        self.values.get()
    }

    /// Characters of a text, on average.
    pub fn mean_length(&self) -> usize {
        self.characters / self.texts.max(1)
    }

    fn take(&mut self, place: Place, cell: &Cell<'_>, typed: bool) {
        match cell {
            Cell::Missing => self.missing += 1,
            Cell::Number(number) => self.take_number(place, *number),
            Cell::Exact(value) => self.take_number(place, value.as_f64().unwrap_or(f64::NAN)),
            Cell::List(items) => self.lists.take(items),
            Cell::Other(_) => self.others += 1,
            // Formats without types hold numbers as texts.
            Cell::Text(text) => match text.trim() {
                "" => self.missing += 1,
                word if stands_for_nothing(word) => self.take_stand_in(word),
                word => match word.parse::<f64>() {
                    Ok(number) if !typed => self.take_number(place, number),
                    Ok(number) => self.take_quoted(place, word, number),
                    Err(_) => self.take_text(place, word),
                },
            },
        }
    }

    fn take_number(&mut self, place: Place, number: f64) {
        match number {
            _ if number.is_nan() => return self.missing += 1,
            _ if number.is_infinite() => return self.infinite += 1,
            _ => self.numbers += 1,
        }
        self.zeros += usize::from(number == 0.0);
        self.fractions += usize::from(whole(number).is_none());
        self.times_of_day += usize::from(is_time_of_day(number));
        self.values.take(&number.to_string());
        self.follow(place, Moment::Number(number));
    }

    fn take_text(&mut self, place: Place, text: &str) {
        let characters = text.chars().count();
        self.texts += 1;
        self.characters += characters;
        self.longest = self.longest.max(characters);
        self.single_words += usize::from(text.is_ascii() && !text.contains(char::is_whitespace));
        self.values.take(text);
        if has_decimal_comma(text) {
            self.commas.take(place, text);
        }
        if is_moment(text) {
            self.moments += 1;
            self.sortable += usize::from(is_sortable_moment(text));
            self.follow(place, Moment::Text(text.into()));
        }
    }

    fn take_quoted(&mut self, place: Place, text: &str, number: f64) {
        self.take_text(place, text);
        self.quoted.take(place, text);
        self.quoted_fractions += usize::from(whole(number).is_none());
    }

    fn take_stand_in(&mut self, word: &str) {
        self.stand_ins += 1;
        self.stand_in_words.insert(word.into());
    }

    fn follow(&mut self, place: Place, moment: Moment) {
        if self.before.as_ref().is_some_and(|before| moment < *before) {
            self.backwards.get_or_insert(place);
        }
        self.before = Some(moment);
    }

    /// Once all rows are seen: among words, `none` is a word; among numbers it is none, however they are written.
    fn settle(&mut self) {
        let words = std::mem::take(&mut self.stand_in_words);
        if self.texts == self.commas.count || self.texts == self.quoted.count {
            self.missing += self.stand_ins;
            return;
        }
        self.texts += std::mem::take(&mut self.stand_ins);
        words.iter().for_each(|word| self.values.take(word));
    }
}

/// Looks at the first rows of a file, in the format that is said or whatever it is written in.
pub fn survey(file: &Path, said: Option<Format>) -> Result<Survey, DataError> {
    let names = open(file, said, Wanted::TEXTS, &Columns::new([]))?.names().to_vec();
    let columns = Columns::new(names.iter().cloned());
    let mut rows = open(file, said, Wanted::TEXTS, &columns)?;
    let (columns_seen, typed) = (names.into_iter().map(SurveyedColumn::new).collect(), rows.typed());
    let mut survey = Survey { columns: columns_seen, rows: 0, whole: false, typed };
    while survey.rows < SURVEYED_ROWS {
        let Some(mut row) = rows.next()? else {
            survey.whole = true;
            break;
        };
        let place = row.place;
        let cells = row.cells(file, &columns)?;
        survey.rows += 1;
        survey.columns.iter_mut().zip(&cells).for_each(|(column, cell)| column.take(place, cell, typed));
    }
    if survey.rows == 0 {
        return Err(DataError::Empty { file: file.into(), what: "rows" });
    }
    survey.columns.iter_mut().for_each(SurveyedColumn::settle);
    Ok(survey)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::table::tests::{file, mutated};

    fn columns_of(name: &str, text: &str) -> Vec<SurveyedColumn> {
        let (_dir, path) = file(name, text);
        survey(&path, None).unwrap().columns
    }

    #[test]
    fn columns_of_every_format_are_told_apart() {
        let csv = "word,n,day\n\"a, b\",1.5,mon\nlonger text,2,tue\nx,,mon\ny,4,tue\n";
        let jsonl = "{\"word\": \"a, b\", \"n\": 1.5, \"day\": \"mon\"}\n{\"word\": \"longer text\", \"n\": 2, \
                     \"day\": \"tue\"}\n{\"word\": \"x\", \"n\": null, \"day\": \"mon\"}\n{\"word\": \"y\", \"n\": 4, \
                     \"day\": \"tue\"}\n";
        for (name, text) in [("a.csv", csv), ("a.jsonl", jsonl)] {
            let (_dir, path) = file(name, text);
            let survey = survey(&path, None).unwrap();
            assert!(survey.whole && survey.rows == 4, "{survey:?}");
            let column = |name: &str| survey.columns.iter().find(|c| c.name == name).unwrap();
            let (word, n, day) = (column("word"), column("n"), column("day"));
            assert!(word.is_prose() && word.classes().is_none() && word.longest == 11, "{word:?}");
            assert!(n.is_numeric() && n.missing == 1 && n.fractions == 1 && n.classes().is_none(), "{n:?}");
            assert_eq!(day.classes().unwrap().len(), 2);
        }
    }

    #[test]
    fn times_and_their_order_are_seen() {
        let text =
            "day,when,rows,site\n2024-01-01,31.01.2024,1,a\n2024-01-02,01.02.2024,3,a\n2024-01-03,02.02.2024,2,a\n";
        let columns = columns_of("a.csv", text);
        let [day, when, rows, site] = &columns[..] else { panic!("{columns:?}") };
        assert!(day.is_time() && day.has_order() && day.backwards.is_none(), "{day:?}");
        assert!(when.is_time() && !when.has_order() && !when.is_prose(), "its texts have another order");
        assert_eq!((rows.has_order(), rows.backwards), (true, Some(Place::Line(4))));
        assert!(site.is_text() && !site.is_prose() && site.classes().is_none(), "one word is no text to read");
    }

    #[test]
    fn what_stands_for_nothing_is_none_among_numbers_and_a_word_among_words() {
        let columns = columns_of("a.csv", "x,y,z\nNA,none,1\n0,some,inf\n3,some,\"1,5\"\n");
        assert!(
            columns[0].is_numeric() && columns[0].missing == 1 && columns[0].stand_ins == 1 && columns[0].zeros == 1
        );
        assert_eq!((columns[1].missing, columns[1].values().unwrap().len()), (0, 2));
        assert_eq!((columns[2].infinite, columns[2].commas.count), (1, 1));
        assert_eq!(columns[2].commas.first, Some((Place::Line(4), "1,5".into())));
        assert!(columns[2].has_decimal_commas() && !columns[2].is_prose() && !columns[1].has_decimal_commas());
    }

    /// One cell without a value makes no words of the numbers around it.
    #[test]
    fn numbers_with_commas_or_quotes_stay_what_they_are_beside_gaps() {
        for gap in ["NA", "-", "null", ""] {
            let columns = columns_of("a.csv", &format!("day;price\n1;1,50\n2;{gap}\n3;1 234,50\n4;2\n"));
            assert!(
                columns[1].has_decimal_commas() && !columns[1].is_prose() && columns[1].missing == 1,
                "{columns:?}"
            );
            let quoted = format!("{{\"p\": \"1.5\"}}\n{{\"p\": \"{gap}\"}}\n{{\"p\": \"2\"}}\n");
            let columns = columns_of("a.jsonl", &quoted);
            assert!(columns[0].has_quoted_fractions() && !columns[0].is_numeric() && !columns[0].is_prose(), "{gap}");
        }
        assert!(!columns_of("a.csv", "p\n1.5\n2\n")[0].has_quoted_numbers(), "without types all cells are texts");
    }

    #[test]
    fn lists_are_looked_into() {
        let columns =
            columns_of("a.jsonl", "{\"w\": [\"a\", \"b\"], \"n\": [0, 1]}\n{\"w\": [\"b\"], \"n\": [1, 2]}\n");
        let (words, numbers) = (&columns[0].lists, &columns[1].lists);
        assert_eq!((words.words.get().unwrap().len(), words.shortest, words.longest), (2, 1, 2));
        assert_eq!((numbers.numbers, numbers.shortest, numbers.longest, numbers.are_shares), (4, 2, 2, false));
    }

    #[test]
    fn long_files_are_looked_at_in_part_and_many_values_are_no_classes() {
        let rows: String = (0..SURVEYED_ROWS + 5).map(|i| format!("{i},{}\n", i % 3)).collect();
        let (_dir, path) = file("a.csv", format!("id,y\n{rows}"));
        let survey = survey(&path, None).unwrap();
        assert!(!survey.whole && survey.rows == SURVEYED_ROWS);
        assert!(survey.columns[0].classes().is_none());
        assert_eq!(survey.columns[1].classes().unwrap().len(), 3);
    }

    #[test]
    fn damaged_and_empty_files_are_errors_or_surveys_never_panics() {
        let text = "a,b\n1,x\n2,y\n";
        for seed in 0..300 {
            for name in ["a.csv", "a.jsonl", "a.parquet"] {
                let (_dir, path) = file(name, mutated(text, seed));
                let _ = survey(&path, None);
            }
        }
        for (name, text) in [("a.csv", ""), ("a.csv", "a,b\n"), ("a.jsonl", ""), ("a.parquet", ""), ("a.doc", "x")] {
            let (_dir, path) = file(name, text);
            assert!(survey(&path, None).is_err(), "{name}: {text:?}");
        }
    }
}
