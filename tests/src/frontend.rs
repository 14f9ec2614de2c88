// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A front-end and driver in one, with its own guest memory, that can send any message a test needs.

use std::fs::File;
use std::io::{PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use vhost::VhostBackend;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserProtocolFeatures,
    VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostUserMemoryRegionInfo, VringConfigData};
use virtio_cuda_protocol::cuda::{
    CALL_IN_INLINE, CALL_INTERNAL, CALL_OUT_INLINE, CALL_TABLE_VERSION, CallHeader, Opcode, ResultHeader,
};
use virtio_cuda_protocol::transport::{
    Config, Hello, MemEntry, OP_CALL, OP_CLOSE, OP_HELLO, OP_OPEN, Open, Opened, PROTOCOL_VERSION, REPLY_OK,
    ReplyHeader, RequestHeader,
};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};
use zerocopy::{FromBytes, IntoBytes};

use crate::ring::{Descriptor, NEXT, QUEUE_BYTES, QUEUE_SIZE, Ring, Used, WRITE};

/// Guest memory: two regions with a hole between them.
pub const LOW: u64 = 0x10_0000;
/// Bytes of the lower region.
pub const LOW_BYTES: u64 = 512 << 20;
/// Start of the upper region; what lies between is no memory.
pub const HIGH: u64 = 0x4000_0000;
/// Bytes of the upper region.
pub const HIGH_BYTES: u64 = 16 << 20;

/// Time limit for a well-formed request: the first one may wait for a worker.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Requests that can be outstanding in a queue.
pub const SLOTS: u16 = 64;
/// Descriptors of a slot.
const SLOT_DESCRIPTORS: u16 = QUEUE_SIZE / SLOTS;
/// Bytes of a slot's readable and of its writable buffer.
pub const BUFFER_BYTES: u64 = 128 << 10;
const RINGS: u64 = LOW;
const BUFFERS: u64 = LOW + (1 << 20);

/// The device's answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// `REPLY_*`.
    pub status: u32,
    /// The payload.
    pub payload: Vec<u8>,
    /// The entry of the used ring.
    pub used: Used,
}

impl Reply {
    /// The slot of the request that this answers.
    pub fn slot(&self) -> usize {
        self.used.head as usize / usize::from(SLOT_DESCRIPTORS)
    }
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallResult {
    /// The `CUresult`.
    pub result: i32,
    /// `RESULT_*` bits.
    pub flags: u32,
    /// The row's results.
    pub results: Vec<u8>,
    /// Inline bulk output.
    pub bulk: Vec<u8>,
}

/// All fields of a call's payload that describe it. The defaults are well-formed.
#[derive(Clone, Debug, Default)]
pub struct CallParts {
    /// Number of the call.
    pub opcode: u32,
    /// Guest thread.
    pub thread: u32,
    /// Current context.
    pub context: u64,
    /// Argument bytes.
    pub args: Vec<u8>,
    /// Inline bulk input.
    pub bulk: Vec<u8>,
    /// Bytes of inline bulk output that are asked for.
    pub bulk_out_bytes: u64,
    /// True for a call that a library makes for itself.
    pub internal: bool,
}

impl CallParts {
    /// A call with arguments and nothing else.
    pub fn new(opcode: Opcode, args: &[u8]) -> Self {
        Self { opcode: opcode as u32, thread: 1, args: args.into(), ..Self::default() }
    }

    /// With inline bulk input.
    pub fn bulk(self, bulk: &[u8]) -> Self {
        Self { bulk: bulk.into(), ..self }
    }

    /// With inline bulk output.
    pub fn wants(self, bulk_out_bytes: u64) -> Self {
        Self { bulk_out_bytes, ..self }
    }

    /// In this context.
    pub fn context(self, context: u64) -> Self {
        Self { context, ..self }
    }

    /// As a call that the library makes for itself.
    pub fn internal(self) -> Self {
        Self { internal: true, ..self }
    }

    /// Its head, as a well-behaved library writes it.
    pub fn header(&self) -> CallHeader {
        CallHeader {
            opcode: self.opcode,
            thread: self.thread,
            context: self.context,
            args_bytes: self.args.len() as u32,
            flags: CALL_IN_INLINE | CALL_OUT_INLINE | if self.internal { CALL_INTERNAL } else { 0 },
            bulk_in_bytes: self.bulk.len() as u64,
            bulk_out_bytes: self.bulk_out_bytes,
        }
    }

