// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Sobol's sequences in Gray code order (Antonov and Saleev), with the direction numbers of Joe and Kuo ("Constructing Sobol
//! sequences with better two-dimensional projections", 2008), which cuRAND has, too.

use std::sync::LazyLock;

use sobol::params::JoeKuoD6;

use super::source::Source;
use super::values::{normal_quantile, uniform};

/// The maximum number of dimensions of cuRAND.
pub const MAX_DIMENSIONS: usize = 20_000;

/// The direction numbers of a dimension, one for each bit of a position. The upper halves of the first 32 are the direction
/// numbers of sequences of 32 bits.
type Directions = [u64; 64];

/// The sequences of a generator, one for each dimension.
pub struct Sobol {
    directions: &'static [Directions],
    /// The numbers have 64 bits.
    is_wide: bool,
    /// The position up to which all dimensions have had their numbers.
    position: u64,
    /// Dimension, position and bits of the next number.
    dimension: usize,
    at: u64,
    point: u64,
}

impl Sobol {
    /// Returns sequences of 32 or 64 bits, after `position` numbers.
    pub fn new(dimensions: usize, is_wide: bool, position: u64) -> Self {
        let directions = directions(dimensions);
        Self { directions, is_wide, position, dimension: 0, at: position, point: 0 }
    }

    fn each<T>(&mut self, places: &mut [T], value: impl Fn(u64) -> T) {
        let directions = &self.directions[self.dimension];
        for place in places {
            *place = value(self.point);
            self.at = self.at.wrapping_add(1);
            self.point ^= directions.get(self.at.trailing_zeros() as usize).copied().unwrap_or(0);
        }
    }
}

/// Returns the direction numbers of `dimensions` dimensions, at most [`MAX_DIMENSIONS`]. All generators share them:
/// 10 MB for all dimensions.
pub fn directions(dimensions: usize) -> &'static [Directions] {
    // Most programs have few dimensions, and computing all of them takes a while.
    static FEW: LazyLock<Vec<Directions>> = LazyLock::new(|| table(&JoeKuoD6::minimal(), 100));
    static MORE: LazyLock<Vec<Directions>> = LazyLock::new(|| table(&JoeKuoD6::standard(), 1000));
    static ALL: LazyLock<Vec<Directions>> = LazyLock::new(|| table(&JoeKuoD6::extended(), MAX_DIMENSIONS));
    let table: &'static [Directions] = match dimensions {
        0..=100 => &FEW,
        101..=1000 => &MORE,
        _ => &ALL,
    };
    &table[..dimensions]
}

fn table(parameters: &JoeKuoD6, dimensions: usize) -> Vec<Directions> {
    let mut first = [0; 64];
    first.iter_mut().enumerate().for_each(|(bit, direction)| *direction = 1 << (63 - bit));
    let others = parameters.dim_params.iter().take(dimensions - 1);
    let others = others.map(|dimension| recurrence(dimension.a, &dimension.m));
    std::iter::once(first).chain(others).collect()
}

/// The direction numbers of a primitive polynomial with the inner factors `polynomial`, of the first ones.
fn recurrence(polynomial: u32, first: &[u32]) -> Directions {
    let (degree, mut directions) = (first.len(), [0; 64]);
    for bit in 0..directions.len() {
        directions[bit] = match first.get(bit) {
            Some(number) => u64::from(*number) << (63 - bit),
            None => (1..degree)
                .filter(|factor| polynomial >> (degree - 1 - factor) & 1 == 1)
                .fold(directions[bit - degree] ^ directions[bit - degree] >> degree, |sum, factor| {
                    sum ^ directions[bit - factor]
                }),
        };
    }
    directions
}

/// 32 bits of a point.
fn high(point: u64) -> u32 {
    (point >> 32) as u32
}

fn unit_wide(point: u64) -> f64 {
    ((point >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// A normal number of 32 bits. Those of the upper half are the negative ones of the lower half.
fn normal(word: u32) -> f32 {
    if word > 1 << 31 {
        -normal_quantile(f64::from(uniform(!word))) as f32
    } else {
        normal_quantile(f64::from(uniform(word))) as f32
    }
}

/// A normal number of 64 bits. Near 1, a probability of double precision would be less exact than near 0.
fn normal_wide(point: u64) -> f64 {
    if point > 1 << 63 { -normal_quantile(unit_wide(!point)) } else { normal_quantile(unit_wide(point)) }
}

impl Source for Sobol {
    fn words(&mut self, places: &mut [u32]) {
        self.each(places, high);
    }

    fn long_words(&mut self, places: &mut [u64]) {
        self.each(places, |point| point);
    }

    fn uniform(&mut self, places: &mut [f32]) {
        self.each(places, |point| uniform(high(point)));
    }

    fn uniform_double(&mut self, places: &mut [f64]) {
        if self.is_wide {
            self.each(places, unit_wide);
        } else {
            self.each(places, |point| (f64::from(high(point)) + 1.0) / (1_u64 << 32) as f64);
        }
    }

    fn normal(&mut self, places: &mut [f32]) {
        self.each(places, |point| normal(high(point)));
    }

    fn normal_double(&mut self, places: &mut [f64]) {
        if self.is_wide {
            self.each(places, normal_wide);
        } else {
            self.each(places, |point| normal_quantile((f64::from(high(point)) + 0.5) / (1_u64 << 32) as f64));
        }
    }

    fn begin_dimension(&mut self, dimension: usize) {
        (self.dimension, self.at) = (dimension, self.position);
        let (gray, directions) = (self.at ^ self.at >> 1, &self.directions[dimension]);
        let is_set = |bit: &usize| gray >> bit & 1 == 1;
        self.point = (0..64).filter(is_set).fold(0, |point, bit| point ^ directions[bit]);
    }

    fn end_dimensions(&mut self, each: u64) {
        self.position = self.position.wrapping_add(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_share_their_direction_numbers() {
        let all = directions(MAX_DIMENSIONS);
        for dimensions in [1, 2, 100, 101, 1000, 1001, MAX_DIMENSIONS] {
            let found = directions(dimensions);
            assert!(found == &all[..dimensions], "{dimensions}");
            assert_eq!(Sobol::new(dimensions, true, 0).directions.as_ptr(), found.as_ptr(), "{dimensions}");
        }
    }
}
