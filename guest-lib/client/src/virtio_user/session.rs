// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The transport over vhost-user: one session on one connection.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use virtio_cuda_protocol::transport::{
    FLAG_KEEP, FLAG_READ, Hello, MemEntry, OP_CALL, OP_HELLO, OP_OPEN, OP_SHARE, OP_UNPIN, Open, Opened,
    PROTOCOL_VERSION, REPLY_NO_RESOURCES, REPLY_OK, REPLY_SESSION_LOST, REPLY_VERSION, RequestHeader,
};
use zerocopy::{FromBytes, IntoBytes};

use super::handshake::Connection;
use super::memory::SharedRam;
use super::pages::{SharedPages, entries_of};
use super::queue::{Message, Peer, RequestQueue, SLOT_ENTRIES, SLOTS};
use super::staging::{BUFFER_BYTES, Buffer, KEPT_BUFFERS, Staging};
use crate::ClientError;
use crate::transport::{Limits, Pieces, Reply, Request, Transport, UserMemory};

/// Maximum bulk bytes per call, which limits images and names. Copies are divided into smaller pieces.
const MAX_BULK_BYTES: u64 = 1 << 30;

/// A session over a vhost-user connection.
pub struct VirtioUser {
    /// The session ends with its socket.
    connection: Connection,
    peer: Peer,
    ram: SharedRam,
    queues: Vec<RequestQueue>,
    pages: SharedPages,
    staging: Staging,
    limits: Limits,
    session: u64,
    next_tag: AtomicU64,
}

