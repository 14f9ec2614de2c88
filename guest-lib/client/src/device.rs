// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The transport through the guest's kernel: `/dev/virtio-cuda`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use virtio_cuda_protocol::transport::{PAGE_BYTES, PROTOCOL_VERSION};
use virtio_cuda_protocol::uapi::{
    CALL_KEEP, CALL_READ, CALL_TRACK, Call, DEVICE_PATH, Info, Unpin, VIRTIO_CUDA_CALL, VIRTIO_CUDA_FRESH,
    VIRTIO_CUDA_INFO, VIRTIO_CUDA_UNPIN,
};

use crate::ClientError;
use crate::transport::{Limits, Pieces, Reply, Request, Transport, UserMemory};

/// Maximum length of a piece of a copy: long enough for the device's copy threads, short enough not to pin all of a
/// small guest's memory at once.
const COPY_BYTES: u64 = 256 << 20;
/// The minimum size of memory for the device that gets transparent huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// An open `/dev/virtio-cuda`.
#[derive(Debug)]
pub struct DeviceNode {
    file: File,
    limits: Limits,
    /// Offset in the file of the next shared area.
    shared_end: AtomicU64,
}

impl DeviceNode {
    /// Opens the device node: one open is one session.
    pub fn open() -> Result<Self, ClientError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(DEVICE_PATH)
            .map_err(|source| match source.raw_os_error() {
                Some(libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::EACCES) => {
                    ClientError::NoDevice { path: DEVICE_PATH.to_owned(), source }
                }
                Some(libc::EDQUOT) => ClientError::Sessions,
                _ => translate(source),
            })?;
        let mut info = Info::default();
        ioctl(&file, VIRTIO_CUDA_INFO, &mut info).map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => ClientError::NoDevice { path: DEVICE_PATH.to_owned(), source: error },
            _ => translate(error),
        })?;
        if info.protocol_version != PROTOCOL_VERSION {
            return Err(ClientError::Version {
                what: "virtio-cuda",
                ours: PROTOCOL_VERSION,
                theirs: info.protocol_version,
            });
        }
        let to_usize = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let limits = Limits {
            payload_bytes: info.max_payload_bytes as usize,
            bulk_bytes: to_usize(info.max_bulk_bytes),
            copy_bytes: to_usize(copy_bytes(&info)),
            outstanding: info.max_outstanding,
            kept_bytes: info.max_pinned_bytes,
        };
        Ok(Self { file, limits, shared_end: AtomicU64::new(0) })
    }
}

/// Returns the bytes of the pieces of copies. Their pages are pinned during the copy, possibly by several threads at once, and
/// in addition to the pages that stay pinned.
fn copy_bytes(info: &Info) -> u64 {
    let share = info.max_pinned_bytes / 8 / PAGE_BYTES * PAGE_BYTES;
    info.max_bulk_bytes.min(COPY_BYTES).min(share).max(PAGE_BYTES)
}

