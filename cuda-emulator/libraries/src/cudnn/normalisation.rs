// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Normalisation over groups of elements. Tensors are packed, in the order of their dimensions.

use super::layout::{places, spread};

/// The sizes of a normalisation. Statistics and parameters have dimensions of 1 where elements share them: for the batch
/// normalisation of images both are `1, C, 1, 1`; for layer normalisation statistics are `N, 1, 1, 1` and parameters
/// `1, C, H, W`.
#[derive(Clone, Debug)]
pub struct Shape {
    pub dims: Vec<usize>,
    pub groups: Vec<usize>,
    pub parameters: Vec<usize>,
    /// The mean is subtracted. Otherwise the mean square takes the variance's place.
    pub is_centred: bool,
}

impl Shape {
    /// Statistics and parameters have the same sizes.
    pub fn of_batch(dims: &[usize], parameters: &[usize]) -> Self {
        let parameters = parameters.to_vec();
        Self { dims: dims.to_vec(), groups: parameters.clone(), parameters, is_centred: true }
    }

    /// Sums a value of each element over the elements of the same place in a tensor of `to`.
    fn sums(&self, to: &[usize], value: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; to.iter().product()];
        places(to, &self.dims).enumerate().for_each(|(at, place)| sums[place] += value(at));
        sums
    }

    /// The mean of each group, spread over all elements.
    fn means(&self, value: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut means = self.sums(&self.groups, value);
        means.iter_mut().for_each(|sum| *sum /= self.count());
        spread(&means, &self.groups, &self.dims)
    }

    /// Elements of a group.
    fn count(&self) -> f64 {
        self.dims.iter().product::<usize>() as f64 / self.groups.iter().product::<usize>() as f64
    }

    /// Elements less their mean, divided by their standard deviation.
    fn normalised(&self, x: &[f64], [mean, inverse]: [&[f64]; 2]) -> Vec<f64> {
        x.iter().zip(places(&self.groups, &self.dims)).map(|(x, at)| (x - mean[at]) * inverse[at]).collect()
    }
}

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
    pub fn new(x: &[f64], shape: &Shape) -> Self {
        let count = shape.count();
        let average = |mut sums: Vec<f64>| {
            sums.iter_mut().for_each(|sum| *sum /= count);
            sums
        };
        let mean = average(shape.sums(&shape.groups, |at| if shape.is_centred { x[at] } else { 0.0 }));
        let spread = spread(&mean, &shape.groups, &shape.dims);
        let variance = average(shape.sums(&shape.groups, |at| (x[at] - spread[at]).powi(2)));
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
pub fn forward(x: &[f64], shape: &Shape, statistics: [&[f64]; 2], [scale, bias]: [&[f64]; 2]) -> Vec<f64> {
    let mut y = shape.normalised(x, statistics);
    let parameters = places(&shape.parameters, &shape.dims);
    y.iter_mut().zip(parameters).for_each(|(y, at)| *y = *y * scale[at] + bias[at]);
    y
}

/// The gradients of input, scale and bias.
pub fn backward(
    [x, dy]: [&[f64]; 2],
    shape: &Shape,
    statistics: [&[f64]; 2],
    scale: &[f64],
) -> [Vec<f64>; 3] {
    let normalised = shape.normalised(x, statistics);
    let dscale = shape.sums(&shape.parameters, |at| dy[at] * normalised[at]);
    let dbias = shape.sums(&shape.parameters, |at| dy[at]);
    let mut dx = spread(scale, &shape.parameters, &shape.dims);
    dx.iter_mut().zip(dy).for_each(|(scale, dy)| *scale *= dy);
    // Mean and variance depend on each element of the group.
    let along = shape.means(|at| dx[at] * normalised[at]);
    let shift = if shape.is_centred { shape.means(|at| dx[at]) } else { vec![0.0; x.len()] };
    for ((at, group), dx) in places(&shape.groups, &shape.dims).enumerate().zip(&mut dx) {
        *dx = (*dx - shift[at] - normalised[at] * along[at]) * statistics[1][group];
    }
    [dx, dscale, dbias]
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIMS: [usize; 4] = [3, 2, 2, 2];

    fn run(x: &[f64], shape: &Shape, scale: &[f64], bias: &[f64]) -> Vec<f64> {
        let statistics = Statistics::new(x, shape);
        forward(x, shape, [&statistics.mean, &statistics.inverse(1e-3)], [scale, bias])
    }

    #[test]
    fn channels_are_normalised() {
        let x: Vec<f64> = (0..24).map(|at| f64::from(at * 7 % 13)).collect();
        let shape = Shape::of_batch(&DIMS, &[1, 2, 1, 1]);
        let y = run(&x, &shape, &[2.0, 3.0], &[1.0, -1.0]);
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
            let unbiased = Statistics::new(&x, &shape).unbiased()[channel];
            assert!((unbiased - variance * 12.0 / 11.0).abs() < 1e-12);
        }
    }

    #[test]
    fn gradients_are_those_of_differences() {
        let x: Vec<f64> = (0..24).map(|at| f64::from(at * 7 % 13)).collect();
        let dy: Vec<f64> = (0..24).map(|at| f64::from(at * 5 % 7) - 3.0).collect();
        // Batch, per-activation, instance, layer and RMS normalisation.
        for (groups, parameters, is_centred) in [
            ([1, 2, 1, 1], [1, 2, 1, 1], true),
            ([1, 2, 2, 2], [1, 2, 2, 2], true),
            ([3, 2, 1, 1], [1, 2, 1, 1], true),
            ([3, 1, 1, 1], [1, 2, 2, 2], true),
            ([3, 1, 1, 1], [1, 2, 2, 2], false),
        ] {
            let (groups, parameters) = (groups.to_vec(), parameters.to_vec());
            let count: usize = parameters.iter().product();
            let shape = Shape { dims: DIMS.to_vec(), groups, parameters, is_centred };
            let scale: Vec<f64> = (0..count).map(|at| at as f64 / 2.0 + 1.0).collect();
            let bias = vec![0.5; count];
            let statistics = Statistics::new(&x, &shape);
            let known = [&statistics.mean[..], &statistics.inverse(1e-3)[..]];
            let [dx, dscale, dbias] = backward([&x, &dy], &shape, known, &scale);
            let value = |x: &[f64], scale: &[f64], bias: &[f64]| {
                run(x, &shape, scale, bias).iter().zip(&dy).map(|(y, dy)| y * dy).sum::<f64>()
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
                        "{name} {at} of {shape:?}: {} {wanted}",
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