impl VirtioUser {
    /// Connects to the daemon at `path` and opens a session.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let mut connection = Connection::open(path)?;
        let ram = SharedRam::new()?;
        let payload_bytes = connection.config.max_payload_bytes as usize;
        let queues = (0..connection.queues)
            .map(|_| RequestQueue::new(&ram, payload_bytes))
            .collect::<Result<Vec<_>, _>>()?;
        connection.start(path, &ram, &queues)?;
        let bulk_bytes = connection.config.max_bulk_bytes.min(MAX_BULK_BYTES) as usize;
        let limits = Limits {
            payload_bytes,
            bulk_bytes,
            // Not 0, whatever the daemon says: copies are divided by it.
            copy_bytes: bulk_bytes.clamp(1, BUFFER_BYTES),
            // Each has a slot, so that none waits for another that waits for it.
            outstanding: connection.config.max_outstanding.min(u32::from(SLOTS) * connection.queues),
            kept_bytes: u64::MAX,
        };
        let mut this = Self {
            peer: Peer { socket: connection.as_raw_fd(), lost: AtomicBool::new(false) },
            connection,
            ram,
            queues,
            pages: SharedPages::default(),
            staging: Staging::default(),
            limits,
            session: 0,
            next_tag: AtomicU64::new(1),
        };
        this.hello()?;
        this.session = this.open_session()?;
        Ok(this)
    }

    fn hello(&self) -> Result<(), ClientError> {
        let ours = Hello { protocol_version: PROTOCOL_VERSION };
        let mut reply = [0u8; size_of::<Hello>()];
        let header = RequestHeader { op: OP_HELLO, ..Default::default() };
        match self.control(header, ours.as_bytes(), &mut reply) {
            // A refusal does not report the device's own version.
            Err(ClientError::Version { .. }) | Ok(_) => {}
            Err(error) => return Err(error),
        }
        let theirs = Hello::read_from_bytes(&reply).map_err(|_| ClientError::Protocol)?.protocol_version;
        if theirs == PROTOCOL_VERSION {
            Ok(())
        } else {
            Err(ClientError::Version { what: "virtio-cuda", ours: PROTOCOL_VERSION, theirs })
        }
    }

    fn open_session(&self) -> Result<u64, ClientError> {
        // SAFETY: neither call has preconditions.
        let (pid, uid) = unsafe { (libc::getpid() as u32, libc::getuid()) };
        let mut name = [0u8; 16];
        if let Ok(comm) = std::fs::read("/proc/self/comm") {
            let bytes = comm.trim_ascii_end();
            let length = bytes.len().min(name.len() - 1);
            name[..length].copy_from_slice(&bytes[..length]);
        }
        let mut reply = [0u8; size_of::<Opened>()];
        let header = RequestHeader { op: OP_OPEN, ..Default::default() };
        let no_session = |error| match error {
            ClientError::Limit => ClientError::Sessions,
            other => other,
        };
        self.control(header, Open { pid, uid, charged_uid: uid, name }.as_bytes(), &mut reply)
            .map_err(no_session)?;
        Ok(Opened::read_from_bytes(&reply).map_err(|_| ClientError::Protocol)?.session)
    }

    fn control(&self, header: RequestHeader, payload: &[u8], reply: &mut [u8]) -> Result<usize, ClientError> {
        self.send(0, Message { header, payload, input: &[], output: &[], elsewhere: None }, reply)
    }

    fn send(&self, thread: u32, mut message: Message<'_>, reply: &mut [u8]) -> Result<usize, ClientError> {
        let long = message.input.len() + message.output.len() > SLOT_ENTRIES;
        let list = if long { Some(self.staging.take(&self.ram, message.bytes())?) } else { None };
        message.elsewhere = list.as_ref().map(|list| list.range.offset);
        let (queue, slot) = self.take_slot(thread as usize)?;
        let (status, bytes) = queue.exchange(slot, &self.ram, &message, reply, &self.peer)?;
        match status {
            REPLY_OK => Ok(bytes),
            REPLY_SESSION_LOST => Err(ClientError::SessionLost),
            REPLY_NO_RESOURCES => Err(ClientError::Limit),
            REPLY_VERSION => {
                Err(ClientError::Version { what: "virtio-cuda", ours: PROTOCOL_VERSION, theirs: 0 })
            }
            _ => Err(ClientError::Protocol),
        }
    }

    /// Returns a free slot, of the thread's own queue if it has one. Requests wait for each other, so a thread must not wait
    /// for one queue while another has room. [`Limits::outstanding`] guarantees that a slot becomes free.
    fn take_slot(&self, thread: usize) -> Result<(&RequestQueue, u16), ClientError> {
        let own = thread % self.queues.len();
        let (before, from_own) = self.queues.split_at(own);
        loop {
            if self.peer.lost.load(Ordering::Relaxed) {
                return Err(ClientError::SessionLost);
            }
            let found = from_own.iter().chain(before).find_map(|queue| Some((queue, queue.take_slot()?)));
            match found {
                Some(found) => return Ok(found),
                None => self.queues[own].wait_for_slot(),
            }
        }
    }

    /// Returns the entries of `memory` for the device: its own addresses if the worker can map it, else those of a staging
    /// buffer.
    fn place(
        &self,
        memory: UserMemory,
        writes: bool,
    ) -> Result<(Vec<MemEntry>, Option<Buffer<'_>>), ClientError> {
        if memory.bytes == 0 {
            return Ok((Vec::new(), None));
        }
        if memory.bytes > self.limits.bulk_bytes {
            return Err(ClientError::Limit);
        }
        if let Some((entries, writable)) = self.pages.entries(memory) {
            return if writable || !writes { Ok((entries, None)) } else { Err(ClientError::Fault) };
        }
        let buffer = self.staging.take(&self.ram, memory.bytes)?;
        let entries = entries_of(buffer.range.guest_address(), memory.bytes as u64).collect();
        Ok((entries, Some(buffer)))
    }
}

impl Transport for VirtioUser {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn cache_bytes(&self) -> u64 {
        self.ram.bytes() / 4
    }

    /// Other memory of the memfd is kept already, or the library's own.
    fn can_track(&self, memory: UserMemory) -> bool {
        self.pages.scattered.hold(memory)
    }

    fn is_fresh(&self, tag: u64) -> bool {
        self.pages.scattered.is_fresh(tag)
    }

    fn pieces(&self, memory: UserMemory) -> Pieces {
        if self.pages.hold(memory) {
            return Pieces::in_place(self.limits.bulk_bytes);
        }
        // Other memory is first copied by the calling thread, which is slower than all later steps.
        Pieces { piece_bytes: self.limits.copy_bytes, at_once: KEPT_BUFFERS }
    }

