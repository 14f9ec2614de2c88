// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a worker gives up before it executes anything for a guest.

use std::io;

/// No new privileges by exec, no core files (they would hold guest data).
///
/// Not yet: a system call filter. libcuda needs many, and more with every release.
pub fn enter() -> io::Result<()> {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls on this process; `none` is a local.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0
            || libc::setrlimit(libc::RLIMIT_CORE, &raw const none) < 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}