    /// The payload under a head that may lie.
    pub fn payload(&self, header: &CallHeader) -> Vec<u8> {
        [header.as_bytes(), &self.args, &self.bulk].concat()
    }
}

/// The front-end. Dropping it closes the connection.
pub struct FakeFrontend {
    vhost: Frontend,
    /// Its guest memory.
    pub memory: GuestMemoryMmap,
    /// The request queues, then the event queue.
    pub rings: Vec<Ring>,
    /// The configuration space as the device gave it.
    pub config: Config,
}

impl std::fmt::Debug for FakeFrontend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeFrontend").field("config", &self.config).finish_non_exhaustive()
    }
}

impl FakeFrontend {
    /// Connects and starts every queue; `features` are accepted besides the ones that are needed.
    pub fn connect_with(socket: &Path, features: u64) -> Result<Self> {
        Self::attach(socket, features, guest_memory()?)
    }

    /// Connects as the same machine does after it has lost its backend: with the memory that it had before.
    pub fn connect_again(socket: &Path, memory: GuestMemoryMmap) -> Result<Self> {
        // Its driver is restarted, too.
        memory.write_slice(&vec![0; (BUFFERS - RINGS) as usize], GuestAddress(RINGS))?;
        Self::attach(socket, 0, memory)
    }

    fn attach(socket: &Path, features: u64, memory: GuestMemoryMmap) -> Result<Self> {
        let mut vhost = Frontend::connect(socket, 17).context("Cannot connect to the daemon")?;
        vhost.set_owner()?;
        let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        let offered = vhost.get_features()?;
        vhost.set_features(offered & (features | protocol | 1 << 32))?;
        let wanted = VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::DEVICE_STATE
            | VhostUserProtocolFeatures::RESET_DEVICE;
        let protocol_features = vhost.get_protocol_features()? & wanted;
        vhost.set_protocol_features(protocol_features)?;
        let zeros = [0u8; size_of::<Config>()];
        let (_, bytes) = vhost.get_config(0, zeros.len() as u32, VhostUserConfigFlags::WRITABLE, &zeros)?;
        let config = Config::read_from_bytes(&bytes).ok().context("The configuration space is too short")?;
        show_memory(&vhost, &memory)?;
        let mut rings = Vec::new();
        for queue in 0..=u64::from(config.num_request_queues.min(16)) {
            rings.push(Ring::new(memory.clone(), RINGS + queue * QUEUE_BYTES)?);
        }
        let mut frontend = Self { vhost, memory, rings, config };
        for queue in 0..frontend.rings.len() {
            frontend.start_queue(queue, 0)?;
        }
        Ok(frontend)
    }

    /// Connects as a well-behaved front-end does.
    pub fn connect(socket: &Path) -> Result<Self> {
        Self::connect_with(socket, 0)
    }

    /// Stops a queue. Returns the index of its next entry of the available ring.
    pub fn stop_queue(&mut self, queue: usize) -> Result<u16> {
        Ok(u16::try_from(self.vhost.get_vring_base(queue)?)?)
    }

    /// Starts a queue whose next entry of the available ring has that index.
    pub fn start_queue(&mut self, queue: usize, base: u16) -> Result<()> {
        let ring = &self.rings[queue];
        let host =
            |address| -> Result<u64> { Ok(self.memory.get_host_address(GuestAddress(address))? as u64) };
        let config = VringConfigData {
            queue_max_size: QUEUE_SIZE,
            queue_size: QUEUE_SIZE,
            flags: 0,
            desc_table_addr: host(ring.descriptors())?,
            used_ring_addr: host(ring.used())?,
            avail_ring_addr: host(ring.available())?,
            log_addr: None,
        };
        self.vhost.set_vring_num(queue, QUEUE_SIZE)?;
        self.vhost.set_vring_addr(queue, &config)?;
        self.vhost.set_vring_base(queue, base)?;
        self.vhost.set_vring_call(queue, &ring.call)?;
        self.vhost.set_vring_kick(queue, &ring.kick)?;
        self.vhost.set_vring_enable(queue, true)?;
        Ok(())
    }

