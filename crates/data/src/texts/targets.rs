//! Labels of texts: one class, several at once, or numbers.

use crate::{
    DataError, Place,
    formats::Cell,
    whole::{classes_of, whole_word},
};
use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelKind {
    /// One class of several.
    Single,
    /// Each class or none.
    Multi,
    /// Numbers.
    Regression,
}

/// The labels of all rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Targets {
    Classes(Vec<u32>),
    /// (rows, width)
    Values {
        width: usize,
        values: Vec<f32>,
    },
}

impl Targets {
    pub(super) fn rows(&self) -> usize {
        match self {
            Targets::Classes(classes) => classes.len(),
            Targets::Values { width, values } => values.len() / (*width).max(1),
        }
    }

    pub(super) fn resident_bytes(&self) -> usize {
        match self {
            Targets::Classes(classes) => 4 * classes.len(),
            Targets::Values { values, .. } => 4 * values.len(),
        }
    }
}

/// What the cells of one row say, before words have become numbers.
#[derive(Debug, PartialEq)]
pub(super) enum Label {
    /// Rows to predict.
    None,
    Word(String),
    Number(f64),
    Words(Vec<String>),
    Numbers(Vec<f64>),
}

/// Where a label was read.
pub(super) struct At<'a> {
    pub file: &'a Path,
    pub place: Place,
    pub columns: &'a [String],
}

impl At<'_> {
    fn wrong(&self, column: usize, cell: &Cell<'_>, wanted: &str) -> DataError {
        let (file, place, column) = (self.file.into(), self.place, self.columns[column].clone());
        match cell {
            Cell::Missing => DataError::MissingCell { file, place, column },
            _ => DataError::WrongCell { file, place, column, found: cell.kind(), wanted: wanted.into() },
        }
    }

    fn number(&self, column: usize, cell: &Cell<'_>) -> Result<f64, DataError> {
        let number = match cell {
            Cell::Number(number) => Some(*number),
            Cell::Exact(number) => number.as_f64(),
            Cell::Text(text) => text.trim().parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| self.wrong(column, cell, "a number"))?;
        if number.is_finite() {
            return Ok(number);
        }
        let (file, place, column) = (self.file.into(), self.place, self.columns[column].clone());
        let found = if number.is_nan() { "NaN" } else { "an infinite number" };
        Err(DataError::WrongCell { file, place, column, found, wanted: "a finite number".into() })
    }

    /// Reads the label cells of a row; `cells` are those of `columns`.
    pub(super) fn label(&self, kind: LabelKind, cells: &[Cell<'_>]) -> Result<Label, DataError> {
        let all = || cells.iter().enumerate().map(|(at, cell)| self.number(at, cell)).collect::<Result<Vec<_>, _>>();
        match (kind, cells) {
            (_, []) => Ok(Label::None),
            (LabelKind::Single, [Cell::Text(word)]) => Ok(Label::Word(word.trim().into())),
            (LabelKind::Single, [cell]) => Ok(Label::Number(self.number(0, cell)?)),
            (LabelKind::Single, _) => Err(DataError::option("label", "one class needs one column")),
            (LabelKind::Multi, [Cell::List(items)]) if items.iter().all(|item| matches!(item, Cell::Text(_))) => {
                let word = |item: &Cell<'_>| if let Cell::Text(word) = item { word.to_string() } else { String::new() };
                Ok(Label::Words(items.iter().map(word).collect()))
            }
            (_, [Cell::List(items)]) => {
                let numbers = items.iter().map(|item| self.number(0, item)).collect::<Result<Vec<_>, _>>()?;
                Ok(Label::Numbers(numbers))
            }
            (LabelKind::Multi, [cell]) => Err(self.wrong(0, cell, "a list of labels, or of 0 and 1,")),
            _ => Ok(Label::Numbers(all()?)),
        }
    }
}

/// Turns labels into numbers, row by row; learns the classes of the training file on the way.
pub(super) struct LabelSet {
    kind: LabelKind,
    /// Outputs of the model.
    outputs: usize,
    names: Vec<String>,
    index: HashMap<String, u32>,
    /// Where each name was first met, of those found in the file.
    met: Vec<Place>,
    /// New words may still become classes.
    open: bool,
    /// Some class is called by a number: then numbers are names, and none is a place.
    by_number: bool,
    /// What the model calls its classes already.
    known: Option<Vec<String>>,
    targets: Targets,
}

