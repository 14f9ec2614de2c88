// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Names and descriptions of `CUresult`s.

use std::ffi::CStr;

use virtio_cuda_client::CudaError;

use crate::entry::CUresult;
use crate::entry_points;
use crate::ffi::Out;

/// Number, name and description, ascending (made by the build script from `protocol/names`).
static RESULTS: &[(CUresult, &CStr, &CStr)] = include!(concat!(env!("OUT_DIR"), "/results.rs"));

fn find(error: CUresult) -> Option<&'static (CUresult, &'static CStr, &'static CStr)> {
    RESULTS.binary_search_by_key(&error, |row| row.0).ok().map(|index| &RESULTS[index])
}

/// The name and the description of a result.
pub fn texts(error: CUresult) -> (&'static str, &'static str) {
    let row = find(error).and_then(|row| Some((row.1.to_str().ok()?, row.2.to_str().ok()?)));
    row.unwrap_or(("CUDA_ERROR_UNKNOWN", "unrecognized error code"))
}

entry_points! {
    /// The name of a result. An unknown one gives NULL and `CUDA_ERROR_INVALID_VALUE`.
    always cuGetErrorName(_, error: CUresult, pStr: Out<*const i8>) {
        let row = find(error);
        pStr.set(row.map_or(std::ptr::null(), |row| row.1.as_ptr()))?;
        row.map(|_| ()).ok_or(CudaError::INVALID_VALUE)
    }

    /// The description of a result. An unknown one gives NULL and `CUDA_ERROR_INVALID_VALUE`.
    always cuGetErrorString(_, error: CUresult, pStr: Out<*const i8>) {
        let row = find(error);
        pStr.set(row.map_or(std::ptr::null(), |row| row.2.as_ptr()))?;
        row.map(|_| ()).ok_or(CudaError::INVALID_VALUE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sorted_and_known_results_are_found() {
        assert!(RESULTS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let row = find(700).expect("CUDA_ERROR_ILLEGAL_ADDRESS is in the table");
        assert_eq!(row.1, c"CUDA_ERROR_ILLEGAL_ADDRESS");
        assert_eq!(row.2, c"an illegal memory access was encountered");
        assert!(find(-1).is_none());
    }
}