    /// Returns whether the daemon has closed the connection.
    pub fn is_disconnected(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.vhost.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd for the duration of the call.
        unsafe { libc::poll(&raw mut poll, 1, 0) };
        poll.revents & (libc::POLLHUP | libc::POLLIN) != 0
    }

    /// Shows the device its memory once more, as after a change.
    pub fn show_memory_again(&self) -> Result<()> {
        show_memory(&self.vhost, &self.memory)
    }

    /// Resets the device as a VMM does, and waits until it is stopped. An error: the device has hung up.
    pub fn reset(&mut self) -> Result<()> {
        self.vhost.reset_device()?;
        self.vhost.get_vring_base(0)?;
        Ok(())
    }

    /// Saves the device's state as a VMM does that stops the machine for it, and lets it go on. An error: the device refuses.
    pub fn save(&mut self) -> Result<Vec<u8>> {
        let queues = 0..self.rings.len();
        let bases = queues.map(|queue| self.stop_queue(queue)).collect::<Result<Vec<_>>>()?;
        let saved = self.saved();
        for (queue, base) in bases.into_iter().enumerate() {
            self.start_queue(queue, base)?;
        }
        saved
    }

    /// Loads a state as a VMM does in a machine that runs. An error: the device refuses. The machine goes on at the beginning of its queues.
    pub fn load(&mut self, state: &[u8]) -> Result<()> {
        for queue in 0..self.rings.len() {
            self.stop_queue(queue)?;
        }
        let (reader, mut writer) = std::io::pipe()?;
        let (direction, phase) = (VhostTransferStateDirection::LOAD, VhostTransferStatePhase::STOPPED);
        self.vhost.set_device_state_fd(direction, phase, reader.into())?;
        // A device that refuses reads no further.
        let _ = writer.write_all(state);
        drop(writer);
        let loaded = self.vhost.check_device_state();
        self.memory.write_slice(&vec![0; (BUFFERS - RINGS) as usize], GuestAddress(RINGS))?;
        for queue in 0..self.rings.len() {
            self.rings[queue] = Ring::new(self.memory.clone(), RINGS + queue as u64 * QUEUE_BYTES)?;
            self.start_queue(queue, 0)?;
        }
        Ok(loaded?)
    }

    /// Begins to load a state, of which nothing comes as long as the pipe is held. An error: the device refuses.
    pub fn begin_to_load(&self) -> Result<PipeWriter> {
        let (reader, writer) = std::io::pipe()?;
        let (direction, phase) = (VhostTransferStateDirection::LOAD, VhostTransferStatePhase::STOPPED);
        self.vhost.set_device_state_fd(direction, phase, reader.into())?;
        Ok(writer)
    }

    fn saved(&self) -> Result<Vec<u8>> {
        let (mut reader, writer) = std::io::pipe()?;
        let (direction, phase) = (VhostTransferStateDirection::SAVE, VhostTransferStatePhase::STOPPED);
        self.vhost.set_device_state_fd(direction, phase, writer.into())?;
        let mut state = Vec::new();
        reader.read_to_end(&mut state)?;
        self.vhost.check_device_state()?;
        Ok(state)
    }

    /// Cuts the memory's first file short.
    pub fn truncate_memory(&self, bytes: u64) -> Result<()> {
        let region = self.memory.iter().next().context("no memory")?;
        let file = region.file_offset().context("memory without a file")?;
        Ok(file.file().set_len(bytes)?)
    }

    /// Guest-physical address of a slot's readable buffer.
    pub fn readable(&self, queue: usize, slot: u16) -> u64 {
        BUFFERS + (queue as u64 * u64::from(SLOTS) + u64::from(slot)) * 2 * BUFFER_BYTES
    }

    /// Guest-physical address of a slot's writable buffer.
    pub fn writable(&self, queue: usize, slot: u16) -> u64 {
        self.readable(queue, slot) + BUFFER_BYTES
    }

