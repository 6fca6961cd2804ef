//! How well images and texts find each other, over more than one batch: what each is sought among is fixed by the recipe
//! and the data, never by how many are evaluated at a time.

use plimsoll_runs::Scores;
use serde::Serialize;
use std::collections::HashSet;

/// Pairs that are compared with one another at most: as in the usual tests of retrieval, and bounded in memory.
const POOL: usize = 1000;

/// Within how many of the first.
const RANKS: [usize; 3] = [1, 5, 10];

/// Embeddings of pairs as they come, and what is known of those before them.
pub struct Retrieval {
    /// What similarities are multiplied by.
    scale: f64,
    /// Pairs of the loss: as many as one update sees.
    group: usize,
    pool: usize,
    images: Vec<Vec<f32>>,
    texts: Vec<Vec<f32>>,
    /// Of each pair what its caption is, as a number.
    captions: Vec<u64>,
    found: Found,
}

/// Sums over all pairs.
#[derive(Clone, Debug, Default)]
struct Found {
    pairs: u64,
    loss: f64,
    /// Of both directions together, in the groups of the loss.
    right: u64,
    image_to_text: [u64; 3],
    text_to_image: [u64; 3],
    zero_shot: u64,
    /// Whether a caption came more than once in a pool.
    repeats: bool,
    largest_pool: usize,
}

/// Retrieval in both directions.
#[deny(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Retrieved {
    /// Pairs that each was sought among.
    pub among: usize,
    /// Captions sought by their images.
    pub image_to_text: Recall,
    /// Images sought by their captions.
    pub text_to_image: Recall,
}

/// The share that is found within so many.
#[deny(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Recall {
    /// The nearest one is it.
    #[serde(rename = "1")]
    pub first: f64,
    /// It is among the five nearest.
    #[serde(rename = "5")]
    pub of_five: f64,
    /// It is among the ten nearest.
    #[serde(rename = "10")]
    pub of_ten: f64,
}

impl Retrieval {
    /// `group`: pairs that one update compares.
    pub fn new(scale: f64, group: usize) -> Retrieval {
        let (group, pool) = (group.max(1), pool_of(group));
        let (images, texts, captions) = (Vec::new(), Vec::new(), Vec::new());
        Retrieval { scale, group, pool, images, texts, captions, found: Found::default() }
    }

    /// One pair; equal numbers are equal captions.
    pub fn add(&mut self, image: &[f32], text: &[f32], caption: u64) {
        self.images.push(image.into());
        self.texts.push(text.into());
        self.captions.push(caption);
        if self.images.len() == self.pool {
            self.compare();
        }
    }

    /// What was found, once all pairs are there.
    pub fn finish(mut self) -> (Scores, Retrieved) {
        self.compare();
        let found = &self.found;
        let pairs = found.pairs.max(1) as f64;
        let recall = |counts: [u64; 3]| {
            let [first, of_five, of_ten] = counts.map(|count| count as f64 / pairs);
            Recall { first, of_five, of_ten }
        };
        let both = |rank: usize| Some((found.image_to_text[rank] + found.text_to_image[rank]) as f64 / (2.0 * pairs));
        let scores = Scores {
            loss: found.loss / pairs,
            accuracy: Some(found.right as f64 / (2.0 * pairs)),
            recall_at_1: both(0),
            recall_at_5: both(1),
            recall_at_10: both(2),
            zero_shot: found.repeats.then(|| found.zero_shot as f64 / pairs),
            ..Scores::default()
        };
        let (image_to_text, text_to_image) = (recall(found.image_to_text), recall(found.text_to_image));
        (scores, Retrieved { among: found.largest_pool, image_to_text, text_to_image })
    }

    /// Host memory, at most, of what is kept for comparing, with updates of `group` pairs and embeddings of this width.
    pub(crate) fn pool_bytes(group: usize, width: usize) -> usize {
        let pair = 2 * (width * size_of::<f32>() + size_of::<Vec<f32>>()) + size_of::<u64>() + size_of::<Compared>();
        if width == 0 { 0 } else { pool_of(group).saturating_mul(pair) }
    }

