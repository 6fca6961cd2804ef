//! Beam search, with the scores and the end of Hugging Face's `generate`.
//!
//! Each step extends every beam by every token and ranks them by the sum of their log-probabilities. Of twice as many as
//! there are beams, those that end here are hypotheses if they rank among the first `beams`, scored by their sum over
//! length^penalty; the best of the others go on. A source ends when no running beam can beat its worst hypothesis.

use super::search::{Continuation, Search};

/// How a search ranks and ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rules {
    pub beams: usize,
    /// The longest answer.
    pub most: usize,
    pub end: i32,
    pub length_penalty: f64,
    /// End as soon as there are as many hypotheses as beams.
    pub early_stopping: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Hypothesis {
    tokens: Vec<i32>,
    score: f64,
}

pub(super) struct Beams {
    rules: Rules,
    /// As many as there are beams, best first.
    running: Vec<Hypothesis>,
    /// At most as many, best first.
    finished: Vec<Hypothesis>,
    next: Vec<Continuation>,
    done: bool,
}

/// A beam extended by a token.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    score: f64,
    parent: usize,
    token: i32,
}

/// The score of beams that do not exist yet: all start alike, and one of them is enough.
const NEVER: f64 = -1e9;

impl Beams {
    pub(super) fn new(rules: Rules, start: i32) -> Beams {
        let beam = |i: usize| Hypothesis { tokens: Vec::new(), score: if i == 0 { 0.0 } else { NEVER } };
        Beams {
            rules,
            running: (0..rules.beams).map(beam).collect(),
            finished: Vec::new(),
            next: (0..rules.beams).map(|parent| Continuation { token: start, parent }).collect(),
            done: rules.most == 0,
        }
    }

    /// The `2 · beams` best extensions, best first.
    fn candidates(&self, logits: &[f32], vocabulary: usize) -> Vec<Candidate> {
        let mut best = Best::new(2 * self.rules.beams);
        for (parent, (beam, row)) in self.running.iter().zip(logits.chunks_exact(vocabulary)).enumerate() {
            let base = beam.score - log_sum_exp(row);
            for (token, &logit) in row.iter().enumerate() {
                best.offer(Candidate { score: base + logit as f64, parent, token: token as i32 });
            }
        }
        best.0
    }

    fn extended(&self, candidate: &Candidate) -> Vec<i32> {
        let mut tokens = self.running[candidate.parent].tokens.clone();
        tokens.push(candidate.token);
        tokens
    }

    /// Adds the hypotheses that end at `length` tokens, its end included, and keeps the best.
    fn finish(&mut self, candidates: &[Candidate], length: usize, ends: impl Fn(&Candidate) -> bool) {
        for candidate in candidates.iter().take(self.rules.beams).filter(|c| ends(c)) {
            let score = candidate.score / self.penalty(length);
            let tokens = self.extended(candidate);
            self.finished.push(Hypothesis { tokens, score });
        }
        self.finished.sort_by(|a, b| b.score.total_cmp(&a.score));
        self.finished.truncate(self.rules.beams);
    }

    fn penalty(&self, length: usize) -> f64 {
        (length as f64).powf(self.rules.length_penalty)
    }

    fn is_full(&self) -> bool {
        self.finished.len() == self.rules.beams
    }

    /// Whether the best running beam, ending now, would beat the worst hypothesis.
    fn can_improve(&self, length: usize) -> bool {
        let best = self.running.first().map_or(NEVER, |beam| beam.score / self.penalty(length));
        !self.is_full() || self.finished.last().is_none_or(|worst| best > worst.score)
    }
}

impl Search for Beams {
    fn next(&self) -> &[Continuation] {
        &self.next
    }

