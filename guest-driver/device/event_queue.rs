// SPDX-License-Identifier: GPL-2.0-only

//! The event queue: buffers that the device fills and returns one by one.

use crate::{
    linux::{
        irqlock::{
            new_irq_lock,
            IrqLock, //
        },
        virtio::Stopped,
        virtqueue::{
            Buffers,
            Token,
            VirtQueue, //
        }, //
    },
    transport::Event, //
};
use core::{
    cmp::min,
    ptr::NonNull, //
};
use kernel::prelude::*;

/// Number of buffers, which bounds the outstanding events.
const BUFFERS: u32 = 64;

/// One buffer and its scatter list.
struct Slot {
    bytes: KBox<[u8; size_of::<Event>()]>,
    buffers: Buffers,
}

/// The `eventq`.
#[pin_data]
pub(crate) struct EventQueue {
    #[pin]
    /// None once the device is stopped.
    ring: IrqLock<Option<VirtQueue>>,
}

impl Slot {
    fn new() -> Result<KBox<Self>> {
        let bytes = KBox::new([0; size_of::<Event>()], GFP_KERNEL)?;
        let buffers = Buffers::writable(&*bytes)?;
        Ok(KBox::new(Self { bytes, buffers }, GFP_KERNEL)?)
    }

    /// Adds the slot's buffer to the ring, or frees the slot if that fails.
    fn add_to(self: KBox<Self>, queue: &mut VirtQueue) -> Result {
        let slot = KBox::into_raw(self);
        // SAFETY: From `into_raw`, hence valid, and without another owner.
        let buffers = unsafe { &mut (*slot).buffers };
        let token = NonNull::new(slot.cast()).ok_or(EINVAL)?;
        // SAFETY: The memory is freed, and looked at, only after `from_token`.
        let added = unsafe { queue.add(buffers, token) };
        if added.is_err() {
            // SAFETY: From `into_raw` above; the ring has not taken it.
            drop(unsafe { KBox::from_raw(slot) });
        }
        added
    }

    /// # Safety
    ///
    /// `token` comes from a ring that only holds slots.
    unsafe fn from_token(token: Token) -> KBox<Self> {
        // SAFETY: `add_to` made it with `into_raw`.
        unsafe { KBox::from_raw(token.as_ptr().cast()) }
    }
}

impl EventQueue {
    /// Wraps a virtqueue.
    pub(crate) fn new(queue: VirtQueue) -> impl PinInit<Self> {
        pin_init!(Self {
            ring <- new_irq_lock!(Some(queue), "virtio_cuda::EventQueue"),
        })
    }

    /// Adds the buffers to the virtqueue. The device sees them when it is made ready.
    pub(crate) fn fill(&self) -> Result {
        let entries = self.ring.lock().as_ref().map_or(0, VirtQueue::entries);
        for _ in 0..min(BUFFERS, entries) {
            let slot = Slot::new()?;
            if let Some(queue) = &mut *self.ring.lock() {
                slot.add_to(queue)?;
            }
        }
        Ok(())
    }

    /// Notifies the device of the buffers. Must be called after the device was made ready.
    pub(crate) fn kick(&self) {
        if let Some(queue) = &mut *self.ring.lock() {
            queue.kick();
        }
    }

    /// Ends the use of the virtqueue.
    pub(crate) fn stop(&self, stopped: &Stopped) {
        let queue = self.ring.lock().take();
        if let Some(mut queue) = queue {
            while let Some((token, _)) = queue.take_used() {
                // SAFETY: The ring only holds slots.
                drop(unsafe { Slot::from_token(token) });
            }
            while let Some(token) = queue.take_unused(stopped) {
                // SAFETY: The ring only holds slots, also for chains that the device did not return.
                drop(unsafe { Slot::from_token(token) });
            }
        }
    }

    /// Delivers events that the device has sent. Returns false if the device violated the ring protocol. For
    /// interrupts.
    pub(crate) fn interrupt(&self, mut deliver: impl FnMut(Event)) -> bool {
        let mut guard = self.ring.lock();
        let Some(queue) = &mut *guard else {
            return true;
        };
        let mut returned = false;
        loop {
            queue.disable_interrupts();
            while let Some((token, bytes)) = queue.take_used() {
                // SAFETY: The ring only holds slots.
                let slot = unsafe { Slot::from_token(token) };
                if bytes as usize >= size_of::<Event>() {
                    if let Ok(event) = Event::read_from_bytes(&*slot.bytes) {
                        deliver(event);
                    }
                }
                returned |= slot.add_to(queue).is_ok();
            }
            if queue.is_broken() || queue.enable_interrupts() {
                break;
            }
        }
        if returned {
            queue.kick();
        }
        !queue.is_broken()
    }
}
