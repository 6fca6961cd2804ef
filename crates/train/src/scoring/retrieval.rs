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
    /// A multiple of `group`, so that none is cut.
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
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Retrieved {
    /// Pairs that each was sought among.
    pub among: usize,
    pub image_to_text: Recall,
    pub text_to_image: Recall,
}

/// The share that is found within so many.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Recall {
    #[serde(rename = "1")]
    pub first: f64,
    #[serde(rename = "5")]
    pub of_five: f64,
    #[serde(rename = "10")]
    pub of_ten: f64,
}

impl Retrieval {
    /// `group`: pairs that one update compares.
    pub fn new(scale: f64, group: usize) -> Retrieval {
        let group = group.max(1);
        let pool = (POOL / group).max(1) * group;
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

    fn compare(&mut self) {
        let count = self.images.len();
        let similar = similarities(&self.images, &self.texts);
        for start in (0..count).step_by(self.group) {
            self.compare_group(&similar, start..count.min(start + self.group));
        }
        for (pair, texts) in similar.iter().enumerate() {
            let own = texts[pair];
            let place = place_of(own, pair, texts.iter().copied());
            note(&mut self.found.image_to_text, place);
            note(&mut self.found.text_to_image, place_of(own, pair, (0..count).map(|image| similar[image][pair])));
        }
        self.compare_captions(&similar);
        self.found.pairs += count as u64;
        self.found.largest_pool = self.found.largest_pool.max(count);
        self.images.clear();
        self.texts.clear();
        self.captions.clear();
    }

    /// The loss as an update has it: half of what finding the text costs, half of finding the image.
    fn compare_group(&mut self, similar: &[Vec<f64>], group: std::ops::Range<usize>) {
        for pair in group.clone() {
            let own = self.scale * similar[pair][pair];
            let texts = || group.clone().map(|text| self.scale * similar[pair][text]);
            let images = || group.clone().map(|image| self.scale * similar[image][pair]);
            self.found.loss += 0.5 * ((log_sum_exp(texts) - own) + (log_sum_exp(images) - own));
            let at = pair - group.start;
            self.found.right +=
                u64::from(place_of(own, at, texts()) == 0) + u64::from(place_of(own, at, images()) == 0);
        }
    }

    /// Which of the different captions each image is likest.
    fn compare_captions(&mut self, similar: &[Vec<f64>]) {
        let mut seen = HashSet::new();
        let distinct: Vec<usize> = (0..self.captions.len()).filter(|&pair| seen.insert(self.captions[pair])).collect();
        self.found.repeats |= distinct.len() < self.captions.len();
        for (image, similar) in similar.iter().enumerate() {
            let best = distinct.iter().copied().reduce(|a, b| if similar[b] > similar[a] { b } else { a });
            let is_own = best.is_some_and(|best| self.captions[best] == self.captions[image]);
            self.found.zero_shot += u64::from(is_own);
        }
    }
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

/// Every image against every text, on as many threads as there are.
fn similarities(images: &[Vec<f32>], texts: &[Vec<f32>]) -> Vec<Vec<f64>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = images.len().div_ceil(threads).max(1);
    let row = |image: &Vec<f32>| texts.iter().map(|text| product(image, text)).collect::<Vec<f64>>();
    std::thread::scope(|scope| {
        let work = |part: &'_ [Vec<f32>]| part.iter().map(row).collect::<Vec<_>>();
        let parts = images.chunks(share);
        let running: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined.flat_map(|rows| rows.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
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
