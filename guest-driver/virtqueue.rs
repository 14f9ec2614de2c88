// SPDX-License-Identifier: GPL-2.0-only

//! A safe face for the C virtqueue API.

use crate::{
    bindings as glue,
    chunks::Chunks,
    statistics::Statistic,
    virtio::Stopped, //
};
use core::ptr::NonNull;
use kernel::{
    bindings,
    prelude::*, //
};

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
        let list = buffers.list.as_mut_ptr();
        // The second list begins behind the first one, if that has anything.
        let mut lists = [list, list.wrapping_add(buffers.readable)];
        let lists = if buffers.readable == 0 {
            &mut lists[1..]
        } else {
            &mut lists[..]
        };
        // SAFETY: The queue is valid and ours; the lists are ended at the lengths that `Buffers` gives, their
        // memory is good by the caller.
        kernel::error::to_result(unsafe {
            glue::virtqueue_add_sgs(
                self.0.as_ptr(),
                lists.as_mut_ptr(),
                c_uint::from(buffers.readable != 0),
                1,
                token.as_ptr(),
                bindings::GFP_ATOMIC,
            )
        })
    }

    /// Tells the device about added chains, if it wants to know.
    pub(crate) fn kick(&mut self) {
        // SAFETY: The queue is valid and ours.
        if unsafe { glue::virtqueue_kick_prepare(self.0.as_ptr()) } {
            Statistic::Kicks.add(1);
            // SAFETY: As above. A device that is gone shows in `is_broken`.
            unsafe { glue::virtqueue_notify(self.0.as_ptr()) };
        }
    }

    /// Takes back a chain that the device is done with: its token and the bytes that the device says it wrote.
    pub(crate) fn take_used(&mut self) -> Option<(Token, u32)> {
        let mut bytes = 0;
        // SAFETY: The queue is valid and ours.
        let token = unsafe { glue::virtqueue_get_buf(self.0.as_ptr(), &mut bytes) };
        Some((NonNull::new(token)?, bytes))
    }

    /// Takes back a chain that the device will never use.
    pub(crate) fn take_unused(&mut self, _stopped: &Stopped) -> Option<Token> {
        // SAFETY: The queue is valid and ours, and the device is stopped.
        NonNull::new(unsafe { glue::virtqueue_detach_unused_buf(self.0.as_ptr()) })
    }

    /// Asks the device not to interrupt.
    pub(crate) fn disable_interrupts(&mut self) {
        // SAFETY: The queue is valid and ours.
        unsafe { glue::virtqueue_disable_cb(self.0.as_ptr()) }
    }

    /// Asks the device to interrupt again; false if there is something to take at once.
    pub(crate) fn enable_interrupts(&mut self) -> bool {
        // SAFETY: The queue is valid and ours.
        unsafe { glue::virtqueue_enable_cb(self.0.as_ptr()) }
    }

    /// Whether the device has broken the rules of the ring, or is gone.
    pub(crate) fn is_broken(&self) -> bool {
        // SAFETY: The queue is valid.
        unsafe { glue::virtqueue_is_broken(self.0.as_ptr()) }
    }

    /// Lets the queue interrupt those processors that use it if `queues` of them are chosen by processor number.
    pub(crate) fn spread(&self, queues: u32) {
        // SAFETY: The queue is valid.
        unsafe { glue::virtio_cuda_spread_queue(self.0.as_ptr(), queues) }
    }

    /// Descriptors of the ring: the longest chain.
    pub(crate) fn entries(&self) -> u32 {
        // SAFETY: The queue is valid.
        unsafe { glue::virtqueue_get_vring_size(self.0.as_ptr()) }
    }
}

/// Addresses of the buffers of one chain.
pub(crate) struct Buffers {
    list: KVec<bindings::scatterlist>,
    readable: usize,
}

// SAFETY: A scatter list only names memory; using it is what needs care (see `VirtQueue::add`).
unsafe impl Send for Buffers {}

impl Buffers {
    /// Lists the pieces of `readable` and `writable`, one buffer each.
    pub(crate) fn new(readable: &Chunks, writable: &Chunks) -> Result<Self> {
        let count = readable.pieces().count();
        let total = count + writable.pieces().count();
        let mut list = KVec::from_elem(bindings::scatterlist::default(), total, GFP_KERNEL)?;
        let (first, second) = list.split_at_mut(count);
        Self::end(first);
        Self::end(second);
        let mut this = Self {
            list,
            readable: count,
        };
        this.fill(Iterator::chain(readable.pieces(), writable.pieces()));
        Ok(this)
    }

    /// One buffer that the device writes.
    pub(crate) fn writable(buffer: &[u8]) -> Result<Self> {
        let mut list = KVec::from_elem(bindings::scatterlist::default(), 1, GFP_KERNEL)?;
        Self::end(&mut list);
        let mut this = Self { list, readable: 0 };
        this.fill(core::iter::once(buffer));
        Ok(this)
    }

    fn end(list: &mut [bindings::scatterlist]) {
        if !list.is_empty() {
            // SAFETY: The list has that many elements.
            unsafe { bindings::sg_init_table(list.as_mut_ptr(), list.len() as c_uint) }
        }
    }

    fn fill<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) {
        for (entry, piece) in self.list.iter_mut().zip(pieces) {
            // SAFETY: `entry` is initialised; a piece lies in the kernel's linear mapping (it is from kmalloc).
            unsafe {
                glue::virtio_cuda_sg_set(entry, piece.as_ptr().cast(), piece.len() as c_uint);
            }
        }
    }
}
