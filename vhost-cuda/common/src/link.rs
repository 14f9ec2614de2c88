// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The link between the daemon and one worker: frames on a stream socket, in both directions.
//!
//! Both ends are the same program, but for workers that a daemon has taken over from the release before it. The layout is private
//! and in host byte order, and has a version ([`VERSION`]). The daemon does not trust a worker, which parses guest images: every
//! length that a worker sends is checked here.

use std::io::{self, Read, Write};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{SendFlags, send};
use virtio_cuda_protocol::transport::MemEntry;
use vmm_sys_util::sock_ctrl_msg::ScmSocket;
use zerocopy::{FromBytes, FromZeros, IntoBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::account::{Share, Terms};

/// The version of what follows, and of what workers ask on their other sockets ([`crate::images`], [`crate::exchange`]). It changes
/// with every frame that a worker of the release before would not understand, or would send differently.
pub const VERSION: u32 = 5;
/// The first version with [`TO_CONTENTS`], without which there is no [`TO_SAVE`] and no [`TO_LOAD`].
pub const VERSION_OF_CONTENTS: u32 = 5;
/// The first version with [`TO_LEAVE`], [`TO_STAY`] and [`TO_ENTER`].
pub const VERSION_OF_ENTERING: u32 = 4;
/// The first version with [`TO_STOP`], [`ENTERS_STOPPED`] and [`WITH_NOTHING`].
pub const VERSION_OF_STOPPING: u32 = 5;
/// The first version with [`TO_AHEAD`] and [`LEAVES_AHEAD`].
pub const VERSION_OF_AHEAD: u32 = 5;
/// The versions of workers that this daemon takes over: its own, and that of the release before. Daemons of version 1 write another
/// state, so their workers cannot come.
pub const VERSIONS: RangeInclusive<u32> = 2..=VERSION;

/// The maximum payload of a request and of a reply, in bytes (`Config::max_payload_bytes`).
pub const MAX_PAYLOAD_BYTES: u32 = 64 << 10;
/// The maximum bytes of user pages of one request in each direction (`Config::max_bulk_bytes`).
pub const MAX_BULK_BYTES: u64 = 64 << 20;
/// The maximum number of entries of one direction: one per page, plus one because the first may start inside a page.
pub const MAX_ENTRIES: u32 = (MAX_BULK_BYTES / 4096) as u32 + 1;
/// The maximum number of regions of guest memory (vhost-user's own limit of memory slots).
pub const MAX_REGIONS: u32 = 509;

/// [`ToWorker::kind`]: a call; payload, in entries and out entries follow.
pub const TO_CALL: u32 = 1;
/// [`ToWorker::kind`]: releases the memory that the call of `tag` kept.
pub const TO_UNPIN: u32 = 2;
/// [`ToWorker::kind`]: maps the out entries as a shared area with this `tag`.
pub const TO_SHARE: u32 = 3;
/// [`ToWorker::kind`]: a [`Region`] of guest memory as payload, with its file descriptor if the region has no number.
pub const TO_REGION: u32 = 4;
/// [`ToWorker::kind`]: the regions sent since the last such frame are the guest's memory from now on.
pub const TO_MEMORY: u32 = 5;
/// [`ToWorker::kind`]: ends the worker at once.
pub const TO_CLOSE: u32 = 6;
/// [`ToWorker::kind`]: the machine's account ([`crate::account`]): [`Terms`] as payload, with its file. Comes
/// first.
pub const TO_ACCOUNT: u32 = 7;
/// [`ToWorker::kind`]: moves the session's device memory to host memory; the payload is [`MoveTerms`]. A session that is suspended
/// in part is suspended further. The answer is a [`FROM_REPLY`] with the frame's id and [`Moved`] as payload. `REPLY_INVALID` if a
/// move is under way.
pub const TO_SUSPEND: u32 = 8;
/// [`ToWorker::kind`]: brings the device memory of a suspended session back; the payload is [`MoveTerms`], of which only the flags
/// count. Answered as [`TO_SUSPEND`].
pub const TO_RESUME: u32 = 9;
/// [`ToWorker::kind`]: the session stays suspended, and calls that wait for it to be resumed fail with
/// `CUDA_ERROR_OUT_OF_MEMORY`. No payload, no answer.
pub const TO_RESUME_REFUSED: u32 = 10;
/// [`ToWorker::kind`]: the contents that a running session has kept from its last suspension end. No payload, no answer.
pub const TO_FORGET: u32 = 11;
/// [`ToWorker::kind`]: records what the session does, for a profile ([`crate::recording`]); the payload is
/// [`crate::recording::START`], [`crate::recording::READ`] or [`crate::recording::STOP`], a `u32`. The answer is a [`FROM_REPLY`]
/// with the frame's id.
pub const TO_PROFILE: u32 = 12;

/// [`ToWorker::kind`]: the worker keeps so much host memory for contents from now on, ahead of need; the payload is the number of bytes
/// (`u64`), those of contents that are there included. No answer.
pub const TO_POOL: u32 = 13;

/// [`ToWorker::kind`]: describes the session's recipe. No payload. The answer is a [`FROM_REPLY`] with the frame's id and
/// [`crate::recipes::Description`].
pub const TO_RECIPE: u32 = 14;

/// [`ToWorker::kind`]: ends the driver's objects of a suspended session until it is resumed. No payload. The answer is as for
/// [`TO_RECIPE`], with the reason if the session is suspended as before.
pub const TO_DEEPEN: u32 = 15;

/// [`ToWorker::kind`]: moves the contents of a suspended session to the file of the [`TO_CONTENTS`] before, where they stay, and writes
/// their places to the pipe that comes along, as a stream of [`crate::parts`]. The answer is as for [`TO_RECIPE`], with the bytes of the
/// contents, or with the reason.
pub const TO_SAVE: u32 = 16;

/// [`ToWorker::kind`]: what [`TO_SAVE`] has written is safe: the contents leave host memory. No payload. Answered as [`TO_SAVE`].
pub const TO_SAVED: u32 = 17;

/// [`ToWorker::kind`]: takes the contents that are in the file of the [`TO_CONTENTS`] before, whose places come through the pipe that
/// comes along. The payload is the maximum host memory for them in bytes (`u64`). Answered as [`TO_SAVE`].
pub const TO_LOAD: u32 = 18;

/// [`ToWorker::kind`]: the deeply suspended session leaves for another worker. This one executes no further call, takes nothing more from
/// lanes, and writes the whole session to the pipe that comes along, as a stream of [`crate::parts`]. No payload. The answer is as for
/// [`TO_RECIPE`], with the bytes of the contents; with a reason, the session stays, and all goes on as before.
///
/// With a [`TO_CONTENTS`] before, the contents move to that file, and the stream has their places only. [`TO_ENTER`] needs the same
/// file then.
///
/// Requests that were sent before and are not answered go along, and keep their ids: the other worker answers them. The daemon sends no
/// other request until [`TO_STAY`], or ends this worker. Once it has answered, this worker does not write to guest memory.
pub const TO_LEAVE: u32 = 19;

/// [`ToWorker::kind`]: after [`TO_LEAVE`], the session stays, because the other worker could not take it. No payload, no answer. A call
/// that waits for the session's memory is reported again ([`FROM_WAKE`]).
pub const TO_STAY: u32 = 20;

/// [`ToWorker::kind`]: reads a session from the pipe that comes along, into a worker that has had none: after [`TO_ACCOUNT`],
/// [`TO_REGION`] and [`TO_MEMORY`], before all else. The payload is the maximum host memory for contents in bytes (`u64`). Answered as
/// [`TO_SAVE`]. The session is suspended deeply then, as it was in the worker before. After a failure this worker is of no use.
///
/// The account has the counter of the worker before, which has ended when this one charges the machine again.
pub const TO_ENTER: u32 = 21;

/// [`ToWorker::kind`]: a file comes along, for the contents of the request with the same id, which is the next frame, or after further files
/// ([`crate::parts::FILES`] at most), in which chunks lie in turn. Files in memory have a sealed length. Or a socket to the other worker, for the files that keep device memory on the card
/// ([`ON_CARD`], [`crate::parts::kind::HELD`]). No payload, no answer.
///
/// With the id [`NEXT_SUSPENSION`] contents of the next suspension go to the files at once, as far as these take them. They stay there when a [`TO_SAVE`]
/// comes with the same files. Without a file there are none any more.
pub const TO_CONTENTS: u32 = 22;
/// [`ToWorker::id`] of [`TO_CONTENTS`].
pub const NEXT_SUSPENSION: u64 = 0;
/// [`ToWorker::flags`] of [`TO_CONTENTS`] before [`TO_ENTER`] and [`TO_LOAD`]: the file has contents that were saved, as others may have it, too. It
/// can only be read, and its length is not sealed.
pub const ALREADY_SAVED: u32 = 1;
/// [`ToWorker::flags`] of [`TO_ENTER`]: the session's machine is stopped. Until [`TO_STAY`], before which guest memory comes, the worker
/// neither maps guest memory nor executes a call.
pub const ENTERS_STOPPED: u32 = 1;
/// [`ToWorker::flags`] of [`TO_ENTER`]: the worker brings the session's memory and objects back before it answers, while the other worker has
/// the session still. If that fails, the answer has the reason. A session for which the card has no room stays suspended. A worker that does
/// not know this flag brings nothing back.
pub const ENTERS_RUNNING: u32 = 2;

/// [`ToWorker::kind`]: the session's machine stops. The worker ends the calls that are under way, takes nothing more from lanes, and waits
/// until the device has done the session's work. The payload is the time for that in milliseconds (`u32`). The answer is as for
/// [`TO_RECIPE`]; with a reason, it may still write to guest memory. In both cases all goes on at [`TO_STAY`], and the daemon sends no
/// request of the program before.
///
/// A [`TO_LEAVE`] meanwhile writes a copy of the session, which stays stopped.
pub const TO_STOP: u32 = 23;

/// [`ToWorker::kind`]: writes contents of the session to the pipe that comes along, while it runs: chunks that have changed since they were
/// written last, and keeps a copy of them for the next suspension. The payload is [`AheadTerms`]. The stream is a part
/// [`PASS`](crate::parts::kind::PASS), chunks, and the end. The answer is as for [`TO_RECIPE`], with the bytes of the chunks, or with the
/// reason for which not all of them are written. A [`TO_STOP`] ends it before all are.
pub const TO_AHEAD: u32 = 24;
/// [`ToWorker::flags`] of [`TO_LEAVE`]: all chunks that [`TO_AHEAD`] has written are there, so that only their addresses are written where
/// they are the same still.
pub const LEAVES_AHEAD: u32 = 1;

/// Payload of [`TO_AHEAD`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct AheadTerms {
    /// The maximum host memory for contents, in bytes.
    pub budget_bytes: u64,
    /// 1: nothing was written before.
    pub is_first: u64,
}

