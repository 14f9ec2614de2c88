// SPDX-License-Identifier: GPL-2.0-only

//! One request, from its creation to its reply.
//!
//! A [`Request`] is shared by the ring, which holds it until the device returns the chain, and by its waiter. Its
//! memory and pins are in the [`Transfer`], which ends exactly once, with [`Purpose::settle`]: in the waiter or, if
//! there is none any more, in the workqueue. An interrupt may therefore drop a request: only plain memory is left of it
//! then.

pub(crate) mod purpose;
pub(crate) mod reply;

use crate::{
    error::Fault,
    limits::places::Places,
    linux::{
        chunks::Chunks,
        irqlock::{
            new_irq_lock,
            IrqLock, //
        },
        statistics::{
            Statistic,
            Stopwatch, //
        },
        virtqueue::{
            Buffers,
            Token,
            VirtQueue, //
        },
        wait::{
            new_wait_queue,
            Cut,
            Mode,
            Patience,
            WaitQueue, //
        }, //
    },
    memory::{
        Entries,
        Memory,
        Pinned, //
    },
    request::{
        purpose::Purpose,
        reply::payload_bytes, //
    },
    transport::{
        ReplyHeader,
        RequestHeader, //
    }, //
};
use core::ptr::NonNull;
use kernel::{
    new_work,
    prelude::*,
    sync::Arc,
    uaccess::UserSliceReader,
    workqueue::{
        impl_has_work,
        Queue,
        Work,
        WorkItem, //
    },
};

/// The source of a payload.
pub(crate) enum Payload<'a> {
    Kernel(&'a [u8]),
    User(UserSliceReader, usize),
}

/// The parts of a request.
pub(crate) struct Draft<'a> {
    /// Provides `op`, `flags`, `session` and `tag`; the other fields are filled in.
    pub(crate) header: RequestHeader,
    pub(crate) payload: Payload<'a>,
    /// Maximum bytes of payload of the reply.
    pub(crate) reply_bytes: usize,
    pub(crate) input: Option<Pinned>,
    pub(crate) output: Option<Memory>,
}

/// The memory of one request while the device has it, and the action after that.
struct Transfer {
    sent: Chunks,
    reply: Chunks,
    reply_bytes: usize,
    buffers: Buffers,
    purpose: Purpose,
    input: Option<Pinned>,
    output: Option<Memory>,
}

/// A reply of the device.
pub(crate) struct Answer {
    reply: Chunks,
    bytes: usize,
}

/// The result of a chain.
#[derive(Clone, Copy)]
enum Return {
    /// The device has written this many bytes.
    Used(u32),
    /// The device was removed.
    Withdrawn,
}

struct State {
    /// The transfer; None once it is settled.
    transfer: Option<KBox<Transfer>>,
    returned: Option<Return>,
    /// The time when it was added to a ring, if it has pages.
    sent: Option<Stopwatch>,
    /// Set if the waiter must stop waiting.
    interrupted: bool,
    /// Set if there is no waiter.
    detached: bool,
}

/// See the module's documentation.
#[pin_data]
pub(crate) struct Request {
    /// Counts the session's descriptors in rings. None: the request is the driver's own, not a process's call.
    places: Option<Arc<Places>>,
    #[pin]
    state: IrqLock<State>,
    #[pin]
    changed: WaitQueue,
    #[pin]
    settling: Work<Request>,
}

impl_has_work! {
    impl HasWork<Self> for Request { self.settling }
}

impl WorkItem for Request {
    type Pointer = Arc<Request>;

    fn run(this: Arc<Request>) {
        // The reply is not needed; `settle` performs its effects.
        let _ = this.settle();
    }
}

