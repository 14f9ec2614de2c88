// SPDX-License-Identifier: Apache-2.0 OR MIT
//! External memory that is mapped as buffers.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::memory::place::Place;
use crate::memory::Memory;

fn buffers() -> MutexGuard<'static, BTreeMap<u64, Place>> {
    /// All buffers by their addresses.
    static BUFFERS: Mutex<BTreeMap<u64, Place>> = Mutex::new(BTreeMap::new());
    BUFFERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a place as long as a buffer begins at `ptr`.
pub(super) fn add(ptr: u64, place: Place) {
    buffers().insert(ptr, place);
}

/// Returns whether a buffer begins at an address.
pub(in crate::driver) fn contains(ptr: u64) -> bool {
    buffers().contains_key(&ptr)
}

/// cuMemFree of a buffer, which the device no longer owns; false if none begins there.
pub(in crate::driver) fn unmap(memory: &Memory, ptr: u64) -> bool {
    memory.remove_host_range(ptr);
    buffers().remove(&ptr).is_some()
}
