// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Normalisation over groups of elements. Tensors are packed, in the order of their dimensions. An element's group is its place in
//! a tensor of parameters whose dimensions of 1 are normalised over: `1, C, 1, 1` for the batch normalisation of images.

use super::layout::places;

/// Mean and variance of each group.
#[derive(Clone, Debug)]
pub struct Statistics {
    pub mean: Vec<f64>,
    /// Divided by the number of elements.
    pub variance: Vec<f64>,
    /// Elements of a group.
    pub count: f64,
}

impl Statistics {
    /// Computes them over all elements.
    pub fn new(x: &[f64], dims: &[usize], parameters: &[usize]) -> Self {
        let groups: usize = parameters.iter().product();
        let count = (x.len() / groups) as f64;
        let sum = |value: &dyn Fn(usize, f64) -> f64| {
            let mut sums = vec![0.0; groups];
            x.iter().zip(places(parameters, dims)).for_each(|(x, group)| sums[group] += value(group, *x));
            sums.iter_mut().for_each(|sum| *sum /= count);
            sums
        };
        let mean = sum(&|_, x| x);
        let variance = sum(&|group, x| (x - mean[group]).powi(2));
        Self { mean, variance, count }
    }

    /// One divided by the standard deviation.
    pub fn inverse(&self, epsilon: f64) -> Vec<f64> {
        self.variance.iter().map(|variance| 1.0 / (variance + epsilon).sqrt()).collect()
    }

    /// The variance without the bias of a sample.
    pub fn unbiased(&self) -> Vec<f64> {
        let factor = if self.count > 1.0 { self.count / (self.count - 1.0) } else { 1.0 };
        self.variance.iter().map(|variance| variance * factor).collect()
    }
}

/// The normalised elements, scaled and shifted.
pub fn forward(
    x: &[f64],
    dims: &[usize],
    parameters: &[usize],
    [mean, inverse]: [&[f64]; 2],
    [scale, bias]: [&[f64]; 2],
) -> Vec<f64> {
    let normalised =
        |(x, group): (&f64, usize)| (x - mean[group]) * inverse[group] * scale[group] + bias[group];
    x.iter().zip(places(parameters, dims)).map(normalised).collect()
}

/// The gradients of input, scale and bias.
pub fn backward(
    [x, dy]: [&[f64]; 2],
    dims: &[usize],
    parameters: &[usize],
    [mean, inverse]: [&[f64]; 2],
    scale: &[f64],
) -> [Vec<f64>; 3] {
    let groups: Vec<usize> = places(parameters, dims).collect();
    let (mut dscale, mut dbias) = (vec![0.0; scale.len()], vec![0.0; scale.len()]);
    let normalised = |at: usize| (x[at] - mean[groups[at]]) * inverse[groups[at]];
    for (at, group) in groups.iter().enumerate() {
        dscale[*group] += dy[at] * normalised(at);
        dbias[*group] += dy[at];
    }
    let count = (x.len() / scale.len()) as f64;
    let gradient = |(at, group): (usize, &usize)| {
        let own = dy[at] - (dbias[*group] + normalised(at) * dscale[*group]) / count;
        own * inverse[*group] * scale[*group]
    };
    [groups.iter().enumerate().map(gradient).collect(), dscale, dbias]
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIMS: [usize; 4] = [3, 2, 2, 2];

    fn run(x: &[f64], parameters: &[usize], scale: &[f64], bias: &[f64]) -> Vec<f64> {
        let statistics = Statistics::new(x, &DIMS, parameters);
        forward(x, &DIMS, parameters, [&statistics.mean, &statistics.inverse(1e-3)], [scale, bias])
    }

    #[test]
    fn channels_are_normalised() {
        let x: Vec<f64> = (0..24).map(|at| f64::from(at * 7 % 13)).collect();
        let y = run(&x, &[1, 2, 1, 1], &[2.0, 3.0], &[1.0, -1.0]);
        for channel in 0..2 {
            let members: Vec<usize> =
                (0..3).flat_map(|n| (0..4).map(move |at| n * 8 + channel * 4 + at)).collect();
            let mean = members.iter().map(|at| x[*at]).sum::<f64>() / 12.0;
            let variance = members.iter().map(|at| (x[*at] - mean).powi(2)).sum::<f64>() / 12.0;
            for at in members {
                let wanted = (x[at] - mean) / (variance + 1e-3).sqrt();
                let wanted = [2.0 * wanted + 1.0, 3.0 * wanted - 1.0][channel];
                assert!((y[at] - wanted).abs() < 1e-12);
            }
            let unbiased = Statistics::new(&x, &DIMS, &[1, 2, 1, 1]).unbiased()[channel];
            assert!((unbiased - variance * 12.0 / 11.0).abs() < 1e-12);
        }
    }

    #[test]
    fn gradients_are_those_of_differences() {
        let x: Vec<f64> = (0..24).map(|at| f64::from(at * 7 % 13)).collect();
        let dy: Vec<f64> = (0..24).map(|at| f64::from(at * 5 % 7) - 3.0).collect();
        // Batch, per-activation and layer normalisation.
        for parameters in [[1, 2, 1, 1], [1, 2, 2, 2], [3, 1, 1, 1]] {
            let groups: usize = parameters.iter().product();
            let scale: Vec<f64> = (0..groups).map(|at| at as f64 / 2.0 + 1.0).collect();
            let bias = vec![0.5; groups];
            let statistics = Statistics::new(&x, &DIMS, &parameters);
            let known = [&statistics.mean[..], &statistics.inverse(1e-3)[..]];
            let [dx, dscale, dbias] = backward([&x, &dy], &DIMS, &parameters, known, &scale);
            let value = |x: &[f64], scale: &[f64], bias: &[f64]| {
                run(x, &parameters, scale, bias).iter().zip(&dy).map(|(y, dy)| y * dy).sum::<f64>()
            };
            let check = |name: &str, got: &[f64], base: &[f64], value: &dyn Fn(&[f64]) -> f64| {
                for at in 0..got.len() {
                    let shifted = |by: f64| {
                        let mut shifted = base.to_vec();
                        shifted[at] += by;
                        value(&shifted)
                    };
                    let wanted = (shifted(1e-4) - shifted(-1e-4)) / 2e-4;
                    assert!(
                        (got[at] - wanted).abs() < 1e-5,
                        "{name} {at} of {parameters:?}: {} {wanted}",
                        got[at]
                    );
                }
            };
            check("dx", &dx, &x, &|x| value(x, &scale, &bias));
            check("dscale", &dscale, &scale, &|scale| value(&x, scale, &bias));
            check("dbias", &dbias, &bias, &|bias| value(&x, &scale, bias));
        }
    }
}
