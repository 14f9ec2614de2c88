// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Names and descriptions of `CUresult`s.

use std::ffi::CStr;

/// Number, name and description, ascending (made by the build script from `protocol/names`).
static RESULTS: &[(i32, &CStr, &CStr)] = include!(concat!(env!("OUT_DIR"), "/results.rs"));

/// The row of a result.
pub fn find(error: i32) -> Option<&'static (i32, &'static CStr, &'static CStr)> {
    RESULTS.binary_search_by_key(&error, |row| row.0).ok().map(|index| &RESULTS[index])
}

/// The name and the description of a result.
pub fn texts(error: i32) -> (&'static str, &'static str) {
    let row = find(error).and_then(|row| Some((row.1.to_str().ok()?, row.2.to_str().ok()?)));
    row.unwrap_or(("CUDA_ERROR_UNKNOWN", "unrecognized error code"))
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