/// [`FromWorker::kind`]: CUDA is initialised; the payload is [`Ready`].
pub const FROM_READY: u32 = 1;
/// [`FromWorker::kind`]: CUDA could not be initialised; the payload is the reason in UTF-8.
pub const FROM_FAILED: u32 = 2;
/// [`FromWorker::kind`]: the reply to request `id`.
pub const FROM_REPLY: u32 = 3;
/// [`FromWorker::kind`]: a call waits until the suspended session is resumed; no payload. Sent once per suspension, and once more
/// after each [`TO_RESUME_REFUSED`].
pub const FROM_WAKE: u32 = 4;

/// Head of a frame to the worker; `payload_bytes`, then in and out entries ([`MemEntry`]) follow.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ToWorker {
    /// `TO_*`.
    pub kind: u32,
    /// The request's `FLAG_*`.
    pub flags: u32,
    /// Identifies the request in its reply.
    pub id: u64,
    /// The request's tag.
    pub tag: u64,
    /// Bytes of payload that follow.
    pub payload_bytes: u32,
    /// Entries of memory that the worker reads.
    pub in_entries: u32,
    /// Entries of memory that the worker writes or maps.
    pub out_entries: u32,
    /// Room for the reply's payload in the request's chain, in bytes.
    pub reply_room: u32,
}