impl Draft<'_> {
    fn build(self, purpose: Purpose) -> Result<KBox<Transfer>> {
        let payload_bytes = match &self.payload {
            Payload::Kernel(bytes) => bytes.len(),
            Payload::User(_, bytes) => *bytes,
        };
        let in_entries = self.input.as_ref().map_or(0, Entries::count);
        let out_entries = self.output.as_ref().map_or(0, Entries::count);
        let entry_bytes = (in_entries + out_entries) * size_of::<crate::transport::MemEntry>();
        let header = RequestHeader {
            payload_bytes: payload_bytes.try_into()?,
            in_entries: in_entries.try_into()?,
            out_entries: out_entries.try_into()?,
            reserved: 0,
            ..self.header
        };
        let head = size_of::<RequestHeader>();
        let mut sent = Chunks::with_capacity(head + payload_bytes + entry_bytes)?;
        sent.append(header.as_bytes())?;
        match self.payload {
            Payload::Kernel(bytes) => sent.append(bytes)?,
            Payload::User(reader, bytes) => sent.append_user(reader, bytes)?,
        }
        for entry in self.input.iter().flat_map(Entries::entries) {
            sent.append(entry.as_bytes())?;
        }
        for entry in self.output.iter().flat_map(Entries::entries) {
            sent.append(entry.as_bytes())?;
        }
        let mut reply = Chunks::zeroed(size_of::<ReplyHeader>() + self.reply_bytes)?;
        // A chain that is returned unwritten must not look like success.
        let unwritten = ReplyHeader {
            status: u32::MAX,
            payload_bytes: 0,
        };
        reply.overwrite(unwritten.as_bytes())?;
        let transfer = Transfer {
            buffers: Buffers::new(&sent, &reply)?,
            sent,
            reply,
            reply_bytes: self.reply_bytes,
            purpose,
            input: self.input,
            output: self.output,
        };
        Ok(KBox::new(transfer, GFP_KERNEL)?)
    }
}

impl Transfer {
    fn settle(self, returned: Return) -> Result<Answer> {
        let result = match returned {
            Return::Used(bytes) => self.check(bytes),
            Return::Withdrawn => Err(Fault::Lost),
        };
        let answer = result.map(|bytes| Answer {
            reply: self.reply,
            bytes,
        });
        self.purpose.settle(answer, self.output)
    }

    fn has_pages(&self) -> bool {
        self.input.is_some() || self.output.is_some()
    }

    fn check(&self, used: u32) -> Result<usize, Fault> {
        let mut header = ReplyHeader::default();
        self.reply
            .read(0, header.as_mut_bytes())
            .map_err(|_| Fault::Garbled)?;
        payload_bytes(header, used, self.reply_bytes)
    }
}

impl Answer {
    /// Returns the bytes of payload.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the payload as a value. `EPROTO`: it has another size.
    pub(crate) fn value<T: FromBytes + IntoBytes>(&self) -> Result<T, Fault> {
        let mut value = T::new_zeroed();
        if self.bytes != size_of::<T>() {
            return Err(Fault::Garbled);
        }
        self.reply
            .read(size_of::<ReplyHeader>(), value.as_mut_bytes())
            .map_err(|_| Fault::Garbled)?;
        Ok(value)
    }

    /// Copies the payload to user memory.
    pub(crate) fn write_user(&self, into: &mut kernel::uaccess::UserSliceWriter) -> Result {
        self.reply
            .read_user(size_of::<ReplyHeader>(), self.bytes, into)
    }
}

impl Request {
    /// Creates a request from its parts.
    pub(crate) fn new(draft: Draft<'_>, purpose: Purpose) -> Result<Arc<Self>> {
        let places = purpose.places();
        let transfer = draft.build(purpose)?;
        let state = State {
            transfer: Some(transfer),
            returned: None,
            sent: None,
            interrupted: false,
            detached: false,
        };
        let init = pin_init!(Self {
            places,
            state <- new_irq_lock!(state, "virtio_cuda::Request"),
            changed <- new_wait_queue!("virtio_cuda::Request::changed"),
            settling <- new_work!("virtio_cuda::Request::settling"),
        });
        Arc::pin_init(init, GFP_KERNEL)
    }

    /// Returns the counter of the session's descriptors in rings, if the request carries a process's call.
    pub(crate) fn places(&self) -> Option<&Places> {
        self.places.as_deref()
    }

    /// Sets session and purpose of an unsent request without payload that was created in advance.
    pub(crate) fn address(&self, header: RequestHeader, purpose: Purpose) -> Result {
        let mut state = self.state.lock();
        let transfer = state.transfer.as_mut().ok_or(EINVAL)?;
        transfer.sent.overwrite(header.as_bytes())?;
        let old = core::mem::replace(&mut transfer.purpose, purpose);
        drop(state);
        drop(old);
        Ok(())
    }

