// SPDX-License-Identifier: Apache-2.0 OR MIT

//! What calls answer where the state is wrong: before `cuInit`, without a current context, and after an error that
//! only the end of the context heals, or where the current context is destroyed. NVIDIA's driver looks at the state first
//! in most functions, but not in all.

use virtio_cuda_client::CudaError;

/// What is recorded of a function.
#[derive(Debug)]
struct State {
    name: &'static str,
    /// The code before `cuInit`.
    before: i32,
    /// It looks for a current context first.
    context: bool,
    /// It works in a broken context.
    broken: bool,
    /// It looks first whether the current context is destroyed. The others work with the context of their objects.
    gone: bool,
}

/// By name, sorted. From `protocol/names/states.txt`, recorded on an H200.
static STATES: &[State] = include!(concat!(env!("OUT_DIR"), "/states.rs"));

fn find(name: &str) -> Option<&'static State> {
    let plain = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    STATES.binary_search_by_key(&plain, |row| row.name).ok().and_then(|at| STATES.get(at))
}

/// Whether it is recorded that a function does not do as most do.
pub fn is_recorded(name: &str) -> bool {
    find(name).is_some()
}

/// What a function that needs `cuInit` answers before it.
pub fn before_init(name: &str) -> CudaError {
    // Where it would succeed there is nothing to work with here.
    let code = find(name).and_then(|row| CudaError::check(row.before).err());
    code.unwrap_or(CudaError::NOT_INITIALIZED)
}

/// Whether a function looks for a current context before anything else.
pub fn needs_context(name: &str) -> bool {
    find(name).is_some_and(|row| row.context)
}

/// Whether a function works in a broken context.
pub fn works_when_broken(name: &str) -> bool {
    find(name).is_some_and(|row| row.broken)
}

/// Whether a function is refused where the current context is destroyed.
pub fn refuses_destroyed(name: &str) -> bool {
    find(name).is_some_and(|row| row.gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_found() {
        assert!(STATES.is_sorted_by_key(|row| row.name));
        assert_eq!(before_init("cuCtxDestroy_v2"), CudaError::INVALID_VALUE);
        assert_eq!(before_init("cuMemAlloc_v2"), CudaError::NOT_INITIALIZED);
        assert!(needs_context("cuMemAlloc_v2") && !needs_context("cuMemcpyAsync_ptsz"));
        assert!(refuses_destroyed("cuMemcpyAsync_ptsz") && !refuses_destroyed("cuStreamQuery"));
        assert!(works_when_broken("cuCtxGetDevice") && !works_when_broken("cuMemAlloc_v2"));
    }
}
