// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Decides how contiguous memory is copied. [`plan`] decides, and the modules with the names of the plans execute it.

use virtio_cuda_client::lane::INLINE_BYTES;
use virtio_cuda_client::protocol::{ContextId, DevicePtr, StreamId};

use crate::memory::copy::division::Division;
use crate::memory::copy::transfer::Transfer;
use crate::memory::place::Place;

/// Maximum bytes of pinned memory that are sent inside a call that waits, if no work is outstanding. The call then need
/// not wait for the device.
const SMALL_PINNED_BYTES: usize = 16 << 10;
/// Minimum bytes of a copy with pages that the device keeps. Shorter copies gain nothing from them.
const MIN_CACHED_BYTES: usize = 1 << 20;
/// Minimum bytes of such a copy in stream order. Natively a shorter copy does not wait for its stream, but a copy
/// between kept pages and the device does.
const MIN_CACHED_STREAM_BYTES: usize = 8 << 20;

/// Shorter copies from the device are inside the reply, as those to the device are inside the call up to
/// [`INLINE_BYTES`].
const MIN_STAGED_FROM_DEVICE: usize = 16 << 10;

/// When a copy runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// The call waits as `cuMemcpy` does.
    Wait,
    /// The copy runs in the order of a stream.
    Stream(StreamId),
    /// These contexts and the current one do nothing else at the same time, as with `cuMemcpyPeer`. Copies from or to
    /// the host wait.
    Between([ContextId; 2]),
}

impl Timing {
    /// Returns whether the copy is in no stream of the program's.
    pub fn waits(self) -> bool {
        !matches!(self, Self::Stream(_))
    }
}

/// A copy of contiguous memory.
#[derive(Clone, Copy, Debug)]
pub struct LinearCopy {
    /// The destination.
    pub dst: Place,
    /// The source.
    pub src: Place,
    /// Length in bytes.
    pub bytes: usize,
    /// The stream in whose order the copy runs.
    pub stream: StreamId,
    /// The call waits as `cuMemcpy` does. Then `stream` is the default stream.
    pub waits: bool,
}

/// The mechanism that moves the bytes of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The GPU copies within its memory (`cuMemcpyDtoD`, on the legacy default stream).
    DeviceToDevice {
        /// The destination.
        dst: DevicePtr,
        /// The source.
        src: DevicePtr,
        /// The call is posted.
        posted: bool,
    },
    /// The GPU copies between GPU addresses of both ends, in stream order.
    Address {
        /// The destination.
        dst: DevicePtr,
        /// The source.
        src: DevicePtr,
        /// The call is posted.
        posted: bool,
    },
    /// Like `Address`, but the call itself waits for the copy, because an end is pinned memory.
    AddressAndWait {
        /// The destination.
        dst: DevicePtr,
        /// The source.
        src: DevicePtr,
    },
    /// This process copies between host memory.
    Program {
        /// The destination.
        dst: u64,
        /// The source.
        src: u64,
    },
    /// The bytes are sent with the call, usually inside the record of a lane.
    Inline {
        /// The ends.
        transfer: Transfer,
        /// The call is posted.
        posted: bool,
    },
    /// The GPU copies from or to pageable pages that the device keeps.
    Cached(Transfer),
    /// Threads of this process copy between pageable and pinned memory, and the GPU between that and device memory.
    Staged {
        /// The ends.
        transfer: Transfer,
        /// The pieces.
        division: Division,
    },
    /// The worker reads or writes the program's pages directly.
    Pages(Transfer),
}