/// Head of a frame from the worker; `payload_bytes` follow.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FromWorker {
    /// `FROM_*`.
    pub kind: u32,
    /// `REPLY_*` of the transport.
    pub status: u32,
    /// The request that it answers.
    pub id: u64,
    /// Bytes of payload that follow.
    pub payload_bytes: u32,
    /// Zero.
    pub reserved: u32,
}

/// Bytes of a device's name in [`Ready`].
pub const NAME_BYTES: usize = 64;

/// Payload of [`FROM_READY`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Ready {
    /// The result of `cuDriverGetVersion`, such as 13000 for CUDA 13.0.
    pub driver_version: i32,
    /// The number of devices that libcuda reports.
    pub device_count: u32,
    /// The worker's [`VERSION`].
    pub link_version: u32,
    /// The name of device 0, NUL-padded.
    pub device_name: [u8; NAME_BYTES],
}

/// Payload of [`TO_REGION`]: the position of a piece of guest memory in the accompanying file.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Region {
    /// Guest-physical address of its first byte.
    pub guest_addr: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// Offset of its first byte in the file.
    pub file_offset: u64,
    /// The page size of the file in bytes: the smallest part that can be mapped.
    pub page_bytes: u64,
    /// The number of the file in the worker's mapper ([`crate::mapping`]). 0: the worker gets the file.
    pub number: u64,
}

