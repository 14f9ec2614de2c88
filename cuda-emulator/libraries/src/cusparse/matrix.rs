// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Matrix descriptors of the legacy API, which cuSOLVER's sparse functions take, too.

use std::ffi::c_int;

use super::{INVALID_VALUE, MATRIX_TYPE_NOT_SUPPORTED, NOT_INITIALIZED, SUCCESS, Status, give, status};
use crate::exported::exported;
use crate::handles::{self, Handle};

/// A `cusparseMatDescr_t`: the numbers of `cusparseMatrixType_t`, `cusparseFillMode_t`, `cusparseDiagType_t` and
/// `cusparseIndexBase_t`.
#[derive(Clone, Copy, Debug, Default)]
struct Matrix {
    kind: c_int,
    fill: c_int,
    diagonal: c_int,
    base: c_int,
}

/// The index base of a general matrix.
pub fn general(handle: Handle) -> Result<usize, Status> {
    let matrix = handles::with(handle, |matrix: &mut Matrix| *matrix).ok_or(INVALID_VALUE)?;
    if matrix.kind == 0 { Ok(usize::from(matrix.base == 1)) } else { Err(MATRIX_TYPE_NOT_SUPPORTED) }
}

/// Creates a descriptor: a general matrix with index base 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseCreateMatDescr(place: *mut Handle) -> Status {
    // SAFETY: the caller gives a place for a handle, or null.
    unsafe { give(place, Ok(Matrix::default())) }
}

/// Ends a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseDestroyMatDescr(handle: Handle) -> Status {
    if handles::end::<Matrix>(handle) { SUCCESS } else { NOT_INITIALIZED }
}

exported! {
    /// Sets a property.
    pub extern "C" fn(limit, set) [
        cusparseSetMatType(4, |matrix: &mut Matrix, value| matrix.kind = value),
        cusparseSetMatFillMode(2, |matrix: &mut Matrix, value| matrix.fill = value),
        cusparseSetMatDiagType(2, |matrix: &mut Matrix, value| matrix.diagonal = value),
        cusparseSetMatIndexBase(2, |matrix: &mut Matrix, value| matrix.base = value),
    ]
    (handle: Handle, value: c_int) -> Status {
        if !(0..limit).contains(&value) {
            return INVALID_VALUE;
        }
        status(handles::with(handle, |matrix| set(matrix, value)).ok_or(INVALID_VALUE))
    }

    /// A property; 0 for a handle that is no descriptor.
    pub extern "C" fn(get) [
        cusparseGetMatType(|matrix: &mut Matrix| matrix.kind), cusparseGetMatFillMode(|matrix: &mut Matrix| matrix.fill),
        cusparseGetMatDiagType(|matrix: &mut Matrix| matrix.diagonal), cusparseGetMatIndexBase(|matrix: &mut Matrix| matrix.base),
    ]
    (handle: Handle) -> c_int {
        handles::with(handle, get).unwrap_or(0)
    }
}
