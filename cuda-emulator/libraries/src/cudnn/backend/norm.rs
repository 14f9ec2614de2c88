// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Normalisations of graphs. Tensors that are absent are empty rows.

use super::super::normalisation::{Shape, Statistics, backward, forward};
use super::super::{BAD_PARAM, NOT_SUPPORTED, Status};

/// The sizes of a normalisation of this kind (`cudnnBackendNormMode_t`), of its input and of its scale.
pub fn shape(mode: i64, dims: &[usize], parameters: &[usize]) -> Result<Shape, Status> {
    if dims.len() != parameters.len() || dims.len() < 2 {
        return Err(BAD_PARAM);
    }
    // One element per channel of so many images.
    let channels = |images: usize| {
        let mut groups = vec![1; dims.len()];
        (groups[0], groups[1]) = (images, dims[1]);
        groups
    };
    let groups = match mode {
        // Layer and RMS normalisation: elements with a scale of their own are normalised together.
        0 | 4 => dims.iter().zip(parameters).map(|(dim, own)| if *own == 1 { *dim } else { 1 }).collect(),
        1 => channels(dims[0]),
        2 => channels(1),
        // For groups of channels, and adaptive.
        3 | 5 => return Err(NOT_SUPPORTED),
        _ => return Err(BAD_PARAM),
    };
    let fits = match mode {
        0 | 4 => parameters.iter().zip(dims).all(|(own, dim)| *own == 1 || own == dim),
        _ => *parameters == channels(1),
    };
    let (dims, parameters) = (dims.to_vec(), parameters.to_vec());
    if fits { Ok(Shape { dims, groups, parameters, is_centred: mode != 4 }) } else { Err(BAD_PARAM) }
}

fn one(values: &[f64]) -> f64 {
    values.first().copied().unwrap_or(0.0)
}

/// Mean and reciprocal deviation: those that are known, or of the input.
fn statistics(shape: &Shape, x: &[f64], [mean, inverse]: [&[f64]; 2], epsilon: &[f64]) -> [Vec<f64>; 2] {
    if inverse.is_empty() {
        let own = Statistics::new(x, shape);
        let inverse = own.inverse(one(epsilon));
        return [own.mean, inverse];
    }
    let mean = if mean.is_empty() { vec![0.0; inverse.len()] } else { mean.to_vec() };
    [mean, inverse.to_vec()]
}

/// Output, mean, reciprocal deviation, and the new running mean and variance; of input, scale, bias, epsilon, known mean and
/// reciprocal deviation, the factor of averages, and the old running mean and variance.
pub fn outputs(
    shape: &Shape,
    [x, scale, bias, epsilon, mean, inverse, factor, old_mean, old_variance]: [&[f64]; 9],
) -> Vec<Vec<f64>> {
    let [mean, inverse] = statistics(shape, x, [mean, inverse], epsilon);
    let zeros = vec![0.0; scale.len()];
    let bias = if bias.is_empty() { &zeros } else { bias };
    let y = forward(x, shape, [&mean, &inverse], [scale, bias]);
    let mut running = [const { Vec::new() }; 2];
    if !old_mean.is_empty() {
        let (own, factor) = (Statistics::new(x, shape), one(factor));
        let average = |old: &[f64], new: &[f64]| {
            old.iter().zip(new).map(|(old, new)| (1.0 - factor) * old + factor * new).collect()
        };
        running = [average(old_mean, &own.mean), average(old_variance, &own.unbiased())];
    }
    let [new_mean, new_variance] = running;
    vec![y, mean, inverse, new_mean, new_variance]
}

