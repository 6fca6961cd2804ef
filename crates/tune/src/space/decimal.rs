//! Steps are meant as they are written: 0.1 three times is 0.3, which binary fractions miss. Ranges are cut to whole
//! steps in decimal arithmetic on the shortest way each number can be written.

/// `mantissa × 10^exponent`, exactly the shortest decimal that reads back as the number.
#[derive(Clone, Copy)]
pub(crate) struct Decimal {
    mantissa: i128,
    exponent: i32,
}

impl Decimal {
    fn of(number: f64) -> Option<Self> {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e')?;
        let fraction = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len() as i32);
        let mantissa = digits.replace('.', "").parse().ok()?;
        Some(Self { mantissa, exponent: exponent.parse::<i32>().ok()? - fraction })
    }

    /// The mantissa at a smaller exponent, if it still fits.
    fn at(self, exponent: i32) -> Option<i128> {
        let shift = u32::try_from(self.exponent - exponent).ok()?;
        self.mantissa.checked_mul(10i128.checked_pow(shift)?)
    }

    /// All three at their common exponent; none if the sizes are too far apart for exact arithmetic.
    fn aligned(numbers: [f64; 3]) -> Option<([i128; 3], i32)> {
        let [a, b, c] = numbers.map(Self::of);
        let (a, b, c) = (a?, b?, c?);
        let exponent = a.exponent.min(b.exponent).min(c.exponent);
        Some(([a.at(exponent)?, b.at(exponent)?, c.at(exponent)?], exponent))
    }

    /// The last of `low`, `low + step`, … that is not above `high`.
    pub(crate) fn last_step(low: f64, high: f64, step: f64) -> f64 {
        let Some(([low_units, high_units, step_units], exponent)) = Self::aligned([low, high, step]) else {
            return (low + ((high - low) / step).floor() * step).min(high);
        };
        let range = high_units - low_units;
        if range % step_units == 0 {
            return high;
        }
        let last = range / step_units * step_units + low_units;
        format!("{last}e{exponent}").parse().unwrap_or(high)
    }

    /// Whether not even one step fits between `low` and `high`.
    pub(crate) fn narrower_than(low: f64, high: f64, step: f64) -> bool {
        Self::aligned([low, high, step]).map_or(high - low < step, |([low, high, step], _)| high - low < step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_tenths_are_three_steps_of_a_tenth() {
        assert_eq!(Decimal::last_step(0.0, 0.3, 0.1), 0.3);
        assert_eq!(Decimal::last_step(0.0, 0.35, 0.1), 0.3);
        assert!(!Decimal::narrower_than(0.2, 0.3, 0.1));
    }

    #[test]
    fn sizes_too_far_apart_for_exact_arithmetic_still_give_an_end() {
        let last = Decimal::last_step(0.0, 1e300, 1e-10);
        assert!(last <= 1e300 && last > 9e299);
    }
}
