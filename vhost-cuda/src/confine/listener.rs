// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands of a listener, by which a process decides over system calls of another one (seccomp_unotify(2)).

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
