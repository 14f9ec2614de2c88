// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory that the program has freed in stream order, and that the device does not know to be free yet.
//!
//! The next allocation of that size in the same stream takes it over without a call: the device's default pool, too, would give
//! it that memory. Before any call that could show the difference, the memory is freed.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_environment::speed;
use virtio_cuda_protocol::cuda::{ContextId, DevicePtr, Opcode, StreamId};

/// Maximum number of allocations whose free is deferred.
const MAX_DEFERRED: usize = 16;

/// True if something is deferred, or is being freed.
static ANY: AtomicBool = AtomicBool::new(false);
static DEFERRED: Mutex<List> = Mutex::new(List { frees: Vec::new(), being_freed: false });
/// Held by the thread that frees the deferred memory. Others wait for it before calls that could show the difference, such as the
/// end of a stream in which it frees.
static FREEING: Mutex<()> = Mutex::new(());

thread_local! {
    /// True if this thread frees the deferred memory: the calls that do so have nothing to wait for.
    static FREES: Cell<bool> = const { Cell::new(false) };
}

struct List {
    frees: Vec<DeferredFree>,
    being_freed: bool,
}

impl List {
    /// Must be called after each change.
    fn changed(&self) {
        ANY.store(self.being_freed || !self.frees.is_empty(), Ordering::Release);
    }
}

/// An allocation of a device's default pool, freed in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeferredFree {
    /// The stream's context.
    pub context: ContextId,
    /// The stream. Never a per-thread default stream: its name means another stream in each thread.
    pub stream: StreamId,
    /// Bytes that the program asked for.
    pub bytes: u64,
    /// The first byte.
    pub address: DevicePtr,
}

fn lock() -> MutexGuard<'static, List> {
    DEFERRED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Defers the free of an allocation. Returns false if it must be freed: there are too many, or none is deferred.
pub fn defer(free: DeferredFree) -> bool {
    let mut list = lock();
    let has_room = speed::is_on() && list.frees.len() < MAX_DEFERRED;
    if has_room {
        list.frees.push(free);
        list.changed();
    }
    has_room
}

/// Takes the allocation of this size that was freed in the stream last.
pub fn take(context: ContextId, stream: StreamId, bytes: u64) -> Option<DevicePtr> {
    if !any() {
        return None;
    }
    let mut list = lock();
    let fits = |free: &DeferredFree| (free.context, free.stream, free.bytes) == (context, stream, bytes);
    let found = list.frees.iter().rposition(fits).map(|index| list.frees.remove(index).address);
    list.changed();
    found
}

/// Returns whether anything is deferred, or is being freed.
pub(crate) fn any() -> bool {
    ANY.load(Ordering::Acquire)
}

/// Frees, by `free`, the memory that must be free before the call with number `opcode`. When this returns, no other thread is
/// freeing any of it.
pub(crate) fn free_before(opcode: Opcode, free: impl Fn(DeferredFree)) {
    if !any() || opcode.facts().is_only_queued() || FREES.get() {
        return;
    }
    let _freeing = FREEING.lock().unwrap_or_else(PoisonError::into_inner);
    let all = {
        let mut list = lock();
        list.being_freed = true;
        std::mem::take(&mut list.frees)
    };
    FREES.set(true);
    all.into_iter().for_each(free);
    FREES.set(false);
    let mut list = lock();
    list.being_freed = false;
    list.changed();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_to_the_same_stream_and_size() {
        let free = |stream, bytes, address| DeferredFree {
            context: ContextId(1),
            stream: StreamId(stream),
            bytes,
            address: DevicePtr(address),
        };
        let take = |context, stream, bytes| take(ContextId(context), StreamId(stream), bytes);
        assert!(defer(free(1, 64, 0x1000)) && defer(free(1, 64, 0x2000)) && defer(free(7, 64, 0x3000)));
        assert_eq!(take(2, 1, 64), None);
        assert_eq!(take(1, 1, 65), None);
        assert_eq!(take(1, 1, 64), Some(DevicePtr(0x2000)));
        assert_eq!(take(1, 7, 64), Some(DevicePtr(0x3000)));
        assert!(any());
        assert_eq!(take(1, 1, 64), Some(DevicePtr(0x1000)));
        assert!(!any());
        assert!((0..MAX_DEFERRED as u64).all(|address| defer(free(1, 8, address))) && !defer(free(1, 8, 99)));
        // A thread that comes while another one frees waits for it.
        let (begun, freed) = (std::sync::Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                free_before(Opcode::cuStreamDestroy_v2, |free| {
                    if free.address.0 == 0 {
                        assert!(take(1, 1, 8).is_none() && any());
                        begun.wait();
                        std::thread::sleep(std::time::Duration::from_millis(50));
                    }
                    freed.store(free.address.0 == MAX_DEFERRED as u64 - 1, Ordering::Release);
                });
            });
            begun.wait();
            free_before(Opcode::cuStreamDestroy_v2, |_| panic!("all is taken"));
            assert!(freed.load(Ordering::Acquire) && !any());
        });
    }
}