    unsafe fn call(&self, request: Request<'_>) -> Result<Reply, ClientError> {
        let (input, input_buffer) = self.place(request.input, false)?;
        if let Some(buffer) = &input_buffer {
            let from = request.input.address as *const u8;
            // SAFETY: the input is readable by the contract of `Transport::call`; the buffer is at least as long and ours
            // alone.
            unsafe { from.copy_to_nonoverlapping(self.ram.at(buffer.range.offset), request.input.bytes) };
        }
        let (output, output_buffer) = if request.keep {
            let (entries, writable) = self.pages.entries(request.output).ok_or(ClientError::Fault)?;
            if !writable && !request.read_only {
                return Err(ClientError::Fault);
            }
            (entries, None)
        } else {
            self.place(request.output, true)?
        };
        let tag = if request.keep { self.next_tag.fetch_add(1, Ordering::Relaxed) } else { 0 };
        if request.track && !self.pages.scattered.track(tag, request.output) {
            return Err(ClientError::Fault);
        }
        let header = RequestHeader {
            op: OP_CALL,
            flags: if request.keep { FLAG_KEEP } else { 0 } | if request.read_only { FLAG_READ } else { 0 },
            session: self.session,
            tag,
            ..Default::default()
        };
        let message =
            Message { header, payload: request.payload, input: &input, output: &output, elsewhere: None };
        let bytes = self.send(request.thread, message, request.reply)?;
        if let Some(buffer) = &output_buffer
            && (request.delivers_output)(&request.reply[..bytes])
        {
            let from = self.ram.at(buffer.range.offset).cast_const();
            // SAFETY: the output is writable by the contract of `Transport::call`; the buffer is at least as long, and the
            // device is done with it.
            unsafe { from.copy_to_nonoverlapping(request.output.address as *mut u8, request.output.bytes) };
        }
        Ok(Reply { bytes, tag })
    }

    fn unpin(&self, tag: u64) -> Result<(), ClientError> {
        self.pages.scattered.forget(tag);
        let header = RequestHeader { op: OP_UNPIN, session: self.session, tag, ..Default::default() };
        self.control(header, &[], &mut []).map(|_| ())
    }

    fn share(&self, bytes: usize) -> Result<(*mut u8, u64), ClientError> {
        let range = self.ram.allocate(bytes)?;
        let entries: Vec<_> = entries_of(range.guest_address(), range.bytes).collect();
        let tag = range.offset;
        let header = RequestHeader { op: OP_SHARE, session: self.session, tag, ..Default::default() };
        let message = Message { header, payload: &[], input: &[], output: &entries, elsewhere: None };
        // After a failure the worker may have it: it is not used again.
        self.send(0, message, &mut [])?;
        Ok((self.ram.at(range.offset), tag))
    }

    fn map(&self, memory: UserMemory) -> Result<(), ClientError> {
        self.pages.map(&self.ram, memory)
    }

    fn unmap(&self, memory: UserMemory) {
        self.pages.unmap(&self.ram, memory);
    }

    fn adopt(&self, memory: UserMemory, read_only: bool) -> Result<(), ClientError> {
        self.pages.adopt(&self.ram, &self.connection, memory, read_only)
    }

    fn release(&self, memory: UserMemory) {
        self.pages.release(&self.ram, &self.connection, memory);
    }

    fn map_scattered(&self, bytes: usize) -> Option<UserMemory> {
        self.pages.scattered.map(&self.ram, bytes).ok()
    }

    fn unmap_scattered(&self, address: usize) -> bool {
        self.pages.scattered.unmap(address)
    }

    fn in_child(&self) {
        self.pages.part_from_parent();
        let events = self.queues.iter().flat_map(|queue| [queue.kick.as_raw_fd(), queue.call.as_raw_fd()]);
        for fd in events.chain([self.peer.socket, self.ram.fd()]) {
            // SAFETY: nothing uses or drops the transport in a forked child.
            unsafe { libc::close(fd) };
        }
    }
}
