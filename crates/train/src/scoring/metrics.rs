//! How good answers are: accuracy and F1 for labels, correlation for numbers. Gathered over a whole evaluation.

use super::classes::{ClassScore, Classes};
use plimsoll_models::recipe::ProblemType;
use plimsoll_runs::Scores;

/// Answers of a classifier head beside the truth, row by row.
pub struct Answers {
    problem: ProblemType,
    /// Per class: right, claimed, true.
    classes: Vec<[u64; 3]>,
    /// Rows, and rows with everything right.
    rows: [u64; 2],
    /// Predicted and true numbers.
    numbers: Vec<(f64, f64)>,
    /// Of one class of several, how often each (row) was taken for each (column); empty for more than anyone reads.
    confusion: Vec<u64>,
}

/// Classes whose confusion is counted.
const MOST_CONFUSED: usize = 200;

impl Answers {
    pub fn new(problem: ProblemType, labels: usize) -> Answers {
        let confused = problem == ProblemType::Single && labels <= MOST_CONFUSED;
        let confusion = vec![0; if confused { labels * labels } else { 0 }];
        Answers { problem, classes: vec![[0; 3]; labels], rows: [0; 2], numbers: Vec::new(), confusion }
    }

    /// Logits of a row.
    pub fn width(&self) -> usize {
        self.classes.len()
    }

    /// One row: its logits, and the true label or labels.
    pub fn add(&mut self, logits: &[f32], truth: Truth<'_>) {
        self.rows[0] += 1;
        match (self.problem, truth) {
            (ProblemType::Single, Truth::Class(class)) => self.add_class(logits, class),
            (ProblemType::Multi, Truth::Numbers(truth)) => self.add_labels(logits, truth),
            (_, Truth::Numbers(truth)) => {
                self.numbers.extend(logits.iter().zip(truth).map(|(&a, &b)| (f64::from(a), f64::from(b))));
            }
            _ => {}
        }
    }

    fn add_class(&mut self, logits: &[f32], truth: usize) {
        let best = likeliest(logits);
        self.rows[1] += u64::from(best == truth);
        if let Some(count) = self.confusion.get_mut(truth * self.classes.len() + best) {
            *count += 1;
        }
        for (class, counts) in self.classes.iter_mut().enumerate() {
            count(counts, class == best, class == truth);
        }
    }

    /// A label is claimed where its probability is above one half.
    fn add_labels(&mut self, logits: &[f32], truth: &[f32]) {
        let mut right = true;
        for ((counts, &logit), &truth) in self.classes.iter_mut().zip(logits).zip(truth) {
            let (claimed, truth) = (logit > 0.0, truth > 0.5);
            right &= claimed == truth;
            count(counts, claimed, truth);
        }
        self.rows[1] += u64::from(right);
    }

    pub fn scores(&self, loss: f64) -> Scores {
        if self.problem == ProblemType::Regression {
            let pearson = self.mean_over_outputs(correlation);
            let spearman = self.mean_over_outputs(|pairs| correlation(&ranked(pairs)));
            return Scores { loss, pearson, spearman, ..Scores::default() };
        }
        let accuracy = (self.rows[0] > 0).then(|| self.rows[1] as f64 / self.rows[0] as f64);
        Scores { loss, accuracy, f1: self.macro_f1(), ..Scores::default() }
    }

