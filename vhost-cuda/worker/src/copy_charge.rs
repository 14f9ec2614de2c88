// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bound on copies of the bulk input of running calls.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::gpu::{CuResult, CudaError};

/// Copies of the bulk input of running calls: sixteen of maximum length.
const COPY_BYTES: usize = 1 << 30;
/// The maximum time that a call waits for others before it is refused.
const COPY_WAIT: Duration = Duration::from_secs(5);

/// Copies of this process, which serves one session.
static COPIES: Copies = Copies { used: Mutex::new(0), changed: Condvar::new() };

struct Copies {
    used: Mutex<usize>,
    changed: Condvar,
}

/// A share of the copies, given back when dropped.
#[derive(Debug)]
pub struct CopyCharge(usize);

/// Takes a share of the copies, after waiting for others to end. The wait is limited: the others may wait for this call.
///
/// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn charge_copy(bytes: usize) -> CuResult<CopyCharge> {
    let full = |used: &mut usize| used.checked_add(bytes).is_none_or(|sum| sum > COPY_BYTES);
    let mut used = COPIES.used.lock();
    COPIES.changed.wait_while_for(&mut used, full, COPY_WAIT);
    if full(&mut used) {
        return Err(CudaError::OUT_OF_MEMORY);
    }
    *used += bytes;
    Ok(CopyCharge(bytes))
}

impl Drop for CopyCharge {
    fn drop(&mut self) {
        *COPIES.used.lock() -= self.0;
        COPIES.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_wait_for_each_other() {
        assert!(charge_copy(COPY_BYTES + 1).is_err());
        let all = charge_copy(COPY_BYTES).unwrap();
        let next = std::thread::spawn(|| charge_copy(COPY_BYTES).is_ok());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!next.is_finished());
        drop(all);
        assert!(next.join().unwrap());
    }
}