impl LabelSet {
    /// `names`: the classes in order, where they are known.
    pub(super) fn new(kind: LabelKind, outputs: usize, names: Option<&[String]>) -> Self {
        let targets = match kind {
            LabelKind::Single => Targets::Classes(Vec::new()),
            _ => Targets::Values { width: outputs, values: Vec::new() },
        };
        let open = names.is_none();
        let names = names.unwrap_or_default().to_vec();
        let by_number = names.iter().any(|name| whole_word(name).is_some());
        let index = names.iter().cloned().zip(0..).collect();
        LabelSet { kind, outputs, names, index, met: Vec::new(), open, by_number, known: None, targets }
    }

    /// With the names that a model has for its classes already: where all labels of the file are among them, they stand
    /// for the classes that the model has learned.
    pub(super) fn preferring(self, known: Option<&[String]>) -> Self {
        LabelSet { known: known.map(<[String]>::to_vec), ..self }
    }

    pub(super) fn push(&mut self, label: Label, at: &At<'_>) -> Result<(), DataError> {
        match label {
            Label::None => self.push_nothing(),
            Label::Word(word) => {
                let class = self.class_of(&word, at)?;
                self.push_class(class);
            }
            Label::Number(number) => {
                let class = self.numbered(number, at)?;
                self.push_class(class);
            }
            Label::Words(words) => {
                let classes = words.iter().map(|word| self.class_of(word, at)).collect::<Result<Vec<_>, _>>()?;
                let Targets::Values { width, values } = &mut self.targets else { return Ok(()) };
                let start = values.len();
                values.resize(start + *width, 0.0);
                // More classes than outputs are refused at the end, with all their names.
                classes.iter().filter(|&&c| (c as usize) < *width).for_each(|&c| values[start + c as usize] = 1.0);
            }
            Label::Numbers(numbers) => self.push_numbers(&numbers, at)?,
        }
        Ok(())
    }

    fn push_nothing(&mut self) {
        match &mut self.targets {
            Targets::Classes(classes) => classes.push(0),
            Targets::Values { width, values } => values.resize(values.len() + *width, 0.0),
        }
    }

    fn push_class(&mut self, class: u32) {
        if let Targets::Classes(classes) = &mut self.targets {
            classes.push(class);
        }
    }

    fn push_numbers(&mut self, numbers: &[f64], at: &At<'_>) -> Result<(), DataError> {
        let Targets::Values { width, values } = &mut self.targets else { return Ok(()) };
        let malformed = |cause, hint| DataError::Malformed { file: at.file.into(), place: at.place, cause, hint };
        if numbers.len() != *width {
            let cause = format!("{} labels where the model has {width} outputs", numbers.len());
            return Err(malformed(
                cause,
                "give every row one number for each output, and set model.num_labels to that",
            ));
        }
        if let Some(odd) = numbers.iter().find(|x| self.kind == LabelKind::Multi && !(0.0..=1.0).contains(*x)) {
            let hint = "write the labels that a row has as words, or 0 and 1 for each of them";
            return Err(malformed(format!("label {odd} is not between 0 and 1"), hint));
        }
        values.extend(numbers.iter().map(|&x| x as f32));
        Ok(())
    }

    /// The class of a word; a number written as text is one too.
    fn class_of(&mut self, word: &str, at: &At<'_>) -> Result<u32, DataError> {
        if let Some(&class) = self.index.get(word) {
            return Ok(class);
        }
        if self.open {
            let class = self.names.len() as u32;
            self.names.push(word.into());
            self.met.push(at.place);
            self.index.insert(word.into(), class);
            return Ok(class);
        }
        match word.parse::<f64>() {
            Ok(number) => self.numbered(number, at),
            Err(_) => Err(self.unknown(word, at)),
        }
    }

    fn unknown(&self, word: &str, at: &At<'_>) -> DataError {
        let known = self.names.clone();
        let (file, place, column) = (at.file.into(), at.place, at.columns.first().cloned().unwrap_or_default());
        DataError::UnknownLabel { file, place, column, label: word.into(), known }
    }

    /// A class by its number. Numbers and words in one column are all words.
    fn numbered(&mut self, number: f64, at: &At<'_>) -> Result<u32, DataError> {
        let is_whole = number.fract() == 0.0;
        if is_whole && (self.open || self.index.contains_key(&number.to_string())) {
            return self.class_of(&number.to_string(), at);
        }
        if self.by_number && !self.open {
            return Err(self.unknown(&number.to_string(), at));
        }
        let classes = if self.names.is_empty() || self.open { self.outputs } else { self.names.len() };
        if is_whole && number >= 0.0 && number < classes as f64 {
            return Ok(number as u32);
        }
        let (file, place, column) = (at.file.into(), at.place, at.columns.first().cloned().unwrap_or_default());
        Err(DataError::BadLabel { file, place, column, label: number, classes })
    }