/// The process state that [`plan`] queries. It queries only the needed facts, and expensive ones last.
pub trait Facts {
    /// Returns whether work for the stream may be posted.
    fn may_post(&self, stream: StreamId) -> bool;
    /// Returns whether the device memory certainly belongs to the program.
    fn owns(&self, address: DevicePtr, bytes: usize) -> bool;
    /// Returns whether the program may see the GPU's outstanding work in memory that both reach.
    fn shows_work(&self) -> bool;
    /// Returns whether a copy that waits would wait for other work. If it were posted, a later call of another thread would wait for
    /// it, and with it for work that natively comes in any order, and that may itself wait for that call.
    fn delays_copies(&self) -> bool;
    /// Returns whether an error has broken the context.
    fn is_broken(&self) -> bool;
    /// Returns whether the device can keep the pages of the transfer.
    fn can_keep(&self, transfer: Transfer) -> bool;
    /// Returns the maximum number of threads of a staged copy, and the maximum for one from the device with few slots;
    /// 0 turns such copies off.
    fn threads(&self) -> [usize; 2];
    /// Returns whether the pageable memory is mapped at both ends as the transfer needs it.
    fn is_mapped(&self, transfer: Transfer) -> bool;
}

/// Plans a copy. `refused` is a plan whose execution had no effect: the next plan is returned.
///
/// Inlined with the execution of the plan, so that a short copy keeps its plan in registers.
#[inline(always)]
pub fn plan(copy: &LinearCopy, refused: Option<&Plan>, facts: &impl Facts) -> Plan {
    let LinearCopy { dst, src, bytes, stream, waits } = *copy;
    let transfer = match (dst, src) {
        (Place::Pageable(dst), Place::Device(src)) => Transfer::from_device(dst, src, bytes),
        (Place::Device(dst), Place::Pageable(src)) => Transfer::to_device(dst, src, bytes),
        // Outstanding work could still write the pinned memory.
        (Place::Device(dst), Place::Pinned { host: src, .. })
            if waits && bytes <= SMALL_PINNED_BYTES && !facts.shows_work() =>
        {
            Transfer::to_device(dst, src, bytes)
        }
        (
            Place::Device(dst) | Place::Pinned { device: dst, .. },
            Place::Device(src) | Place::Pinned { device: src, .. },
        ) => {
            let (dst, src) = (DevicePtr(dst), DevicePtr(src));
            if waits && (copy.dst.host().is_some() || copy.src.host().is_some()) {
                return Plan::AddressAndWait { dst, src };
            }
            let posted = facts.may_post(stream) && facts.owns(dst, bytes) && facts.owns(src, bytes);
            if waits && stream == StreamId::default() {
                return Plan::DeviceToDevice { dst, src, posted };
            }
            return Plan::Address { dst, src, posted };
        }
        (
            Place::Pageable(dst) | Place::Pinned { host: dst, .. },
            Place::Pageable(src) | Place::Pinned { host: src, .. },
        ) => return Plan::Program { dst, src },
    };
    plan_transfer(copy, transfer, refused, facts)
}

/// Plans a copy between the device and pageable memory.
#[inline(always)]
fn plan_transfer(copy: &LinearCopy, transfer: Transfer, refused: Option<&Plan>, facts: &impl Facts) -> Plan {
    let LinearCopy { bytes, stream, waits, .. } = *copy;
    let min_cached = if waits { MIN_CACHED_BYTES } else { MIN_CACHED_STREAM_BYTES };
    if bytes >= min_cached && refused.is_none() && facts.can_keep(transfer) {
        return Plan::Cached(transfer);
    }
    let to_device = transfer.is_to_device();
    let device = transfer.device();
    if bytes > if to_device { INLINE_BYTES } else { MIN_STAGED_FROM_DEVICE }
        && !matches!(refused, Some(Plan::Staged { .. }))
        && let Some(division) = Division::of(transfer, facts.threads())
        && !facts.is_broken()
        && facts.may_post(stream)
        && facts.owns(device, bytes)
        && facts.is_mapped(transfer)
    {
        return Plan::Staged { transfer, division };
    }
    if bytes > INLINE_BYTES {
        return Plan::Pages(transfer);
    }
    // A copy that waits must first wait for the stream. A program can only notice that through memory that it shares
    // with the GPU.
    let posted = to_device
        && facts.may_post(stream)
        && !(waits && (facts.shows_work() || facts.delays_copies()))
        && facts.owns(device, bytes);
    Plan::Inline { transfer, posted }
}

#[cfg(test)]
#[path = "plan_test.rs"]
mod tests;
