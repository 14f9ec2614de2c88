// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Activation functions and their derivatives.

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    Sigmoid,
    /// Its bounds, and the slope below the lower one.
    Relu {
        lower: f64,
        upper: f64,
        slope: f64,
    },
    Tanh,
    /// Its alpha.
    Elu(f64),
    Identity,
    /// Its beta.
    Swish(f64),
    /// Its beta.
    Softplus(f64),
    Gelu,
    GeluTanh,
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The factor of x cubed in GELU's approximation.
const CUBE: f64 = 0.044_715;

/// The argument of tanh in GELU's approximation, and its derivative.
fn approximation(x: f64) -> (f64, f64) {
    let scale = (2.0 / std::f64::consts::PI).sqrt();
    (scale * (x + CUBE * x * x * x), scale * (1.0 + 3.0 * CUBE * x * x))
}

/// The error function: a series near zero, a continued fraction elsewhere.
pub fn erf(x: f64) -> f64 {
    let size = x.abs();
    if size.is_nan() {
        return x;
    }
    let scale = 2.0 / std::f64::consts::PI.sqrt();
    let value = if size < 3.0 {
        let (mut term, mut sum) = (size, size);
        for n in 1..80 {
            let n = f64::from(n);
            term *= -size * size / n;
            sum += term / (2.0 * n + 1.0);
        }
        scale * sum
    } else if size < 6.0 {
        let fraction = (1..60).rev().fold(size, |rest, n| size + f64::from(n) / 2.0 / rest);
        1.0 - scale / 2.0 * (-size * size).exp() / fraction
    } else {
        1.0
    };
    value.copysign(x)
}

impl Activation {
    /// The function of a `cudnnActivationMode_t`, of its coefficient and swish's beta.
    pub fn new(mode: i32, coefficient: f64, beta: f64) -> Option<Self> {
        Some(match mode {
            0 => Self::Sigmoid,
            1 => Self::Relu { lower: 0.0, upper: f64::INFINITY, slope: 0.0 },
            2 => Self::Tanh,
            3 => Self::Relu { lower: 0.0, upper: coefficient, slope: 0.0 },
            4 => Self::Elu(coefficient),
            5 => Self::Identity,
            6 => Self::Swish(beta),
            _ => return None,
        })
    }

    /// The function at `x`. NaN stays.
    pub fn at(self, x: f64) -> f64 {
        match self {
            Self::Sigmoid => sigmoid(x),
            Self::Relu { lower, slope, .. } if x < lower => lower + slope * (x - lower),
            Self::Relu { upper, .. } if x > upper => upper,
            Self::Relu { .. } | Self::Identity => x,
            Self::Tanh => x.tanh(),
            Self::Elu(alpha) if x < 0.0 => alpha * x.exp_m1(),
            Self::Elu(_) => x,
            Self::Swish(beta) => x * sigmoid(beta * x),
            // The second form does not overflow.
            Self::Softplus(beta) => (-(beta * x).abs()).exp().ln_1p() / beta + x.max(0.0),
            Self::Gelu => x * 0.5 * (1.0 + erf(x / std::f64::consts::SQRT_2)),
            Self::GeluTanh => 0.5 * x * (1.0 + approximation(x).0.tanh()),
        }
    }

    /// The derivative at `x`.
    pub fn slope(self, x: f64) -> f64 {
        match self {
            Self::Sigmoid => sigmoid(x) * sigmoid(-x),
            Self::Relu { lower, slope, .. } if x <= lower => slope,
            Self::Relu { upper, .. } if x >= upper => 0.0,
            Self::Relu { .. } | Self::Identity => 1.0,
            Self::Tanh => 1.0 - x.tanh().powi(2),
            Self::Elu(alpha) if x < 0.0 => alpha * x.exp(),
            Self::Elu(_) => 1.0,
            Self::Swish(beta) => sigmoid(beta * x) * (1.0 + beta * x * sigmoid(-beta * x)),
            Self::Softplus(beta) => sigmoid(beta * x),
            Self::Gelu => {
                let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
                0.5 * (1.0 + erf(x / std::f64::consts::SQRT_2)) + x * density
            }
            Self::GeluTanh => {
                let (inner, slope) = approximation(x);
                0.5 * (1.0 + inner.tanh()) + 0.5 * x * (1.0 - inner.tanh().powi(2)) * slope
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_known_ones() {
        let known = [(0.0, 0.0), (0.5, 0.520_499_877_813_046_5), (1.0, 0.842_700_792_949_714_9)];
        let more = [(2.9, 0.999_958_902_121_900_5), (3.1, 0.999_988_351_342_632_8), (7.0, 1.0)];
        for (x, wanted) in known.into_iter().chain(more) {
            assert!((erf(x) - wanted).abs() < 1e-12 && (erf(-x) + wanted).abs() < 1e-12, "erf({x})");
        }
        assert!(erf(f64::NAN).is_nan());
        assert!((Activation::Gelu.at(1.0) - 0.841_344_746_068_542_9).abs() < 1e-12);
        assert!((Activation::Softplus(2.0).at(-0.3) - (1.0_f64 + (-0.6_f64).exp()).ln() / 2.0).abs() < 1e-12);
        assert_eq!(Activation::Softplus(1.0).at(1000.0), 1000.0);
        assert_eq!(Activation::new(3, 6.0, 0.0).map(|relu6| relu6.at(7.0)), Some(6.0));
        assert_eq!(Activation::new(7, 0.0, 0.0), None);
    }

    #[test]
    fn slopes_are_those_of_differences() {
        let leaky = Activation::Relu { lower: -1.0, upper: 2.0, slope: 0.25 };
        let all = (0..7).filter_map(|mode| Activation::new(mode, 1.5, 0.7));
        for activation in
            all.chain([leaky, Activation::Softplus(1.3), Activation::Gelu, Activation::GeluTanh])
        {
            for x in [-2.3, -0.4, 0.3, 1.1, 2.7] {
                let step = 1e-6;
                let wanted = (activation.at(x + step) - activation.at(x - step)) / (2.0 * step);
                assert!((activation.slope(x) - wanted).abs() < 1e-8, "{activation:?} at {x}");
            }
        }
    }
}
