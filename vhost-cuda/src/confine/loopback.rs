// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loopback interface of the workers' network namespace, which is down in a new namespace. NCCL's ranks connect
//! to each other over it. It reaches only the other workers of the daemon.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;

/// Brings the interface up in the calling thread's namespace.
///
/// Errors: the thread does not have CAP_NET_ADMIN there.
pub fn bring_up() -> io::Result<()> {
    // Any socket of the namespace accepts the command.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: a plain structure of numbers, for which zeros are good.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, letter) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
        *place = *letter as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the command reads an `ifreq`, which is a local.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