    /// The labels of all rows and the names of the classes; words found in the file are sorted, and whole numbers are
    /// places of classes, or their names ([`classes_of`]). `columns` are those that hold the labels.
    pub(super) fn finish(mut self, file: &Path, columns: &[String]) -> Result<(Targets, Vec<String>), DataError> {
        if self.open {
            self.settle(file, columns)?;
        }
        if self.names.len() > self.outputs {
            let (file, column) = (file.into(), columns.first().cloned().unwrap_or_default());
            return Err(DataError::TooManyLabels { file, column, names: self.names, classes: self.outputs });
        }
        Ok((self.targets, self.names))
    }

    fn settle(&mut self, file: &Path, columns: &[String]) -> Result<(), DataError> {
        if self.names.is_empty() {
            self.names = if columns.len() == self.outputs { columns.to_vec() } else { self.numbered_names() };
            return Ok(());
        }
        if let Some(classes) = self.known_classes() {
            self.names = self.known.take().unwrap_or_default();
            self.renumber(&classes);
            return Ok(());
        }
        let numbers: Option<Vec<i64>> = self.names.iter().map(|name| whole_word(name)).collect();
        match numbers {
            Some(numbers) if self.kind == LabelKind::Single => self.settle_numbers(&numbers, file, columns),
            _ => {
                self.settle_words();
                Ok(())
            }
        }
    }

    /// Classes in the order of their words.
    fn settle_words(&mut self) {
        let mut sorted = self.names.clone();
        sorted.sort_unstable();
        let rank = |name: &String| sorted.binary_search(name).map_or(0, |at| at as u32);
        let ranks: Vec<u32> = self.names.iter().map(rank).collect();
        self.names = sorted;
        self.renumber(&ranks);
    }

    /// Classes in the order of their numbers, of which each name has one.
    fn settle_numbers(&mut self, numbers: &[i64], file: &Path, columns: &[String]) -> Result<(), DataError> {
        let found: BTreeSet<i64> = numbers.iter().copied().collect();
        let Some(classes) = classes_of(&found, self.outputs) else {
            return Err(self.no_classes(&found, numbers, file, columns));
        };
        let ranks: Vec<u32> = numbers.iter().map(|n| classes.binary_search(n).map_or(0, |at| at as u32)).collect();
        let are_places = classes.first() == Some(&0) && classes.last() == Some(&(self.outputs as i64 - 1));
        self.names = if are_places { self.numbered_names() } else { in_words(classes) };
        self.renumber(&ranks);
        Ok(())
    }

    /// More labels than classes are refused with all their names, other ones with the first that is no place.
    fn no_classes(&self, found: &BTreeSet<i64>, numbers: &[i64], file: &Path, columns: &[String]) -> DataError {
        let (file, column, classes) = (file.into(), columns.first().cloned().unwrap_or_default(), self.outputs);
        if found.len() > classes {
            return DataError::TooManyLabels { file, column, names: in_words(found.iter().copied()), classes };
        }
        let is_place = |label: &i64| usize::try_from(*label).is_ok_and(|label| label < classes);
        let odd = numbers.iter().zip(&self.met).find(|(label, _)| !is_place(label));
        let (label, place) = odd.map_or((0, Place::Row(1)), |(label, place)| (*label, *place));
        DataError::BadLabel { file, place, column, label: label as f64, classes }
    }

    /// The classes of the words in the file, if the model knows them all by name.
    fn known_classes(&self) -> Option<Vec<u32>> {
        let known = self.known.as_ref()?;
        self.names.iter().map(|name| known.iter().position(|k| k == name).map(|at| at as u32)).collect()
    }

    /// Classes that the file tells by number.
    fn numbered_names(&self) -> Vec<String> {
        self.known
            .clone()
            .filter(|known| known.len() == self.outputs)
            .unwrap_or_else(|| in_words(0..self.outputs as i64))
    }

    fn renumber(&mut self, new: &[u32]) {
        match &mut self.targets {
            Targets::Classes(classes) => classes.iter_mut().for_each(|class| *class = new[*class as usize]),
            Targets::Values { width, values } => {
                let mut row = vec![0.0; *width];
                for old in values.chunks_mut((*width).max(1)) {
                    row.fill(0.0);
                    for (class, &value) in old.iter().enumerate().filter(|(_, value)| **value != 0.0) {
                        if let Some(to) = new.get(class).and_then(|&to| row.get_mut(to as usize)) {
                            *to = value;
                        }
                    }
                    old.copy_from_slice(&row);
                }
            }
        }
    }
}

