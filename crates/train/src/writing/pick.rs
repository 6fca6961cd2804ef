//! The choice of one token from its logits.

/// Which tokens are in the draw, and at which odds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Draw {
    /// Odds are softmax(logits / temperature); 0 takes the likeliest token.
    pub temperature: f64,
    /// Only this many of the likeliest tokens; 0 for all.
    pub top_k: usize,
    /// Only the likeliest tokens that together reach this probability; 1 for all.
    pub top_p: f64,
}

/// The likeliest index, or the one at quantile `chance` of the odds.
pub(super) fn pick(logits: &[f32], draw: &Draw, chance: f64) -> usize {
    let best = likeliest(logits);
    if draw.temperature <= 0.0 || logits.is_empty() {
        return best;
    }
    let highest = logits[best];
    let weight = |index: usize| ((logits[index] - highest) as f64 / draw.temperature).exp();
    if draw.top_k == 0 && draw.top_p >= 1.0 {
        return quantile(0..logits.len(), weight, chance).unwrap_or(best);
    }
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    if draw.top_k > 0 {
        order.truncate(draw.top_k);
    }
    order.truncate(reaching(&order, weight, draw.top_p));
    quantile(order.iter().copied(), weight, chance).unwrap_or(best)
}

/// The first of the largest logits.
fn likeliest(logits: &[f32]) -> usize {
    let first_best = |best: (usize, f32), (i, &x): (usize, &f32)| if x > best.1 { (i, x) } else { best };
    logits.iter().enumerate().fold((0, f32::NEG_INFINITY), first_best).0
}

/// How many of `order` it takes to reach the share `p` of their weight; at least one.
fn reaching(order: &[usize], weight: impl Fn(usize) -> f64, p: f64) -> usize {
    let total: f64 = order.iter().map(|&i| weight(i)).sum();
    let mut sum = 0.0;
    let before = |&&i: &&usize| {
        let before = sum;
        sum += weight(i);
        before < p * total
    };
    order.iter().take_while(before).count().max(1)
}

/// Where the running sum of weights reaches the share `chance` of the whole.
fn quantile(order: impl Iterator<Item = usize> + Clone, weight: impl Fn(usize) -> f64, chance: f64) -> Option<usize> {
    let mut left = chance * order.clone().map(&weight).sum::<f64>();
    for index in order {
        left -= weight(index);
        if left <= 0.0 {
            return Some(index);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Draw = Draw { temperature: 1.0, top_k: 0, top_p: 1.0 };

    fn drawn(logits: &[f32], draw: Draw) -> Vec<usize> {
        [0.1, 0.3, 0.7, 0.8, 0.99].iter().map(|&chance| pick(logits, &draw, chance)).collect()
    }

    #[test]
    fn temperature_zero_is_greedy_and_others_follow_the_odds() {
        let logits = [1.0f32, 2.0, 1.0].map(f32::ln);
        assert_eq!(pick(&logits, &Draw { temperature: 0.0, ..ALL }, 0.99), 1);
        assert_eq!(drawn(&logits, ALL), [0, 1, 1, 2, 2]);
        // Colder odds go to the likeliest.
        assert_eq!(drawn(&logits, Draw { temperature: 0.1, ..ALL }), [1; 5]);
    }

    #[test]
    fn top_k_and_top_p_leave_out_the_unlikely() {
        let logits = [1.0f32, 2.0, 4.0, 3.0].map(f32::ln);
        assert_eq!(drawn(&logits, Draw { top_k: 1, ..ALL }), [2; 5]);
        assert_eq!(drawn(&logits, Draw { top_k: 2, ..ALL }), [2, 2, 3, 3, 3]);
        // 0.4 alone is short of 0.5, and 0.4 + 0.3 is not.
        assert_eq!(drawn(&logits, Draw { top_p: 0.5, ..ALL }), [2, 2, 3, 3, 3]);
        assert_eq!(drawn(&logits, Draw { top_p: 0.0, ..ALL }), [2; 5]);
        assert_eq!(drawn(&logits, Draw { top_k: 2, top_p: 0.5, ..ALL }), [2; 5]);
    }
}