    fn compare(&mut self) {
        let mut seen = HashSet::new();
        let distinct: Vec<usize> = (0..self.captions.len()).filter(|&pair| seen.insert(self.captions[pair])).collect();
        self.found.repeats |= distinct.len() < self.captions.len();
        // In the order of the pairs, however many threads there were: sums are the same.
        for compared in self.all_compared(&distinct) {
            self.found.loss += compared.loss;
            self.found.right += compared.right;
            note(&mut self.found.image_to_text, compared.text_place);
            note(&mut self.found.text_to_image, compared.image_place);
            self.found.zero_shot += u64::from(compared.finds_caption);
        }
        self.found.pairs += self.images.len() as u64;
        self.found.largest_pool = self.found.largest_pool.max(self.images.len());
        self.images.clear();
        self.texts.clear();
        self.captions.clear();
    }

    /// Every pair against all others, on as many threads as there are.
    fn all_compared(&self, distinct: &[usize]) -> Vec<Compared> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let share = self.images.len().div_ceil(threads).max(1);
        let mut all = vec![Compared::default(); self.images.len()];
        std::thread::scope(|scope| {
            for (part, compared) in all.chunks_mut(share).enumerate() {
                scope.spawn(move || {
                    let mut similar = Vec::new();
                    for (at, compared) in compared.iter_mut().enumerate() {
                        *compared = self.compared(part * share + at, distinct, &mut similar);
                    }
                });
            }
        });
        all
    }

    /// One pair: its image against every text, its text against every image. A row and a column at a time: all of them
    /// together would take more memory than the embeddings.
    fn compared(&self, pair: usize, distinct: &[usize], similar: &mut Vec<f64>) -> Compared {
        let start = pair / self.group * self.group;
        let group = start..self.images.len().min(start + self.group);
        let mut found = Compared::default();
        similar.clear();
        similar.extend(self.texts.iter().map(|text| product(&self.images[pair], text)));
        found.text_place = place_of(similar[pair], pair, similar.iter().copied());
        let likest = distinct.iter().copied().reduce(|a, b| if similar[b] > similar[a] { b } else { a });
        found.finds_caption = likest.is_some_and(|best| self.captions[best] == self.captions[pair]);
        self.judge(&similar[group.clone()], pair - start, &mut found);
        similar.clear();
        similar.extend(self.images.iter().map(|image| product(image, &self.texts[pair])));
        found.image_place = place_of(similar[pair], pair, similar.iter().copied());
        self.judge(&similar[group], pair - start, &mut found);
        found
    }

    /// The loss as an update has it: half of what finding the text costs, half of finding the image.
    fn judge(&self, group: &[f64], at: usize, found: &mut Compared) {
        let own = self.scale * group[at];
        let scaled = || group.iter().map(|similar| self.scale * similar);
        found.loss += 0.5 * (log_sum_exp(scaled) - own);
        found.right += u64::from(place_of(own, at, scaled()) == 0);
    }
}

/// What became of one pair.
#[derive(Clone, Copy, Default)]
struct Compared {
    loss: f64,
    /// Of both directions together, in the group of the loss.
    right: u64,
    text_place: usize,
    image_place: usize,
    finds_caption: bool,
}

/// Pairs that are compared with one another: a multiple of `group`, so that none is cut.
fn pool_of(group: usize) -> usize {
    let group = group.max(1);
    (POOL / group).max(1) * group
}

/// How many come before one of this value at this place: larger ones, and equal ones in front of it.
fn place_of(own: f64, at: usize, all: impl Iterator<Item = f64>) -> usize {
    all.enumerate().filter(|&(other, x)| x > own || (x == own && other < at)).count()
}

fn note(counts: &mut [u64; 3], place: usize) {
    counts.iter_mut().zip(RANKS).for_each(|(count, rank)| *count += u64::from(place < rank));
}

fn log_sum_exp<I: Iterator<Item = f64>>(values: impl Fn() -> I) -> f64 {
    let largest = values().fold(f64::NEG_INFINITY, f64::max);
    largest + values().map(|x| (x - largest).exp()).sum::<f64>().ln()
}