    fn advance(&mut self, logits: &[f32], vocabulary: usize) {
        let candidates = self.candidates(logits, vocabulary);
        let (length, end) = (self.running.first().map_or(0, |b| b.tokens.len()) + 1, self.rules.end);
        let at_most = length == self.rules.most;
        self.finish(&candidates, length, |c| at_most || c.token == end);
        let open: Vec<Candidate> = candidates.into_iter().filter(|c| c.token != end).take(self.rules.beams).collect();
        self.running = open.iter().map(|c| Hypothesis { tokens: self.extended(c), score: c.score }).collect();
        self.next = open.iter().map(|c| Continuation { token: c.token, parent: c.parent }).collect();
        self.done = at_most || !self.can_improve(length) || (self.rules.early_stopping && self.is_full());
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn result(&mut self) -> Vec<i32> {
        let mut tokens = self.finished.first_mut().map(|best| std::mem::take(&mut best.tokens)).unwrap_or_default();
        tokens.pop_if(|last| *last == self.rules.end);
        tokens
    }
}

/// The best candidates offered so far, best first; of equal ones the earlier.
struct Best(Vec<Candidate>, usize);

impl Best {
    fn new(most: usize) -> Best {
        Best(Vec::with_capacity(most + 1), most)
    }

    fn offer(&mut self, candidate: Candidate) {
        let full = self.0.len() == self.1;
        if full && self.0.last().is_none_or(|worst| candidate.score <= worst.score) {
            return;
        }
        let at = self.0.partition_point(|better| better.score >= candidate.score);
        self.0.insert(at, candidate);
        self.0.truncate(self.1);
    }
}

fn log_sum_exp(row: &[f32]) -> f64 {
    let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
    highest + row.iter().map(|&x| (x as f64 - highest).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { beams: 2, most: 4, end: 0, length_penalty: 1.0, early_stopping: false };

    fn logits(rows: &[[f32; 4]]) -> Vec<f32> {
        rows.iter().flatten().map(|p| p.ln()).collect()
    }

    #[test]
    fn the_better_sum_wins_over_the_better_first_token() {
        let mut search = Beams::new(RULES, 9);
        // Token 1 leads at first, but what follows token 2 is certain.
        search.advance(&logits(&[[0.01, 0.5, 0.4, 0.09], [0.25; 4]]), 4);
        assert_eq!(search.next().iter().map(|c| (c.token, c.parent)).collect::<Vec<_>>(), [(1, 0), (2, 0)]);
        search.advance(&logits(&[[0.25, 0.25, 0.25, 0.25], [0.001, 0.001, 0.001, 0.997]]), 4);
        assert_eq!(search.next()[0], Continuation { token: 3, parent: 1 });
        search.advance(&logits(&[[0.97, 0.01, 0.01, 0.01], [0.97, 0.01, 0.01, 0.01]]), 4);
        while !search.is_done() {
            search.advance(&logits(&[[0.25; 4], [0.25; 4]]), 4);
        }
        assert_eq!(search.result(), [2, 3]);
    }

    #[test]
    fn an_answer_never_exceeds_the_most() {
        let mut search = Beams::new(RULES, 9);
        let mut steps = 0;
        while !search.is_done() {
            search.advance(&logits(&[[0.001, 0.9, 0.05, 0.049], [0.001, 0.9, 0.05, 0.049]]), 4);
            steps += 1;
        }
        assert_eq!((steps, search.result()), (4, vec![1, 1, 1, 1]));
    }

    #[test]
    fn a_long_answer_is_favoured_by_a_larger_penalty() {
        let answer = |length_penalty| {
            let mut search = Beams::new(Rules { length_penalty, early_stopping: true, ..RULES }, 9);
            search.advance(&logits(&[[0.5, 0.45, 0.03, 0.02], [0.25; 4]]), 4);
            while !search.is_done() {
                search.advance(&logits(&[[0.7, 0.25, 0.03, 0.02], [0.7, 0.25, 0.03, 0.02]]), 4);
            }
            search.result()
        };
        assert_eq!(answer(0.0), [0i32; 0]);
        assert_eq!(answer(1.0), [1]);
    }
}
