// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Operations on pairs of elements.

use super::{BAD_PARAM, Status};

/// A `cudnnOpTensorOp_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Add,
    Multiply,
    Min,
    Max,
    /// The square root of the first element.
    Root,
    /// One minus the first element.
    Not,
}

impl Operation {
    /// The operation of that number.
    pub fn new(number: i32) -> Result<Self, Status> {
        Ok(match number {
            0 => Self::Add,
            1 => Self::Multiply,
            2 => Self::Min,
            3 => Self::Max,
            4 => Self::Root,
            5 => Self::Not,
            _ => return Err(BAD_PARAM),
        })
    }

    /// The operation reads the first element only.
    pub fn is_unary(self) -> bool {
        matches!(self, Self::Root | Self::Not)
    }

    /// The result for a pair. With `propagates_nan` one NaN makes the smaller or larger one NaN.
    pub fn of(self, a: f64, b: f64, propagates_nan: bool) -> f64 {
        match self {
            Self::Min | Self::Max if propagates_nan && (a.is_nan() || b.is_nan()) => f64::NAN,
            Self::Add => a + b,
            Self::Multiply => a * b,
            Self::Min => a.min(b),
            Self::Max => a.max(b),
            Self::Root => a.sqrt(),
            Self::Not => 1.0 - a,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_is_its_definition() {
        let all = (0..6).map(|number| Operation::new(number).expect("valid").of(4.0, -3.0, false));
        assert_eq!(all.collect::<Vec<_>>(), [1.0, -12.0, -3.0, 4.0, 2.0, -3.0]);
        assert!(Operation::new(6).is_err());
        assert!(Operation::Max.of(f64::NAN, 1.0, true).is_nan());
        assert_eq!(Operation::Max.of(f64::NAN, 1.0, false), 1.0);
    }
}
