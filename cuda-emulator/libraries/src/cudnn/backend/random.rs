// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Random tensors. The numbers of a seed and an offset are always the same, and are not NVIDIA's.

use crate::curand::philox::{block, halves};
use crate::curand::values::{normal_double, uniform_double};

/// A distribution (`cudnnRngDistribution_t`).
#[derive(Clone, Copy, Debug)]
pub enum Distribution {
    /// 1 with this probability, else 0.
    Bernoulli(f64),
    /// Between two bounds.
    Uniform([f64; 2]),
    /// Mean and standard deviation.
    Normal([f64; 2]),
}

impl Distribution {
    /// Returns `count` numbers. Seed and offset are whole numbers.
    pub fn numbers(self, count: usize, seed: f64, offset: f64) -> Vec<f64> {
        let (seed, offset) = (seed as i64 as u64, offset as u64);
        let number = |at: u64| {
            // A block of the generator for each element.
            let [low, high] = halves(offset.wrapping_add(at));
            let words @ [a, b, ..] = block(seed, [low, high, 0, 0]);
            match self {
                Self::Bernoulli(probability) => f64::from(uniform_double([a, b]) <= probability),
                Self::Uniform([low, high]) => low + (high - low) * uniform_double([a, b]),
                Self::Normal([mean, deviation]) => mean + deviation * normal_double(words)[0],
            }
        };
        (0..count as u64).map(number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_have_their_moments() {
        let count = 20_000;
        for (distribution, mean, variance) in [
            (Distribution::Bernoulli(0.9), 0.9, 0.09),
            (Distribution::Uniform([-1.0, 3.0]), 1.0, 16.0 / 12.0),
            (Distribution::Normal([2.0, 0.5]), 2.0, 0.25),
        ] {
            let numbers = distribution.numbers(count, 7.0, 3.0);
            let average = numbers.iter().sum::<f64>() / count as f64;
            let found = numbers.iter().map(|number| (number - average).powi(2)).sum::<f64>() / count as f64;
            assert!((average - mean).abs() < 0.03 && (found - variance).abs() < 0.03, "{distribution:?}");
            assert_eq!(numbers, distribution.numbers(count, 7.0, 3.0));
            assert_eq!(numbers[1..], distribution.numbers(count - 1, 7.0, 4.0), "an offset skips numbers");
            assert_ne!(numbers, distribution.numbers(count, 8.0, 3.0));
        }
    }
}
