// SPDX-License-Identifier: Apache-2.0 OR MIT

//! What matrices and vectors are made of.

use num_complex::Complex;
use num_traits::{One, Zero};

/// `cuComplex`
pub type C32 = Complex<f32>;
/// `cuDoubleComplex`
pub type C64 = Complex<f64>;

/// A type that the gemm crate computes with.
pub trait Element:
    Copy + Send + Sync + 'static + Zero + One + PartialEq + std::ops::Mul<Output = Self>
{
    /// Its complex conjugate; itself if it is real.
    fn conjugate(self) -> Self;
    /// The square of its absolute value.
    fn square(self) -> f64;
}

macro_rules! real {
    ($($t:ty)*) => { $(impl Element for $t {
        fn conjugate(self) -> Self { self }
        fn square(self) -> f64 { f64::from(self) * f64::from(self) }
    })* };
}
real!(f32 f64);

macro_rules! complex {
    ($($t:ty)*) => { $(impl Element for $t {
        fn conjugate(self) -> Self { self.conj() }
        fn square(self) -> f64 { self.re.square() + self.im.square() }
    })* };
}
complex!(C32 C64);
