// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The parts of the libraries' versions.

use std::ffi::c_int;

use crate::{cublas, cufft, curand, cusolver, cusparse};

/// The version of the runtime that the libraries were made with: 13.0.
pub const RUNTIME: usize = 13_000;

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

macro_rules! properties {
    ($($name:ident $library:ident $version:expr, $of_major:literal $error:ident;)*) => { $(
        /// A part of the version.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(part: c_int, value: *mut c_int) -> $library::Status {
            // SAFETY: the caller gives a place for a number, or null.
            if unsafe { put($version, $of_major, part, value) } { $library::SUCCESS } else { $library::$error }
        }
    )* };
}

properties! {
    cublasGetProperty cublas cublas::handle::VERSION, 10_000 INVALID_VALUE;
    cublasLtGetProperty cublas cublas::handle::VERSION, 10_000 INVALID_VALUE;
    cufftGetProperty cufft cufft::api::VERSION, 1000 INVALID_VALUE;
    curandGetProperty curand curand::VERSION, 1000 OUT_OF_RANGE;
    cusolverGetProperty cusolver cusolver::handle::VERSION, 1000 INVALID_VALUE;
    cusparseGetProperty cusparse cusparse::handle::VERSION, 1000 INVALID_VALUE;
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