/// The size in bytes of the chunks in which contents move: the driver's unit of physical memory.
pub const CHUNK_BYTES: u64 = 2 << 20;
/// The size in bytes of the blocks of a pool ([`TO_POOL`]): a copy of so many bytes takes little longer than the link needs.
pub const POOL_BLOCK_BYTES: u64 = 8 << 20;

/// [`MoveTerms::flags`]: as much moves as there is room for. Without it all moves, or nothing.
///
/// Contents that come back are not kept in host memory, so that each of two sessions can leave to where the other one was.
pub const IN_PIECES: u32 = 1;
/// [`MoveTerms::flags`]: a session is suspended also if it has no memory that moves.
pub const WITH_NOTHING: u32 = 2;
/// [`MoveTerms::flags`]: memory stays on the card, if all of it can: descriptors keep it, which another worker can get ([`TO_CONTENTS`]).
pub const ON_CARD: u32 = 4;

/// Payload of [`TO_SUSPEND`] and [`TO_RESUME`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MoveTerms {
    /// The maximum time in milliseconds until running calls and the device's work must have ended.
    pub deadline_ms: u32,
    /// [`IN_PIECES`], [`WITH_NOTHING`] and [`ON_CARD`].
    pub flags: u32,
    /// The maximum host memory for contents, in bytes.
    pub budget_bytes: u64,
    /// The devices whose memory leaves: a bit for each number of a device in the worker. 0: all, as on the way back.
    pub devices: u64,
}

impl MoveTerms {
    /// Returns whether memory of the device with this bit leaves.
    pub fn is_for(&self, device: u64) -> bool {
        self.devices == 0 || self.devices & device != 0
    }

    /// Returns whether as much moves as there is room for.
    pub fn is_in_pieces(&self) -> bool {
        self.flags & IN_PIECES != 0
    }

    /// Returns whether a session without memory that moves is suspended, too.
    pub fn is_with_nothing(&self) -> bool {
        self.flags & WITH_NOTHING != 0
    }

    /// Returns whether memory stays on the card if it can.
    pub fn is_on_card(&self) -> bool {
        self.flags & ON_CARD != 0
    }
}

/// [`Moved::outcome`]: done.
pub const MOVED: u32 = 0;
/// [`Moved::outcome`]: the session was in that state before.
pub const MOVED_BEFORE: u32 = 1;
/// [`Moved::outcome`]: calls or the device's work did not end in time. After all other failures of a suspension the contents of
/// the one before have ended.
pub const NOT_IDLE: u32 = 2;
/// [`Moved::outcome`]: the budget does not suffice, or the host has no memory.
pub const NO_HOST_MEMORY: u32 = 3;
/// [`Moved::outcome`]: the device has no memory (resume only).
pub const NO_DEVICE_MEMORY: u32 = 4;
/// [`Moved::outcome`]: the driver failed with [`Moved::cuda`].
pub const DRIVER_FAILED: u32 = 5;
/// [`Moved::outcome`]: contents in host memory have changed (resume only).
pub const CONTENTS_DIFFER: u32 = 6;
/// [`Moved::outcome`]: the session has no device memory that can be moved.
pub const NOTHING_MOVABLE: u32 = 7;
/// [`Moved::outcome`]: some memory has moved, and some has not for lack of room. The session is suspended ([`IN_PIECES`] only).
pub const MOVED_IN_PART: u32 = 8;

