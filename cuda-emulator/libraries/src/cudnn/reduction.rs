// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Reductions over the dimensions in which the result has one element.

use super::layout::places;
use super::{BAD_PARAM, Status};

/// The operation that reduces elements to one (`cudnnReduceTensorOp_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    Add,
    Multiply,
    Min,
    Max,
    /// The largest absolute value.
    AbsoluteMax,
    Average,
    /// The sum of absolute values.
    Norm1,
    /// The square root of the sum of squares.
    Norm2,
    /// The product of all elements but zeros.
    MultiplyNoZeros,
}

impl Reduction {
    /// The reduction of that number.
    pub fn new(number: i32) -> Result<Self, Status> {
        let all = [
            Self::Add,
            Self::Multiply,
            Self::Min,
            Self::Max,
            Self::AbsoluteMax,
            Self::Average,
            Self::Norm1,
            Self::Norm2,
            Self::MultiplyNoZeros,
        ];
        usize::try_from(number).ok().and_then(|number| all.get(number)).copied().ok_or(BAD_PARAM)
    }

    fn join(self, sum: f64, value: f64) -> f64 {
        // `f64::max` would drop NaN.
        let choose = |is_better: bool| if is_better || value.is_nan() { value } else { sum };
        match self {
            Self::Add | Self::Average => sum + value,
            Self::Multiply => sum * value,
            Self::MultiplyNoZeros => sum * if value == 0.0 { 1.0 } else { value },
            Self::Min => choose(value < sum),
            Self::Max => choose(value > sum),
            Self::AbsoluteMax => {
                if value.is_nan() || value.abs() > sum {
                    value.abs()
                } else {
                    sum
                }
            }
            Self::Norm1 => sum + value.abs(),
            Self::Norm2 => sum + value * value,
        }
    }

    /// Reduces a packed tensor of `from` to one of `to`.
    pub fn reduce(self, x: &[f64], from: &[usize], to: &[usize]) -> Vec<f64> {
        let start = match self {
            Self::Multiply | Self::MultiplyNoZeros => 1.0,
            Self::Min => f64::INFINITY,
            Self::Max => f64::NEG_INFINITY,
            _ => 0.0,
        };
        let mut y = vec![start; to.iter().product()];
        x.iter().zip(places(to, from)).for_each(|(x, at)| y[at] = self.join(y[at], *x));
        let count = (x.len() / y.len()) as f64;
        match self {
            Self::Average => y.iter_mut().for_each(|sum| *sum /= count),
            Self::Norm2 => y.iter_mut().for_each(|sum| *sum = sum.sqrt()),
            _ => {}
        }
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reduction_is_its_definition() {
        let x = [1.0, -2.0, 0.0, 4.0, -5.0, 3.0];
        // Rows of 2 x 3, columns, all.
        let wanted: [(i32, [f64; 2], [f64; 3], f64); 9] = [
            (0, [-1.0, 2.0], [5.0, -7.0, 3.0], 1.0),
            (1, [0.0, -60.0], [4.0, 10.0, 0.0], 0.0),
            (2, [-2.0, -5.0], [1.0, -5.0, 0.0], -5.0),
            (3, [1.0, 4.0], [4.0, -2.0, 3.0], 4.0),
            (4, [2.0, 5.0], [4.0, 5.0, 3.0], 5.0),
            (5, [-1.0 / 3.0, 2.0 / 3.0], [2.5, -3.5, 1.5], 1.0 / 6.0),
            (6, [3.0, 12.0], [5.0, 7.0, 3.0], 15.0),
            (7, [5.0_f64.sqrt(), 50.0_f64.sqrt()], [17.0_f64.sqrt(), 29.0_f64.sqrt(), 3.0], 55.0_f64.sqrt()),
            (8, [-2.0, -60.0], [4.0, 10.0, 3.0], 120.0),
        ];
        for (number, rows, columns, all) in wanted {
            let reduction = Reduction::new(number).expect("valid");
            assert_eq!(reduction.reduce(&x, &[2, 3], &[2, 1]), rows, "{reduction:?}");
            assert_eq!(reduction.reduce(&x, &[2, 3], &[1, 3]), columns, "{reduction:?}");
            assert_eq!(reduction.reduce(&x, &[2, 3], &[1, 1]), [all], "{reduction:?}");
        }
        assert!(Reduction::new(9).is_err() && Reduction::new(-1).is_err());
        assert!(Reduction::Max.reduce(&[1.0, f64::NAN], &[2], &[1])[0].is_nan());
    }
}