    /// Adds the request to a ring. `ENOSPC`: the ring is full.
    pub(crate) fn add_to(self: &Arc<Self>, queue: &mut VirtQueue) -> Result {
        let mut state = self.state.lock();
        let transfer = state.transfer.as_mut().ok_or(EINVAL)?;
        // The ring's own reference; `from_token` takes it back.
        let reference = Arc::into_raw(self.clone()).cast_mut();
        let token: Token = NonNull::new(reference.cast()).ok_or(EINVAL)?;
        // SAFETY: The memory belongs to the transfer, which is settled only after `complete`, and it is not read or
        // written before that. The request itself lives by the reference above.
        let added = unsafe { queue.add(&mut transfer.buffers, token) };
        let has_pages = transfer.has_pages();
        if added.is_err() {
            // SAFETY: From `into_raw` above; the ring has not taken it.
            drop(unsafe { Arc::from_raw(reference) });
        } else if self.places.is_some() && has_pages {
            state.sent = Some(Stopwatch::start());
        }
        added
    }

    /// Takes back the reference of a ring.
    ///
    /// # Safety
    ///
    /// `token` comes from a ring to which [`Self::add_to`] has added it, once for each such call: it is one of
    /// [`VirtQueue::take_used`] or [`VirtQueue::take_unused`] of a ring that only holds requests.
    pub(crate) unsafe fn from_token(token: Token) -> Arc<Self> {
        // SAFETY: `add_to` made the token from the pointer that `Arc::into_raw` gave.
        unsafe { Arc::from_raw(token.as_ptr().cast()) }
    }

    /// Handles the return of the chain with `bytes` bytes of reply. For any context.
    pub(crate) fn returned(self: Arc<Self>, bytes: u32, works: &Queue) {
        self.complete(Return::Used(bytes), works);
    }

    /// Handles a chain that the device will never return.
    pub(crate) fn withdrawn(self: Arc<Self>, works: &Queue) {
        self.complete(Return::Withdrawn, works);
    }

    fn complete(self: Arc<Self>, how: Return, works: &Queue) {
        let mut state = self.state.lock();
        state.returned = Some(how);
        let detached = state.detached;
        drop(state);
        if detached {
            // It was never queued before: a chain is returned only once.
            let _ = works.enqueue(self);
        } else {
            self.changed.notify_all();
        }
    }

    /// Ends the wait for a reply that may never come. The request stays in the ring. For any context.
    pub(crate) fn interrupt(&self) {
        self.state.lock().interrupted = true;
        self.changed.notify_all();
    }

    /// Performs the effects of the reply. Sleeps. `EINVAL`: they were performed already, or there is no reply.
    fn settle(&self) -> Result<Answer> {
        let mut state = self.state.lock();
        let returned = state.returned.ok_or(EINVAL)?;
        let transfer = state.transfer.take().ok_or(EINVAL)?;
        drop(state);
        KBox::into_inner(transfer).settle(returned)
    }
}

/// A submitted request whose reply is needed. Dropping it does not affect the request: its effects happen when the
/// device answers.
pub(crate) struct Pending(Arc<Request>);

/// The reason why a wait for a reply ended.
pub(crate) enum Awaited {
    /// The device has answered.
    Answered,
    /// See [`Request::interrupt`].
    Interrupted,
}

impl Pending {
    /// Wraps a request that is in a ring.
    pub(crate) fn new(request: Arc<Request>) -> Self {
        Self(request)
    }

    /// Waits for the reply.
    pub(crate) fn wait(&self, mode: Mode, patience: &mut Patience) -> Result<Awaited, Cut> {
        self.0.changed.wait(&self.0.state, mode, patience, |state| {
            if state.returned.is_some() {
                if let Some(sent) = state.sent.take() {
                    sent.count(Statistic::BulkWaitNs);
                }
                Some(Awaited::Answered)
            } else if state.interrupted {
                Some(Awaited::Interrupted)
            } else {
                None
            }
        })
    }

    /// Takes the reply, if there is one. Sleeps.
    pub(crate) fn settle(self) -> Result<Answer> {
        self.0.settle()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.detached = true;
        let returned = state.returned.is_some();
        drop(state);
        if returned {
            // Either `settle` was called, then this does nothing, or the reply was not taken.
            let _ = self.0.settle();
        }
    }
}
