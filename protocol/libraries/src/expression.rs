// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The number of elements of an array: a sum, product or bound of other parameters.

/// An expression over integer parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// A number.
    Constant(i64),
    /// The parameter with this index.
    Parameter(usize),
    /// An operation on two expressions.
    Operation(Operator, &'static Expression, &'static Expression),
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `max(a, b)`
    Maximum,
    /// `min(a, b)`
    Minimum,
}

impl Expression {
    /// Returns the expression's value, given those of parameters. `None`: a parameter is not an integer, or the value
    /// overflows.
    pub fn value(&self, parameter: &dyn Fn(usize) -> Option<i128>) -> Option<i128> {
        match self {
            Self::Constant(value) => Some(i128::from(*value)),
            Self::Parameter(index) => parameter(*index),
            Self::Operation(operator, left, right) => {
                let (left, right) = (left.value(parameter)?, right.value(parameter)?);
                match operator {
                    Operator::Add => left.checked_add(right),
                    Operator::Subtract => left.checked_sub(right),
                    Operator::Multiply => left.checked_mul(right),
                    Operator::Maximum => Some(left.max(right)),
                    Operator::Minimum => Some(left.min(right)),
                }
            }
        }
    }
}
