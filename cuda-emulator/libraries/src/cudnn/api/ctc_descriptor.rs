// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Descriptors of the loss of connectionist temporal classification.

use std::ffi::c_int;

use super::super::ctc::batch::{Form, MAX_LABEL};
use super::super::{BAD_PARAM, NOT_SUPPORTED, Status, give, status};
use super::{create, described, destroy, set};
use crate::exported::exported;
use crate::handles::Handle;

/// A `cudnnCTCLossDescriptor_t`: the type that it is computed in, whether values are to be normalised, whether the gradient of a
/// label that is too long stays as it was, and the length of the longest label in device memory.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    kind: c_int,
    normalises: c_int,
    keeps: c_int,
    pub longest: c_int,
}

/// Creates a descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCreateCTCLossDescriptor(place: *mut Handle) -> Status {
    // SAFETY: the caller gives a place for a handle, or null.
    unsafe { create::<Described>(place) }
}

/// Ends a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnDestroyCTCLossDescriptor(descriptor: Handle) -> Status {
    destroy::<Described>(descriptor)
}

impl Described {
    fn new(kind: c_int, normalises: c_int, keeps: c_int, longest: c_int) -> Result<Self, Status> {
        if kind != 0 {
            return Err(if (1..=21).contains(&kind) { NOT_SUPPORTED } else { BAD_PARAM });
        }
        let is_good =
            (0..=1).contains(&normalises) && (0..=1).contains(&keeps) && (0..=MAX_LABEL).contains(&longest);
        if is_good { Ok(Self { kind, normalises, keeps, longest }) } else { Err(BAD_PARAM) }
    }

    pub fn form(self) -> Form {
        Form { normalises: self.normalises == 1, keeps: self.keeps == 1 }
    }
}

/// Describes a loss of probabilities.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetCTCLossDescriptor(loss: Handle, kind: c_int) -> Status {
    status(set(loss, Described::new(kind, 0, 0, 0)))
}

/// Describes a loss.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetCTCLossDescriptorEx(
    loss: Handle,
    kind: c_int,
    normalises: c_int,
    keeps: c_int,
) -> Status {
    status(set(loss, Described::new(kind, normalises, keeps, 0)))
}

exported! {
    /// Describes a loss for labels in device memory.
    pub extern "C" fn [cudnnSetCTCLossDescriptor_v8, cudnnSetCTCLossDescriptor_v9]
    (loss: Handle, kind: c_int, normalises: c_int, keeps: c_int, longest: c_int) -> Status {
        status(set(loss, Described::new(kind, normalises, keeps, longest)))
    }

    /// Returns the description of a loss.
    pub unsafe extern "C" fn [cudnnGetCTCLossDescriptor_v8, cudnnGetCTCLossDescriptor_v9]
    (loss: Handle, kind: *mut c_int, normalises: *mut c_int, keeps: *mut c_int, longest: *mut c_int) -> Status {
        // SAFETY: the caller gives places for numbers, or null.
        status(described::<Described>(loss).and_then(|found| unsafe {
            give(kind, found.kind)?;
            give(normalises, found.normalises)?;
            give(keeps, found.keeps)?;
            give(longest, found.longest)
        }))
    }
}

/// Returns the type that a loss is computed in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetCTCLossDescriptor(loss: Handle, kind: *mut c_int) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    status(described::<Described>(loss).and_then(|found| unsafe { give(kind, found.kind) }))
}

/// Returns the description of a loss.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetCTCLossDescriptorEx(
    loss: Handle,
    kind: *mut c_int,
    normalises: *mut c_int,
    keeps: *mut c_int,
) -> Status {
    // SAFETY: the caller gives places for numbers, or null.
    status(described::<Described>(loss).and_then(|found| unsafe {
        give(kind, found.kind)?;
        give(normalises, found.normalises)?;
        give(keeps, found.keeps)
    }))
}
