// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Softmax. Tensors are packed, in the order of their dimensions.

use super::{BAD_PARAM, Status};

/// The form of a softmax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax {
    is_logarithm: bool,
    /// Over the channels alone, not over all elements of an image.
    is_over_channels: bool,
}

impl Softmax {
    /// Returns the form for values of `cudnnSoftmaxAlgorithm_t` and `cudnnSoftmaxMode_t`.
    pub fn new(algorithm: i32, mode: i32) -> Result<Self, Status> {
        if !(0..=2).contains(&algorithm) || !(0..=1).contains(&mode) {
            return Err(BAD_PARAM);
        }
        Ok(Self { is_logarithm: algorithm == 2, is_over_channels: mode == 1 })
    }

    /// Calls `body` with the places of the elements of each distribution.
    fn lines(self, dims: &[usize], mut body: impl FnMut(&[usize])) {
        let images = dims[0];
        let total: usize = dims.iter().skip(1).product();
        let inner: usize = if self.is_over_channels { dims.iter().skip(2).product() } else { 1 };
        for start in (0..images * inner).map(|number| number / inner * total + number % inner) {
            let line: Vec<usize> = (0..total / inner).map(|at| start + at * inner).collect();
            body(&line);
        }
    }

    /// The output.
    pub fn forward(self, x: &[f64], dims: &[usize]) -> Vec<f64> {
        let mut y = vec![0.0; x.len()];
        self.lines(dims, |line| {
            let largest = line.iter().map(|at| x[*at]).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = line.iter().map(|at| (x[*at] - largest).exp()).sum();
            for &at in line {
                let shifted = x[at] - largest;
                y[at] = if self.is_logarithm { shifted - sum.ln() } else { shifted.exp() / sum };
            }
        });
        y
    }

    /// The gradient of the input.
    pub fn backward(self, y: &[f64], dy: &[f64], dims: &[usize]) -> Vec<f64> {
        let mut dx = vec![0.0; y.len()];
        self.lines(dims, |line| {
            let sum: f64 =
                line.iter().map(|at| if self.is_logarithm { dy[*at] } else { dy[*at] * y[*at] }).sum();
            for &at in line {
                dx[at] = if self.is_logarithm { dy[at] - y[at].exp() * sum } else { y[at] * (dy[at] - sum) };
            }
        });
        dx
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_add_up_and_gradients_are_those_of_differences() {
        let dims = [2, 3, 2, 2];
        let x: Vec<f64> = (0..24).map(|at| f64::from(at * 7 % 11) / 3.0).collect();
        let dy: Vec<f64> = (0..24).map(|at| f64::from(at * 5 % 7) - 3.0).collect();
        for (algorithm, mode) in (0..3).flat_map(|algorithm| [(algorithm, 0), (algorithm, 1)]) {
            let softmax = Softmax::new(algorithm, mode).expect("valid");
            let y = softmax.forward(&x, &dims);
            // Element (n, c, h, w) against the definition.
            for n in 0..2 {
                for at in 0..12 {
                    let members = (0..12).filter(|other| mode == 0 || other % 4 == at % 4);
                    let sum: f64 = members.map(|other| x[n * 12 + other].exp()).sum();
                    let wanted = x[n * 12 + at].exp() / sum;
                    let wanted = if algorithm == 2 { wanted.ln() } else { wanted };
                    assert!((y[n * 12 + at] - wanted).abs() < 1e-12, "{algorithm} {mode} {n} {at}");
                }
            }
            let dx = softmax.backward(&y, &dy, &dims);
            for at in 0..24 {
                let shifted = |by: f64| {
                    let mut x = x.clone();
                    x[at] += by;
                    softmax.forward(&x, &dims).iter().zip(&dy).map(|(y, dy)| y * dy).sum::<f64>()
                };
                assert!(
                    (dx[at] - (shifted(1e-5) - shifted(-1e-5)) / 2e-5).abs() < 1e-7,
                    "{algorithm} {mode} {at}"
                );
            }
        }
        assert!(Softmax::new(3, 0).is_err() && Softmax::new(0, 2).is_err());
    }

    #[test]
    fn large_numbers_do_not_overflow() {
        let y = Softmax::new(1, 1).expect("valid").forward(&[1000.0, 1000.0], &[1, 2]);
        assert_eq!(y, [0.5, 0.5]);
    }
}
