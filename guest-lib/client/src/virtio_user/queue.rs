// SPDX-License-Identifier: Apache-2.0 OR MIT

//! One request queue: slots for requests and replies, and the wait for completions.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use virtio_cuda_protocol::transport::{MemEntry, REPLY_OK, ReplyHeader, RequestHeader};
use vmm_sys_util::eventfd::EventFd;
use zerocopy::{FromBytes, IntoBytes};

use super::memory::{RamRange, SharedRam};
use crate::ClientError;
use crate::ring::{Layout, SplitRing};

/// Requests in flight in one queue.
pub const SLOTS: u16 = 32;
/// Time to wait for a slot of one queue before all queues are checked again.
const SLOT_WAIT: Duration = Duration::from_millis(1);
/// Maximum number of memory entries in a slot. Requests with more are written elsewhere.
pub const SLOT_ENTRIES: usize = 512;
/// Time to poll for a completion before sleeping, if there are cores to spare.
const SPIN: Duration = Duration::from_micros(20);
const MIN_CORES_TO_SPIN: usize = 4;

const REQUEST_HEADER_BYTES: usize = size_of::<RequestHeader>();
const REPLY_HEADER_BYTES: usize = size_of::<ReplyHeader>();

/// A request queue.
#[derive(Debug)]
pub struct RequestQueue {
    state: Mutex<State>,
    /// A completion was taken, a slot became free, or the leader left.
    changed: Condvar,
    /// The range of queue and slots.
    pub range: RamRange,
    /// Notifies the device of requests.
    pub kick: EventFd,
    /// The device reports completions.
    pub call: EventFd,
    payload_bytes: usize,
    spin: bool,
}

#[derive(Debug)]
struct State {
    ring: SplitRing,
    free: Vec<u16>,
    /// Bytes written by the device, once a slot is complete.
    written: [Option<u32>; SLOTS as usize],
    /// True if a thread sleeps on `call` for all waiting threads.
    leader: bool,
}

/// One request as the transport has it.
#[derive(Debug)]
pub struct Message<'a> {
    /// Head; its lengths are filled in here.
    pub header: RequestHeader,
    /// The payload.
    pub payload: &'a [u8],
    /// Memory that the device reads.
    pub input: &'a [MemEntry],
    /// Memory that the device writes or maps.
    pub output: &'a [MemEntry],
    /// Offset in the memfd of the place for a request that is too long for a slot: room for all of it, which no other
    /// request uses.
    pub elsewhere: Option<u64>,
}

/// The daemon at the other end of the connection.
#[derive(Debug)]
pub struct Peer {
    /// The socket whose hang-up ends the session.
    pub socket: RawFd,
    /// True once it has hung up.
    pub lost: AtomicBool,
}

impl Message<'_> {
    /// Bytes of the request.
    pub fn bytes(&self) -> usize {
        let entries = self.input.len() + self.output.len();
        REQUEST_HEADER_BYTES + self.payload.len() + entries * size_of::<MemEntry>()
    }
}

