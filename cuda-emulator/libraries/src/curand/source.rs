// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A generator's numbers, one after the other.

/// A sequence of random numbers, or several (one for each dimension).
pub trait Source: Send {
    /// 32 bits each.
    fn words(&mut self, places: &mut [u32]);
    /// Numbers above 0, up to 1.
    fn uniform(&mut self, places: &mut [f32]);
    /// Numbers above 0, up to 1.
    fn uniform_double(&mut self, places: &mut [f64]);
    /// Numbers of the standard normal distribution.
    fn normal(&mut self, places: &mut [f32]);
    /// Numbers of the standard normal distribution.
    fn normal_double(&mut self, places: &mut [f64]);

    /// 64 bits each: only one kind of generator has them.
    fn long_words(&mut self, places: &mut [u64]) {
        places.fill(0);
    }

    /// The following numbers are of this dimension, from the place on where the last call has ended.
    fn begin_dimension(&mut self, dimension: usize) {
        let _ = dimension;
    }

    /// All dimensions have had as many numbers.
    fn end_dimensions(&mut self, each: u64) {
        let _ = each;
    }
}
