// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Pooling as an operation of graphs. Interpolation is not supported.

use super::super::pooling::{Mode, Pooling};
use super::super::{BAD_PARAM, NOT_SUPPORTED, Status};

/// Returns the pooling of a `cudnnResampleMode_t`, a `cudnnPaddingMode_t`, and the paddings after, paddings before,
/// steps and sizes of windows.
pub fn pooling(
    [mode, padding, count]: [i64; 3],
    propagates_nan: bool,
    sizes: [Vec<i64>; 4],
) -> Result<Pooling, Status> {
    let mode = match mode {
        0 | 1 => return Err(NOT_SUPPORTED),
        2 => Mode::AverageWithPadding,
        3 => Mode::Max,
        4 => Mode::Average,
        _ => return Err(BAD_PARAM),
    };
    if sizes.iter().any(|values| i64::try_from(values.len()) != Ok(count)) {
        return Err(BAD_PARAM);
    }
    let [after, before, strides, window] = sizes.map(|values| {
        values
            .into_iter()
            .map(|value| i32::try_from(value).map_err(|_| BAD_PARAM))
            .collect::<Result<Vec<_>, _>>()
    });
    let (after, before, strides, window) = (after?, before?, strides?, window?);
    let is_padded = before.iter().chain(&after).any(|pad| *pad != 0);
    // Zeros do not count for a maximum here, and a mean has nothing else.
    match (padding, mode) {
        (0, Mode::Max) if is_padded => return Err(NOT_SUPPORTED),
        (1, Mode::Average | Mode::AverageWithPadding) if is_padded => return Err(BAD_PARAM),
        (0 | 1, _) => {}
        (2, _) => return Err(NOT_SUPPORTED),
        _ => return Err(BAD_PARAM),
    }
    Pooling::new(mode, propagates_nan, &window, &before, &strides)?.padded_after(&after)
}