fn in_words(numbers: impl IntoIterator<Item = i64>) -> Vec<String> {
    numbers.into_iter().map(|number| number.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(
        kind: LabelKind,
        outputs: usize,
        names: Option<&[&str]>,
        rows: &[Vec<Cell>],
    ) -> Result<(Targets, Vec<String>), DataError> {
        let names: Option<Vec<String>> = names.map(|names| names.iter().map(|n| n.to_string()).collect());
        let columns: Vec<String> = (0..rows[0].len()).map(|i| format!("y{i}")).collect();
        let mut set = LabelSet::new(kind, outputs, names.as_deref());
        for (row, cells) in rows.iter().enumerate() {
            let at = At { file: Path::new("a.csv"), place: Place::Line(row as u64 + 2), columns: &columns };
            set.push(at.label(kind, cells)?, &at)?;
        }
        set.finish(Path::new("a.csv"), &columns)
    }

    fn word(text: &str) -> Cell<'_> {
        Cell::Text(text.into())
    }

    fn classes(targets: Targets) -> Vec<u32> {
        let Targets::Classes(classes) = targets else { panic!("classes expected") };
        classes
    }

    #[test]
    fn words_are_sorted_and_numbers_are_their_own_class() {
        let rows = [vec![word("pos")], vec![word("neg")], vec![word("pos")]];
        let (targets, names) = resolve(LabelKind::Single, 2, None, &rows).unwrap();
        assert_eq!((classes(targets), names), (vec![1, 0, 1], vec!["neg".to_string(), "pos".into()]));
        let (targets, _) = resolve(LabelKind::Single, 2, Some(&["pos", "neg"]), &rows).unwrap();
        assert_eq!(classes(targets), [0, 1, 0]);
        for rows in [[vec![word("2")], vec![word("0")]], [vec![Cell::Number(2.0)], vec![Cell::Number(0.0)]]] {
            let (targets, names) = resolve(LabelKind::Single, 3, None, &rows).unwrap();
            assert_eq!((classes(targets), names.len()), (vec![2, 0], 3));
            let (targets, _) = resolve(LabelKind::Single, 3, Some(&["a", "b", "c"]), &rows).unwrap();
            assert_eq!(classes(targets), [2, 0]);
        }
        let (targets, _) = resolve(LabelKind::Single, 2, Some(&["1", "5"]), &[vec![Cell::Number(5.0)]]).unwrap();
        assert_eq!(classes(targets), [1], "a name that is a number counts as a name");
    }

    /// Stars from 1 to 5, −1 and 1: as many numbers as classes are the classes, in order, and their own names.
    #[test]
    fn numbers_that_are_no_places_are_classes_where_there_are_as_many() {
        let stars = |cells: &[&'static str]| cells.iter().map(|cell| vec![word(cell)]).collect::<Vec<_>>();
        let (targets, names) = resolve(LabelKind::Single, 5, None, &stars(&["5", "1", "3", "2", "4.0", "4"])).unwrap();
        assert_eq!(
            (classes(targets), names),
            (vec![4, 0, 2, 1, 3, 3], ["1", "2", "3", "4", "5"].map(String::from).into())
        );
        let signs = [-1.0, 1.0, -1.0].map(|sign| vec![Cell::Number(sign)]);
        let (targets, names) = resolve(LabelKind::Single, 2, None, &signs).unwrap();
        assert_eq!((classes(targets), names), (vec![0, 1, 0], vec!["-1".to_string(), "1".into()]));
        let (targets, _) = resolve(LabelKind::Single, 11, None, &stars(&["9", "10"])).unwrap();
        assert_eq!(classes(targets), [9, 10], "below the number of classes they are places");
        let error = resolve(LabelKind::Single, 4, None, &stars(&["5", "1", "3", "2", "4"])).unwrap_err();
        assert!(error.hint().ends_with("to 5") && error.to_string().contains("5 different labels"), "{error}");
        let error = resolve(LabelKind::Single, 3, None, &stars(&["1", "-1"])).unwrap_err();
        assert!(matches!(error, DataError::BadLabel { label: -1.0, place: Place::Line(3), .. }), "{error}");
    }

    /// What a validation file says is meant by the names of the training file.
    #[test]
    fn a_number_that_is_no_name_among_numbers_is_unknown() {
        let named =
            |cell: Cell<'static>| resolve(LabelKind::Single, 5, Some(&["1", "2", "3", "4", "5"]), &[vec![cell]]);
        for five in [Cell::Number(5.0), word("5"), word("5.0")] {
            assert_eq!(classes(named(five).unwrap().0), [4]);
        }
        for other in [Cell::Number(0.0), word("0"), word("6"), word("0.5")] {
            let error = named(other).unwrap_err();
            assert!(matches!(error, DataError::UnknownLabel { .. }), "{error}");
        }
    }

    #[test]
    fn a_model_that_has_names_for_its_classes_keeps_their_order() {
        let known: Vec<String> = ["positive", "neutral", "negative"].map(String::from).into();
        let columns = vec!["y".to_string()];
        let settle = |cells: &[Cell<'static>]| {
            let mut set = LabelSet::new(LabelKind::Single, 3, None).preferring(Some(&known));
            for cell in cells {
                let at = At { file: Path::new("a.csv"), place: Place::Line(2), columns: &columns };
                set.push(at.label(LabelKind::Single, std::slice::from_ref(cell)).unwrap(), &at).unwrap();
            }
            let (targets, names) = set.finish(Path::new("a.csv"), &columns).unwrap();
            (classes(targets), names)
        };
        assert_eq!(settle(&[word("negative"), word("positive")]), (vec![2, 0], known.clone()));
        assert_eq!(
            settle(&[Cell::Number(1.0), Cell::Number(2.0)]),
            (vec![1, 2], known.clone()),
            "numbers are its classes"
        );
        let (other, names) = settle(&[word("spam"), word("ham")]);
        assert_eq!((other, names), (vec![1, 0], vec!["ham".to_string(), "spam".into()]), "words of another task");
    }

    #[test]
    fn labels_outside_the_set_are_errors() {
        let rows = [vec![word("a")], vec![word("c")], vec![word("b")]];
        let error = resolve(LabelKind::Single, 2, None, &rows).unwrap_err();
        assert!(error.to_string().contains("3 different labels (`a`, `b`, `c`)"), "{error}");
        let error = resolve(LabelKind::Single, 2, Some(&["a", "b"]), &rows).unwrap_err();
        assert!(error.to_string().contains("line 3, column `y0`: label `c` is not among `a`, `b`"), "{error}");
        for bad in [Cell::Number(2.0), Cell::Number(0.5), Cell::Number(-1.0)] {
            let error = resolve(LabelKind::Single, 2, Some(&["a", "b"]), &[vec![bad]]).unwrap_err();
            assert!(matches!(error, DataError::BadLabel { .. }), "{error}");
        }
        let high = resolve(LabelKind::Single, 2, None, &[vec![Cell::Number(7.0)]]).unwrap_err();
        assert!(matches!(high, DataError::BadLabel { classes: 2, .. }), "{high}");
        let none = resolve(LabelKind::Single, 2, None, &[vec![Cell::Missing]]).unwrap_err();
        assert!(matches!(none, DataError::MissingCell { .. }), "{none}");
        assert!(none.hint().contains("data.on_bad_row") && !none.hint().contains("data.gaps"), "{}", none.hint());
    }

    #[test]
    fn several_labels_come_as_words_numbers_or_columns() {
        let list = |items: &[&'static str]| vec![Cell::List(items.iter().map(|i| word(i)).collect())];
        let (targets, names) =
            resolve(LabelKind::Multi, 3, None, &[list(&["b", "a"]), list(&[]), list(&["b"])]).unwrap();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(targets, Targets::Values { width: 3, values: vec![1., 1., 0., 0., 0., 0., 0., 1., 0.] });
        let hot = vec![Cell::List(vec![Cell::Number(0.0), Cell::Number(1.0)])];
        let columns = vec![word("0"), word("1")];
        for rows in [hot, columns] {
            let (targets, _) = resolve(LabelKind::Multi, 2, None, &[rows]).unwrap();
            assert_eq!(targets, Targets::Values { width: 2, values: vec![0.0, 1.0] });
        }
        assert!(resolve(LabelKind::Multi, 2, None, &[vec![word("a")]]).is_err());
        assert!(resolve(LabelKind::Multi, 2, None, &[vec![word("2"), word("0")]]).is_err());
    }

    #[test]
    fn regression_takes_numbers_only() {
        let (targets, _) =
            resolve(LabelKind::Regression, 1, None, &[vec![word("-1.5")], vec![Cell::Number(3.0)]]).unwrap();
        assert_eq!(targets, Targets::Values { width: 1, values: vec![-1.5, 3.0] });
        assert!(resolve(LabelKind::Regression, 1, None, &[vec![word("high")]]).is_err());
        assert!(resolve(LabelKind::Regression, 1, None, &[vec![word("nan")]]).is_err());
        assert!(resolve(LabelKind::Regression, 2, None, &[vec![word("1")]]).is_err());
    }
}
