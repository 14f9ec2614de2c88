// SPDX-License-Identifier: Apache-2.0 OR MIT

//! MRG32k3a (L'Ecuyer: "Good parameters and implementations for combined multiple recursive random number generators", 1999).

use std::f32::consts::TAU as TAU32;
use std::f64::consts::TAU;
use std::sync::OnceLock;

use super::interleaved::Stream;
use super::values::{box_muller, box_muller_double};

/// The logarithm of the distance between streams.
const DISTANCE: u32 = 76;
/// The state of each recurrence without a seed.
const START: u64 = 12_345;
/// From a number of 1 to the first modulus, to above 0 up to 1, and to 32 bits: the library's factors.
const TO_UNIT: f64 = 2.328_306_549_837_829e-10;
const TO_BITS: f64 = 1.000_000_048_662;

/// The last three values of a recurrence, the oldest first.
type Values = [u64; 3];
type Matrix = [Values; 3];

/// A recurrence modulo a number below 2^32.
struct Recurrence {
    modulus: u64,
    /// The factors of the values. The first one is subtracted.
    factors: Values,
}

const FIRST: Recurrence = Recurrence { modulus: 4_294_967_087, factors: [810_728, 1_403_580, 0] };
const SECOND: Recurrence = Recurrence { modulus: 4_294_944_443, factors: [1_370_589, 0, 527_612] };

impl Recurrence {
    fn next(&self, [a, b, c]: Values) -> u64 {
        let [minus, second, third] = self.factors;
        (minus * (self.modulus - a) + second * b + third * c) % self.modulus
    }

    /// The matrix of one step.
    fn matrix(&self) -> Matrix {
        let [minus, second, third] = self.factors;
        [[0, 1, 0], [0, 0, 1], [self.modulus - minus, second, third]]
    }

    fn times(&self, matrix: &Matrix, values: Values) -> Values {
        matrix.map(|row| {
            row.iter().zip(values).map(|(factor, value)| factor * value % self.modulus).sum::<u64>()
                % self.modulus
        })
    }

    fn squared(&self, matrix: &Matrix) -> Matrix {
        let column = |index: usize| self.times(matrix, matrix.map(|row| row[index]));
        let columns = [column(0), column(1), column(2)];
        [0, 1, 2].map(|row| columns.map(|column| column[row]))
    }

    fn skip(&self, values: Values, steps: u64) -> Values {
        let (mut matrix, mut values, mut rest) = (self.matrix(), values, steps);
        while rest > 0 {
            if rest & 1 == 1 {
                values = self.times(&matrix, values);
            }
            matrix = self.squared(&matrix);
            rest >>= 1;
        }
        values
    }

    /// The matrix of the way to the next stream.
    fn way(&self) -> Matrix {
        (0..DISTANCE).fold(self.matrix(), |matrix, _| self.squared(&matrix))
    }
}

/// One stream of numbers.
#[derive(Clone, Copy, Debug)]
pub struct Mrg32k3a {
    first: Values,
    second: Values,
}

impl Mrg32k3a {
    /// A number of 1 to the first modulus.
    fn number(&mut self) -> u64 {
        let (first, second) = (FIRST.next(self.first), SECOND.next(self.second));
        self.first = [self.first[1], self.first[2], first];
        self.second = [self.second[1], self.second[2], second];
        if first > second { first - second } else { first + FIRST.modulus - second }
    }
}

impl Stream for Mrg32k3a {
    const COUNT: usize = 81_920;

    fn first(seed: u64) -> Self {
        if seed == 0 {
            return Self { first: [START; 3], second: [START; 3] };
        }
        let low = u64::from(seed as u32 ^ 0x5555_5555) * START;
        let high = u64::from((seed >> 32) as u32 ^ 0xaaaa_aaaa) * START;
        Self {
            first: [low, high, low].map(|value| value % FIRST.modulus),
            second: [high, low, high].map(|value| value % SECOND.modulus),
        }
    }

    fn skip(&mut self, steps: u64) {
        self.first = FIRST.skip(self.first, steps);
        self.second = SECOND.skip(self.second, steps);
    }

    fn next_stream(&mut self) {
        static WAYS: OnceLock<[Matrix; 2]> = OnceLock::new();
        let [first, second] = WAYS.get_or_init(|| [FIRST.way(), SECOND.way()]);
        self.first = FIRST.times(first, self.first);
        self.second = SECOND.times(second, self.second);
    }

    fn bits(&mut self) -> u32 {
        (self.number() as f64 * TO_BITS) as u32
    }

    fn uniform(&mut self) -> f32 {
        self.uniform_double() as f32
    }

    fn uniform_double(&mut self) -> f64 {
        self.number() as f64 * TO_UNIT
    }

    fn normal(&mut self) -> [f32; 2] {
        let uniform = self.uniform();
        box_muller(uniform, self.uniform() * TAU32)
    }

    fn normal_double(&mut self) -> [f64; 2] {
        let uniform = self.uniform_double();
        box_muller_double(uniform, self.uniform_double() * TAU)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipping_is_stepping() {
        for steps in [0, 1, 3, 500] {
            let (mut one, mut other) = (Mrg32k3a::first(7), Mrg32k3a::first(7));
            for _ in 0..steps {
                one.number();
            }
            other.skip(steps);
            assert_eq!(one.number(), other.number(), "{steps}");
        }
    }

    #[test]
    fn the_way_to_the_next_stream_is_lecuyers() {
        // The matrix A1 to the power of 2^76 of the package RngStreams, its first row.
        assert_eq!(FIRST.way()[0], [82_758_667, 1_871_391_091, 4_127_413_238]);
        assert_eq!(SECOND.way()[0], [1_511_326_704, 3_759_209_742, 1_610_795_712]);
    }
}
