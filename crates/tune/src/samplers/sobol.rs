//! Sobol points: they fill the space more evenly than random ones. Choices and steps take equal shares of a coordinate.
//!
//! Direction numbers are made here: primitive polynomials in order, and for each dimension the start values, out of a
//! few, whose pairs with the dimensions before leave the fewest cells of a 16 × 16 grid empty.

use super::{History, Sampler, Suggestion, random};
use crate::rng::Rng;
use crate::space::{Point, Space};

const BITS: u32 = 32;
/// Points by which candidates for a dimension are judged: one per cell.
const JUDGED: u32 = 256;
const CANDIDATES: usize = 24;

/// A scrambled Sobol sequence.
#[derive(Clone, Debug)]
pub struct Sobol {
    pub seed: u64,
    dimensions: Vec<[u32; BITS as usize]>,
}

impl Sobol {
    pub fn new(seed: u64) -> Self {
        Self { seed, dimensions: Vec::new() }
    }

    fn prepare(&mut self, count: usize) {
        while self.dimensions.len() < count {
            let next = next_dimension(&self.dimensions);
            self.dimensions.push(next);
        }
    }

    /// Coordinates of the point `index`, each from 0 (included) to 1 (excluded).
    fn coordinates(&mut self, index: u32, count: usize) -> Vec<f64> {
        self.prepare(count);
        // A random shift by exclusive or keeps the evenness and takes the origin away.
        let shift = |dimension: usize| Rng::stream(&[self.seed, dimension as u64, 0x50b01]).next_u64() as u32;
        let scaled = |bits: u32| f64::from(bits) / 2f64.powi(BITS as i32);
        (0..count).map(|at| scaled(point(&self.dimensions[at], index) ^ shift(at))).collect()
    }
}

impl Sampler for Sobol {
    fn suggest(&mut self, history: &History, space: &Space, fixed: &Point, _: &mut Rng) -> Suggestion {
        let coordinates = self.coordinates(history.trials.len() as u32, space.parameters().len());
        let place = |name: &str| space.parameters().iter().position(|parameter| parameter.name == name).unwrap_or(0);
        Suggestion::from(space.walk(|parameter| {
            super::fixed_value(parameter, fixed)
                .unwrap_or_else(|| random::at(&parameter.distribution, coordinates[place(&parameter.name)]))
        }))
    }
}

/// Bit k of the index turns on direction k (in the order of a Gray code all points come, only in another order).
fn point(directions: &[u32; BITS as usize], index: u32) -> u32 {
    (0..BITS).filter(|bit| index >> bit & 1 == 1).fold(0, |sum, bit| sum ^ directions[bit as usize])
}

fn next_dimension(before: &[[u32; BITS as usize]]) -> [u32; BITS as usize] {
    let Some(number) = before.len().checked_sub(1) else {
        return std::array::from_fn(|bit| 1 << (BITS as usize - 1 - bit));
    };
    let polynomial = primitive_polynomial(number);
    let mut rng = Rng::stream(&[0x50b01, number as u64]);
    let candidates = (0..CANDIDATES).map(|_| directions(polynomial, &mut rng));
    let with_gaps = candidates.map(|candidate| (gaps(&candidate, before), candidate));
    with_gaps.min_by_key(|(gaps, _)| *gaps).map_or([0; BITS as usize], |(_, candidate)| candidate)
}

/// Empty cells over the pairs with earlier dimensions, of which near ones matter as much as far ones.
fn gaps(candidate: &[u32; BITS as usize], before: &[[u32; BITS as usize]]) -> usize {
    let cell = |bits: u32| (bits >> (BITS - 4)) as usize;
    let empty = |other: &[u32; BITS as usize]| {
        let mut filled = [false; JUDGED as usize];
        (0..JUDGED).for_each(|index| filled[cell(point(other, index)) * 16 + cell(point(candidate, index))] = true);
        filled.iter().filter(|cell| !**cell).count()
    };
    before.iter().map(empty).sum()
}

/// The recurrence of Bratley and Fox: start values are odd and small enough, the polynomial gives the rest.
fn directions(polynomial: u32, rng: &mut Rng) -> [u32; BITS as usize] {
    let degree = (31 - polynomial.leading_zeros()) as usize;
    let mut numbers = [0u32; BITS as usize];
    for index in 0..BITS as usize {
        numbers[index] = if index < degree {
            (rng.below(1 << index) as u32 * 2 + 1) << (BITS as usize - 1 - index)
        } else {
            let first = numbers[index - degree];
            let taps = (1..degree).filter(|tap| polynomial >> (degree - tap) & 1 == 1);
            taps.fold(first ^ (first >> degree), |sum, tap| sum ^ numbers[index - tap])
        };
    }
    numbers
}

/// The primitive polynomials over two elements by size, as bits.
fn primitive_polynomial(number: usize) -> u32 {
    (3..).step_by(2).filter(|polynomial| is_primitive(*polynomial)).nth(number).unwrap_or(3)
}

/// Whether x has the full order 2^degree − 1 modulo the polynomial.
fn is_primitive(polynomial: u32) -> bool {
    let degree = 31 - polynomial.leading_zeros();
    let order = (1u32 << degree) - 1;
    let mut power = 1u32;
    for exponent in 1..=order {
        power <<= 1;
        if power >> degree & 1 == 1 {
            power ^= polynomial;
        }
        if power == 1 {
            return exponent == order;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polynomials_are_the_known_primitive_ones() {
        assert_eq!(
            (0..6).map(primitive_polynomial).collect::<Vec<_>>(),
            [0b11, 0b111, 0b1011, 0b1101, 0b10011, 0b11001]
        );
    }

    #[test]
    fn every_dimension_puts_one_point_into_each_of_as_many_intervals() {
        let mut sobol = Sobol::new(3);
        let points: Vec<Vec<f64>> = (0..64).map(|index| sobol.coordinates(index, 12)).collect();
        for dimension in 0..12 {
            let mut filled = [0; 64];
            points.iter().for_each(|point| filled[(point[dimension] * 64.0) as usize] += 1);
            assert_eq!(filled, [1; 64], "dimension {dimension}");
        }
    }

    #[test]
    fn sums_over_the_points_come_nearer_to_the_integral_than_random_ones() {
        let product = |point: &[f64]| point.iter().map(|x| 2.0 * x).product::<f64>();
        let error = |sum: f64| (sum / 512.0 - 1.0).abs();
        let mut sobol = Sobol::new(1);
        let even = error((0..512).map(|index| product(&sobol.coordinates(index, 5))).sum());
        let mut rng = Rng::new(1);
        let runs = 20;
        let random: f64 = (0..runs)
            .map(|_| error((0..512).map(|_| product(&(0..5).map(|_| rng.uniform()).collect::<Vec<_>>())).sum()))
            .sum();
        assert!(even < 0.3 * random / f64::from(runs), "{even} against {}", random / f64::from(runs));
    }
}
