// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Names of objects.

use std::sync::atomic::{AtomicU64, Ordering};

use virtio_cuda_client::protocol::FIRST_HANDLE;

static NEXT_HANDLE: AtomicU64 = AtomicU64::new(FIRST_HANDLE);

/// Names a new object of any kind: the handle that the program sees is the name that the worker knows.
pub fn new_handle() -> u64 {
    // Steps of 16 look like pointers to programs that check alignment.
    NEXT_HANDLE.fetch_add(16, Ordering::Relaxed)
}
