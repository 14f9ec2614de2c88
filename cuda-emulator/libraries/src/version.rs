// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The parts of the libraries' versions.

use std::ffi::c_int;

use crate::exported::exported;
use crate::{cublas, cufft, curand, cusolver, cusparse};

/// The version of the runtime that the libraries were made with: 13.0.
pub const RUNTIME: usize = 13_000;

/// `SUCCESS` of each library.
const SUCCESS: c_int = 0;

/// Stores a part of a version (`libraryPropertyType`: major, minor, patch); false: there is no such part, or no place.
///
/// # Safety
///
/// `value` is null, or has room for a number.
unsafe fn put(version: c_int, of_major: c_int, part: c_int, value: *mut c_int) -> bool {
    let parts = [version / of_major, version % of_major / 100, version % 100];
    let found = usize::try_from(part).ok().and_then(|part| parts.get(part));
    // SAFETY: null, or room for a number by this function's contract.
    let (Some(place), Some(found)) = (unsafe { value.as_mut() }, found) else { return false };
    *place = *found;
    true
}

exported! {
    /// A part of the version.
    pub unsafe extern "C" fn(version, of_major, error) [
        cublasGetProperty(cublas::handle::VERSION, 10_000, cublas::INVALID_VALUE),
        cublasLtGetProperty(cublas::handle::VERSION, 10_000, cublas::INVALID_VALUE),
        cufftGetProperty(cufft::api::VERSION, 1000, cufft::INVALID_VALUE),
        curandGetProperty(curand::VERSION, 1000, curand::OUT_OF_RANGE),
        cusolverGetProperty(cusolver::handle::VERSION, 1000, cusolver::INVALID_VALUE),
        cusparseGetProperty(cusparse::handle::VERSION, 1000, cusparse::INVALID_VALUE),
    ]
    (part: c_int, value: *mut c_int) -> c_int {
        // SAFETY: the caller gives a place for a number, or null.
        if unsafe { put(version, of_major, part, value) } { SUCCESS } else { error }
    }
}

/// The version of the runtime.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetCudartVersion() -> usize {
    RUNTIME
}

/// The version of the runtime.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetCudartVersion() -> usize {
    RUNTIME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_three_parts() {
        let part = |part| {
            let mut value = -1;
            // SAFETY: the place is a local.
            let status = unsafe { cublasGetProperty(part, &raw mut value) };
            (status, value)
        };
        assert_eq!([part(0), part(1), part(2)], [(0, 13), (0, 1), (0, 0)]);
        assert_eq!([part(-1), part(3)], [(cublas::INVALID_VALUE, -1); 2]);
        // SAFETY: null is allowed.
        assert_eq!(unsafe { curandGetProperty(0, std::ptr::null_mut()) }, curand::OUT_OF_RANGE);
    }
}
