// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The Poisson distribution, of 32 random bits per number: by inversion, and for large means by the normal distribution. NVIDIA's
//! library takes the same bits, but other tables.

use super::values::normal_quantile;

/// The largest mean that has a table.
const MAX_TABLE: f64 = 2000.0;
/// The minimum probability of a number, relative to that of the most probable one. Less probable numbers are left
/// out, because 32 random bits never lead to them.
const MIN_WEIGHT: f64 = 1e-14;

/// A distribution.
#[derive(Clone, Debug)]
pub enum Poisson {
    /// The probabilities of at most this number, from a first one on.
    Table {
        /// The first number.
        first: u32,
        /// Sums of probabilities.
        sums: Vec<f64>,
    },
    /// A distribution with this mean is almost a normal one.
    Normal(f64),
}

impl Poisson {
    /// The distribution with a mean above 0.
    pub fn new(mean: f64) -> Self {
        if mean > MAX_TABLE {
            return Self::Normal(mean);
        }
        // Weights, relative to that of the most probable number.
        let mode = mean as u32;
        let mut below = Vec::new();
        let (mut number, mut weight) = (mode, 1.0);
        while number > 0 && weight > MIN_WEIGHT {
            weight *= f64::from(number) / mean;
            number -= 1;
            below.push(weight);
        }
        let (mut sum, mut sums) = (0.0, Vec::new());
        let mut add = |weight: f64| {
            sum += weight;
            sums.push(sum);
        };
        below.iter().rev().for_each(|weight| add(*weight));
        let (mut number, mut weight) = (mode, 1.0);
        while weight > MIN_WEIGHT {
            add(weight);
            number += 1;
            weight *= mean / f64::from(number);
        }
        let all = sum;
        sums.iter_mut().for_each(|sum| *sum /= all);
        Self::Table { first: mode - below.len() as u32, sums }
    }

    /// The number of 32 random bits.
    pub fn number(&self, word: u32) -> u32 {
        let uniform = (f64::from(word) + 0.5) / (1_u64 << 32) as f64;
        match self {
            Self::Table { first, sums } => first + sums.partition_point(|sum| *sum < uniform) as u32,
            Self::Normal(mean) => (mean + mean.sqrt() * normal_quantile(uniform)).round().max(0.0) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_the_distribution() {
        for mean in [0.3_f64, 7.0, 600.0] {
            let Poisson::Table { first, sums } = Poisson::new(mean) else { panic!("{mean}") };
            let mut probability = (-mean).exp();
            let (mut sum, mut compared) = (probability, 0);
            for number in 1..=(3.0 * mean) as u32 + 3 {
                probability *= mean / f64::from(number);
                sum += probability;
                if let Some(found) = number.checked_sub(first).and_then(|index| sums.get(index as usize)) {
                    assert!((found - sum).abs() < 1e-11, "{mean}: {number}: {found} is not {sum}");
                    compared += 1;
                }
            }
            assert!(compared > 2, "{mean}: {compared}");
        }
    }

    #[test]
    fn the_first_and_the_last_bits_lead_to_numbers() {
        for mean in [1e-9, 0.5, 64.0, 2000.0, 2001.0, 400_000.0] {
            let poisson = Poisson::new(mean);
            let [low, middle, high] = [0, 1 << 31, u32::MAX].map(|word| poisson.number(word));
            assert!(low <= middle && middle <= high, "{mean}: {low} {middle} {high}");
            assert!((f64::from(middle) - mean).abs() <= 1.0, "{mean}: {middle}");
            assert!(f64::from(high) <= mean + 7.0 * mean.sqrt() + 15.0, "{mean}: {high}");
        }
    }
}
