// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The ioctls of `/dev/virtio-cuda`. One open file is one session; only the process that opened it may
//! use it. Also compiled into the guest kernel module (see [`crate::transport`] for the rules).
//!
//! `read(2)` returns whole [`crate::transport::Event`]s; `poll(2)` reports `POLLIN` when one waits and
//! `POLLHUP | POLLERR` once the session is lost. `mmap(2)` gives a shared area (`OP_SHARE`).

use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The device node.
pub const DEVICE_PATH: &str = "/dev/virtio-cuda";
/// The ioctl magic.
pub const IOC_MAGIC: u8 = 0xC7;
/// `_IOR(IOC_MAGIC, 0, Info)`.
pub const IOC_NR_INFO: u8 = 0;
/// `_IOWR(IOC_MAGIC, 1, Call)`.
pub const IOC_NR_CALL: u8 = 1;
/// `_IOW(IOC_MAGIC, 2, Unpin)`.
pub const IOC_NR_UNPIN: u8 = 2;

/// `_IOW(IOC_MAGIC, 3, Unpin)`.
pub const IOC_NR_FRESH: u8 = 3;

const fn ioc(direction: u32, nr: u8, bytes: usize) -> u32 {
    (direction << 30) | ((bytes as u32) << 16) | ((IOC_MAGIC as u32) << 8) | nr as u32
}
/// Returns the limits of device and driver.
pub const VIRTIO_CUDA_INFO: u32 = ioc(2, IOC_NR_INFO, core::mem::size_of::<Info>());
/// Submits one call and waits for its reply.
///
/// Errors: `EINVAL` lengths or flags, `ENOENT` no such ticket, `EFAULT` memory that cannot be read, written
/// or pinned, `EPERM` not the opener, `ENOLINK` session lost (the session stays lost), `EDQUOT` a limit of
/// pinned bytes or outstanding requests, `EPROTO` the device refused the request, `EINTR` a signal came
/// first: call again with the same structure to go on (its `ticket` is set once the device has the call).
pub const VIRTIO_CUDA_CALL: u32 = ioc(3, IOC_NR_CALL, core::mem::size_of::<Call>());
/// Takes back kept pages. Errors: `ENOENT` no such tag; else as for [`VIRTIO_CUDA_CALL`].
pub const VIRTIO_CUDA_UNPIN: u32 = ioc(1, IOC_NR_UNPIN, core::mem::size_of::<Unpin>());

/// Reports whether the pages kept under a tag with [`CALL_TRACK`] are still those that the process has at the same
/// addresses. Errors: `ENOENT` they are not, or there is no such tag; it stays so.
pub const VIRTIO_CUDA_FRESH: u32 = ioc(1, IOC_NR_FRESH, core::mem::size_of::<Unpin>());

/// Keeps the pages of the out buffer after the reply; `tag` identifies them. Both ends of the buffer are page aligned.
pub const CALL_KEEP: u32 = 1 << 0;
/// With [`CALL_KEEP`]: the memory is pageable, and the process may unmap or replace it at any time. When it does,
/// the driver takes the pages back by itself, soon, and [`VIRTIO_CUDA_FRESH`] reports it at once.
pub const CALL_TRACK: u32 = 1 << 1;
/// With [`CALL_KEEP`], without [`CALL_TRACK`]: the device only reads the out buffer, so the process need not be able to
/// write it. A driver that does not know the flag answers `EINVAL`, and a device `EPROTO`.
pub const CALL_READ: u32 = 1 << 2;

/// Limits that a process has to respect.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Info {
    /// `PROTOCOL_VERSION` of the driver.
    pub protocol_version: u32,
    /// Maximum payload of a request and of a reply, in bytes.
    pub max_payload_bytes: u32,
    /// Maximum size of each buffer of a call, in bytes.
    pub max_bulk_bytes: u64,
    /// Maximum number of pinned bytes per open file.
    pub max_pinned_bytes: u64,
    /// Maximum number of outstanding calls per open file.
    pub max_outstanding: u32,
    /// Zero.
    pub reserved: u32,
}
const _: () = assert!(core::mem::size_of::<Info>() == 32);

/// One call: payload and reply are copied, the in and out buffers are pinned where they lie.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Call {
    /// User address of the payload.
    pub payload: u64,
    /// User address of the reply buffer.
    pub reply: u64,
    /// Bytes of payload.
    pub payload_bytes: u32,
    /// In: size of the reply buffer in bytes. Out: bytes written.
    pub reply_bytes: u32,
    /// User address of memory that the device reads.
    pub in_addr: u64,
    /// Its bytes; 0 for none.
    pub in_bytes: u64,
    /// User address of memory that the device writes.
    pub out_addr: u64,
    /// Its bytes; 0 for none.
    pub out_bytes: u64,
    /// `CALL_*`.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// In: 0 to submit, else the ticket of the interrupted call to wait for. Out, with `EINTR`: the call's ticket.
    pub ticket: u64,
    /// Out, with [`CALL_KEEP`]: the tag for [`VIRTIO_CUDA_UNPIN`].
    pub tag: u64,
}
const _: () = assert!(core::mem::size_of::<Call>() == 80);

/// Argument of [`VIRTIO_CUDA_UNPIN`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Unpin {
    /// The tag that a call with [`CALL_KEEP`] answered.
    pub tag: u64,
}
