// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The virtio-cuda device: configuration space, virtqueues and request format.
//!
//! All integers are little-endian (virtio 1.3, section 1.4). This file is also compiled into the guest
//! kernel module: `core` and zerocopy only, nothing newer than Rust 1.85.
//!
//! Virtqueues: `requestq0 … requestq(n-1)` and, last, `eventq`, where n is
//! [`Config::num_request_queues`].

use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Virtio device id: the last one that Linux' virtio-pci takes (PCI 0x107f).
pub const VIRTIO_ID_CUDA: u32 = 63;
/// Version of this file. Driver and device refuse each other when it differs.
pub const PROTOCOL_VERSION: u32 = 2;
/// First word of the configuration space, "VCUD".
pub const CONFIG_MAGIC: u32 = u32::from_le_bytes(*b"VCUD");
/// The maximum number of request queues of a device.
pub const MAX_REQUEST_QUEUES: u32 = 16;
/// Bytes of a guest page; every entry of a kept page list is a multiple of it.
pub const PAGE_BYTES: u64 = 4096;

/// [`Config::status`]: the VMM is connected to the backend. While it is clear, requests wait in the ring
/// and every session is lost.
pub const STATUS_BACKEND_UP: u32 = 1 << 0;

/// Device configuration space.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Config {
    /// [`CONFIG_MAGIC`].
    pub magic: u32,
    /// [`PROTOCOL_VERSION`] of the device.
    pub protocol_version: u32,
    /// Request queues, 1 to [`MAX_REQUEST_QUEUES`]; `eventq` follows them.
    pub num_request_queues: u32,
    /// Maximum payload of a request and of a reply, in bytes.
    pub max_payload_bytes: u32,
    /// Maximum number of bytes of user pages per request, in each direction.
    pub max_bulk_bytes: u64,
    /// Maximum number of open sessions.
    pub max_sessions: u32,
    /// Maximum number of outstanding requests per session.
    pub max_outstanding: u32,
    /// `STATUS_*` bits, maintained by the VMM; a configuration interrupt announces a change.
    pub status: u32,
    /// Written by the driver at probe, so that a refusal shows on both sides.
    pub driver_version: u32,
    /// Zero.
    pub reserved: [u32; 6],
}
const _: () = assert!(core::mem::size_of::<Config>() == 64);
const _: () = assert!(core::mem::offset_of!(Config, status) == 32);
const _: () = assert!(core::mem::offset_of!(Config, driver_version) == 36);

/// First request of a driver. Payload: [`Hello`]. The device ends every session it still has.
pub const OP_HELLO: u32 = 1;
/// Opens a session (one open of `/dev/virtio-cuda`). Payload: [`Open`]; reply: [`Opened`].
pub const OP_OPEN: u32 = 2;
/// Ends a session. The device replies once the session can no longer access guest memory.
pub const OP_CLOSE: u32 = 3;
/// Carries one opaque call of a session. With [`FLAG_KEEP`], the out entries stay valid until [`OP_UNPIN`].
pub const OP_CALL: u32 = 4;
/// Takes back the kept pages with this `tag`. The device replies once they are no longer mapped.
pub const OP_UNPIN: u32 = 5;
/// Gives a session the pages of an area that driver and process share (an mmap of the device file). The
/// out entries stay valid until [`OP_CLOSE`]; `tag` is the area's offset in the device file.
pub const OP_SHARE: u32 = 6;

/// [`RequestHeader::flags`]: the out entries are kept under [`RequestHeader::tag`] after the reply.
pub const FLAG_KEEP: u32 = 1 << 0;
/// [`RequestHeader::flags`], with [`FLAG_KEEP`]: the device only reads the kept memory.
pub const FLAG_READ: u32 = 1 << 1;

/// Head of the device-readable part. It is followed by `payload_bytes` of payload, then `in_entries` and
/// `out_entries` of [`MemEntry`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RequestHeader {
    /// `OP_*`.
    pub op: u32,
    /// `FLAG_*`.
    pub flags: u32,
    /// Session that [`OP_OPEN`] answered; 0 for [`OP_HELLO`] and [`OP_OPEN`].
    pub session: u64,
    /// Bytes of payload that follow.
    pub payload_bytes: u32,
    /// Entries of memory that the device reads.
    pub in_entries: u32,
    /// Entries of memory that the device writes (or maps, with [`FLAG_KEEP`] and [`OP_SHARE`]).
    pub out_entries: u32,
    /// Zero.
    pub reserved: u32,
    /// Tag of kept pages, chosen by the driver, unique in the session; else 0.
    pub tag: u64,
}
const _: () = assert!(core::mem::size_of::<RequestHeader>() == 40);

/// A piece of guest memory. Only the driver writes these: a user process never names an address.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MemEntry {
    /// Guest-physical address.
    pub addr: u64,
    /// Bytes, at least 1.
    pub bytes: u32,
    /// Zero.
    pub reserved: u32,
}
const _: () = assert!(core::mem::size_of::<MemEntry>() == 16);

/// Head of the device-writable part; `payload_bytes` of payload follow.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ReplyHeader {
    /// `REPLY_*`. With any other than [`REPLY_OK`] the payload is empty.
    pub status: u32,
    /// Bytes of payload that the device wrote.
    pub payload_bytes: u32,
}
const _: () = assert!(core::mem::size_of::<ReplyHeader>() == 8);

/// Done; the payload is the answer.
pub const REPLY_OK: u32 = 0;
/// The request is malformed: lengths, addresses, flags or an operation the device does not know.
pub const REPLY_INVALID: u32 = 1;
/// No such session: its worker has ended, or the backend was restarted since.
pub const REPLY_SESSION_LOST: u32 = 2;
/// A limit of the device is reached: sessions, outstanding requests, kept pages.
pub const REPLY_NO_RESOURCES: u32 = 3;
/// Driver and device speak different versions of this protocol.
pub const REPLY_VERSION: u32 = 4;

/// Payload of [`OP_HELLO`], and of its reply (the device's own version).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the sender.
    pub protocol_version: u32,
}

/// Payload of [`OP_OPEN`]: the process that opens the session, for the device's log and quotas. Not trusted.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Open {
    /// Process id in the guest.
    pub pid: u32,
    /// User id in the guest: the real one, in the initial user namespace.
    pub uid: u32,
    /// The user id to which limits are charged: `uid`, or the owner of the process's user namespace.
    pub charged_uid: u32,
    /// Name of the program (`comm`), NUL-padded.
    pub name: [u8; 16],
}
const _: () = assert!(core::mem::size_of::<Open>() == 28);

/// Reply to [`OP_OPEN`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Opened {
    /// The session id: never 0, never used again by this or a later backend.
    pub session: u64,
}

/// The contents of a buffer of `eventq`, which the device writes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Event {
    /// `EVENT_*`.
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
    /// The session that the event is for.
    pub session: u64,
    /// Meaning depends on `kind`.
    pub value: u64,
}
const _: () = assert!(core::mem::size_of::<Event>() == 24);

/// The session's worker has ended: every later call answers [`REPLY_SESSION_LOST`].
pub const EVENT_SESSION_LOST: u32 = 1;
/// Something that the process waits for has happened; `value` is the process's own cookie.
pub const EVENT_WAKE: u32 = 2;
