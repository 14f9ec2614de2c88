// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Pooling. Tensors are packed, in the order of their dimensions.

use super::{BAD_PARAM, Status};

/// The operation that reduces the elements under the window to one (`cudnnPoolingMode_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Max,
    /// The divisor is the size of the window.
    AverageWithPadding,
    /// The divisor is the number of elements that are not padding.
    Average,
}

/// A pooling descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pooling {
    pub mode: Mode,
    pub propagates_nan: bool,
    pub window: Vec<usize>,
    /// Before the first elements.
    pub pads: Vec<usize>,
    /// After the last ones.
    after: Vec<usize>,
    pub strides: Vec<usize>,
}

impl Mode {
    /// The mode of that number.
    pub fn new(number: i32) -> Result<Self, Status> {
        match number {
            0 | 3 => Ok(Self::Max),
            1 => Ok(Self::AverageWithPadding),
            2 => Ok(Self::Average),
            _ => Err(BAD_PARAM),
        }
    }
}

fn sizes(values: &[i32], least: i32) -> Result<Vec<usize>, Status> {
    let values = values.iter().map(|value| usize::try_from(*value).ok().filter(|_| *value >= least));
    values.collect::<Option<Vec<_>>>().ok_or(BAD_PARAM)
}

/// Paddings, of which a window of padding alone would have no result.
fn checked_pads(pads: &[i32], window: &[usize]) -> Result<Vec<usize>, Status> {
    let pads = sizes(pads, 0)?;
    if pads.iter().zip(window).any(|(pad, window)| pad >= window) { Err(BAD_PARAM) } else { Ok(pads) }
}

impl Pooling {
    /// A descriptor, checked.
    pub fn new(
        mode: Mode,
        propagates_nan: bool,
        window: &[i32],
        pads: &[i32],
        strides: &[i32],
    ) -> Result<Self, Status> {
        let (window, strides) = (sizes(window, 1)?, sizes(strides, 1)?);
        let pads = checked_pads(pads, &window)?;
        let after = pads.clone();
        Ok(Self { mode, propagates_nan, window, pads, after, strides })
    }

    /// As before, with another padding after the last elements.
    pub fn padded_after(mut self, pads: &[i32]) -> Result<Self, Status> {
        self.after = checked_pads(pads, &self.window)?;
        Ok(self)
    }

    /// The dimensions of the output.
    pub fn output(&self, input: &[usize]) -> Result<Vec<usize>, Status> {
        if input.len() != self.window.len() + 2 {
            return Err(BAD_PARAM);
        }
        let mut output = input[..2].to_vec();
        for (dim, size) in input[2..].iter().enumerate() {
            let padded = size.checked_add(self.pads[dim] + self.after[dim]).ok_or(BAD_PARAM)?;
            output.push(padded.checked_sub(self.window[dim]).ok_or(BAD_PARAM)? / self.strides[dim] + 1);
        }
        Ok(output)
    }

    /// Calls `body` for each element of the output with its place and the places of the elements under the window.
    fn windows(&self, input: &[usize], mut body: impl FnMut(usize, &[usize])) -> Result<(), Status> {
        let output = self.output(input)?;
        let (inputs, outputs) = (&input[2..], &output[2..]);
        let (size, count) = (inputs.iter().product::<usize>(), outputs.iter().product::<usize>());
        let mut under: Vec<usize> = Vec::new();
        let mut shifted = Vec::new();
        for place in 0..count {
            under.clear();
            under.push(0);
            let mut rest = place;
            // From the last dimension to the first, so that the first varies slowest in the end.
            let mut ranges = Vec::with_capacity(outputs.len());
            for dim in (0..outputs.len()).rev() {
                let start = rest % outputs[dim] * self.strides[dim];
                rest /= outputs[dim];
                let end = (start + self.window[dim]).saturating_sub(self.pads[dim]).min(inputs[dim]);
                ranges.push(start.saturating_sub(self.pads[dim])..end);
            }
            for (dim, range) in ranges.into_iter().rev().enumerate() {
                under = under
                    .iter()
                    .flat_map(|before| range.clone().map(move |at| before * inputs[dim] + at))
                    .collect();
            }
            for channel in 0..input[0] * input[1] {
                shifted.clear();
                shifted.extend(under.iter().map(|at| channel * size + at));
                body(channel * count + place, &shifted);
            }
        }
        Ok(())
    }

    fn divisor(&self, under: usize) -> f64 {
        match self.mode {
            Mode::AverageWithPadding => self.window.iter().map(|size| *size as f64).product(),
            _ => under as f64,
        }
    }