/// Payload of the answer to [`TO_SUSPEND`] and [`TO_RESUME`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Moved {
    /// [`MOVED`] to [`MOVED_IN_PART`]. After all but these two and [`MOVED_BEFORE`] the session is in the state that it was in before.
    pub outcome: u32,
    /// The driver's `CUresult`, or 0.
    pub cuda: u32,
    /// Device memory that the session has given back, in bytes: 0 once it is resumed.
    pub moved_bytes: u64,
    /// Host memory that holds contents, in bytes. Chunks of zeros take none. After a resumption it is kept until the next
    /// suspension, or until [`TO_FORGET`].
    pub stored_bytes: u64,
    /// The part of the contents that the suspension has copied, in bytes. The rest had not changed since the one before.
    pub copied_bytes: u64,
    /// Device memory that the session keeps while it is suspended, in bytes, as far as the worker allocated it.
    pub resident_bytes: u64,
    /// The part of that which could move, in bytes: more than 0 for a session that is suspended in part.
    pub movable_bytes: u64,
    /// The devices of that part, a bit for each.
    pub movable_devices: u64,
    /// After [`NO_DEVICE_MEMORY`] and [`MOVED_IN_PART`]: devices that have no memory for the rest, a bit for each.
    pub full_devices: u64,
    /// The duration in microseconds.
    pub micros: u64,
}

/// Encodes one frame to the worker.
pub fn encode_request(
    header: &ToWorker,
    payload: &[u8],
    in_entries: &[MemEntry],
    out_entries: &[MemEntry],
) -> Vec<u8> {
    let header = ToWorker {
        payload_bytes: payload.len() as u32,
        in_entries: in_entries.len() as u32,
        out_entries: out_entries.len() as u32,
        ..*header
    };
    let (ins, outs) = (in_entries.as_bytes(), out_entries.as_bytes());
    let mut frame = Vec::with_capacity(size_of::<ToWorker>() + payload.len() + ins.len() + outs.len());
    frame.extend_from_slice(header.as_bytes());
    frame.extend_from_slice(payload);
    frame.extend_from_slice(ins);
    frame.extend_from_slice(outs);
    frame
}

/// Writes as much of `bytes` as the socket accepts at once, and returns that length. Returns 0 on an error, which
/// occurs again when the rest is written.
pub fn write_now(stream: &UnixStream, bytes: &[u8]) -> usize {
    send(stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).unwrap_or(0)
}

/// Writes one [`TO_REGION`] frame together with the region's file.
pub fn send_region(stream: &UnixStream, region: &Region, file: impl AsFd) -> io::Result<()> {
    let header = ToWorker { kind: TO_REGION, ..ToWorker::default() };
    send_with_file(stream, &header, region.as_bytes(), file)
}

/// Writes one [`TO_REGION`] frame of a region whose file the worker's mapper has.
pub fn send_named_region(mut stream: &UnixStream, region: &Region) -> io::Result<()> {
    let header = ToWorker { kind: TO_REGION, ..ToWorker::default() };
    stream.write_all(&encode_request(&header, region.as_bytes(), &[], &[]))
}

/// Writes one [`TO_ACCOUNT`] frame together with the account's file.
pub fn send_account(stream: &UnixStream, terms: &Terms, file: impl AsFd) -> io::Result<()> {
    let header = ToWorker { kind: TO_ACCOUNT, ..ToWorker::default() };
    send_with_file(stream, &header, terms.as_bytes(), file)
}

/// Writes one frame without entries together with a file.
pub fn send_with_file(
    stream: &UnixStream,
    header: &ToWorker,
    payload: &[u8],
    file: impl AsFd,
) -> io::Result<()> {
    let header = ToWorker { payload_bytes: payload.len() as u32, ..*header };
    let sent = stream
        .send_with_fd(header.as_bytes(), file.as_fd().as_raw_fd())
        .map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
    let mut stream = stream;
    // A short write has sent the descriptor with its first byte.
    stream.write_all(&header.as_bytes()[sent..])?;
    stream.write_all(payload)
}

/// Writes one frame to the daemon.
pub fn send_reply(mut stream: &UnixStream, header: &FromWorker, payload: &[u8]) -> io::Result<()> {
    let header = FromWorker { payload_bytes: payload.len() as u32, ..*header };
    let mut frame = Vec::with_capacity(size_of::<FromWorker>() + payload.len());
    frame.extend_from_slice(header.as_bytes());
    frame.extend_from_slice(payload);
    stream.write_all(&frame)
}

