// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3").

/// Its multipliers, and what is added to the key in each round.
const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

/// A sequence of random numbers, each found by its position.
#[derive(Clone, Copy, Debug)]
pub struct Philox {
    key: [u32; 2],
}

impl Philox {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self { key: [seed as u32, (seed >> 32) as u32] }
    }

    /// Four numbers at a counter.
    fn block(&self, mut counter: [u32; 4]) -> [u32; 4] {
        let mut key = self.key;
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

    /// The 32 bits at a position.
    pub fn word(&self, position: u64) -> u32 {
        let block = position / 4;
        self.block([block as u32, (block >> 32) as u32, 0, 0])[(position % 4) as usize]
    }

    /// The 64 bits at two positions.
    pub fn wide(&self, position: u64) -> u64 {
        u64::from(self.word(position)) | u64::from(self.word(position.wrapping_add(1))) << 32
    }

    /// A number above 0, up to 1, of two positions.
    pub fn uniform(&self, position: u64) -> f64 {
        ((self.wide(position) >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// A number of the standard normal distribution, of two positions (Box and Muller).
    pub fn normal(&self, position: u64) -> f64 {
        let unit = |word: u32| (f64::from(word) + 1.0) / (1_u64 << 32) as f64;
        let radius = (-2.0 * unit(self.word(position)).ln()).sqrt();
        radius * (std::f64::consts::TAU * unit(self.word(position.wrapping_add(1)))).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_the_paper() {
        // Known answers of Random123, the authors' library (kat_vectors).
        let all = u32::MAX;
        assert_eq!(
            Philox { key: [0; 2] }.block([0; 4]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            Philox { key: [all; 2] }.block([all; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
    }
}
