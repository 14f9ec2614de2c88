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

/// A type of elements that a source can fill.
pub trait Value: Copy + Default + Send + 'static {
    /// Fills places with random bits, or for real numbers with uniform ones.
    fn plain(source: &mut dyn Source, places: &mut [Self]);
}

/// A real number.
pub trait Real: Value {
    /// Fills places with normal numbers.
    fn normal(source: &mut dyn Source, places: &mut [Self]);
}

macro_rules! values {
    ($($type:ty: $method:ident;)*) => { $(
        impl Value for $type {
            fn plain(source: &mut dyn Source, places: &mut [Self]) {
                source.$method(places);
            }
        }
    )* };
}
values! {
    u32: words;
    u64: long_words;
    f32: uniform;
    f64: uniform_double;
}

macro_rules! reals {
    ($($type:ty: $method:ident;)*) => { $(
        impl Real for $type {
            fn normal(source: &mut dyn Source, places: &mut [Self]) {
                source.$method(places);
            }
        }
    )* };
}
reals! {
    f32: normal;
    f64: normal_double;
}