/// Sixteen sums at a time, which vectorizes.
fn product(a: &[f32], b: &[f32]) -> f64 {
    const LANES: usize = 16;
    let mut sums = [0f32; LANES];
    let (a_blocks, b_blocks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = a_blocks.remainder().iter().zip(b_blocks.remainder());
    let rest: f64 = rest.map(|(&x, &y)| f64::from(x) * f64::from(y)).sum();
    for (x, y) in a_blocks.zip(b_blocks) {
        (0..LANES).for_each(|lane| sums[lane] += x[lane] * y[lane]);
    }
    rest + sums.iter().map(|&sum| f64::from(sum)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_base::random::mix;

    fn unit(seed: u64, width: usize) -> Vec<f32> {
        let raw: Vec<f32> = (0..width as u64).map(|i| (mix(seed * 1000 + i) >> 40) as f32 / 8388608.0 - 1.0).collect();
        let norm = raw.iter().map(|x| x * x).sum::<f32>().sqrt();
        raw.iter().map(|x| x / norm).collect()
    }

    #[test]
    fn the_loss_is_that_of_groups_and_recall_that_of_all() {
        // Two pairs a group; the second group is swapped: each finds the other.
        let axis = |at: usize| (0..4).map(|i| if i == at { 1.0 } else { 0.0 }).collect::<Vec<f32>>();
        let mut retrieval = Retrieval::new(2.0, 2);
        for (image, text) in [(0, 0), (1, 1), (2, 3), (3, 2)] {
            retrieval.add(&axis(image), &axis(text), text as u64);
        }
        let (scores, retrieved) = retrieval.finish();
        let (right, wrong) = ((1.0 + (-2f64).exp()).ln(), (1.0 + 2f64.exp()).ln());
        assert!((scores.loss - (right + wrong) / 2.0).abs() < 1e-12, "{scores:?}");
        assert_eq!((scores.accuracy, scores.recall_at_1, scores.recall_at_5), (Some(0.5), Some(0.5), Some(1.0)));
        assert_eq!((retrieved.among, retrieved.image_to_text.first), (4, 0.5));
        assert_eq!(scores.zero_shot, None, "no caption came twice");
    }

    #[test]
    fn equal_captions_are_one_class() {
        // Images of two classes, a caption each; the third image looks like the other class.
        let (a, b) = (vec![1.0, 0.0], vec![0.0, 1.0]);
        let mut retrieval = Retrieval::new(1.0, 8);
        for (image, text, caption) in [(&a, &a, 7), (&b, &b, 9), (&b, &a, 7), (&a, &a, 7)] {
            retrieval.add(image, text, caption);
        }
        let (scores, _) = retrieval.finish();
        assert_eq!(scores.zero_shot, Some(0.75));
        assert!(scores.recall_at_1 < Some(0.75), "one of several equal captions is the own one: {scores:?}");
    }

    #[test]
    fn a_model_that_says_the_same_of_all_finds_nothing_by_it() {
        let mut retrieval = Retrieval::new(1.0, 100);
        (0..100).for_each(|pair| retrieval.add(&[1.0, 0.0], &[1.0, 0.0], pair));
        let (scores, _) = retrieval.finish();
        assert_eq!((scores.recall_at_1, scores.recall_at_10), (Some(0.01), Some(0.1)));
    }

    #[test]
    fn pools_are_whole_groups_and_bounded() {
        for group in [1, 3, 7, 128, 999, 1000, 1001, 5000] {
            let retrieval = Retrieval::new(1.0, group);
            assert!(
                retrieval.pool.is_multiple_of(group) && (retrieval.pool <= POOL || retrieval.pool == group),
                "{group}"
            );
        }
        let mut retrieval = Retrieval::new(1.0, 400);
        (0..1900).for_each(|pair| retrieval.add(&unit(pair, 5), &unit(pair, 5), pair));
        let (scores, retrieved) = retrieval.finish();
        assert_eq!((retrieved.among, scores.recall_at_1), (800, Some(1.0)));
    }

    #[test]
    fn products_are_those_of_the_definition() {
        for width in [1, 15, 16, 17, 64, 100] {
            let (a, b) = (unit(3, width), unit(4, width));
            let plain: f64 = a.iter().zip(&b).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum();
            assert!((product(&a, &b) - plain).abs() < 1e-6, "{width}");
        }
    }
}
