// SPDX-License-Identifier: Apache-2.0 OR MIT

//! What calls answer where the state is wrong: before `cuInit`, without a current context, and after an error that
//! only the end of the context heals. NVIDIA's driver looks at the state first in most functions, but not in all.

use virtio_cuda_client::CudaError;

/// By name, sorted: the code before `cuInit`, whether a current context is looked for first, and whether the function
/// works in a broken context. From `protocol/names/states.txt`, recorded on an H200.
static STATES: &[(&str, i32, bool, bool)] = include!(concat!(env!("OUT_DIR"), "/states.rs"));

/// What is recorded of a function.
fn find(name: &str) -> Option<&'static (&'static str, i32, bool, bool)> {
    let plain = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    STATES.binary_search_by_key(&plain, |row| row.0).ok().and_then(|at| STATES.get(at))
}

/// What a function that needs `cuInit` answers before it.
pub fn before_init(name: &str) -> CudaError {
    // Where it would succeed there is nothing to work with here.
    let code = find(name).and_then(|&(_, code, ..)| CudaError::check(code).err());
    code.unwrap_or(CudaError::NOT_INITIALIZED)
}

/// Whether a function looks for a current context before anything else.
pub fn needs_context(name: &str) -> bool {
    find(name).is_some_and(|row| row.2)
}

/// Whether a function works in a broken context.
pub fn works_when_broken(name: &str) -> bool {
    find(name).is_some_and(|row| row.3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_found() {
        assert!(STATES.is_sorted_by_key(|row| row.0));
        assert_eq!(before_init("cuCtxDestroy_v2"), CudaError::INVALID_VALUE);
        assert_eq!(before_init("cuMemAlloc_v2"), CudaError::NOT_INITIALIZED);
        assert!(needs_context("cuMemAlloc_v2") && !needs_context("cuMemcpyAsync_ptsz"));
        assert!(works_when_broken("cuCtxGetDevice") && !works_when_broken("cuMemAlloc_v2"));
    }
}
