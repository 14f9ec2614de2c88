// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Long copies in pieces, several of which are outstanding at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use virtio_cuda_client::CudaError;
use virtio_cuda_client::transport::{MAX_AT_ONCE, Pieces};

use crate::memory::copy::helpers::Helpers;

/// The helpers of the process.
pub static HELPERS: LazyLock<Helpers> = LazyLock::new(|| Helpers::new(MAX_AT_ONCE - 1));

/// Calls `copy` with the offset and length of each piece of `bytes` bytes. With `at_once` above 1, threads help.
///
/// Errors: the first one. Pieces that have not begun by then are not copied.
pub fn each_piece(
    bytes: usize,
    pieces: Pieces,
    copy: impl Fn(usize, usize) -> Result<(), CudaError> + Sync,
) -> Result<(), CudaError> {
    let length = pieces.piece_bytes.max(1);
    let count = bytes.div_ceil(length);
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let offset = index * length;
            if let Err(error) = copy(offset, length.min(bytes - offset)) {
                next.store(count, Ordering::Relaxed);
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                return;
            }
        }
    };
    let wanted = pieces.at_once.min(count).saturating_sub(1);
    if wanted > 0 {
        HELPERS.run(wanted, &work);
    } else {
        work();
    }
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        bytes: usize,
        at_once: usize,
        fail_at: Option<usize>,
    ) -> (Vec<(usize, usize)>, Result<(), CudaError>) {
        let seen = Mutex::new(Vec::new());
        let outcome = each_piece(bytes, Pieces { piece_bytes: 10, at_once }, |offset, length| {
            seen.lock().expect("not poisoned").push((offset, length));
            if Some(offset) == fail_at { Err(CudaError::INVALID_VALUE) } else { Ok(()) }
        });
        let mut seen = seen.into_inner().expect("not poisoned");
        seen.sort_unstable();
        (seen, outcome)
    }

    #[test]
    fn every_byte_is_copied_once() {
        for at_once in [1, 2, 7] {
            assert_eq!(run(25, at_once, None), (vec![(0, 10), (10, 10), (20, 5)], Ok(())));
            assert_eq!(run(10, at_once, None), (vec![(0, 10)], Ok(())));
            assert_eq!(run(0, at_once, None), (vec![], Ok(())));
        }
    }

    #[test]
    fn an_error_ends_the_copy() {
        let (seen, outcome) = run(1000, 1, Some(20));
        assert_eq!((seen.len(), outcome), (3, Err(CudaError::INVALID_VALUE)));
        let (seen, outcome) = run(100_000, 4, Some(20));
        assert!(seen.len() < 10_000);
        assert_eq!(outcome, Err(CudaError::INVALID_VALUE));
    }
}
