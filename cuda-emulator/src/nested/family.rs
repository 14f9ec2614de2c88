// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A launch of the host, and the state that all launches which come of it share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::error::texts;
use super::parameters::Parameters;
use super::transfer::Transfer;
use crate::memory::Memory;

/// The maximum number of pending launches, also if cudaLimitDevRuntimePendingLaunchCount is larger: limits the host's memory.
const MAX_PENDING: usize = 1 << 16;

/// The counter of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Among the cudaLimitDevRuntimePendingLaunchCount pending launches.
    Counted,
    /// Nowhere: it runs as soon as it is launched.
    AtOnce,
}

/// A waiting launch of a kernel.
#[derive(Debug)]
pub(crate) struct KernelTask {
    /// Index of the kernel's function.
    pub(crate) function: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(crate) shared: u32,
    pub(crate) params: Vec<u8>,
}

/// A task that waits in a stream.
#[derive(Debug)]
pub(crate) enum Task {
    Kernel(KernelTask),
    Transfer(Transfer),
}

/// The state that the grids of a family share.
pub(crate) struct Family {
    limit: usize,
    pending: AtomicUsize,
    parameters: Mutex<Parameters>,
    /// The addresses in device memory of each error's name and text, by code.
    texts: Mutex<HashMap<u32, [u64; 2]>>,
}

impl Family {
    /// The state of a launch of the host.
    pub(crate) fn new(limit: usize) -> Family {
        Family {
            limit: limit.min(MAX_PENDING),
            pending: AtomicUsize::new(0),
            parameters: Mutex::default(),
            texts: Mutex::default(),
        }
    }

    /// Frees the device memory of the family.
    pub(crate) fn release(&self, memory: &Memory) {
        self.parameters.lock().unwrap_or_else(PoisonError::into_inner).release(memory);
        for text in self.texts.lock().unwrap_or_else(PoisonError::into_inner).values().flatten() {
            memory.free(*text);
        }
    }

    /// Takes one of the slots for pending launches, if one is free.
    pub(crate) fn enter(&self) -> bool {
        let more = |pending: usize| (pending < self.limit).then_some(pending + 1);
        self.pending.try_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives a slot back.
    pub(crate) fn leave(&self, slot: Slot) {
        if slot == Slot::Counted {
            self.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A parameter buffer.
    pub(crate) fn buffer(&self, memory: &Memory, bytes: u64) -> Option<u64> {
        self.parameters.lock().unwrap_or_else(PoisonError::into_inner).take(memory, bytes)
    }

    /// Ends a parameter buffer.
    pub(crate) fn give_back(&self, buffer: u64, bytes: u64) {
        self.parameters.lock().unwrap_or_else(PoisonError::into_inner).give_back(buffer, bytes);
    }

    /// Returns the device addresses of an error's name and text, or 0 without memory.
    pub(crate) fn texts(&self, memory: &Memory, code: u32) -> [u64; 2] {
        // All codes without a text of their own have the same one.
        let (name, text) = texts(code);
        let code = if name == text { u32::MAX } else { code };
        let mut known = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&code) {
            return *found;
        }
        let store = |text: &str| {
            let bytes = [text.as_bytes(), &[0]].concat();
            let Ok(place) = memory.allocate(bytes.len() as u64, 1) else { return 0 };
            // Just allocated.
            let _ = memory.write(place, &bytes);
            place
        };
        let stored = [store(name), store(text)];
        known.insert(code, stored);
        stored
    }
}
