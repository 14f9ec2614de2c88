// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The contexts in which an error has ended everything, until they are destroyed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_protocol::cuda::ContextId;

use crate::CudaError;

/// True if any context is broken.
static ANY: AtomicBool = AtomicBool::new(false);
static BROKEN: Mutex<Vec<(ContextId, CudaError)>> = Mutex::new(Vec::new());
/// Number of contexts that were destroyed.
static ENDED: AtomicU64 = AtomicU64::new(0);

fn lock() -> MutexGuard<'static, Vec<(ContextId, CudaError)>> {
    BROKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether any context is broken.
pub fn any() -> bool {
    ANY.load(Ordering::Acquire)
}

/// Returns the error that all calls in a context return.
pub fn error_of(context: u64) -> Option<CudaError> {
    if !any() {
        return None;
    }
    lock().iter().find(|(broken, _)| broken.0 == context).map(|&(_, error)| error)
}

/// Returns all broken contexts.
pub fn contexts() -> Vec<u64> {
    lock().iter().map(|(context, _)| context.0).collect()
}

/// Returns the number of contexts that were destroyed so far.
pub(crate) fn ended() -> u64 {
    ENDED.load(Ordering::Acquire)
}

/// Notes that `context` is broken, as a call has found that began after `ended` contexts were destroyed. A primary context that
/// was reset comes back under its name, and does not have the errors of calls from before.
pub(crate) fn note(context: ContextId, error: CudaError, ended: u64) {
    let mut broken = lock();
    if ended == self::ended() && !broken.iter().any(|&(known, _)| known == context) {
        broken.push((context, error));
        ANY.store(true, Ordering::Release);
    }
}

/// Must be called when a context was destroyed: nothing is broken there any more.
pub fn context_ended(context: u64) {
    let mut broken = lock();
    ENDED.fetch_add(1, Ordering::AcqRel);
    broken.retain(|(known, _)| known.0 != context);
    ANY.store(!broken.is_empty(), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_broken_until_it_ends() {
        let error = CudaError::LAUNCH_TIMEOUT;
        let begun = ended();
        note(ContextId(7), error, begun);
        note(ContextId(8), error, begun);
        assert!(any() && error_of(7) == Some(error) && error_of(9).is_none());
        context_ended(7);
        assert!(any() && error_of(7).is_none() && contexts() == [8]);
        note(ContextId(7), error, begun);
        assert_eq!(error_of(7), None, "the answer to a call in the context that has ended");
        context_ended(8);
        assert!(!any() && contexts().is_empty());
    }
}