/// Reads one frame of the worker. Returns `None` if the worker has ended.
///
/// Errors: a payload above [`MAX_PAYLOAD_BYTES`] (`InvalidData`), and the socket's errors.
pub fn receive_reply(mut stream: impl Read) -> io::Result<Option<(FromWorker, Vec<u8>)>> {
    let mut header = FromWorker::new_zeroed();
    match stream.read_exact(header.as_mut_bytes()) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        Err(error) => return Err(error),
    }
    if header.payload_bytes > MAX_PAYLOAD_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a worker sent an oversized reply"));
    }
    let mut payload = vec![0; header.payload_bytes as usize];
    stream.read_exact(&mut payload)?;
    Ok(Some((header, payload)))
}

/// One frame, decoded by the worker.
#[derive(Debug)]
pub struct Frame {
    /// The head.
    pub header: ToWorker,
    /// Opaque bytes.
    pub payload: Vec<u8>,
    /// Memory that the worker reads.
    pub in_entries: Vec<MemEntry>,
    /// Memory that the worker writes or maps.
    pub out_entries: Vec<MemEntry>,
    /// The file of a [`TO_REGION`], [`TO_ACCOUNT`] or [`TO_CONTENTS`], or the pipe of a [`TO_SAVE`], [`TO_LOAD`], [`TO_LEAVE`],
    /// [`TO_ENTER`] or [`TO_AHEAD`].
    pub file: Option<std::fs::File>,
}

impl Frame {
    /// Creates a call that did not arrive through the daemon.
    pub fn of_payload(header: ToWorker, payload: Vec<u8>) -> Self {
        let header = ToWorker { kind: TO_CALL, payload_bytes: payload.len() as u32, ..header };
        Self { header, payload, in_entries: Vec::new(), out_entries: Vec::new(), file: None }
    }
}

/// Reads one frame of the daemon. Returns `None` if the daemon has ended.
pub fn receive_frame(mut stream: &UnixStream) -> io::Result<Option<Frame>> {
    let mut header = ToWorker::new_zeroed();
    let (mut have, file) = loop {
        match stream.recv_with_fd(header.as_mut_bytes()) {
            Ok(received) => break received,
            Err(error) if error.errno() == libc::EINTR => {}
            Err(error) if error.errno() == libc::ECONNRESET => return Ok(None),
            Err(error) => return Err(io::Error::from_raw_os_error(error.errno())),
        }
    };
    if have == 0 {
        return Ok(None);
    }
    while have < size_of::<ToWorker>() {
        stream.read_exact(&mut header.as_mut_bytes()[have..])?;
        have = size_of::<ToWorker>();
    }
    if header.payload_bytes > MAX_PAYLOAD_BYTES
        || header.in_entries > MAX_ENTRIES
        || header.out_entries > MAX_ENTRIES
    {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the daemon sent an oversized frame"));
    }
    let mut payload = vec![0; header.payload_bytes as usize];
    stream.read_exact(&mut payload)?;
    let in_entries = receive_entries(stream, header.in_entries)?;
    let out_entries = receive_entries(stream, header.out_entries)?;
    Ok(Some(Frame { header, payload, in_entries, out_entries, file }))
}

fn receive_entries(mut stream: &UnixStream, count: u32) -> io::Result<Vec<MemEntry>> {
    let mut entries = vec![MemEntry::default(); count as usize];
    stream.read_exact(entries.as_mut_bytes())?;
    Ok(entries)
}

/// Returns the [`Region`] of a [`TO_REGION`] frame.
pub fn region_of(payload: &[u8]) -> io::Result<Region> {
    Region::read_from_bytes(payload)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a region frame of the wrong size"))
}

/// Returns the terms of a [`TO_SUSPEND`] or [`TO_RESUME`] frame. `None` for a payload of the wrong size, or with unknown flags.
pub fn move_terms_of(payload: &[u8]) -> Option<MoveTerms> {
    MoveTerms::read_from_bytes(payload)
        .ok()
        .filter(|terms| terms.flags & !(IN_PIECES | WITH_NOTHING | ON_CARD) == 0)
}

/// Returns the request of a [`TO_PROFILE`] frame. `None` for a payload of the wrong size.
pub fn profile_request(payload: &[u8]) -> Option<u32> {
    u32::read_from_bytes(payload).ok()
}

