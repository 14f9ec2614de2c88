// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attributes of the activity API: sizes and limits of the memory that NVIDIA's library uses for its measurements. They
//! are stored, but have no effect here.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::copy_nonoverlapping;
use std::sync::{Mutex, PoisonError};

use crate::result::{
    CUptiResult, INVALID_PARAMETER, NOT_SUPPORTED, PARAMETER_SIZE_NOT_SUFFICIENT, Result, enter,
};

/// Bytes and initial value of each known attribute, by its number.
const KNOWN: [(usize, u64); 10] =
    [(8, 3_200_000), (8, 4_096_000), (8, 250), (8, 25_000), (8, 0), (1, 0), (8, 3), (8, 1), (1, 0), (1, 1)];

static VALUES: Mutex<BTreeMap<usize, u64>> = Mutex::new(BTreeMap::new());

/// Returns the number of an attribute and its length in bytes.
///
/// # Safety
///
/// `bytes` is NULL or readable.
unsafe fn find(attribute: u32, bytes: *const usize, value: *const c_void) -> Result<(usize, usize)> {
    if bytes.is_null() || value.is_null() {
        return Err(INVALID_PARAMETER);
    }
    let (length, _) = KNOWN.get(attribute as usize).ok_or(NOT_SUPPORTED)?;
    // SAFETY: not NULL, so readable by this function's contract.
    let given = unsafe { *bytes };
    if given < *length { Err(PARAMETER_SIZE_NOT_SUFFICIENT) } else { Ok((attribute as usize, *length)) }
}

/// Stores the value of an attribute.
///
/// # Safety
///
/// `bytes` is NULL or readable, and `value` is NULL or has that many readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivitySetAttribute(
    attribute: u32,
    bytes: *const usize,
    value: *const c_void,
) -> CUptiResult {
    enter(|| {
        // SAFETY: this function's contract.
        let (attribute, length) = unsafe { find(attribute, bytes, value) }?;
        let mut kept = [0; 8];
        // SAFETY: `find` has checked that the value has at least `length` bytes, of which `kept` has room for 8.
        unsafe { copy_nonoverlapping(value.cast(), kept.as_mut_ptr(), length) };
        VALUES.lock().unwrap_or_else(PoisonError::into_inner).insert(attribute, u64::from_le_bytes(kept));
        Ok(())
    })
}

/// Returns the value of an attribute.
///
/// # Safety
///
/// `bytes` is NULL or readable, and `value` is NULL or has that many writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetAttribute(
    attribute: u32,
    bytes: *mut usize,
    value: *mut c_void,
) -> CUptiResult {
    enter(|| {
        // SAFETY: this function's contract.
        let (attribute, length) = unsafe { find(attribute, bytes, value) }?;
        let kept = VALUES.lock().unwrap_or_else(PoisonError::into_inner).get(&attribute).copied();
        let kept = kept.unwrap_or(KNOWN[attribute].1).to_le_bytes();
        // SAFETY: `find` has checked that there is room for `length` bytes.
        unsafe { copy_nonoverlapping(kept.as_ptr(), value.cast(), length) };
        Ok(())
    })
}