/// The gradients of input, scale and bias; of input, its output's gradient, scale, saved mean and reciprocal deviation, and
/// epsilon.
pub fn gradients(shape: &Shape, [x, dy, scale, mean, inverse, epsilon]: [&[f64]; 6]) -> Vec<Vec<f64>> {
    let [mean, inverse] = statistics(shape, x, [mean, inverse], epsilon);
    backward([x, dy], shape, [&mean, &inverse], scale).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_groups() {
        let of = |mode, dims: &[usize], parameters: &[usize]| {
            shape(mode, dims, parameters).map(|shape| shape.groups)
        };
        assert_eq!(of(0, &[6, 8, 1, 1], &[1, 8, 1, 1]), Ok(vec![6, 1, 1, 1]));
        assert_eq!(of(4, &[2, 3, 8], &[1, 1, 8]), Ok(vec![2, 3, 1]));
        assert_eq!(of(1, &[2, 3, 4, 4], &[1, 3, 1, 1]), Ok(vec![2, 3, 1, 1]));
        assert_eq!(of(2, &[2, 3, 4, 4], &[1, 3, 1, 1]), Ok(vec![1, 3, 1, 1]));
        assert_eq!(of(2, &[2, 3, 4, 4], &[1, 3, 4, 4]), Err(BAD_PARAM));
        assert_eq!(of(0, &[6, 8, 1, 1], &[1, 4, 1, 1]), Err(BAD_PARAM));
        assert_eq!(of(3, &[6, 8], &[1, 8]), Err(NOT_SUPPORTED));
        assert_eq!(of(9, &[6, 8], &[1, 8]), Err(BAD_PARAM));
        assert_eq!(of(0, &[8], &[8]), Err(BAD_PARAM));
    }

    #[test]
    fn training_updates_running_statistics() {
        let shape = shape(2, &[2, 2, 1, 2], &[1, 2, 1, 1]).expect("valid");
        let x = [1.0, 3.0, 0.0, 0.0, 5.0, 7.0, 2.0, 2.0];
        let none: &[f64] = &[];
        let found = outputs(
            &shape,
            [&x, &[2.0, 1.0], &[1.0, 0.0], &[1.0], none, none, &[0.25], &[8.0, 0.0], &[4.0, 1.0]],
        );
        // Channel 0 is 1, 3, 5, 7; channel 1 is 0, 0, 2, 2.
        assert_eq!(found[1], [4.0, 1.0]);
        assert_eq!(found[2], [1.0 / 6.0_f64.sqrt(), 1.0 / 2.0_f64.sqrt()]);
        assert_eq!(found[3], [7.0, 0.25]);
        assert!((found[4][0] - (3.0 + 5.0 / 3.0)).abs() < 1e-12);
        assert!((found[0][0] - (1.0 - 6.0 / 6.0_f64.sqrt())).abs() < 1e-12);
        // Inference uses the known statistics.
        let known =
            outputs(&shape, [&x, &[1.0, 1.0], none, none, &[1.0, 2.0], &[3.0, 4.0], none, none, none]);
        assert_eq!(known[0], [0.0, 6.0, -8.0, -8.0, 12.0, 18.0, 0.0, 0.0]);
    }

    #[test]
    fn gradients_need_no_saved_statistics() {
        for mode in [0, 4] {
            let shape = shape(mode, &[3, 4], &[1, 4]).expect("valid");
            let x: Vec<f64> = (0..12).map(|at| f64::from(at * 7 % 5) - 1.5).collect();
            let dy: Vec<f64> = (0..12).map(|at| f64::from(at * 5 % 7) - 3.0).collect();
            let (scale, none): ([f64; 4], &[f64]) = ([1.0, -2.0, 0.5, 3.0], &[]);
            let saved = outputs(&shape, [&x, &scale, none, &[0.1], none, none, none, none, none]);
            let by_saved = gradients(&shape, [&x, &dy, &scale, &saved[1], &saved[2], none]);
            assert_eq!(by_saved, gradients(&shape, [&x, &dy, &scale, none, none, &[0.1]]));
            let loss = |x: &[f64]| -> f64 {
                let y = outputs(&shape, [x, &scale, none, &[0.1], none, none, none, none, none]);
                y[0].iter().zip(&dy).map(|(y, dy)| y * dy).sum()
            };
            for at in 0..12 {
                let shifted = |by: f64| {
                    let mut x = x.clone();
                    x[at] += by;
                    loss(&x)
                };
                let difference = (shifted(1e-5) - shifted(-1e-5)) / 2e-5;
                assert!((by_saved[0][at] - difference).abs() < 1e-7, "{mode} {at}");
            }
        }
    }
}