impl RequestQueue {
    /// Sets a queue up whose payloads and replies have up to `payload_bytes`.
    pub fn new(ram: &SharedRam, payload_bytes: usize) -> Result<Self, ClientError> {
        let bytes = Self::slots_offset() + usize::from(SLOTS) * Self::slot_bytes(payload_bytes);
        let range = ram.allocate(bytes)?;
        // SAFETY: the range is zeroed, page aligned, long enough, mapped for good and used by this ring only.
        let ring = unsafe { SplitRing::new(ram.at(range.offset), SLOTS) };
        let event = || EventFd::new(libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
        Ok(Self {
            state: Mutex::new(State {
                ring,
                free: (0..SLOTS).collect(),
                written: [None; SLOTS as usize],
                leader: false,
            }),
            changed: Condvar::new(),
            range,
            kick: event()?,
            call: event()?,
            payload_bytes,
            spin: std::thread::available_parallelism().is_ok_and(|n| n.get() >= MIN_CORES_TO_SPIN),
        })
    }

    fn slots_offset() -> usize {
        Layout::new(SLOTS).bytes.next_multiple_of(64)
    }

    fn request_bytes(payload_bytes: usize) -> usize {
        (REQUEST_HEADER_BYTES + payload_bytes + SLOT_ENTRIES * size_of::<MemEntry>()).next_multiple_of(64)
    }

    fn slot_bytes(payload_bytes: usize) -> usize {
        Self::request_bytes(payload_bytes) + (REPLY_HEADER_BYTES + payload_bytes).next_multiple_of(64)
    }

    /// Offset in the memfd of a slot's request; its reply follows.
    fn slot_offset(&self, slot: u16) -> u64 {
        let bytes = Self::slots_offset() + usize::from(slot) * Self::slot_bytes(self.payload_bytes);
        self.range.offset + bytes as u64
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message in a free slot and waits for the reply, whose payload is copied to `reply`. Returns its status
    /// and length.
    pub fn exchange(
        &self,
        slot: u16,
        ram: &SharedRam,
        message: &Message<'_>,
        reply: &mut [u8],
        peer: &Peer,
    ) -> Result<(u32, usize), ClientError> {
        let (payload, entries) = (message.payload.len(), message.input.len() + message.output.len());
        if payload > self.payload_bytes || (entries > SLOT_ENTRIES && message.elsewhere.is_none()) {
            self.give_back(slot);
            return Err(ClientError::Limit);
        }
        let request_offset = message.elsewhere.unwrap_or(self.slot_offset(slot));
        let request_bytes = write_request(ram, request_offset, message);
        let reply_room = REPLY_HEADER_BYTES + reply.len().min(self.payload_bytes);
        let reply_offset = self.slot_offset(slot) + Self::request_bytes(self.payload_bytes) as u64;
        let address = |offset| RamRange { offset, bytes: 0 }.guest_address();
        let readable = (address(request_offset), request_bytes as u32);
        let writable = (address(reply_offset), reply_room as u32);

        let mut state = self.lock();
        // A device that completed the slot while nothing was in it has not answered this request.
        state.written[usize::from(slot)] = None;
        if state.ring.submit(slot, readable, writable) {
            self.kick.write(1)?;
        }
        let written = self.await_slot(state, slot, peer)?;
        let outcome = self.read_reply(ram, reply_offset, written as usize, reply);
        self.give_back(slot);
        outcome
    }

    /// A free slot, if there is one.
    pub fn take_slot(&self) -> Option<u16> {
        self.lock().free.pop()
    }

    /// Waits for a while, or until the state of the queue changes.
    pub fn wait_for_slot(&self) {
        let state = self.lock();
        if state.free.is_empty() {
            let waited = self.changed.wait_timeout(state, SLOT_WAIT);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn give_back(&self, slot: u16) {
        self.lock().free.push(slot);
        self.changed.notify_all();
    }

    fn read_reply(
        &self,
        ram: &SharedRam,
        offset: u64,
        written: usize,
        reply: &mut [u8],
    ) -> Result<(u32, usize), ClientError> {
        let mut head = [0u8; REPLY_HEADER_BYTES];
        // SAFETY: the slot is this thread's and the device is done with it.
        unsafe { std::ptr::copy_nonoverlapping(ram.at(offset), head.as_mut_ptr(), REPLY_HEADER_BYTES) };
        let header = ReplyHeader::read_from_bytes(&head).map_err(|_| ClientError::Protocol)?;
        let bytes = header.payload_bytes as usize;
        let room = reply.len().min(self.payload_bytes);
        if bytes > room || (header.status == REPLY_OK && written < REPLY_HEADER_BYTES + bytes) {
            return Err(ClientError::Protocol);
        }
        // SAFETY: the slot is this thread's and the device is done with it; `bytes` was checked against both rooms.
        unsafe {
            std::ptr::copy_nonoverlapping(
                ram.at(offset + REPLY_HEADER_BYTES as u64),
                reply.as_mut_ptr(),
                bytes,
            );
        }
        Ok((header.status, bytes))
    }

    /// Waits until the device has completed `slot`. One thread (the leader) sleeps on the call descriptor
    /// for all that wait in this queue.
    fn await_slot<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        slot: u16,
        peer: &Peer,
    ) -> Result<u32, ClientError> {
        let mut spin_until = self.spin.then(|| Instant::now() + SPIN);
        loop {
            self.collect(&mut state);
            if let Some(written) = state.written[usize::from(slot)].take() {
                return Ok(written);
            }
            // The slot is not freed: the device may still write to it.
            if peer.lost.load(Ordering::Relaxed) {
                return Err(ClientError::SessionLost);
            }
            if spin_until.is_some_and(|until| Instant::now() < until) {
                drop(state);
                std::hint::spin_loop();
                state = self.lock();
            } else if state.leader {
                state = self.wait(state);
            } else {
                spin_until = None;
                state.leader = true;
                state.ring.set_interrupts(true);
                let sleep = !state.ring.has_completions();
                drop(state);
                if sleep {
                    self.sleep(peer);
                }
                state = self.lock();
                state.leader = false;
                self.changed.notify_all();
            }
        }
    }

    fn collect(&self, state: &mut State) {
        let mut any = false;
        // As many as can be in flight: a device that goes on completing must not keep the lock.
        for _ in 0..SLOTS {
            let Some(completion) = state.ring.pop() else { break };
            let Some(completion) = completion else { continue };
            if let Some(written) = state.written.get_mut(usize::from(completion.slot)) {
                *written = Some(completion.written);
                any = true;
            }
        }
        if any {
            self.changed.notify_all();
        }
    }

    /// Sleeps until the device signals or the connection breaks.
    fn sleep(&self, peer: &Peer) {
        let mut fds = [
            libc::pollfd { fd: self.call.as_raw_fd(), events: libc::POLLIN, revents: 0 },
            libc::pollfd { fd: peer.socket, events: libc::POLLRDHUP, revents: 0 },
        ];
        // SAFETY: the array is valid for its length. A signal's interruption is a wake-up like any other.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) };
        if fds[0].revents & libc::POLLIN != 0 {
            // Not blocking; if another thread read it first there is nothing left to read.
            let _ = self.call.read();
        }
        // Requests that the device has completed before the break are still taken.
        if fds[1].revents != 0 {
            peer.lost.store(true, Ordering::Relaxed);
        }
    }
}

/// Writes a request to byte `offset` of the memfd. Returns its length.
fn write_request(ram: &SharedRam, offset: u64, message: &Message<'_>) -> usize {
    let header = RequestHeader {
        payload_bytes: message.payload.len() as u32,
        in_entries: message.input.len() as u32,
        out_entries: message.output.len() as u32,
        ..message.header
    };
    let parts = [header.as_bytes(), message.payload, message.input.as_bytes(), message.output.as_bytes()];
    let start = ram.at(offset);
    let mut used = 0;
    for part in parts {
        // SAFETY: the slot is this thread's until it is freed, and `exchange` has checked that all parts
        // fit its request; for another place the maker of the message promised it.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), start.add(used), part.len()) };
        used += part.len();
    }
    used
}
