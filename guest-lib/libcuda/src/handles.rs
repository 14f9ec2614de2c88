// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Handles of objects.

use std::sync::atomic::{AtomicU64, Ordering};

use virtio_cuda_client::protocol::{FIRST_HANDLE, HANDLE_STEP};

static NEXT_HANDLE: AtomicU64 = AtomicU64::new(FIRST_HANDLE);

/// `CU_EVENT_DISABLE_TIMING`. Events of this library only order work.
pub const DISABLE_TIMING: u32 = 2;

/// Returns the handle for a new object of any kind. The program's handle is also the worker's id.
pub fn new_handle() -> u64 {
    NEXT_HANDLE.fetch_add(HANDLE_STEP, Ordering::Relaxed)
}
