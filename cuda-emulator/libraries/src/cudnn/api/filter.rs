// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Descriptors of filters.

use std::ffi::c_int;

use super::super::layout::{Layout, number_of};
use super::super::{BAD_PARAM, MAX_RANK, NOT_SUPPORTED, Operand, Status, give, rank, status, taken};
use super::tensor::{give_all, packed};
use super::{create, described, destroy, set};
use crate::handles::Handle;

/// A packed filter, and its `cudnnTensorFormat_t`.
#[derive(Clone, Debug)]
pub struct Filter {
    pub layout: Layout,
    format: c_int,
}

/// Creates a descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCreateFilterDescriptor(place: *mut Handle) -> Status {
    // SAFETY: the caller gives a place for a handle, or null.
    unsafe { create::<Filter>(place) }
}

/// Ends a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnDestroyFilterDescriptor(descriptor: Handle) -> Status {
    destroy::<Filter>(descriptor)
}

/// A filter in device memory.
pub fn filter(descriptor: Handle, base: usize) -> Result<Operand, Status> {
    Operand::new(described::<Filter>(descriptor)?.layout, base)
}

fn new(kind: c_int, format: c_int, dims: &[c_int]) -> Result<Filter, Status> {
    Ok(Filter { layout: packed(format, kind, dims)?, format })
}

/// Describes a filter of four dimensions.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetFilter4dDescriptor(
    filter: Handle,
    kind: c_int,
    format: c_int,
    k: c_int,
    c: c_int,
    h: c_int,
    w: c_int,
) -> Status {
    status(set(filter, new(kind, format, &[k, c, h, w])))
}

/// Describes a filter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetFilterNdDescriptor(
    filter: Handle,
    kind: c_int,
    format: c_int,
    count: c_int,
    dims: *const c_int,
) -> Status {
    let made = rank(count, 1, MAX_RANK).map_err(|_| NOT_SUPPORTED).and_then(|count| {
        // SAFETY: the caller gives as many numbers, or null.
        new(kind, format, &unsafe { taken(dims, count)? })
    });
    status(set(filter, made))
}

/// Returns the description of a filter of four dimensions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetFilter4dDescriptor(
    filter: Handle,
    kind: *mut c_int,
    format: *mut c_int,
    k: *mut c_int,
    c: *mut c_int,
    h: *mut c_int,
    w: *mut c_int,
) -> Status {
    let answer = described::<Filter>(filter).and_then(|filter| {
        let [_, _, _, _] = filter.layout.dims[..] else { return Err(BAD_PARAM) };
        let values = filter.layout.dims.iter().map(|dim| *dim as c_int);
        let known = [number_of(filter.layout.kind), filter.format];
        for (place, value) in [kind, format, k, c, h, w].into_iter().zip(known.into_iter().chain(values)) {
            // SAFETY: the caller gives places for numbers, or null.
            unsafe { give(place, value)? };
        }
        Ok(())
    });
    status(answer)
}

/// Returns the description of a filter, as many dimensions as the caller has room for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetFilterNdDescriptor(
    filter: Handle,
    room: c_int,
    kind: *mut c_int,
    format: *mut c_int,
    count: *mut c_int,
    dims: *mut c_int,
) -> Status {
    let answer = described::<Filter>(filter).and_then(|filter| {
        let room = rank(room, 0, c_int::MAX as usize)?;
        // SAFETY: the caller gives room for as many numbers and places for the others, or null.
        unsafe {
            give_all(dims, filter.layout.dims.iter().take(room).map(|dim| *dim as c_int))?;
            give(kind, number_of(filter.layout.kind))?;
            give(format, filter.format)?;
            give(count, filter.layout.dims.len() as c_int)
        }
    });
    status(answer)
}

/// Bytes that a filter takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetFilterSizeInBytes(filter: Handle, size: *mut usize) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    status(described::<Filter>(filter).and_then(|filter| unsafe { give(size, filter.layout.bytes()) }))
}
