// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The caller of a call: an entry point, for the program, or this library itself.
//!
//! The error of a posted call belongs to the program: the next call of an entry point that waits takes it, in place of being
//! executed. An internal call is always executed, and never takes it. So that no call is forgotten, none can begin without its
//! caller ([`crate::Call::new`], [`crate::Call::internal`]), and [`at_entry_point`] alone makes an [`EntryPoint`].

use std::cell::Cell;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::CudaError;

/// The right to make calls for the program.
#[derive(Clone, Copy, Debug)]
pub struct EntryPoint(());

/// The caller of a call.
#[derive(Clone, Copy, Debug)]
pub enum Caller {
    /// An entry point, for the program.
    Program(EntryPoint),
    /// This library, for itself.
    Internal,
}

impl Caller {
    /// Returns whether the call is internal.
    pub const fn is_internal(self) -> bool {
        matches!(self, Self::Internal)
    }
}

thread_local! {
    // No destructor: it outlives the thread's other variables, whose destructors may still make calls.
    static EARLIER: Cell<Option<CudaError>> = const { Cell::new(None) };
}
/// The first error that an ended thread has left to the others; 0 for none.
static LEFT: AtomicI32 = AtomicI32::new(0);

/// Runs the body of an entry point. For the wrappers of entry points only.
///
/// Errors: that of an earlier posted call, if a call of the body took it, even if the body went on without that call; else those
/// of the body.
pub fn at_entry_point<T>(body: impl FnOnce(EntryPoint) -> Result<T, CudaError>) -> Result<T, CudaError> {
    // An entry point can run within another one: a profiler is told of calls, and makes some.
    let outer = EARLIER.replace(None);
    let outcome = body(EntryPoint(()));
    match EARLIER.replace(outer) {
        None => outcome,
        Some(earlier) => Err(earlier),
    }
}

/// Notes that a call of the running entry point has taken the error of an earlier posted call.
pub(crate) fn took(earlier: CudaError) {
    if EARLIER.get().is_none() {
        EARLIER.set(Some(earlier));
    }
}

/// Returns whether a call of the running entry point was not executed, because it has taken the error of an earlier posted call.
pub fn has_taken() -> bool {
    EARLIER.get().is_some()
}

/// Leaves the error of a posted call of this thread, which ends, to the program's other threads.
pub(crate) fn leave(error: CudaError) {
    let _ = LEFT.compare_exchange(0, error.code(), Ordering::Relaxed, Ordering::Relaxed);
}

/// Takes the error that an ended thread has left, for the running entry point.
pub(crate) fn take_left() -> Result<(), CudaError> {
    if !has_left() {
        return Ok(());
    }
    CudaError::check(LEFT.swap(0, Ordering::Relaxed)).inspect_err(|&error| took(error))
}

/// Returns whether an ended thread has left an error.
pub(crate) fn has_left() -> bool {
    LEFT.load(Ordering::Relaxed) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_error_is_the_entry_points_whatever_the_body_makes_of_it() {
        let (earlier, other) = (CudaError::UNKNOWN, CudaError::OUT_OF_MEMORY);
        assert_eq!(at_entry_point(|_| Ok(1)), Ok(1));
        assert_eq!(at_entry_point::<()>(|_| Err(other)), Err(other));
        let outcome = at_entry_point(|_| {
            took(earlier);
            took(other);
            assert_eq!(at_entry_point(|_| Ok(2)), Ok(2), "that of another entry point");
            Ok(3)
        });
        assert_eq!(outcome, Err(earlier));
        assert_eq!(at_entry_point(|_| Ok(4)), Ok(4), "it is reported once");
    }

    #[test]
    fn errors_of_ended_threads_are_left() {
        leave(CudaError::UNKNOWN);
        leave(CudaError::OUT_OF_MEMORY);
        assert_eq!(at_entry_point(|_| take_left().or(Ok(()))), Err(CudaError::UNKNOWN));
        assert_eq!(at_entry_point(|_| take_left()), Ok(()));
    }
}
