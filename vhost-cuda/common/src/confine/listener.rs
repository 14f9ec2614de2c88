// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands of a listener, by which a process decides over system calls of another one (seccomp_unotify(2)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// `SECCOMP_IOCTL_NOTIF_RECV`, which `libc` does not define.
pub const RECEIVE: libc::c_ulong = 0xc050_2100;
/// `SECCOMP_IOCTL_NOTIF_SEND`.
pub const SEND: libc::c_ulong = 0xc018_2101;
/// `SECCOMP_IOCTL_NOTIF_ADDFD`, since Linux 5.9.
pub const INSTALL: libc::c_ulong = 0x4018_2103;
/// `SECCOMP_IOCTL_NOTIF_SET_FLAGS`, since Linux 6.6.
pub const SET_FLAGS: libc::c_ulong = 0x4008_2104;
/// The commands of a listener.
pub const COMMANDS: [u64; 4] = [RECEIVE, SEND, INSTALL, SET_FLAGS];

/// `struct seccomp_notif_addfd`.
#[repr(C)]
struct Addition {
    call: u64,
    flags: u32,
    source: u32,
    number: u32,
    flags_of_descriptor: u32,
}

/// Installs `file` as descriptor `number` in the table of the process that waits for the answer to `call`.
///
/// Errors: those of the call (seccomp_unotify(2)).
pub fn install(listener: BorrowedFd<'_>, call: u64, file: &impl AsFd, number: u32) -> io::Result<()> {
    let source = file.as_fd().as_raw_fd() as u32;
    let flags = libc::SECCOMP_ADDFD_FLAG_SETFD as u32;
    let addition = Addition { call, flags, source, number, flags_of_descriptor: 0 };
    // SAFETY: the structure is the one that the command reads, and lives across the call.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), INSTALL as _, &raw const addition) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
