// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory that the program has freed in stream order, and that the device does not know to be free yet.
//!
//! The next allocation of that size in the same stream takes it over without a call: the device's default pool, too, would give
//! it that memory. Before any call that could tell the difference, the memory is freed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_protocol::cuda::{ContextId, DevicePtr, Opcode, StreamId};

/// Maximum number of allocations that are parked.
const MAX_PARKED: usize = 16;

static ANY: AtomicBool = AtomicBool::new(false);
static PARKED: Mutex<Vec<Parked>> = Mutex::new(Vec::new());

/// An allocation of a device's default pool, freed in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parked {
    /// The stream's context.
    pub context: ContextId,
    /// The stream. No per-thread default stream: its name means another one in each thread.
    pub stream: StreamId,
    /// Bytes that the program asked for.
    pub bytes: u64,
    /// The first byte.
    pub address: DevicePtr,
}

fn lock() -> MutexGuard<'static, Vec<Parked>> {
    PARKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parks an allocation. `false`: there are too many, and it must be freed.
pub fn park(free: Parked) -> bool {
    let mut parked = lock();
    let has_room = parked.len() < MAX_PARKED;
    if has_room {
        parked.push(free);
        ANY.store(true, Ordering::Release);
    }
    has_room
}

/// Takes the allocation of that size that was freed in the stream last.
pub fn take(context: ContextId, stream: StreamId, bytes: u64) -> Option<DevicePtr> {
    if !any() {
        return None;
    }
    let mut parked = lock();
    let fits = |free: &Parked| (free.context, free.stream, free.bytes) == (context, stream, bytes);
    let found = parked.iter().rposition(fits).map(|index| parked.remove(index).address);
    ANY.store(!parked.is_empty(), Ordering::Release);
    found
}

/// Returns whether anything is parked.
pub(crate) fn any() -> bool {
    ANY.load(Ordering::Acquire)
}

/// Takes what must be freed before that call.
pub(crate) fn before(opcode: Opcode) -> Vec<Parked> {
    if !any() || opcode.facts().is_only_queued() {
        return Vec::new();
    }
    let mut parked = lock();
    ANY.store(false, Ordering::Release);
    std::mem::take(&mut *parked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_to_the_same_stream_and_size() {
        let free = |stream, bytes, address| Parked {
            context: ContextId(1),
            stream: StreamId(stream),
            bytes,
            address: DevicePtr(address),
        };
        let take = |context, stream, bytes| take(ContextId(context), StreamId(stream), bytes);
        assert!(park(free(1, 64, 0x1000)) && park(free(1, 64, 0x2000)) && park(free(7, 64, 0x3000)));
        assert_eq!(take(2, 1, 64), None);
        assert_eq!(take(1, 1, 65), None);
        assert_eq!(take(1, 1, 64), Some(DevicePtr(0x2000)));
        assert_eq!(take(1, 7, 64), Some(DevicePtr(0x3000)));
        assert!(any());
        assert_eq!(take(1, 1, 64), Some(DevicePtr(0x1000)));
        assert!(!any());
        assert!((0..MAX_PARKED as u64).all(|address| park(free(1, 8, address))) && !park(free(1, 8, 99)));
        lock().clear();
        ANY.store(false, Ordering::Release);
    }
}
