// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Errors of calls in an invalid state: before `cuInit`, without a current context, with a destroyed one, or after an
//! error that only the destruction of the context clears. NVIDIA's driver checks the state first in most functions, but
//! not in all.

use virtio_cuda_client::CudaError;

/// The state rules of a function, a constant of its entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// True if the function differs from most others.
    pub is_recorded: bool,
    /// The error code before `cuInit`.
    before: i32,
    /// True if the function checks for a current context before anything else.
    pub needs_context: bool,
    /// True if it works in a broken context.
    pub works_when_broken: bool,
    /// True if it is refused when the current context is destroyed. Other functions then use the context of their
    /// objects.
    pub refuses_destroyed: bool,
}

/// Functions that differ from most others. From `protocol/names/states.txt`, recorded on an H200.
const STATES: &[(&str, State)] = include!(concat!(env!("OUT_DIR"), "/states.rs"));

impl State {
    /// The rules for most functions.
    const USUAL: Self = Self {
        is_recorded: false,
        before: CudaError::NOT_INITIALIZED.code(),
        needs_context: false,
        works_when_broken: false,
        refuses_destroyed: false,
    };

    /// Returns the rules of a function. Slow: for constants, and for calls that are refused.
    pub const fn of(name: &str) -> Self {
        let name = without_suffix(name.as_bytes());
        let mut at = 0;
        while at < STATES.len() {
            if are_equal(STATES[at].0.as_bytes(), name) {
                return STATES[at].1;
            }
            at += 1;
        }
        Self::USUAL
    }

    /// Returns the error before `cuInit`.
    pub fn before_init(self) -> CudaError {
        // A function that would succeed before `cuInit` cannot do so here.
        CudaError::check(self.before).err().unwrap_or(CudaError::NOT_INITIALIZED)
    }
}

/// Returns the name without its suffix for the per-thread default stream.
const fn without_suffix(name: &[u8]) -> &[u8] {
    if let Some((name, b"_ptsz" | b"_ptds")) = name.split_last_chunk::<5>() { name } else { name }
}

const fn are_equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_rules_of_the_table() {
        assert_eq!(State::of("cuCtxDestroy_v2").before_init(), CudaError::INVALID_VALUE);
        assert_eq!(State::of("cuMemAlloc_v2").before_init(), CudaError::NOT_INITIALIZED);
        let (alloc, copy) = (State::of("cuMemAlloc_v2"), State::of("cuMemcpyAsync_ptsz"));
        assert!(alloc.needs_context && !alloc.works_when_broken);
        assert!(!copy.needs_context && copy.refuses_destroyed);
        assert!(!State::of("cuStreamQuery").refuses_destroyed);
        assert!(State::of("cuCtxGetDevice").works_when_broken);
        assert_eq!(State::of("cuNoFunction"), State::USUAL);
    }
}
