// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The "RAM" that a virtio-user process shows the daemon: a sparse memfd. Queues, slots, staging buffers and
//! pages for the device all come from it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use range_alloc::RangeAllocator;
use virtio_cuda_protocol::transport::PAGE_BYTES;

use crate::ClientError;

/// Bytes of the memfd. It is sparse: only pages in use take memory. Bounds the pinned memory of a process.
pub const MAX_RAM_BYTES: u64 = 64 << 30;
/// The minimum bytes of the memfd, where address space is limited (`ulimit -v`).
const MIN_RAM_BYTES: u64 = 1 << 30;
/// Guest-physical address of its first byte. Not 0, so that a mistaken offset is not a valid address. It lets the daemon
/// distinguish processes from virtual machines (`vhost-cuda/src/owner.rs`).
pub const RAM_BASE: u64 = 1 << 32;
/// The address at which it is mapped in this process. It is far from the usual device addresses of the worker's driver,
/// because a device address that is also in use here cannot be distinguished from a host address.
const MAP_HINT: u64 = 0x3000_0000_0000;

/// A sparse memfd, mapped whole, of which ranges are allocated.
///
/// # Invariants
///
/// `base` is the address of a shared mapping of all `bytes` of `file`, never unmapped.
#[derive(Debug)]
pub struct SharedRam {
    file: File,
    base: *mut u8,
    bytes: u64,
    free: Mutex<RangeAllocator<u64>>,
}

// SAFETY: `base` is constant and valid for the process's life; who may touch which bytes is decided by
// `allocate`, which hands each range out once.
unsafe impl Send for SharedRam {}
// SAFETY: threads share constants and an allocator behind a lock; `allocate` hands each range out once, so no two
// threads use the same bytes.
unsafe impl Sync for SharedRam {}

/// A range of the memfd, in bytes from its start; page aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RamRange {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

impl RamRange {
    /// Guest-physical address of its first byte.
    pub fn guest_address(self) -> u64 {
        RAM_BASE + self.offset
    }
}

impl SharedRam {
    /// Makes and maps the memfd, as large as the limits of the process allow.
    pub fn new() -> io::Result<Self> {
        let mut bytes = MAX_RAM_BYTES;
        loop {
            match Self::with_bytes(bytes) {
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && bytes > MIN_RAM_BYTES => {
                    bytes /= 4
                }
                other => return other,
            }
        }
    }

    fn with_bytes(bytes: u64) -> io::Result<Self> {
        // SAFETY: the name is a C string.
        let fd = unsafe {
            libc::memfd_create(c"virtio-cuda".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was made just above and has no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes)?;
        // Daemon and worker get the file. One that cut it would end this process at its next access.
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
        // SAFETY: the descriptor is open, and the call takes numbers only.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new mapping; the address is a hint, so it replaces nothing.
        let base = unsafe {
            libc::mmap(
                MAP_HINT as *mut _,
                bytes as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                fd,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A forked child must not be able to write into its parent's queues.
        // SAFETY: the mapping was made just above.
        if unsafe { libc::madvise(base, bytes as usize, libc::MADV_DONTFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let free = Mutex::new(RangeAllocator::new(0..bytes / PAGE_BYTES));
        Ok(Self { file, base: base.cast(), bytes, free })
    }

    /// The memfd.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Bytes of the memfd.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the address at which byte `offset` of the memfd is mapped.
    pub fn at(&self, offset: u64) -> *mut u8 {
        debug_assert!(offset < self.bytes);
        self.base.wrapping_add(offset as usize)
    }

    fn free(&self) -> MutexGuard<'_, RangeAllocator<u64>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a zeroed range of at least `bytes` bytes.
    pub fn allocate(&self, bytes: usize) -> Result<RamRange, ClientError> {
        let pages = (bytes as u64).div_ceil(PAGE_BYTES).max(1);
        let range = self.free().allocate_range(pages).map_err(|_| ClientError::Limit)?;
        Ok(RamRange { offset: range.start * PAGE_BYTES, bytes: pages * PAGE_BYTES })
    }

    /// Gives a range, or page-aligned part of one, back; its memory is freed and reads as zeros again.
    pub fn give_back(&self, range: RamRange) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the range is the caller's, who uses it no more.
        let rc = unsafe { libc::fallocate(self.fd(), mode, range.offset as i64, range.bytes as i64) };
        if rc != 0 {
            // Never handed out again, since it would not be zero.
            log::debug!("Cannot free shared memory: {}", io::Error::last_os_error());
            return;
        }
        let start = range.offset / PAGE_BYTES;
        self.free().free_range(start..start + range.bytes / PAGE_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_ranges_are_zero_and_come_back() {
        let ram = SharedRam::new().expect("memfd");
        let first = ram.allocate(3 * 4096 + 1).expect("range");
        assert_eq!(first.bytes, 4 * 4096);
        // SAFETY: the range is allocated to this test.
        unsafe { ram.at(first.offset).write_bytes(7, first.bytes as usize) };
        ram.give_back(RamRange { offset: first.offset, bytes: 4096 });
        ram.give_back(RamRange { offset: first.offset + 4096, bytes: 3 * 4096 });
        let again = ram.allocate(4 * 4096).expect("range");
        assert_eq!(again, first, "the parts were joined");
        // SAFETY: the second range is allocated to this test, too.
        assert_eq!(unsafe { ram.at(again.offset + 5000).read() }, 0);
    }

    #[test]
    fn nobody_who_has_the_file_can_cut_it() {
        let ram = SharedRam::new().expect("memfd");
        let other = ram.file.try_clone().expect("a descriptor, as the worker gets");
        assert_eq!(other.set_len(0).map_err(|error| error.raw_os_error()), Err(Some(libc::EPERM)));
    }

    #[test]
    fn too_much_is_a_limit() {
        let ram = SharedRam::new().expect("memfd");
        assert!(matches!(ram.allocate(MAX_RAM_BYTES as usize + 1), Err(ClientError::Limit)));
    }
}
