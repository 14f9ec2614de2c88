// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Convolutions and their gradients.

mod geometry;
mod product;

pub use geometry::{Geometry, Parameters};

use product::Real;

use crate::numbers::Type;

/// The result of a convolution: the output, or a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The output, of input and filter.
    Forward,
    /// The gradient of the input, of filter and the output's gradient.
    Data,
    /// The gradient of the filter, of input and the output's gradient.
    Filter,
}

impl Geometry {
    /// Computes one of the three tensors of the other two: input or filter, then filter or output. They are packed, in the order
    /// of their dimensions. Tensors of doubles are computed in doubles, all others in single precision.
    pub fn compute(&self, direction: Direction, kind: Type, first: &[f64], second: &[f64]) -> Vec<f64> {
        match kind {
            Type::F64 => self.compute_as::<f64>(direction, first, second),
            _ => self.compute_as::<f32>(direction, first, second),
        }
    }

    fn compute_as<T: Real>(&self, direction: Direction, first: &[f64], second: &[f64]) -> Vec<f64> {
        let narrow = |values: &[f64]| values.iter().map(|value| T::narrow(*value)).collect::<Vec<T>>();
        let (first, second) = (narrow(first), narrow(second));
        let result = match direction {
            Direction::Forward => self.forward(&first, &second),
            Direction::Data => self.data_gradient(&first, &second),
            Direction::Filter => self.filter_gradient(&first, &second),
        };
        result.into_iter().map(T::wide).collect()
    }
}

#[cfg(test)]
mod convolution_test;
