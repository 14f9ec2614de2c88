// SPDX-License-Identifier: Apache-2.0 OR MIT

//! userfaultfd(2): the kernel reports when the program touches a page that is not mapped, and blocks the thread until
//! the page is mapped.

use std::fs::File;
use std::io::{self, Read};
use std::mem::{MaybeUninit, size_of};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use linux_raw_sys::general::{
    UFFD_API, UFFD_EVENT_PAGEFAULT, UFFD_FEATURE_MINOR_SHMEM, UFFD_FEATURE_MISSING_SHMEM,
    UFFDIO_REGISTER_MODE_MINOR, UFFDIO_REGISTER_MODE_MISSING, uffd_msg, uffdio_api, uffdio_continue,
    uffdio_range, uffdio_register,
};
use linux_raw_sys::ioctl::{UFFDIO_API, UFFDIO_CONTINUE, UFFDIO_REGISTER, UFFDIO_UNREGISTER, UFFDIO_WAKE};

use crate::state::memory::window::PAGE_BYTES;

/// The device that provides descriptors to unprivileged users, since Linux 6.1.
const DEVICE: &str = "/dev/userfaultfd";
/// `USERFAULTFD_IOC_NEW`: `_IO(0xaa, 0)`.
const USERFAULTFD_IOC_NEW: libc::c_ulong = 0xaa00;
/// Reports touches of a memfd's pages, present or not.
const FEATURES: u32 = UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_MISSING_SHMEM;

/// The userfaultfd descriptor.
#[derive(Debug)]
pub struct Faults(File);

/// Creates a descriptor that also reports accesses by the kernel for the program, such as those of read(2).
fn descriptor() -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the call takes flags only.
    let made = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    let made = if made >= 0 {
        made as RawFd
    } else {
        let device = File::open(DEVICE)?;
        // SAFETY: the request takes flags only.
        let made = unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW, flags) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        made
    };
    // SAFETY: it was created just above, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

impl Faults {
    /// Opens the descriptor.
    ///
    /// Errors: the kernel does not permit this user to have one, or is older than 5.14.
    pub fn open() -> io::Result<Self> {
        let faults = Self(File::from(descriptor()?));
        let mut api = uffdio_api { api: UFFD_API.into(), features: FEATURES.into(), ioctls: 0 };
        faults.request(UFFDIO_API, &mut api)?;
        Ok(faults)
    }

    fn request<T>(&self, request: u32, argument: &mut T) -> io::Result<()> {
        // SAFETY: each caller passes the structure that belongs to its request (ioctl_userfaultfd(2)).
        let done =
            unsafe { libc::ioctl(self.0.as_raw_fd(), libc::c_ulong::from(request), &raw mut *argument) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Reports touches of a memfd's pages at the addresses `range`.
    pub fn watch(&self, range: Range<u64>) -> io::Result<()> {
        let mode = u64::from(UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR);
        let mut register = uffdio_register { range: of(range), mode, ioctls: 0 };
        self.request(UFFDIO_REGISTER, &mut register)
    }

    /// Reverts [`Self::watch`], and wakes the threads that wait for pages of `range`.
    pub fn unwatch(&self, range: Range<u64>) -> io::Result<()> {
        self.request(UFFDIO_UNREGISTER, &mut of(range))
    }

    /// Waits for a touch of a page that is not mapped, and returns its address. The thread that touches it is blocked.
    /// `None`: there was none within `timeout`, which is unlimited if it is `None`.
    pub fn next(&self, timeout: Option<Duration>) -> io::Result<Option<u64>> {
        let mut watched = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: one descriptor and a time, or none, which outlive the call; the mask of signals stays.
        let ready = unsafe { libc::ppoll(&raw mut watched, 1, timeout, std::ptr::null()) };
        if ready == 0 {
            return Ok(None);
        }
        let mut bytes = [0; size_of::<uffd_msg>()];
        match (&self.0).read_exact(&mut bytes) {
            Ok(()) => {}
            // A signal of the program has ended the touch meanwhile.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        let mut message = MaybeUninit::<uffd_msg>::uninit();
        // SAFETY: the kernel writes whole messages, of which every value is one of the structure of plain numbers.
        let message = unsafe {
            message.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            message.assume_init()
        };
        if u32::from(message.event) != UFFD_EVENT_PAGEFAULT {
            return Ok(None);
        }
        // SAFETY: the event says which member of the union is there.
        Ok(Some(unsafe { message.arg.pagefault.address }))
    }

    /// Maps the pages of `range`, which exist in the memfd, and wakes the threads that wait for them.
    pub fn map(&self, range: Range<u64>) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let mut go_on = uffdio_continue { range: of(at..range.end), mode: 0, mapped: 0 };
            match self.request(UFFDIO_CONTINUE, &mut go_on) {
                Ok(()) => break,
                // It stopped at a page that is already mapped, or because the process's mappings were being changed.
                Err(_) if go_on.mapped > 0 => at += go_on.mapped as u64,
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => at += PAGE_BYTES,
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        self.wake(range)
    }

    /// Wakes the threads that wait for pages of `range`. They repeat their access.
    pub fn wake(&self, range: Range<u64>) -> io::Result<()> {
        self.request(UFFDIO_WAKE, &mut of(range))
    }
}

fn of(range: Range<u64>) -> uffdio_range {
    uffdio_range { start: range.start, len: range.end - range.start }
}
