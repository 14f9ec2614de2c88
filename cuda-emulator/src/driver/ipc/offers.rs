// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The allocations of this process that other processes may open.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::exchange::{self, IpcHandle};

fn offered() -> MutexGuard<'static, BTreeMap<u64, IpcHandle>> {
    /// The exported allocations by address.
    static OFFERED: Mutex<BTreeMap<u64, IpcHandle>> = Mutex::new(BTreeMap::new());
    OFFERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the handle of the allocation that begins at `ptr`, if it has one.
pub(super) fn of(ptr: u64) -> Option<IpcHandle> {
    offered().get(&ptr).copied()
}

/// Gives an allocation a handle. Returns its handle: the first one, if another thread was faster.
pub(super) fn add(ptr: u64, handle: IpcHandle) -> IpcHandle {
    let known = *offered().entry(ptr).or_insert(handle);
    if known.token != handle.token {
        exchange::withdraw(handle.token);
    }
    known
}

/// Withdraws a freed allocation: it cannot be opened any more. Processes that have it keep it.
pub(in crate::driver) fn withdraw(ptr: u64) {
    if let Some(handle) = offered().remove(&ptr) {
        exchange::withdraw(handle.token);
    }
}
