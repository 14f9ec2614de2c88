// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The sizes of a convolution.

use crate::cudnn::{BAD_PARAM, NOT_SUPPORTED, Status};

/// Spatial dimensions that are computed with; those that a tensor lacks have the size 1.
const SPATIAL: usize = 3;

/// The movement of a filter over the input: padding, stride and dilation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Pads before the first and after the last element of each spatial dimension.
    pub pads: [Vec<usize>; 2],
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    /// `CUDNN_CONVOLUTION`: the filter is reversed.
    pub is_reversed: bool,
}

impl Parameters {
    /// Parameters, checked.
    pub fn new(
        pads: [&[i64]; 2],
        strides: &[i64],
        dilations: &[i64],
        is_reversed: bool,
    ) -> Result<Self, Status> {
        let rank = strides.len();
        if rank == 0 || pads.iter().any(|pads| pads.len() != rank) || dilations.len() != rank {
            return Err(BAD_PARAM);
        }
        // Sizes of tensors are below this, too, so that sums and products of two do not overflow.
        let sizes = |values: &[i64], least: i64| -> Result<Vec<usize>, Status> {
            let values = values.iter().map(|value| {
                usize::try_from(*value).ok().filter(|_| (least..=i64::from(i32::MAX)).contains(value))
            });
            values.collect::<Option<Vec<_>>>().ok_or(BAD_PARAM)
        };
        Ok(Self {
            pads: [sizes(pads[0], 0)?, sizes(pads[1], 0)?],
            strides: sizes(strides, 1)?,
            dilations: sizes(dilations, 1)?,
            is_reversed,
        })
    }

    /// Number of spatial dimensions.
    pub fn rank(&self) -> usize {
        self.strides.len()
    }

    /// The dimensions of the output of these of the input and the filter.
    pub fn output(&self, input: &[usize], filter: &[usize], groups: usize) -> Result<Vec<usize>, Status> {
        if input.len() != self.rank() + 2 || filter.len() != self.rank() + 2 {
            return Err(BAD_PARAM);
        }
        let fits = filter[1].checked_mul(groups) == Some(input[1]);
        if groups == 0 || !fits || !filter[0].is_multiple_of(groups) {
            return Err(BAD_PARAM);
        }
        let mut output = vec![input[0], filter[0]];
        for dim in 0..self.rank() {
            let reach = (filter[dim + 2] - 1).checked_mul(self.dilations[dim]).ok_or(BAD_PARAM)?;
            let padded = input[dim + 2].checked_add(self.pads[0][dim] + self.pads[1][dim]);
            let room =
                padded.and_then(|padded| padded.checked_sub(reach.checked_add(1)?)).ok_or(BAD_PARAM)?;
            output.push(room / self.strides[dim] + 1);
        }
        Ok(output)
    }
}

/// Sizes of a convolution, in a group.
///
/// # Invariants
/// `outputs` follow from `inputs`, `taps` and the parameters, and all products of sizes that make a tensor fit `usize`.
#[derive(Clone, Debug)]
pub struct Geometry {
    pub batch: usize,
    pub groups: usize,
    /// Channels of the input in a group.
    pub channels: usize,
    /// Channels of the output in a group.
    pub features: usize,
    pub inputs: [usize; SPATIAL],
    pub taps: [usize; SPATIAL],
    pub outputs: [usize; SPATIAL],
    pads: [usize; SPATIAL],
    strides: [usize; SPATIAL],
    dilations: [usize; SPATIAL],
    is_reversed: bool,
}

/// Spatial sizes, with `filler` in front where there are fewer.
fn spatial(values: &[usize], filler: usize) -> [usize; SPATIAL] {
    let mut all = [filler; SPATIAL];
    all[SPATIAL - values.len()..].copy_from_slice(values);
    all
}

impl Geometry {
    /// The sizes of a convolution of these tensors. The groups follow from the channels.
    pub fn new(
        parameters: &Parameters,
        input: &[usize],
        filter: &[usize],
        output: &[usize],
    ) -> Result<Self, Status> {
        if parameters.rank() > SPATIAL {
            return Err(NOT_SUPPORTED);
        }
        let &[batch, channels, ..] = input else { return Err(BAD_PARAM) };
        let &[features, per_group, ..] = filter else { return Err(BAD_PARAM) };
        if per_group == 0 {
            return Err(BAD_PARAM);
        }
        let groups = channels / per_group;
        if parameters.output(input, filter, groups)? != output {
            return Err(BAD_PARAM);
        }
        Ok(Self {
            batch,
            groups,
            channels: per_group,
            features: features / groups,
            inputs: spatial(&input[2..], 1),
            taps: spatial(&filter[2..], 1),
            outputs: spatial(&output[2..], 1),
            pads: spatial(&parameters.pads[0], 0),
            strides: spatial(&parameters.strides, 1),
            dilations: spatial(&parameters.dilations, 1),
            is_reversed: parameters.is_reversed,
        })
    }

    /// The place in a channel of the input of each tap of the filter, for some places of a channel of the output. `None` lies
    /// in the padding. The taps are the rows.
    pub fn places(&self, outputs: std::ops::Range<usize>) -> Vec<Option<usize>> {
        let mut places = Vec::with_capacity(outputs.len() * self.taps.iter().product::<usize>());
        for tap in 0..self.taps.iter().product() {
            let mut tap = split(tap, self.taps);
            if self.is_reversed {
                (0..SPATIAL).for_each(|dim| tap[dim] = self.taps[dim] - 1 - tap[dim]);
            }
            places.extend(outputs.clone().map(|output| {
                let output = split(output, self.outputs);
                (0..SPATIAL).try_fold(0, |place, dim| {
                    let at = output[dim] * self.strides[dim] + tap[dim] * self.dilations[dim];
                    let at = at.checked_sub(self.pads[dim]).filter(|at| *at < self.inputs[dim])?;
                    Some(place * self.inputs[dim] + at)
                })
            }));
        }
        places
    }
}

/// The coordinates of a place.
fn split(mut place: usize, sizes: [usize; SPATIAL]) -> [usize; SPATIAL] {
    let mut at = [0; SPATIAL];
    for dim in (0..SPATIAL).rev() {
        (at[dim], place) = (place % sizes[dim], place / sizes[dim]);
    }
    at
}