/// Calls an ioctl that takes a pointer to `T`.
fn ioctl<T>(file: &File, request: u32, argument: &mut T) -> io::Result<()> {
    // SAFETY: every request of `uapi` is paired with its own structure by the callers in this file, and the
    // structure lives through the call.
    let rc = unsafe { libc::ioctl(file.as_raw_fd(), request as libc::Ioctl, &raw mut *argument) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn translate(error: io::Error) -> ClientError {
    match error.raw_os_error() {
        Some(libc::ENOLINK | libc::ENODEV) => ClientError::SessionLost,
        Some(libc::EDQUOT | libc::ENOMEM) => ClientError::Limit,
        Some(libc::EFAULT) => ClientError::Fault,
        Some(libc::EINVAL | libc::EPROTO) => ClientError::Protocol,
        _ => ClientError::Io(error),
    }
}

impl Transport for DeviceNode {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn cache_bytes(&self) -> u64 {
        self.limits.kept_bytes / 4
    }

    fn can_track(&self, _memory: UserMemory) -> bool {
        true
    }

    fn is_fresh(&self, tag: u64) -> bool {
        ioctl(&self.file, VIRTIO_CUDA_FRESH, &mut Unpin { tag }).is_ok()
    }

    fn pieces(&self, _memory: UserMemory) -> Pieces {
        Pieces::in_place(self.limits.copy_bytes)
    }

    unsafe fn call(&self, request: Request<'_>) -> Result<Reply, ClientError> {
        let flags = [(request.keep, CALL_KEEP), (request.track, CALL_TRACK), (request.read_only, CALL_READ)];
        let flags = flags.iter().filter(|(wanted, _)| *wanted).fold(0, |all, (_, flag)| all | flag);
        let mut call = Call {
            payload: request.payload.as_ptr() as u64,
            reply: request.reply.as_mut_ptr() as u64,
            payload_bytes: request.payload.len() as u32,
            reply_bytes: request.reply.len() as u32,
            in_addr: request.input.address as u64,
            in_bytes: request.input.bytes as u64,
            out_addr: request.output.address as u64,
            out_bytes: request.output.bytes as u64,
            flags,
            ..Default::default()
        };
        loop {
            match ioctl(&self.file, VIRTIO_CUDA_CALL, &mut call) {
                Ok(()) => return Ok(Reply { bytes: call.reply_bytes as usize, tag: call.tag }),
                // A signal came first and its handler has run; `ticket` makes this a wait, not a new call.
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(translate(error)),
            }
        }
    }

    /// The host's.
    fn has_other_processors(&self) -> bool {
        true
    }

    fn unpin(&self, tag: u64) -> Result<(), ClientError> {
        let mut unpin = Unpin { tag };
        let mut interrupted = false;
        loop {
            match ioctl(&self.file, VIRTIO_CUDA_UNPIN, &mut unpin).map_err(|error| error.raw_os_error()) {
                Ok(()) => return Ok(()),
                Err(Some(libc::EINTR)) => interrupted = true,
                // The interrupted try has done it.
                Err(Some(libc::ENOENT)) if interrupted => return Ok(()),
                Err(error) => {
                    return Err(translate(io::Error::from_raw_os_error(error.unwrap_or(libc::EIO))));
                }
            }
        }
    }

    fn share(&self, bytes: usize) -> Result<(*mut u8, u64), ClientError> {
        let offset = self.shared_end.fetch_add(bytes as u64, Ordering::Relaxed);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                protection,
                flags,
                self.file.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(translate(io::Error::last_os_error()));
        }
        // SAFETY: the range was mapped just above.
        if unsafe { libc::madvise(at, bytes, libc::MADV_DONTFORK) } != 0 {
            return Err(translate(io::Error::last_os_error()));
        }
        Ok((at.cast(), offset))
    }

    fn map(&self, memory: UserMemory) -> Result<(), ClientError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the caller owns the reserved, inaccessible addresses that this replaces.
        let at = unsafe {
            libc::mmap(
                memory.address as *mut _,
                memory.bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(translate(io::Error::last_os_error()));
        }
        // Hints, so failure is fine. A forked child has no use for the pages, and pinned pages would have to
        // be copied for it at once. Pinning populates: contiguous pages make fewer entries in the list that
        // goes to the device.
        // SAFETY: the range was mapped just above.
        unsafe {
            libc::madvise(at, memory.bytes, libc::MADV_DONTFORK);
            if memory.bytes >= HUGE_PAGE_BYTES {
                libc::madvise(at, memory.bytes, libc::MADV_HUGEPAGE);
            }
            libc::madvise(at, memory.bytes, libc::MADV_POPULATE_WRITE);
        }
        Ok(())
    }

    fn unmap(&self, memory: UserMemory) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: the caller owns the range and uses it no more; it becomes a reservation again.
        let at = unsafe { libc::mmap(memory.address as *mut _, memory.bytes, libc::PROT_NONE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            log::debug!("Cannot give host memory back: {}", io::Error::last_os_error());
        }
    }

    /// The kernel pins any page of the process, and gives a forked child copies of pinned ones.
    fn adopt(&self, _memory: UserMemory, _read_only: bool) -> Result<(), ClientError> {
        Ok(())
    }

    fn release(&self, _memory: UserMemory) {}

    fn in_child(&self) {
        // SAFETY: nothing uses or drops the file in a forked child.
        unsafe { libc::close(self.file.as_raw_fd()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_leave_room_for_other_pinned_memory() {
        let info =
            |pinned, bulk| Info { max_pinned_bytes: pinned, max_bulk_bytes: bulk, ..Default::default() };
        assert_eq!(copy_bytes(&info(512 << 20, 64 << 20)), 64 << 20);
        assert_eq!(copy_bytes(&info(1 << 20, 64 << 20)), 128 << 10);
        assert_eq!(copy_bytes(&info(64 << 30, 1 << 30)), COPY_BYTES);
        assert_eq!(copy_bytes(&info(0, 64 << 20)), PAGE_BYTES);
    }
}
