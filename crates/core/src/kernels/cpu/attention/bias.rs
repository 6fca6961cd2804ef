//! Scores that depend on where a key stands relative to its query: which row of a table belongs to which distance.

use super::AttentionShape;

/// What is added to the scaled scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    None,
    /// T5: a table (buckets, heads) of scalars; both directions have buckets of their own, or keys after the query
    /// share the one of distance 0.
    Relative {
        bidirectional: bool,
        max_distance: usize,
    },
    /// DeBERTa: tables `pos_key` and `pos_query`, each (2 · span, heads, head_dim). With r the row of the distance,
    /// `scale · (q · pos_key[r] + k · pos_query[r])` is added. The span is `buckets`, or `max_distance` if buckets is 0:
    /// then distances are not put into logarithmic buckets.
    Disentangled {
        buckets: usize,
        max_distance: usize,
    },
}

impl Bias {
    /// How many tables it reads.
    pub fn tables(self) -> usize {
        match self {
            Bias::None => 0,
            Bias::Relative { .. } => 1,
            Bias::Disentangled { .. } => 2,
        }
    }

    /// Why tables of `rows` rows cannot serve, if so.
    pub(crate) fn refusal(self, rows: usize) -> Option<String> {
        match self {
            Bias::None => None,
            Bias::Relative { bidirectional, max_distance } => {
                let exact = rows / if bidirectional { 4 } else { 2 };
                (exact == 0 || max_distance <= exact).then(|| {
                    format!("{rows} buckets do not reach a distance of {max_distance}: {exact} distances are exact")
                })
            }
            Bias::Disentangled { buckets: 0, max_distance } => (max_distance == 0 || rows != 2 * max_distance)
                .then(|| format!("{rows} relative positions instead of twice {max_distance}")),
            Bias::Disentangled { buckets, max_distance } => {
                let sensible = buckets > 1 && max_distance > buckets / 2 + 1 && rows == 2 * buckets;
                (!sensible).then(|| {
                    format!(
                        "{rows} relative positions, {buckets} buckets and a distance of {max_distance} do not match"
                    )
                })
            }
        }
    }

    /// A distance in either direction beyond which the row no longer changes.
    pub fn reach(self) -> usize {
        match self {
            Bias::None => 0,
            Bias::Relative { max_distance, .. } | Bias::Disentangled { max_distance, .. } => {
                max_distance.saturating_mul(2)
            }
        }
    }

    /// The row for a key that stands `relative` positions after its query (before it, if negative).
    pub fn row(self, relative: i64, rows: usize) -> usize {
        match self {
            Bias::None => 0,
            Bias::Relative { bidirectional, max_distance } => t5_bucket(relative, bidirectional, rows, max_distance),
            Bias::Disentangled { buckets, max_distance } => {
                let distance = match buckets {
                    0 => -relative,
                    _ => log_bucket(-relative, buckets, max_distance),
                };
                (distance + rows as i64 / 2).clamp(0, rows as i64 - 1) as usize
            }
        }
    }
}

/// Half of a direction's buckets hold one distance each, the others grow like a geometric series up to `max_distance`.
/// In f32, as the models were trained.
fn t5_bucket(relative: i64, bidirectional: bool, rows: usize, max_distance: usize) -> usize {
    let (rows, first) = match bidirectional {
        true => (rows / 2, if relative > 0 { rows / 2 } else { 0 }),
        false => (rows, 0),
    };
    let distance = if bidirectional { relative.unsigned_abs() as usize } else { (-relative).max(0) as usize };
    let exact = rows / 2;
    if distance < exact {
        return first + distance;
    }
    let grown = (distance as f32 / exact as f32).ln() / (max_distance as f64 / exact as f64).ln() as f32;
    first + (exact + (grown * (rows - exact) as f32) as usize).min(rows - 1)
}

/// Distances up to half of the buckets stay; beyond, they grow logarithmically so that `max_distance` − 1 takes the
/// last bucket. In f32, as the models were trained.
fn log_bucket(distance: i64, buckets: usize, max_distance: usize) -> i64 {
    let middle = (buckets / 2) as i64;
    if distance.abs() <= middle {
        return distance;
    }
    let whole = ((max_distance as f64 - 1.0) / middle as f64) as f32;
    let grown = (distance.abs() as f32 / middle as f32).ln() / whole.ln();
    distance.signum() * ((grown * (middle - 1) as f32).ceil() as i64 + middle)
}

impl AttentionShape {
    /// How many distances from a query to a key there are.
    pub(crate) fn distances(&self) -> usize {
        (self.q_len + self.k_len).saturating_sub(1)
    }

    /// The position of query 0 among the keys, unless the call says it.
    pub(crate) fn first_position(&self) -> i64 {
        if self.causal { self.k_len as i64 - self.q_len as i64 } else { 0 }
    }

