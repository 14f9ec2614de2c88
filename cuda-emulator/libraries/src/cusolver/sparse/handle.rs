// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Handles of the sparse functions.

use super::super::{INVALID_VALUE, NOT_INITIALIZED, SUCCESS, Status, status};
use super::Place;
use crate::handles::{self, Handle};
use crate::stream::Stream;

/// A `cusolverSpHandle_t`.
#[derive(Default)]
struct Sparse {
    stream: Stream,
}

fn with<R>(handle: Handle, body: impl FnOnce(&mut Sparse) -> R) -> Result<R, Status> {
    handles::with(handle, body).ok_or(NOT_INITIALIZED)
}

/// The place of host arrays, if there is such a handle.
pub fn host(handle: Handle) -> Result<Place, Status> {
    with(handle, |_| Place::Host)
}

/// The place of device arrays.
pub fn device(handle: Handle) -> Result<Place, Status> {
    with(handle, |sparse| Place::Device(sparse.stream))
}

/// Creates a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverSpCreate(place: *mut Handle) -> Status {
    // SAFETY: the caller gives a place for a handle, or null.
    let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
    *place = handles::make(Sparse::default());
    SUCCESS
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverSpDestroy(handle: Handle) -> Status {
    if handles::end::<Sparse>(handle) { SUCCESS } else { NOT_INITIALIZED }
}

/// Sets the stream of a handle.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverSpSetStream(handle: Handle, stream: Stream) -> Status {
    status(with(handle, |sparse| sparse.stream = stream))
}

/// Returns the stream of a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverSpGetStream(handle: Handle, place: *mut Stream) -> Status {
    // SAFETY: the caller gives a place for a stream, or null.
    let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
    status(with(handle, |sparse| *place = sparse.stream))
}