    /// Puts a chain of these descriptors into a slot and offers it; `next` is filled in.
    pub fn offer_chain(&mut self, queue: usize, slot: u16, chain: &[Descriptor]) -> Result<()> {
        if chain.len() > usize::from(SLOT_DESCRIPTORS) {
            bail!("a slot has {SLOT_DESCRIPTORS} descriptors");
        }
        let head = slot * SLOT_DESCRIPTORS;
        for (index, descriptor) in (0u16..).zip(chain) {
            let more = usize::from(index) + 1 < chain.len();
            let flags = descriptor.flags | if more { NEXT } else { 0 };
            self.rings[queue]
                .describe(head + index, Descriptor { flags, next: head + index + 1, ..*descriptor })?;
        }
        self.rings[queue].offer(head)?;
        self.rings[queue].kick()
    }

    /// Offers a request of these readable bytes with room for a reply, in the usual two descriptors.
    pub fn submit(&mut self, queue: usize, slot: u16, bytes: &[u8], room: u32) -> Result<()> {
        let (from, to) = (self.readable(queue, slot), self.writable(queue, slot));
        self.memory.write_slice(bytes, GuestAddress(from))?;
        // The rest of an earlier reply must not be taken for this one.
        self.memory.write_obj(ReplyHeaderBytes::POISON, GuestAddress(to))?;
        let mut chain = vec![Descriptor { addr: from, len: bytes.len() as u32, ..Default::default() }];
        if room > 0 {
            chain.push(Descriptor { addr: to, len: room, flags: WRITE, next: 0 });
        }
        self.offer_chain(queue, slot, &chain)
    }

    /// Waits for the next reply of a queue; `None`: nothing came, or a chain without a reply in it.
    pub fn reply(&mut self, queue: usize, limit: Duration) -> Result<Option<Reply>> {
        let Some(used) = self.rings[queue].next_used(limit)? else { return Ok(None) };
        if used.head >= u32::from(QUEUE_SIZE) || u64::from(used.bytes) > BUFFER_BYTES {
            bail!("the device gave back nonsense: {used:?}");
        }
        if (used.bytes as usize) < size_of::<ReplyHeader>() {
            return Ok(None);
        }
        let slot = used.head as u16 / SLOT_DESCRIPTORS;
        let mut bytes = vec![0; used.bytes as usize];
        self.memory.read_slice(&mut bytes, GuestAddress(self.writable(queue, slot)))?;
        let (header, payload) = ReplyHeader::read_from_prefix(&bytes).ok().context("A short reply")?;
        if header.payload_bytes as usize > payload.len() {
            bail!("the device announced {} bytes and wrote {}", header.payload_bytes, payload.len());
        }
        let payload = payload[..header.payload_bytes as usize].to_vec();
        Ok(Some(Reply { status: header.status, payload, used }))
    }

    /// Submits raw request bytes in queue 0 and waits for the reply.
    pub fn exchange(&mut self, bytes: &[u8], room: u32) -> Result<Reply> {
        self.submit(0, 0, bytes, room)?;
        self.reply(0, PATIENCE)?.with_context(|| format!("No reply to a request of {} bytes", bytes.len()))
    }

    /// Submits a request whose header counts are right.
    pub fn request(
        &mut self,
        header: RequestHeader,
        payload: &[u8],
        pages: [&[MemEntry]; 2],
    ) -> Result<Reply> {
        let header = RequestHeader {
            payload_bytes: payload.len() as u32,
            in_entries: pages[0].len() as u32,
            out_entries: pages[1].len() as u32,
            ..header
        };
        let bytes = [header.as_bytes(), payload, pages[0].as_bytes(), pages[1].as_bytes()].concat();
        self.exchange(&bytes, BUFFER_BYTES as u32)
    }

    /// Sends the greeting with a version of the protocol.
    pub fn hello(&mut self, protocol_version: u32) -> Result<Reply> {
        let header = RequestHeader { op: OP_HELLO, ..Default::default() };
        self.request(header, Hello { protocol_version }.as_bytes(), [&[], &[]])
    }

    /// Asks for a session.
    pub fn open(&mut self) -> Result<Reply> {
        self.open_as(1000)
    }

    /// Asks for a session of this user.
    pub fn open_as(&mut self, uid: u32) -> Result<Reply> {
        self.open_charged(uid, uid)
    }

