// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The things that a call uses, as far as the order between threads depends on them.
//!
//! CUDA promises: if a call has returned before another one begins and both use the same object, they happen in that
//! order. Only posted calls return before they happen. So each call comes after the posted calls of other threads
//! that use the same stream, event or executable graph. Work of a context's legacy default stream comes after posted
//! work of all its blocking streams, and before work of these that follows. Calls that are not listed in
//! [`Touched::of`] come after everything that was posted, and if they are posted themselves, everything comes after
//! them.

mod marks;
#[cfg(test)]
#[path = "touched/touched_test.rs"]
mod tests;

use std::any::Any;
use std::sync::atomic::Ordering;

use virtio_cuda_protocol::cuda::{EventId, GraphExecId, Opcode, StreamId};

pub(crate) use marks::ORDER;
use marks::{CONTEXTS, CONTEXTS_OVERLAP, GRAPHS_USE_EVENTS, HOMES, PEERS, mark_of, set_bits};

/// The bit of a stream's handle for streams that do not synchronise with the legacy default stream.
pub const NON_BLOCKING_STREAM: u64 = 8;

/// CUDA's own streams.
const LEGACY_STREAMS: [u64; 2] = [0, 1];
const PER_THREAD_STREAM: u64 = 2;

/// Must be called before the program makes a graph that records an event or waits for one.
pub fn graphs_use_events() {
    GRAPHS_USE_EVENTS.store(true, Ordering::SeqCst);
}

/// Must be called before the program lets a device access memory of another one, where no call of the program's says so.
pub fn memory_has_peers() {
    PEERS.store(true, Ordering::SeqCst);
}

/// The memory that a call may use in addition to that which the stream's order covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    None,
    OfContext,
    Any,
}

/// The extent of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// Anything.
    Everything,
    /// All work of the context.
    Context,
    /// The objects that are its arguments.
    Objects(Memory),
    /// Nothing: earlier calls may wait for it.
    Nothing,
}

/// The things that one call uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched {
    extent: Extent,
    context: usize,
    stream: Option<u64>,
    objects: [usize; 2],
    count: usize,
    /// True if the call counts as done when it returns.
    immediate: bool,
}

impl Touched {
    /// Returns the things that the call uses, without the objects among its arguments: see [`Self::add`].
    pub fn of(opcode: Opcode, context: u64, immediate: bool) -> Self {
        let extent = match opcode {
            Opcode::cuStreamCreateWithPriority
            | Opcode::cuStreamDestroy_v2
            | Opcode::cuStreamSynchronize
            | Opcode::cuStreamQuery
            | Opcode::cuStreamWaitEvent
            | Opcode::cuStreamIsCapturing
            | Opcode::cuLaunchHostFunc
            | Opcode::cuStreamAddCallback
            | Opcode::cuEventCreate
            | Opcode::cuEventDestroy_v2
            | Opcode::cuEventRecordWithFlags
            | Opcode::cuEventQuery
            | Opcode::cuEventSynchronize
            | Opcode::cuEventElapsedTime_v2
            // Posted for kernels and child graphs only, which are destroyed behind everything, and their functions.
            | Opcode::cuGraphExecNodeSetParams
            // Nothing that is posted frees or allocates memory.
            | Opcode::cuMemAlloc_v2
            | Opcode::memory_alloc_many
            | Opcode::cuMemAllocAsync
            | Opcode::session_output
            | Opcode::session_order => Extent::Objects(Memory::None),
            Opcode::cuLaunchKernel => Extent::Objects(Memory::OfContext),
            // It may record an event, for which `graphs_use_events` is called.
            Opcode::cuLaunchKernelEx if !GRAPHS_USE_EVENTS.load(Ordering::SeqCst) => Extent::Objects(Memory::OfContext),
            Opcode::cuMemcpyHtoD_v2
            | Opcode::cuMemcpyDtoH_v2
            | Opcode::cuMemcpyDtoD_v2
            | Opcode::cuMemcpyHtoDAsync_v2
            | Opcode::cuMemcpyDtoHAsync_v2
            | Opcode::cuMemcpyAsync
            | Opcode::memcpy_wait
            | Opcode::cuMemsetD8Async
            | Opcode::cuMemsetD16Async
            | Opcode::cuMemsetD32Async
            | Opcode::cuMemsetD2D8Async
            | Opcode::cuMemsetD2D16Async
            | Opcode::cuMemsetD2D32Async
            | Opcode::cuMemFreeAsync
            | Opcode::cuStreamBatchMemOp_v2 => Extent::Objects(Memory::Any),
            Opcode::cuGraphLaunch if !GRAPHS_USE_EVENTS.load(Ordering::SeqCst) => Extent::Objects(Memory::Any),
            // Work that was posted may wait for the function.
            Opcode::session_next_callback => Extent::Nothing,
            _ if opcode.facts().is_wait_for_context() => Extent::Context,
            Opcode::cuCtxEnablePeerAccess
            | Opcode::cuMemSetAccess
            | Opcode::cuMemPoolSetAccess
            | Opcode::cuCtxCreate_v2
            | Opcode::cuGreenCtxCreate => {
                PEERS.store(true, Ordering::SeqCst);
                CONTEXTS_OVERLAP.fetch_or(opcode == Opcode::cuGreenCtxCreate, Ordering::SeqCst);
                Extent::Everything
            }
            _ => Extent::Everything,
        };
        // In the legacy default stream, unless their arguments name another one.
        let legacy =
            matches!(opcode, Opcode::cuMemcpyHtoD_v2 | Opcode::cuMemcpyDtoH_v2 | Opcode::cuMemcpyDtoD_v2);
        Self {
            extent,
            context: mark_of(context) % CONTEXTS,
            stream: legacy.then_some(LEGACY_STREAMS[0]),
            objects: [0; 2],
            count: 0,
            immediate: immediate || legacy,
        }
    }

    /// Returns a value for calls that may use anything.
    pub fn everything() -> Self {
        Self { extent: Extent::Everything, ..Self::of(Opcode::session_order, 0, false) }
    }

    /// Adds an argument of the call, which may name an object.
    pub fn add<T: Any>(&mut self, argument: &T) {
        let argument: &dyn Any = argument;
        if let Some(&StreamId(stream)) = argument.downcast_ref() {
            self.stream = Some(stream);
            if stream > PER_THREAD_STREAM {
                self.add_object(stream);
                set_bits(&HOMES[mark_of(stream)], 1 << self.context);
            }
        } else if let Some(&EventId(event)) = argument.downcast_ref() {
            self.add_object(event);
        } else if let Some(&GraphExecId(exec)) = argument.downcast_ref() {
            self.add_object(exec);
        }
    }

    fn add_object(&mut self, handle: u64) {
        match self.objects.get_mut(self.count) {
            Some(place) => {
                *place = mark_of(handle);
                self.count += 1;
            }
            None => self.extent = Extent::Everything,
        }
    }
}
