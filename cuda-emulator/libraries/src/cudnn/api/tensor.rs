// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Descriptors of tensors.

use std::ffi::c_int;

use super::super::layout::{Layout, data_type, number_of};
use super::super::{BAD_PARAM, MAX_RANK, NOT_SUPPORTED, Status, give, rank, status, taken};
use super::{create, described, destroy, set};
use crate::handles::Handle;

/// Creates a descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCreateTensorDescriptor(place: *mut Handle) -> Status {
    // SAFETY: the caller gives a place for a handle, or null.
    unsafe { create::<Layout>(place) }
}

/// Ends a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnDestroyTensorDescriptor(descriptor: Handle) -> Status {
    destroy::<Layout>(descriptor)
}

/// Returns whether channels are adjacent (`cudnnTensorFormat_t`).
pub fn channels_last(format: c_int) -> Result<bool, Status> {
    match format {
        0 => Ok(false),
        1 => Ok(true),
        2 => Err(NOT_SUPPORTED),
        _ => Err(BAD_PARAM),
    }
}

/// A packed layout.
pub fn packed(format: c_int, kind: c_int, dims: &[c_int]) -> Result<Layout, Status> {
    let dims: Vec<i64> = dims.iter().map(|dim| i64::from(*dim)).collect();
    Layout::packed(data_type(kind)?, &dims, channels_last(format)?)
}

fn strided(kind: c_int, dims: &[c_int], strides: &[c_int]) -> Result<Layout, Status> {
    let wide = |values: &[c_int]| values.iter().map(|value| i64::from(*value)).collect::<Vec<_>>();
    Layout::new(data_type(kind)?, &wide(dims), &wide(strides))
}

/// Describes a packed tensor of four dimensions.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetTensor4dDescriptor(
    tensor: Handle,
    format: c_int,
    kind: c_int,
    n: c_int,
    c: c_int,
    h: c_int,
    w: c_int,
) -> Status {
    status(set(tensor, packed(format, kind, &[n, c, h, w])))
}

/// Describes a tensor of four dimensions.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetTensor4dDescriptorEx(
    tensor: Handle,
    kind: c_int,
    n: c_int,
    c: c_int,
    h: c_int,
    w: c_int,
    n_stride: c_int,
    c_stride: c_int,
    h_stride: c_int,
    w_stride: c_int,
) -> Status {
    status(set(tensor, strided(kind, &[n, c, h, w], &[n_stride, c_stride, h_stride, w_stride])))
}

/// Returns the description of a tensor of four dimensions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetTensor4dDescriptor(
    tensor: Handle,
    kind: *mut c_int,
    n: *mut c_int,
    c: *mut c_int,
    h: *mut c_int,
    w: *mut c_int,
    n_stride: *mut c_int,
    c_stride: *mut c_int,
    h_stride: *mut c_int,
    w_stride: *mut c_int,
) -> Status {
    let answer = described::<Layout>(tensor).and_then(|layout| {
        let ([_, _, _, _], [_, _, _, _]) = (&layout.dims[..], &layout.strides[..]) else {
            return Err(BAD_PARAM);
        };
        let values = layout.dims.iter().chain(&layout.strides);
        for (place, value) in [n, c, h, w, n_stride, c_stride, h_stride, w_stride].into_iter().zip(values) {
            // SAFETY: the caller gives places for numbers, or null.
            unsafe { give(place, *value as c_int)? };
        }
        // SAFETY: the caller gives a place for a number, or null.
        unsafe { give(kind, number_of(layout.kind)) }
    });
    status(answer)
}

/// Describes a tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetTensorNdDescriptor(
    tensor: Handle,
    kind: c_int,
    count: c_int,
    dims: *const c_int,
    strides: *const c_int,
) -> Status {
    let layout = rank(count, 1, MAX_RANK).map_err(|_| NOT_SUPPORTED).and_then(|count| {
        // SAFETY: the caller gives as many numbers, or null.
        let (dims, strides) = unsafe { (taken(dims, count)?, taken(strides, count)?) };
        strided(kind, &dims, &strides)
    });
    status(set(tensor, layout))
}

/// Describes a packed tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetTensorNdDescriptorEx(
    tensor: Handle,
    format: c_int,
    kind: c_int,
    count: c_int,
    dims: *const c_int,
) -> Status {
    let layout = rank(count, 1, MAX_RANK).map_err(|_| NOT_SUPPORTED).and_then(|count| {
        // SAFETY: the caller gives as many numbers, or null.
        packed(format, kind, &unsafe { taken(dims, count)? })
    });
    status(set(tensor, layout))
}

/// Returns the description of a tensor, as many dimensions as the caller has room for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetTensorNdDescriptor(
    tensor: Handle,
    room: c_int,
    kind: *mut c_int,
    count: *mut c_int,
    dims: *mut c_int,
    strides: *mut c_int,
) -> Status {
    let answer = described::<Layout>(tensor).and_then(|layout| {
        let room = rank(room, 0, c_int::MAX as usize)?;
        for (place, values) in [(dims, &layout.dims), (strides, &layout.strides)] {
            // SAFETY: the caller gives room for as many numbers, or null.
            unsafe { give_all(place, values.iter().take(room).map(|value| *value as c_int))? };
        }
        // SAFETY: the caller gives places for numbers, or null.
        unsafe {
            give(kind, number_of(layout.kind))?;
            give(count, layout.dims.len() as c_int)
        }
    });
    status(answer)
}

/// Writes numbers where the caller said.
///
/// # Safety
///
/// `place` is null or has room for all.
pub unsafe fn give_all(place: *mut c_int, values: impl Iterator<Item = c_int>) -> Result<(), Status> {
    for (index, value) in values.enumerate() {
        // SAFETY: the place has room for all by this function's contract, unless it is null, which ends this at the first.
        unsafe { give(if place.is_null() { place } else { place.add(index) }, value)? };
    }
    Ok(())
}

/// Bytes that a tensor takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetTensorSizeInBytes(tensor: Handle, size: *mut usize) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    status(described::<Layout>(tensor).and_then(|layout| unsafe { give(size, layout.bytes()) }))
}
