// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Pooling as an operation of graphs. Interpolation is not supported.

use super::super::pooling::{Mode, Pooling};
use super::super::{BAD_PARAM, NOT_SUPPORTED, Status};
use super::descriptor::Attributes;

/// The pooling of a descriptor's attributes.
pub fn pooling(attributes: &Attributes) -> Result<Pooling, Status> {
    // `cudnnResampleMode_t`
    let mode = match attributes.integer(1700)? {
        0 | 1 => return Err(NOT_SUPPORTED),
        2 => Mode::AverageWithPadding,
        3 => Mode::Max,
        4 => Mode::Average,
        _ => return Err(BAD_PARAM),
    };
    let [after, before, strides, window] = [1703, 1704, 1705, 1706].map(|name| {
        let values = attributes.wholes(name)?;
        values
            .into_iter()
            .map(|value| i32::try_from(value).map_err(|_| BAD_PARAM))
            .collect::<Result<Vec<_>, _>>()
    });
    let (after, before, strides, window) = (after?, before?, strides?, window?);
    let count = usize::try_from(attributes.integer(1702)?).map_err(|_| BAD_PARAM)?;
    if [&after, &before, &strides, &window].iter().any(|values| values.len() != count) {
        return Err(BAD_PARAM);
    }
    let is_padded = before.iter().chain(&after).any(|pad| *pad != 0);
    // `cudnnPaddingMode_t`: zeros do not count for a maximum here, and a mean has nothing else.
    match (attributes.integer_or(1708, 0)?, mode) {
        (0, Mode::Max) if is_padded => return Err(NOT_SUPPORTED),
        (1, Mode::Average | Mode::AverageWithPadding) if is_padded => return Err(BAD_PARAM),
        (0 | 1, _) => {}
        (2, _) => return Err(NOT_SUPPORTED),
        _ => return Err(BAD_PARAM),
    }
    let propagates_nan = attributes.integer_or(1707, 1)? != 0;
    Pooling::new(mode, propagates_nan, &window, &before, &strides)?.padded_after(&after)
}
