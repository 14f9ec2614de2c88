// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Descriptors of convolutions.

use std::ffi::c_int;

use super::super::convolution::Parameters;
use super::super::layout::{Layout, data_type};
use super::super::{BAD_PARAM, MAX_RANK, NOT_SUPPORTED, SUCCESS, Status, give, rank, status, taken};
use super::described;
use super::filter::Filter;
use super::tensor::give_all;
use crate::exported::exported;
use crate::handles::{self, Handle};

/// A `cudnnConvolutionDescriptor_t`.
#[derive(Clone, Debug)]
pub struct Convolution {
    parameters: Option<Parameters>,
    pub groups: usize,
    compute_type: c_int,
    math_type: c_int,
    reorder_type: c_int,
}

impl Convolution {
    /// The parameters, once they are set.
    pub fn parameters(&self) -> Result<&Parameters, Status> {
        self.parameters.as_ref().ok_or(BAD_PARAM)
    }
}

/// The convolution of a descriptor.
pub fn convolution(handle: Handle) -> Result<Convolution, Status> {
    with(handle, |convolution| convolution.clone())
}

fn with<R>(handle: Handle, body: impl FnOnce(&mut Convolution) -> R) -> Result<R, Status> {
    handles::with(handle, body).ok_or(BAD_PARAM)
}

/// Creates a descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCreateConvolutionDescriptor(place: *mut Handle) -> Status {
    if place.is_null() {
        return BAD_PARAM;
    }
    let made = Convolution { parameters: None, groups: 1, compute_type: 0, math_type: 0, reorder_type: 0 };
    // SAFETY: the caller gives a place for a handle.
    status(unsafe { give(place, handles::make(made)) })
}

/// Ends a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnDestroyConvolutionDescriptor(convolution: Handle) -> Status {
    if handles::end::<Convolution>(convolution) { SUCCESS } else { BAD_PARAM }
}

exported! {
    /// Sets a property of a convolution.
    pub extern "C" fn(limits, set) [
        cudnnSetConvolutionMathType(0..=3, |convolution: &mut Convolution, value| convolution.math_type = value),
        cudnnSetConvolutionGroupCount(1..=c_int::MAX, |convolution: &mut Convolution, value| convolution.groups = value as usize),
        cudnnSetConvolutionReorderType(0..=1, |convolution: &mut Convolution, value| convolution.reorder_type = value),
    ]
    (convolution: Handle, value: c_int) -> Status {
        if !limits.contains(&value) {
            return BAD_PARAM;
        }
        status(with(convolution, |convolution| set(convolution, value)))
    }

    /// Returns a property of a convolution.
    pub unsafe extern "C" fn(get) [
        cudnnGetConvolutionMathType(|convolution: &mut Convolution| convolution.math_type),
        cudnnGetConvolutionGroupCount(|convolution: &mut Convolution| convolution.groups as c_int),
        cudnnGetConvolutionReorderType(|convolution: &mut Convolution| convolution.reorder_type),
    ]
    (convolution: Handle, place: *mut c_int) -> Status {
        // SAFETY: the caller gives a place for a number, or null.
        status(with(convolution, get).and_then(|found| unsafe { give(place, found) }))
    }
}

fn set(
    handle: Handle,
    [pads, strides, dilations]: [&[c_int]; 3],
    mode: c_int,
    compute_type: c_int,
) -> Result<(), Status> {
    let [pads, strides, dilations] = [pads, strides, dilations]
        .map(|values| values.iter().map(|value| i64::from(*value)).collect::<Vec<_>>());
    let is_reversed = match mode {
        0 => true,
        1 => false,
        _ => return Err(BAD_PARAM),
    };
    data_type(compute_type)?;
    let parameters = Parameters::new([&pads, &pads], &strides, &dilations, is_reversed)?;
    with(handle, |convolution| {
        (convolution.parameters, convolution.compute_type) = (Some(parameters), compute_type);
    })
}

/// Describes a convolution of images.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetConvolution2dDescriptor(
    convolution: Handle,
    pad_h: c_int,
    pad_w: c_int,
    stride_h: c_int,
    stride_w: c_int,
    dilation_h: c_int,
    dilation_w: c_int,
    mode: c_int,
    compute_type: c_int,
) -> Status {
    let values: [&[c_int]; 3] = [&[pad_h, pad_w], &[stride_h, stride_w], &[dilation_h, dilation_w]];
    status(set(convolution, values, mode, compute_type))
}

