// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The values by which kernels control conditional nodes of graphs, by the handles that programs pass to kernels.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// All conditions by their handles.
static CONDITIONS: Mutex<BTreeMap<u64, Weak<Condition>>> = Mutex::new(BTreeMap::new());

/// A value that kernels set and a conditional node reads.
#[derive(Debug)]
pub struct Condition {
    /// The handle by which kernels refer to it.
    pub handle: u64,
    /// Its value at the start of a graph. `None`: it keeps its value.
    default: Option<u32>,
    value: AtomicU32,
    /// True if a node has it. No other node can then have it.
    taken: AtomicBool,
}

impl Condition {
    /// Creates a condition that is found by its handle as long as it lives.
    pub fn new(default: Option<u32>) -> Arc<Condition> {
        static NEXT: AtomicU64 = AtomicU64::new(0xc0de_0000_0001);
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        let condition =
            Arc::new(Condition { handle, default, value: AtomicU32::new(0), taken: AtomicBool::new(false) });
        let mut all = CONDITIONS.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(handle, Arc::downgrade(&condition));
        condition
    }

    /// The condition with this handle.
    pub fn find(handle: u64) -> Option<Arc<Condition>> {
        CONDITIONS.lock().unwrap_or_else(PoisonError::into_inner).get(&handle).and_then(Weak::upgrade)
    }

    /// Returns whether a conditional node has it.
    pub fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    /// Records whether a conditional node has it.
    pub fn take(&self, taken: bool) {
        self.taken.store(taken, Ordering::Release);
    }

    /// The value that was set last.
    pub fn value(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Sets the value, as cudaGraphSetConditional does.
    pub fn set(&self, value: u32) {
        self.value.store(value, Ordering::Release);
    }

    /// Resets the value at the start of a graph that uses it.
    pub fn start(&self) {
        if let Some(default) = self.default {
            self.set(default);
        }
    }
}

impl Drop for Condition {
    fn drop(&mut self) {
        CONDITIONS.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.handle);
    }
}