    /// The rows that a disentangled bias reads: the first one, and how many.
    pub(crate) fn span(&self) -> (usize, usize) {
        if self.q_len == 0 || self.k_len == 0 {
            return (0, 0);
        }
        let last_query = self.first_position() + self.q_len as i64 - 1;
        let highest = self.bias.row(-last_query, self.bias_rows);
        let lowest = self.bias.row(self.k_len as i64 - 1 - self.first_position(), self.bias_rows);
        (lowest, highest + 1 - lowest)
    }

    /// Writes the row of each distance. Key j of query i is at `q_len − 1 − i + j`, so the rows of one query are
    /// neighbours.
    pub(super) fn write_rows(&self, first_position: i64, rows: &mut [u32]) {
        let last_query = first_position + self.q_len as i64 - 1;
        for (n, row) in rows.iter_mut().enumerate() {
            *row = self.bias.row(n as i64 - last_query, self.bias_rows) as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(bias: Bias, count: usize, relative: &[i64]) -> Vec<usize> {
        relative.iter().map(|&r| bias.row(r, count)).collect()
    }

    /// Values of T5's own function.
    #[test]
    fn relative_buckets_are_those_of_t5() {
        let both = Bias::Relative { bidirectional: true, max_distance: 128 };
        let at = [-140, -128, -64, -63, -32, -17, -16, -15, -9, -8, -7, -1, 0, 1, 7, 8, 16, 31, 63, 64, 91, 128];
        let expected = [15, 15, 14, 13, 12, 10, 10, 9, 8, 8, 7, 1, 0, 17, 23, 24, 26, 27, 29, 30, 31, 31];
        assert_eq!(rows(both, 32, &at), expected);
        let past = Bias::Relative { bidirectional: false, max_distance: 128 };
        let expected = [31, 31, 26, 26, 21, 16, 16, 15, 9, 8, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(rows(past, 32, &at), expected);
        let odd = Bias::Relative { bidirectional: true, max_distance: 50 };
        assert_eq!(
            rows(odd, 20, &[-63, -32, -17, -9, -8, -7, -1, 0, 1, 7, 16, 31]),
            [9, 9, 7, 6, 6, 5, 1, 0, 11, 15, 17, 18]
        );
        let few = Bias::Relative { bidirectional: false, max_distance: 20 };
        assert_eq!(rows(few, 7, &[-15, -9, -8, -7, -1]), [6, 5, 5, 4, 1]);
    }

    /// Values of DeBERTa's own function, plus the span.
    #[test]
    fn disentangled_rows_are_those_of_deberta() {
        let v3 = Bias::Disentangled { buckets: 256, max_distance: 512 };
        let before = [-700, -511, -510, -300, -200, -129, -128, -1, 0, 1, 128, 129, 200, 511, 512].map(|r: i64| -r);
        let expected = [-256, -255, -255, -207, -169, -129, -128, -1, 0, 1, 128, 129, 169, 255, 255];
        assert_eq!(rows(v3, 512, &before), expected.map(|b: i64| (b + 256) as usize));
        let small = Bias::Disentangled { buckets: 10, max_distance: 40 };
        assert_eq!(rows(small, 20, &[17, 6, 5, -5, -6, -17, -64, -200]), [2, 4, 5, 15, 16, 18, 19, 19]);
        let plain = Bias::Disentangled { buckets: 0, max_distance: 4 };
        assert_eq!(rows(plain, 8, &[9, 4, 3, 0, -3, -4]), [0, 0, 1, 4, 7, 7]);
    }

    #[test]
    fn tables_that_do_not_fit_are_refused() {
        let relative = Bias::Relative { bidirectional: true, max_distance: 8 };
        assert!(relative.refusal(3).is_some() && relative.refusal(32).is_some() && relative.refusal(8).is_none());
        let log = Bias::Disentangled { buckets: 16, max_distance: 64 };
        assert!(log.refusal(31).is_some() && log.refusal(32).is_none());
        assert!(Bias::Disentangled { buckets: 16, max_distance: 9 }.refusal(32).is_some());
        assert!(Bias::Disentangled { buckets: 0, max_distance: 9 }.refusal(18).is_none());
    }

    #[test]
    fn the_span_holds_every_row_in_use() {
        for (q_len, k_len, causal) in [(5, 5, false), (3, 40, true), (70, 6, false)] {
            let bias = Bias::Disentangled { buckets: 12, max_distance: 30 };
            let shape = AttentionShape { batch: 1, q_len, k_len, heads: 1, head_dim: 2, causal, bias, bias_rows: 24 };
            let mut rows = vec![0; shape.distances()];
            shape.write_rows(shape.first_position(), &mut rows);
            let (first, count) = shape.span();
            assert_eq!(*rows.iter().min().unwrap() as usize, first);
            assert_eq!(*rows.iter().max().unwrap() as usize, first + count - 1);
            assert!(rows.is_sorted_by(|a, b| a >= b));
        }
    }
}
