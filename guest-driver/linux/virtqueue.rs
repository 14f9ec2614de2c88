// SPDX-License-Identifier: GPL-2.0-only

//! A safe interface to the C virtqueue API.

use crate::linux::{
    bindings as glue,
    chunks::Chunks,
    statistics::Statistic,
    virtio::Stopped, //
};
use core::ptr::NonNull;
use kernel::prelude::*;

/// A virtqueue. A `&mut` reference gives exclusive access, as the C functions require.
///
/// # Invariants
///
/// Points to a virtqueue of a bound device; it is not deleted while this value exists.
pub(crate) struct VirtQueue(NonNull<glue::virtqueue>);

// SAFETY: A virtqueue may be used by any task, one at a time.
unsafe impl Send for VirtQueue {}

/// Identifies a chain in a ring; for example a pointer to the owner of its memory.
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

    /// Notifies the device of added chains, if it requests notifications.
    pub(crate) fn kick(&mut self) {
        // SAFETY: The queue is valid and ours.
        if unsafe { glue::virtio_cuda_kick_prepare(self.0.as_ptr()) } {
            Statistic::Kicks.add(1);
            // SAFETY: The queue is valid and ours. `is_broken` reports a device that was removed.
            unsafe { glue::virtio_cuda_notify(self.0.as_ptr()) };
        }
    }

    /// Takes back a chain that the device has used. Returns its token and the number of bytes that the device claims to
    /// have written.
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

    /// Enables the device's interrupts again. Returns false if there are used chains already.
    pub(crate) fn enable_interrupts(&mut self) -> bool {
        // SAFETY: The queue is valid and ours.
        unsafe { glue::virtio_cuda_enable_cb(self.0.as_ptr()) }
    }

    /// Returns whether the device has violated the ring protocol, or was removed.
    pub(crate) fn is_broken(&self) -> bool {
        // SAFETY: The queue is valid.
        unsafe { glue::virtio_cuda_is_broken(self.0.as_ptr()) }
    }

    /// Directs the queue's interrupts to the processors that use it, if `queues` queues are chosen by processor number.
    pub(crate) fn spread(&self, queues: u32) {
        // SAFETY: The queue is valid.
        unsafe { glue::virtio_cuda_spread_queue(self.0.as_ptr(), queues) }
    }

    /// Returns the number of descriptors of the ring, which is the maximum length of a chain.
    pub(crate) fn entries(&self) -> u32 {
        // SAFETY: The queue is valid.
        unsafe { glue::virtio_cuda_vring_size(self.0.as_ptr()) }
    }
}

/// The scatter list of one chain.
///
/// # Invariants
///
/// `list` is of `virtio_cuda_sg_alloc`, with `readable` entries of buffers that the device reads and at least one that
/// it writes.
pub(crate) struct Buffers {
    list: NonNull<glue::scatterlist>,
    readable: c_uint,
}

// SAFETY: A scatter list only refers to memory; using it is what needs care (see `VirtQueue::add`).
unsafe impl Send for Buffers {}

impl Buffers {
    /// Lists the pieces of `readable` and `writable`, one buffer each. `EINVAL`: `writable` is empty.
    pub(crate) fn new(readable: &Chunks, writable: &Chunks) -> Result<Self> {
        let counts = (readable.pieces().count(), writable.pieces().count());
        Self::list(
            counts,
            Iterator::chain(readable.pieces(), writable.pieces()),
        )
    }

    /// Lists one buffer that the device writes.
    pub(crate) fn writable(buffer: &[u8]) -> Result<Self> {
        Self::list((0, 1), core::iter::once(buffer))
    }

    /// Lists `pieces`: first the readable ones, then the writable ones, in the numbers that `counts` gives.
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
        // INVARIANT: Just created so.
        Ok(Self { list, readable })
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: By the invariant; it has no other owner.
        unsafe { glue::virtio_cuda_sg_free(self.list.as_ptr()) }
    }
}