/// Describes a convolution.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetConvolutionNdDescriptor(
    convolution: Handle,
    count: c_int,
    pads: *const c_int,
    strides: *const c_int,
    dilations: *const c_int,
    mode: c_int,
    compute_type: c_int,
) -> Status {
    let answer = rank(count, 1, MAX_RANK - 2).map_err(|_| NOT_SUPPORTED).and_then(|count| {
        // SAFETY: the caller gives as many numbers, or null.
        let values = unsafe { [taken(pads, count)?, taken(strides, count)?, taken(dilations, count)?] };
        set(convolution, [&values[0], &values[1], &values[2]], mode, compute_type)
    });
    status(answer)
}

/// `cudnnConvolutionMode_t`
fn mode_of(parameters: &Parameters) -> c_int {
    c_int::from(!parameters.is_reversed)
}

/// Returns the description of a convolution of images.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetConvolution2dDescriptor(
    handle: Handle,
    pad_h: *mut c_int,
    pad_w: *mut c_int,
    stride_h: *mut c_int,
    stride_w: *mut c_int,
    dilation_h: *mut c_int,
    dilation_w: *mut c_int,
    mode: *mut c_int,
    compute_type: *mut c_int,
) -> Status {
    let answer = convolution(handle).and_then(|found| {
        let parameters = found.parameters()?;
        if parameters.rank() != 2 {
            return Err(BAD_PARAM);
        }
        let values = parameters.pads[0].iter().chain(&parameters.strides).chain(&parameters.dilations);
        let places = [pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w];
        for (place, value) in places.into_iter().zip(values) {
            // SAFETY: the caller gives places for numbers, or null.
            unsafe { give(place, *value as c_int)? };
        }
        // SAFETY: the caller gives places for numbers, or null.
        unsafe {
            give(mode, mode_of(parameters))?;
            give(compute_type, found.compute_type)
        }
    });
    status(answer)
}

/// Returns the description of a convolution, as many dimensions as the caller has room for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetConvolutionNdDescriptor(
    handle: Handle,
    room: c_int,
    count: *mut c_int,
    pads: *mut c_int,
    strides: *mut c_int,
    dilations: *mut c_int,
    mode: *mut c_int,
    compute_type: *mut c_int,
) -> Status {
    let answer = convolution(handle).and_then(|found| {
        let parameters = found.parameters()?;
        let room = rank(room, 0, c_int::MAX as usize)?;
        let all =
            [(pads, &parameters.pads[0]), (strides, &parameters.strides), (dilations, &parameters.dilations)];
        for (place, values) in all {
            // SAFETY: the caller gives room for as many numbers, or null.
            unsafe { give_all(place, values.iter().take(room).map(|value| *value as c_int))? };
        }
        // SAFETY: the caller gives places for numbers, or null.
        unsafe {
            give(count, parameters.rank() as c_int)?;
            give(mode, mode_of(parameters))?;
            give(compute_type, found.compute_type)
        }
    });
    status(answer)
}

fn output(handle: Handle, input: Handle, filter: Handle) -> Result<Vec<c_int>, Status> {
    let found = convolution(handle)?;
    let (input, filter) = (described::<Layout>(input)?, described::<Filter>(filter)?.layout);
    let dims = found.parameters()?.output(&input.dims, &filter.dims, found.groups)?;
    dims.into_iter().map(|dim| c_int::try_from(dim).map_err(|_| NOT_SUPPORTED)).collect()
}

/// The dimensions of the output of a convolution of images.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetConvolution2dForwardOutputDim(
    convolution: Handle,
    input: Handle,
    filter: Handle,
    n: *mut c_int,
    c: *mut c_int,
    h: *mut c_int,
    w: *mut c_int,
) -> Status {
    let answer = output(convolution, input, filter).and_then(|dims| {
        let [_, _, _, _] = dims[..] else { return Err(BAD_PARAM) };
        // SAFETY: the caller gives places for numbers, or null.
        [n, c, h, w].into_iter().zip(dims).try_for_each(|(place, dim)| unsafe { give(place, dim) })
    });
    status(answer)
}

/// The dimensions of the output of a convolution.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetConvolutionNdForwardOutputDim(
    convolution: Handle,
    input: Handle,
    filter: Handle,
    count: c_int,
    dims: *mut c_int,
) -> Status {
    let answer = output(convolution, input, filter).and_then(|found| {
        if usize::try_from(count) != Ok(found.len()) {
            return Err(BAD_PARAM);
        }
        // SAFETY: the caller gives room for as many numbers, or null.
        unsafe { give_all(dims, found.into_iter()) }
    });
    status(answer)
}