/// Returns the bytes of a [`TO_POOL`], [`TO_LOAD`] or [`TO_ENTER`] frame. `None` for a payload of the wrong size.
pub fn pool_of(payload: &[u8]) -> Option<u64> {
    u64::read_from_bytes(payload).ok()
}

/// Returns the terms of a [`TO_AHEAD`] frame. `None` for a payload of the wrong size.
pub fn ahead_terms_of(payload: &[u8]) -> Option<AheadTerms> {
    AheadTerms::read_from_bytes(payload).ok()
}

/// Returns the time of a [`TO_STOP`] frame. `None` for a payload of the wrong size.
pub fn stop_time_of(payload: &[u8]) -> Option<Duration> {
    u32::read_from_bytes(payload).ok().map(|millis| Duration::from_millis(millis.into()))
}

/// Returns the answer of a worker to [`TO_SUSPEND`] or [`TO_RESUME`]. `None` for a payload of the wrong size, or with an unknown
/// outcome.
pub fn moved_of(payload: &[u8]) -> Option<Moved> {
    Moved::read_from_bytes(payload).ok().filter(|moved| moved.outcome <= MOVED_IN_PART)
}

/// Returns the session's share of the account of a [`TO_ACCOUNT`] frame.
pub fn share_of(frame: &Frame) -> io::Result<Share> {
    let terms = Terms::read_from_bytes(&frame.payload);
    match (terms, &frame.file) {
        (Ok(terms), Some(file)) => Share::map(terms, file),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "an account frame of the wrong size")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn frames_arrive_whole_and_with_their_file() {
        let (daemon, worker) = UnixStream::pair().unwrap();
        let file = tempfile();
        file.write_all_at(b"guest memory", 0).unwrap();
        let sent = Region { guest_addr: 0x1000, bytes: 12, file_offset: 0, page_bytes: 4096, number: 0 };
        send_region(&daemon, &sent, &file).unwrap();
        let entry = MemEntry { addr: 0x2000, bytes: 7, reserved: 0 };
        let header = ToWorker { kind: TO_CALL, id: 9, reply_room: 100, ..ToWorker::default() };
        (&daemon).write_all(&encode_request(&header, b"payload", &[entry], &[entry, entry])).unwrap();

        let region = receive_frame(&worker).unwrap().unwrap();
        assert_eq!(region_of(&region.payload).unwrap().guest_addr, 0x1000);
        let mut bytes = [0; 12];
        region.file.unwrap().read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"guest memory");
        let call = receive_frame(&worker).unwrap().unwrap();
        assert_eq!((call.header.id, &call.payload[..]), (9, &b"payload"[..]));
        assert_eq!((call.in_entries.len(), call.out_entries.len()), (1, 2));
        assert!(call.file.is_none());
        drop(daemon);
        assert!(receive_frame(&worker).unwrap().is_none());
    }

    #[test]
    fn an_oversized_reply_is_refused() {
        let (daemon, worker) = UnixStream::pair().unwrap();
        let header = FromWorker { payload_bytes: MAX_PAYLOAD_BYTES + 1, ..FromWorker::default() };
        (&worker).write_all(header.as_bytes()).unwrap();
        assert_eq!(receive_reply(&daemon).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn moves_are_checked_at_both_ends() {
        let terms = MoveTerms { deadline_ms: 1000, flags: IN_PIECES, budget_bytes: 1 << 30, devices: 2 };
        assert!(terms.is_for(2) && !terms.is_for(5) && MoveTerms::default().is_for(1));
        assert_eq!(move_terms_of(terms.as_bytes()), Some(terms));
        assert_eq!(move_terms_of(MoveTerms { flags: ON_CARD << 1, ..terms }.as_bytes()), None);
        assert_eq!(move_terms_of(&terms.as_bytes()[1..]), None);
        let moved = Moved { outcome: MOVED_IN_PART, micros: 3, ..Moved::default() };
        assert_eq!(moved_of(moved.as_bytes()), Some(moved));
        assert_eq!(moved_of(Moved { outcome: MOVED_IN_PART + 1, ..moved }.as_bytes()), None);
        assert_eq!(moved_of(&[]), None);
    }

    fn tempfile() -> std::fs::File {
        vmm_sys_util::tempfile::TempFile::new().unwrap().into_file()
    }
}