    /// The place of the largest element.
    fn largest(&self, x: &[f64], under: &[usize]) -> Option<usize> {
        let mut best: Option<usize> = None;
        for &at in under {
            let is_better = match best {
                None => true,
                Some(best) if x[at].is_nan() => self.propagates_nan && !x[best].is_nan(),
                Some(best) if x[best].is_nan() => !self.propagates_nan,
                Some(best) => x[at] > x[best],
            };
            if is_better {
                best = Some(at);
            }
        }
        best
    }

    /// The output.
    pub fn forward(&self, x: &[f64], input: &[usize]) -> Result<Vec<f64>, Status> {
        let mut y = vec![0.0; self.output(input)?.iter().product()];
        self.windows(input, |place, under| {
            y[place] = match self.mode {
                Mode::Max => self.largest(x, under).map_or(f64::NEG_INFINITY, |at| x[at]),
                _ => under.iter().map(|at| x[*at]).sum::<f64>() / self.divisor(under.len()),
            };
        })?;
        Ok(y)
    }

    /// The gradient of the input, which only maxima need.
    pub fn backward(&self, x: &[f64], dy: &[f64], input: &[usize]) -> Result<Vec<f64>, Status> {
        let mut dx = vec![0.0; input.iter().product()];
        self.windows(input, |place, under| match self.mode {
            Mode::Max => {
                if let Some(at) = self.largest(x, under) {
                    dx[at] += dy[place];
                }
            }
            _ => under.iter().for_each(|at| dx[*at] += dy[place] / self.divisor(under.len())),
        })?;
        Ok(dx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_those_of_loops() {
        let (rows, columns) = (7_i64, 6_i64);
        let x: Vec<f64> = (0..2 * 3 * rows * columns).map(|at| ((at * 37) % 101) as f64).collect();
        let input = [2, 3, 7, 6];
        for mode in [Mode::Max, Mode::AverageWithPadding, Mode::Average] {
            let pooling = Pooling::new(mode, false, &[3, 2], &[1, 1], &[2, 3]).expect("valid");
            let output = pooling.output(&input).expect("fits");
            let y = pooling.forward(&x, &input).expect("fits");
            let mut at = 0;
            for channel in 0..6 {
                for row in 0..output[2] as i64 {
                    for column in 0..output[3] as i64 {
                        let mut found = vec![];
                        for (i, j) in (0..3).flat_map(|i| (0..2).map(move |j| (i, j))) {
                            let (i, j) = (row * 2 - 1 + i, column * 3 - 1 + j);
                            if (0..rows).contains(&i) && (0..columns).contains(&j) {
                                found.push(x[(channel * rows * columns + i * columns + j) as usize]);
                            }
                        }
                        let wanted = match mode {
                            Mode::Max => found.iter().copied().fold(f64::MIN, f64::max),
                            Mode::AverageWithPadding => found.iter().sum::<f64>() / 6.0,
                            Mode::Average => found.iter().sum::<f64>() / found.len() as f64,
                        };
                        assert_eq!(y[at], wanted, "{mode:?} {channel} {row} {column}");
                        at += 1;
                    }
                }
            }
            // Finite differences: all elements of a window differ by at least one.
            let dy: Vec<f64> = (0..y.len()).map(|at| (at % 5) as f64 - 2.0).collect();
            let dx = pooling.backward(&x, &dy, &input).expect("fits");
            for at in (0..x.len()).step_by(11) {
                let shifted = |by: f64| {
                    let mut x = x.clone();
                    x[at] += by;
                    let y = pooling.forward(&x, &input).expect("fits");
                    y.iter().zip(&dy).map(|(y, dy)| y * dy).sum::<f64>()
                };
                assert!((dx[at] - (shifted(0.25) - shifted(-0.25)) / 0.5).abs() < 1e-9, "{mode:?} {at}");
            }
        }
    }

    #[test]
    fn nan_wins_only_if_it_is_propagated() {
        for (propagates, wanted) in [(true, true), (false, false)] {
            let pooling = Pooling::new(Mode::Max, propagates, &[3], &[0], &[1]).expect("valid");
            let y = pooling.forward(&[1.0, f64::NAN, 2.0], &[1, 1, 3]).expect("fits");
            assert_eq!(y[0].is_nan(), wanted);
        }
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let new = |window, pad, stride| Pooling::new(Mode::Max, false, &[window], &[pad], &[stride]);
        assert!(
            new(0, 0, 1).is_err() && new(2, -1, 1).is_err() && new(2, 0, 0).is_err() && new(2, 2, 1).is_err()
        );
        let pooling = new(3, 0, 1).expect("valid");
        assert!(pooling.output(&[1, 1, 2]).is_err() && pooling.output(&[1, 1, 2, 2]).is_err());
    }
}
