// SPDX-License-Identifier: GPL-2.0-only

//! A safe face for the C virtqueue API.

use crate::linux::{
    bindings as glue,
    chunks::Chunks,
    statistics::Statistic,
    virtio::Stopped, //
};
use core::ptr::NonNull;
use kernel::prelude::*;

/// A virtqueue. Who has it by `&mut` has it alone, as the C functions ask for.
///
/// # Invariants
///
/// Points to a virtqueue of a bound device; it is not deleted while this value exists.
pub(crate) struct VirtQueue(NonNull<glue::virtqueue>);

// SAFETY: A virtqueue may be used by any task, one at a time.
unsafe impl Send for VirtQueue {}

/// Name of a chain in a ring, for example a pointer to what owns its memory.
pub(crate) type Token = NonNull<c_void>;

impl VirtQueue {
    /// # Safety
    ///
    /// The virtqueue must be valid until the value is dropped, and wrapped only once.
    pub(crate) unsafe fn from_raw(raw: NonNull<glue::virtqueue>) -> Self {
        // INVARIANT: By the caller.
        Self(raw)
    }

    /// Adds a chain. `ENOSPC`: the ring is full. For any context.
    ///
    /// # Safety
    ///
    /// The memory of `buffers` must stay valid, and the writable part untouched, until `token` comes back
    /// from [`Self::take_used`] or [`Self::take_unused`].
    pub(crate) unsafe fn add(&mut self, buffers: &mut Buffers, token: Token) -> Result {
        // SAFETY: The queue is valid and ours; the list is complete by the invariant of `Buffers`, its memory good by
        // the caller.
        kernel::error::to_result(unsafe {
            glue::virtio_cuda_add(
                self.0.as_ptr(),
                buffers.list.as_ptr(),
                buffers.readable,
                token.as_ptr(),
            )
        })
    }

    /// Tells the device about added chains, if it wants to know.
    pub(crate) fn kick(&mut self) {
        // SAFETY: The queue is valid and ours.
        if unsafe { glue::virtio_cuda_kick_prepare(self.0.as_ptr()) } {
            Statistic::Kicks.add(1);
            // SAFETY: The queue is valid and ours. A device that is gone shows in `is_broken`.
            unsafe { glue::virtio_cuda_notify(self.0.as_ptr()) };
        }
    }

    /// Takes back a chain that the device is done with: its token and the bytes that the device says it wrote.
    pub(crate) fn take_used(&mut self) -> Option<(Token, u32)> {
        let mut bytes = 0;
        // SAFETY: The queue is valid and ours.
        let token = unsafe { glue::virtio_cuda_get_buf(self.0.as_ptr(), &mut bytes) };
        Some((NonNull::new(token)?, bytes))
    }

    /// Takes back a chain that the device will never use.
    pub(crate) fn take_unused(&mut self, _stopped: &Stopped) -> Option<Token> {
        // SAFETY: The queue is valid and ours, and the device is stopped.
        NonNull::new(unsafe { glue::virtio_cuda_detach_unused_buf(self.0.as_ptr()) })
    }

    /// Asks the device not to interrupt.
    pub(crate) fn disable_interrupts(&mut self) {
        // SAFETY: The queue is valid and ours.
        unsafe { glue::virtio_cuda_disable_cb(self.0.as_ptr()) }
    }

    /// Asks the device to interrupt again; false if there is something to take at once.
    pub(crate) fn enable_interrupts(&mut self) -> bool {
        // SAFETY: The queue is valid and ours.
        unsafe { glue::virtio_cuda_enable_cb(self.0.as_ptr()) }
    }

    /// Returns whether the device has broken the rules of the ring, or is gone.
    pub(crate) fn is_broken(&self) -> bool {
        // SAFETY: The queue is valid.
        unsafe { glue::virtio_cuda_is_broken(self.0.as_ptr()) }
    }

    /// Lets the queue interrupt those processors that use it if `queues` of them are chosen by processor number.
    pub(crate) fn spread(&self, queues: u32) {
        // SAFETY: The queue is valid.
        unsafe { glue::virtio_cuda_spread_queue(self.0.as_ptr(), queues) }
    }

    /// Descriptors of the ring: the longest chain.
    pub(crate) fn entries(&self) -> u32 {
        // SAFETY: The queue is valid.
        unsafe { glue::virtio_cuda_vring_size(self.0.as_ptr()) }
    }
}

/// Addresses of the buffers of one chain.
///
/// # Invariants
///
/// `list` is of `virtio_cuda_sg_alloc`, with `readable` entries of buffers that the device reads and at least one that
/// it writes.
pub(crate) struct Buffers {
    list: NonNull<glue::scatterlist>,
    readable: c_uint,
}

// SAFETY: A scatter list only names memory; using it is what needs care (see `VirtQueue::add`).
unsafe impl Send for Buffers {}

impl Buffers {
    /// Lists the pieces of `readable` and `writable`, one buffer each. `EINVAL`: nothing is writable.
    pub(crate) fn new(readable: &Chunks, writable: &Chunks) -> Result<Self> {
        let counts = (readable.pieces().count(), writable.pieces().count());
        Self::list(
            counts,
            Iterator::chain(readable.pieces(), writable.pieces()),
        )
    }

    /// One buffer that the device writes.
    pub(crate) fn writable(buffer: &[u8]) -> Result<Self> {
        Self::list((0, 1), core::iter::once(buffer))
    }

    /// `pieces` has as many readable ones, then as many writable ones, as `counts` says.
    fn list<'a>(counts: (usize, usize), pieces: impl Iterator<Item = &'a [u8]>) -> Result<Self> {
        let (readable, writable) = (c_uint::try_from(counts.0)?, c_uint::try_from(counts.1)?);
        let total = readable.checked_add(writable).ok_or(EINVAL)?;
        if writable == 0 {
            return Err(EINVAL);
        }
        // SAFETY: Allocating has no condition.
        let list = unsafe { glue::virtio_cuda_sg_alloc(readable, writable) };
        let list = NonNull::new(list).ok_or(ENOMEM)?;
        for (index, piece) in (0..total).zip(pieces) {
            // SAFETY: The list has `total` entries; a piece lies in the kernel's linear mapping (it is from kmalloc).
            unsafe {
                glue::virtio_cuda_sg_set(
                    list.as_ptr(),
                    index,
                    piece.as_ptr().cast(),
                    piece.len() as c_uint,
                );
            }
        }
        // INVARIANT: Just made so.
        Ok(Self { list, readable })
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: By the invariant; nobody else has it.
        unsafe { glue::virtio_cuda_sg_free(self.list.as_ptr()) }
    }
}