    /// As [`Self::open_as`], for a user of a namespace that `charged_uid` owns.
    pub fn open_charged(&mut self, uid: u32, charged_uid: u32) -> Result<Reply> {
        let open = Open { pid: 4711, uid, charged_uid, name: *b"fake-frontend\0\0\0" };
        self.request(RequestHeader { op: OP_OPEN, ..Default::default() }, open.as_bytes(), [&[], &[]])
    }

    /// Sends the greeting and opens a session.
    pub fn open_session(&mut self) -> Result<u64> {
        let hello = self.hello(PROTOCOL_VERSION)?;
        if hello.status != REPLY_OK {
            bail!("hello was answered with status {}", hello.status);
        }
        let reply = self.open()?;
        if reply.status != REPLY_OK {
            bail!("open was answered with status {}", reply.status);
        }
        Ok(Opened::read_from_bytes(&reply.payload).ok().context("A malformed reply to open")?.session)
    }

    /// Ends a session.
    pub fn close(&mut self, session: u64) -> Result<Reply> {
        self.request(RequestHeader { op: OP_CLOSE, session, ..Default::default() }, &[], [&[], &[]])
    }

    /// Carries a call's payload, whatever it holds.
    pub fn carry(&mut self, session: u64, payload: &[u8], pages: [&[MemEntry]; 2]) -> Result<Reply> {
        self.request(RequestHeader { op: OP_CALL, session, ..Default::default() }, payload, pages)
    }

    /// Makes a well-formed call; fails unless the transport carries it.
    pub fn call(&mut self, session: u64, parts: &CallParts) -> Result<CallResult> {
        let reply = self.carry(session, &parts.payload(&parts.header()), [&[], &[]])?;
        if reply.status != REPLY_OK {
            bail!("call {:#06x} was answered with status {}", parts.opcode, reply.status);
        }
        parse_result(&reply.payload)
    }

    /// Everything a good program does at first: proves that the daemon serves others.
    pub fn behave(socket: &Path) -> Result<()> {
        let mut frontend = Self::connect(socket)?;
        let session = frontend.open_session()?;
        let hello = CallParts::new(Opcode::session_hello, &CALL_TABLE_VERSION.to_le_bytes());
        let answer = frontend.call(session, &hello)?;
        if answer.result != 0 {
            bail!("session_hello answered {}", answer.result);
        }
        let closed = frontend.close(session)?;
        if closed.status != REPLY_OK {
            bail!("close was answered with status {}", closed.status);
        }
        Ok(())
    }
}

struct ReplyHeaderBytes;
impl ReplyHeaderBytes {
    const POISON: u64 = 0xdead_dead_dead_dead;
}

/// Splits the payload of a call's reply.
pub fn parse_result(payload: &[u8]) -> Result<CallResult> {
    let (header, rest) = ResultHeader::read_from_prefix(payload).ok().context("A short result")?;
    let (results, bulk) =
        rest.split_at_checked(header.results_bytes as usize).context("Results are missing")?;
    if bulk.len() != header.bulk_out_bytes as usize {
        bail!("{} bytes of bulk announced, {} came", header.bulk_out_bytes, bulk.len());
    }
    Ok(CallResult { result: header.result, flags: header.flags, results: results.into(), bulk: bulk.into() })
}

fn show_memory(vhost: &Frontend, memory: &GuestMemoryMmap) -> Result<()> {
    let regions = memory.iter().map(VhostUserMemoryRegionInfo::from_guest_region);
    let regions = regions.collect::<Result<Vec<_>, _>>()?;
    vhost.set_mem_table(&regions)?;
    Ok(())
}

fn guest_memory() -> Result<GuestMemoryMmap> {
    let ranges = [
        (GuestAddress(LOW), LOW_BYTES as usize, Some(FileOffset::new(memory_file(LOW_BYTES)?, 0))),
        (GuestAddress(HIGH), HIGH_BYTES as usize, Some(FileOffset::new(memory_file(HIGH_BYTES)?, 0))),
    ];
    Ok(GuestMemoryMmap::from_ranges_with_files(ranges)?)
}

/// As a VMM's: the kernel lets the GPU pin no pages of a file on a disk.
fn memory_file(bytes: u64) -> Result<File> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"fake-frontend".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error()).context("memfd_create");
    }
    // SAFETY: the descriptor was made just above and nobody else has it.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(bytes)?;
    Ok(file)
}
