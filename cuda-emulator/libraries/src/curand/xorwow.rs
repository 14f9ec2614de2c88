// SPDX-License-Identifier: Apache-2.0 OR MIT

//! XORWOW (Marsaglia: "Xorshift RNGs", 2003): a linear recurrence of five words over GF(2), and a counter.

use std::sync::OnceLock;

use super::interleaved::Stream;
use super::values::{normal, normal_double, uniform, uniform_double};

/// The increment of the counter in each step.
const WEYL: u32 = 362_437;
/// The logarithm of the distance between streams.
const DISTANCE: usize = 67;
/// Bits of the recurrence's state.
const BITS: usize = 160;

/// The state of the recurrence.
type Words = [u32; 5];

/// One stream of numbers.
#[derive(Clone, Copy, Debug)]
pub struct Xorwow {
    words: Words,
    counter: u32,
}

fn stepped([x, y, z, w, v]: Words) -> Words {
    let t = x ^ x >> 2;
    [y, z, w, v, v ^ v << 4 ^ t ^ t << 1]
}

impl Xorwow {
    fn word(&mut self) -> u32 {
        self.words = stepped(self.words);
        self.counter = self.counter.wrapping_add(WEYL);
        self.words[4].wrapping_add(self.counter)
    }

    fn pair(&mut self) -> [u32; 2] {
        [self.word(), self.word()]
    }
}

impl Stream for Xorwow {
    const COUNT: usize = 4096;

    fn first(seed: u64) -> Self {
        // Marsaglia's numbers, and how the library mixes a seed into them: with this seed it leaves them as they are.
        let mixed = seed ^ 0xf7dc_efdd_aad2_6b49;
        let first = 1_099_087_573_u32.wrapping_mul(mixed as u32);
        let second = 2_591_861_531_u32.wrapping_mul((mixed >> 32) as u32);
        let words = [
            123_456_789_u32.wrapping_add(first),
            362_436_069 ^ first,
            521_288_629_u32.wrapping_add(second),
            88_675_123 ^ second,
            5_783_321_u32.wrapping_add(first),
        ];
        Self { words, counter: 6_615_241_u32.wrapping_add(first).wrapping_add(second) }
    }

    fn skip(&mut self, steps: u64) {
        for (power, matrix) in powers().iter().enumerate().take(64) {
            if steps >> power & 1 == 1 {
                self.words = matrix.times(self.words);
            }
        }
        self.counter = self.counter.wrapping_add((steps as u32).wrapping_mul(WEYL));
    }

    fn next_stream(&mut self) {
        // The counter comes round many times on the way.
        self.words = powers()[DISTANCE].times(self.words);
    }

    fn bits(&mut self) -> u32 {
        self.word()
    }

    fn uniform(&mut self) -> f32 {
        uniform(self.word())
    }

    fn uniform_double(&mut self) -> f64 {
        uniform_double(self.pair())
    }

    fn normal(&mut self) -> [f32; 2] {
        normal(self.pair())
    }

    fn normal_double(&mut self) -> [f64; 2] {
        normal_double([self.word(), self.word(), self.word(), self.word()])
    }
}

/// A matrix over GF(2): the images of the single bits.
struct Matrix(Box<[Words; BITS]>);

impl Matrix {
    fn of(image: impl Fn(Words) -> Words) -> Self {
        let mut columns = Box::new([Words::default(); BITS]);
        for (bit, column) in columns.iter_mut().enumerate() {
            let mut single = Words::default();
            single[bit / 32] = 1 << (bit % 32);
            *column = image(single);
        }
        Self(columns)
    }

    fn times(&self, words: Words) -> Words {
        let mut sum = Words::default();
        for (bit, column) in self.0.iter().enumerate() {
            let mask = (words[bit / 32] >> (bit % 32) & 1).wrapping_neg();
            sum.iter_mut().zip(column).for_each(|(sum, word)| *sum ^= word & mask);
        }
        sum
    }
}

/// The matrices of 1, 2, 4, … steps.
fn powers() -> &'static [Matrix] {
    static POWERS: OnceLock<Vec<Matrix>> = OnceLock::new();
    POWERS.get_or_init(|| {
        let mut powers = vec![Matrix::of(stepped)];
        for power in 0..DISTANCE {
            let last = &powers[power];
            let next = Matrix::of(|words| last.times(last.times(words)));
            powers.push(next);
        }
        powers
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipping_is_stepping() {
        for steps in [0, 1, 2, 77, 1000] {
            let (mut one, mut other) = (Xorwow::first(7), Xorwow::first(7));
            for _ in 0..steps {
                one.word();
            }
            other.skip(steps);
            assert_eq!(one.word(), other.word(), "{steps}");
        }
    }

    #[test]
    fn without_a_seed_it_is_marsaglias() {
        let mut plain = Xorwow::first(0xf7dc_efdd_aad2_6b49);
        assert_eq!(plain.words, [123_456_789, 362_436_069, 521_288_629, 88_675_123, 5_783_321]);
        // The first number of the paper's program.
        assert_eq!(plain.word(), 246_875_399);
    }
}