    /// The mean over the outputs that vary: numbers of different size beside each other would be alike whatever is answered.
    fn mean_over_outputs(&self, score: impl Fn(&[(f64, f64)]) -> Option<f64>) -> Option<f64> {
        let width = self.width().max(1);
        let output = |at: usize| self.numbers.iter().skip(at).step_by(width).copied().collect::<Vec<_>>();
        let found: Vec<f64> = (0..width).filter_map(|at| score(&output(at))).collect();
        (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
    }

    /// Of one class of several over those that occur, in the truth or among the answers; of several labels over all. What
    /// never occurs counts as 0 there, as in scikit-learn.
    fn macro_f1(&self) -> Option<f64> {
        let f1 = |&[right, claimed, truth]: &[u64; 3]| 2.0 * right as f64 / (claimed + truth).max(1) as f64;
        let counts = |c: &&[u64; 3]| self.problem == ProblemType::Multi || c[1] + c[2] > 0;
        let found: Vec<f64> = self.classes.iter().filter(counts).map(f1).collect();
        (self.rows[0] > 0 && !found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
    }

    /// Each class by itself; `None` where answers are numbers.
    pub(crate) fn by_class(&self, names: &[String]) -> Option<Classes> {
        if self.problem == ProblemType::Regression {
            return None;
        }
        // As transformers calls them, and answers and exports do.
        let name = |class: usize| names.get(class).cloned().unwrap_or_else(|| format!("LABEL_{class}"));
        let classes = self.classes.iter().enumerate().map(|(class, &counts)| ClassScore::new(name(class), counts));
        let rows = self.confusion.chunks(self.classes.len().max(1)).map(<[u64]>::to_vec);
        Some(Classes { classes: classes.collect(), confusion: (!self.confusion.is_empty()).then(|| rows.collect()) })
    }
}

/// The truth about one row.
#[derive(Clone, Copy, Debug)]
pub enum Truth<'a> {
    Class(usize),
    Numbers(&'a [f32]),
}

fn count(counts: &mut [u64; 3], claimed: bool, truth: bool) {
    counts[0] += u64::from(claimed && truth);
    counts[1] += u64::from(claimed);
    counts[2] += u64::from(truth);
}

/// The first of the largest.
pub(super) fn likeliest(row: &[f32]) -> usize {
    row.iter().enumerate().fold(0, |best, (i, x)| if *x > row[best] { i } else { best })
}

/// Pearson's r; `None` where one side does not vary.
fn correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let n = pairs.len() as f64;
    let (mean_a, mean_b) = (pairs.iter().map(|p| p.0).sum::<f64>() / n, pairs.iter().map(|p| p.1).sum::<f64>() / n);
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for &(a, b) in pairs {
        ab += (a - mean_a) * (b - mean_b);
        aa += (a - mean_a).powi(2);
        bb += (b - mean_b).powi(2);
    }
    let r = ab / (aa * bb).sqrt();
    r.is_finite().then_some(r)
}

/// Values replaced by their ranks; equal values share the mean of theirs.
fn ranked(pairs: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let (a, b) = (ranks(pairs.iter().map(|p| p.0).collect()), ranks(pairs.iter().map(|p| p.1).collect()));
    a.into_iter().zip(b).collect()
}

fn ranks(values: Vec<f64>) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
    let mut ranks = vec![0.0; values.len()];
    for group in order.chunk_by(|&i, &j| values[i] == values[j]) {
        // The place of the group in `order` follows from its address in it.
        let first = (group.as_ptr() as usize - order.as_ptr() as usize) / size_of::<usize>();
        group.iter().for_each(|&i| ranks[i] = first as f64 + (group.len() - 1) as f64 / 2.0);
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_give_accuracy_and_macro_f1() {
        let mut answers = Answers::new(ProblemType::Single, 3);
        // Truth 0 0 1 1 2; answers 0 1 1 1 0.
        for (logits, truth) in [
            ([1.0, 0.0, 0.0], 0),
            ([0.0, 1.0, 0.0], 0),
            ([0.0, 1.0, 0.0], 1),
            ([0.0, 2.0, 1.0], 1),
            ([3.0, 0.0, 1.0], 2),
        ] {
            answers.add(&logits, Truth::Class(truth));
        }
        let scores = answers.scores(0.5);
        assert_eq!(scores.accuracy, Some(0.6));
        // F1: 2·1/(2+2), 2·2/(3+2), 0.
        assert!((scores.f1.unwrap() - (0.5 + 0.8 + 0.0) / 3.0).abs() < 1e-12);
    }

    /// By hand, as scipy's pearsonr and spearmanr say of each column: 4/√(2·8) = 1 and 1, 3/√(2·38/3) and 1/2.
    #[test]
    fn several_numbers_are_correlated_one_by_one() {
        let score = |rows: &[([f32; 2], [f32; 2])]| {
            let mut answers = Answers::new(ProblemType::Regression, 2);
            rows.iter().for_each(|(found, truth)| answers.add(found, Truth::Numbers(truth)));
            let scores = answers.scores(0.0);
            (scores.pearson, scores.spearman)
        };
        // The same answer to every row, near the mean of either column.
        let blind = [([2.0, 100.0], [1.0, 101.0]), ([2.0, 100.0], [3.0, 99.0]), ([2.0, 100.0], [2.0, 100.0])];
        assert_eq!(score(&blind), (None, None));
        let rows = [([1.0, 100.0], [2.0, 10.0]), ([2.0, 101.0], [4.0, 15.0]), ([3.0, 102.0], [6.0, 13.0])];
        let (pearson, spearman) = score(&rows);
        let second = 3.0 / (2.0f64 * (38.0 / 3.0)).sqrt();
        assert!((pearson.unwrap() - (1.0 + second) / 2.0).abs() < 1e-12, "{pearson:?}");
        assert!((spearman.unwrap() - 0.75).abs() < 1e-12, "{spearman:?}");
        // One that does not vary says nothing, and takes nothing from the other.
        let half = rows.map(|([a, _], truth)| ([a, 7.0], truth));
        assert_eq!(score(&half), (Some(1.0), Some(1.0)));
    }

    /// What scikit-learn 1.9 says (`tools/reference/metrics.py`).
    const GOLDENS: &str = include_str!("../../tests/goldens/classes.jsonl");

    fn numbers(value: &serde_json::Value) -> Vec<f64> {
        value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    }

    fn close(found: Option<f64>, expected: &serde_json::Value, what: &str) {
        assert!((found.unwrap() - expected.as_f64().unwrap()).abs() < 1e-12, "{what}: {found:?}, not {expected}");
    }

    fn golden_answers(golden: &serde_json::Value) -> Answers {
        let classes = golden["classes"].as_u64().unwrap() as usize;
        let is_single = golden["kind"] == "single";
        let mut answers = Answers::new(if is_single { ProblemType::Single } else { ProblemType::Multi }, classes);
        let rows = golden["truth"].as_array().unwrap().iter().zip(golden["claimed"].as_array().unwrap());
        for (truth, claimed) in rows {
            if is_single {
                let claimed = claimed.as_u64().unwrap() as usize;
                let logits: Vec<f32> = (0..classes).map(|c| if c == claimed { 1.0 } else { 0.0 }).collect();
                answers.add(&logits, Truth::Class(truth.as_u64().unwrap() as usize));
            } else {
                let logits: Vec<f32> = numbers(claimed).iter().map(|x| *x as f32 - 0.5).collect();
                let truth: Vec<f32> = numbers(truth).iter().map(|x| *x as f32).collect();
                answers.add(&logits, Truth::Numbers(&truth));
            }
        }
        answers
    }

    #[test]
    fn classes_are_scored_as_scikit_learn_scores_them() {
        for line in GOLDENS.lines() {
            let golden: serde_json::Value = serde_json::from_str(line).unwrap();
            let answers = golden_answers(&golden);
            let scores = answers.scores(0.0);
            close(scores.accuracy, &golden["accuracy"], "accuracy");
            close(scores.f1, &golden["f1"], "macro F1");
            if golden["kind"] == "multi" {
                continue;
            }
            let found = answers.by_class(&[]).unwrap();
            for (class, score) in found.classes.iter().enumerate() {
                close(Some(score.precision), &golden["precision"][class], "precision");
                close(Some(score.recall), &golden["recall"][class], "recall");
                close(Some(score.f1), &golden["class_f1"][class], "F1 of a class");
                assert_eq!(Some(score.support), golden["support"][class].as_u64());
            }
            assert_eq!(serde_json::to_value(found.confusion.unwrap()).unwrap(), golden["confusion"]);
        }
    }

    #[test]
    fn several_labels_are_right_only_together() {
        let mut answers = Answers::new(ProblemType::Multi, 2);
        answers.add(&[1.0, -1.0], Truth::Numbers(&[1.0, 0.0]));
        answers.add(&[1.0, 1.0], Truth::Numbers(&[1.0, 0.0]));
        let scores = answers.scores(0.0);
        assert_eq!(scores.accuracy, Some(0.5));
        assert!((scores.f1.unwrap() - (1.0 + 0.0) / 2.0).abs() < 1e-12);
    }

    #[test]
    fn numbers_give_correlations() {
        let mut answers = Answers::new(ProblemType::Regression, 1);
        for (a, b) in [(1.0, 10.0), (2.0, 20.0), (3.0, 90.0), (3.0, 100.0)] {
            answers.add(&[a], Truth::Numbers(&[b]));
        }
        let scores = answers.scores(0.0);
        assert!((scores.pearson.unwrap() - 0.9349470).abs() < 1e-6, "{scores:?}");
        assert!((scores.spearman.unwrap() - 0.9486833).abs() < 1e-6, "{scores:?}");
        assert_eq!(scores.accuracy, None);
        assert_eq!(Answers::new(ProblemType::Regression, 1).scores(0.0).pearson, None);
    }
}
