// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Operations on single elements (`cudnnPointwiseMode_t`).

use super::super::activation::{Activation, erf};
use super::super::{BAD_PARAM, Status};
use super::descriptor::Attributes;

/// An operation.
#[derive(Clone, Copy, Debug)]
pub enum Pointwise {
    /// An operation on one element.
    Unary(fn(f64) -> f64),
    /// An operation on two elements.
    Binary(fn(f64, f64) -> f64),
    /// The sum of two elements. Of a tensor whose factor is 0 nothing is read: TensorFlow passes null there.
    Sum,
    /// An activation function.
    Forward(Activation),
    /// The gradient of an activation function's input, of that and of the output's gradient.
    Backward(Activation),
    /// The first or the second element, by a third one.
    Select,
    /// An element's index along a dimension.
    Index(usize),
}

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

impl Pointwise {
    /// The operation of a descriptor's attributes.
    pub fn new(attributes: &Attributes) -> Result<Self, Status> {
        let number = attributes.integer(0)?;
        let (family, member) = (number / 100, number % 100);
        if family == 1 || family == 2 {
            let activation = activation(member, attributes)?;
            return Ok(if family == 1 { Self::Forward(activation) } else { Self::Backward(activation) });
        }
        let unary: fn(f64) -> f64 = match number {
            4 => f64::sqrt,
            10 => f64::abs,
            11 => f64::ceil,
            12 => f64::cos,
            13 => f64::exp,
            14 => f64::floor,
            15 => f64::ln,
            16 => |a| -a,
            17 => |a| 1.0 / a.sqrt(),
            18 => f64::sin,
            19 => f64::tan,
            20 => erf,
            21 => |a| a,
            22 => f64::recip,
            402 => |a| truth(a == 0.0),
            501 => return usize::try_from(attributes.integer(9)?).map(Self::Index).map_err(|_| BAD_PARAM),
            _ => return Self::binary(number),
        };
        Ok(Self::Unary(unary))
    }

    fn binary(number: i64) -> Result<Self, Status> {
        let binary: fn(f64, f64) -> f64 = match number {
            0 => return Ok(Self::Sum),
            1 => |a, b| a * b,
            2 => |a, b| if b < a || b.is_nan() { b } else { a },
            3 => |a, b| if b > a || b.is_nan() { b } else { a },
            5 => |a, b| a + b * b,
            6 => |a, b| a / b,
            7 => |a, b| a % b,
            8 => f64::powf,
            9 => |a, b| a - b,
            23 => f64::atan2,
            300 => |a, b| truth(a == b),
            301 => |a, b| truth(a != b),
            302 => |a, b| truth(a > b),
            303 => |a, b| truth(a >= b),
            304 => |a, b| truth(a < b),
            305 => |a, b| truth(a <= b),
            400 => |a, b| truth(a != 0.0 && b != 0.0),
            401 => |a, b| truth(a != 0.0 || b != 0.0),
            601 => return Ok(Self::Select),
            _ => return Err(BAD_PARAM),
        };
        Ok(Self::Binary(binary))
    }
}

fn activation(member: i64, attributes: &Attributes) -> Result<Activation, Status> {
    Ok(match member {
        0 => Activation::Relu {
            lower: attributes.real_or(3, 0.0)?,
            upper: attributes.real_or(4, f64::INFINITY)?,
            slope: attributes.real_or(5, 0.0)?,
        },
        1 => Activation::Tanh,
        2 => Activation::Sigmoid,
        3 => Activation::Elu(attributes.real_or(6, 1.0)?),
        4 => Activation::Gelu,
        5 => Activation::Softplus(attributes.real_or(7, 1.0)?),
        6 => Activation::Swish(attributes.real_or(8, 1.0)?),
        7 => Activation::GeluTanh,
        _ => return Err(BAD_PARAM),
    })
}
