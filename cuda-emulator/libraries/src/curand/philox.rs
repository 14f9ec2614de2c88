// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3").

use super::source::Source;
use super::values::{normal, normal_double, uniform, uniform_double};

/// Its multipliers, and the numbers that are added to the key in each round.
const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

/// The number of adjacent results of one stream.
const GROUP: u64 = 4;
/// The number of streams; a stream's number is the upper half of its counter.
const STREAMS: u64 = 65_536;

/// The streams of a generator: group after group of results is taken from stream after stream.
#[derive(Debug)]
pub struct Philox {
    seed: u64,
    /// The lower half of each stream's counter.
    counters: Vec<u64>,
    /// The position of the next result.
    next: u64,
}

impl Philox {
    /// The bytes of all counters.
    pub const BYTES: usize = STREAMS as usize * size_of::<u64>();

    /// Returns the streams of a seed, after `position` results.
    pub fn new(seed: u64, position: u64) -> Self {
        let (rounds, started) = (position / (GROUP * STREAMS), position / GROUP % STREAMS);
        let counters = (0..STREAMS).map(|stream| rounds + u64::from(stream < started));
        Self { seed, counters: counters.collect(), next: position }
    }

    /// Fills places from groups, each of which `make` makes of `blocks` blocks. A group that the places end in the middle of is
    /// made again by the next call.
    fn groups<T: Copy>(
        &mut self,
        places: &mut [T],
        blocks: u64,
        make: impl Fn(&dyn Fn(u64) -> [u32; 4]) -> [T; GROUP as usize],
    ) {
        let mut rest = places;
        while !rest.is_empty() {
            let (stream, begin) = (self.next / GROUP % STREAMS, (self.next % GROUP) as usize);
            let counter = self.counters[stream as usize];
            let block = |index: u64| {
                let [low, high] = halves(counter.wrapping_add(index));
                block(self.seed, [low, high, stream as u32, 0])
            };
            let group = make(&block);
            let count = rest.len().min(group.len() - begin);
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&group[begin..begin + count]);
            if begin + count == group.len() {
                self.counters[stream as usize] = counter.wrapping_add(blocks);
            }
            self.next = self.next.wrapping_add(count as u64);
            rest = later;
        }
    }
}

/// The four numbers of a seed at a counter.
pub fn block(seed: u64, mut counter: [u32; 4]) -> [u32; 4] {
    let mut key = halves(seed);
    for _ in 0..ROUNDS {
        let product = |index: usize| u64::from(MULTIPLIERS[index]) * u64::from(counter[2 * index]);
        let (first, second) = (product(0), product(1));
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// The two halves of a number, the lower one first.
pub fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

impl Source for Philox {
    fn words(&mut self, places: &mut [u32]) {
        self.groups(places, 1, |block| block(0));
    }

    fn uniform(&mut self, places: &mut [f32]) {
        self.groups(places, 1, |block| block(0).map(uniform));
    }

    fn uniform_double(&mut self, places: &mut [f64]) {
        self.groups(places, 2, |block| {
            let ([a, b, c, d], [e, f, g, h]) = (block(0), block(1));
            [[a, b], [c, d], [e, f], [g, h]].map(uniform_double)
        });
    }

    fn normal(&mut self, places: &mut [f32]) {
        self.groups(places, 1, |block| {
            let [a, b, c, d] = block(0);
            let ([first, second], [third, fourth]) = (normal([a, b]), normal([c, d]));
            [first, second, third, fourth]
        });
    }

    fn normal_double(&mut self, places: &mut [f64]) {
        self.groups(places, 2, |block| {
            let ([first, second], [third, fourth]) = (normal_double(block(0)), normal_double(block(1)));
            [first, second, third, fourth]
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_the_paper() {
        // Known answers of Random123, the authors' library (kat_vectors).
        let all = u32::MAX;
        assert_eq!(block(0, [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(block(u64::MAX, [all; 4]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }
}
