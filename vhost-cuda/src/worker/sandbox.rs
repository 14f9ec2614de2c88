// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a worker gives up before it executes anything for a guest.

mod filter;
mod report;
mod rules;

use std::io;

use crate::args::Sandbox;

/// No new privileges by exec, no core files (they would hold guest data). To be called first.
pub fn enter() -> io::Result<()> {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls on this process; `none` is a local.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0
            || libc::setrlimit(libc::RLIMIT_CORE, &raw const none) < 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What `auto` is.
fn chosen(sandbox: Sandbox, emulated: bool) -> Sandbox {
    match sandbox {
        Sandbox::Auto if emulated => Sandbox::Seccomp,
        Sandbox::Auto => Sandbox::Refuse,
        chosen => chosen,
    }
}

/// Whether system calls are going to be refused.
pub fn closes(sandbox: Sandbox, emulated: bool) -> bool {
    matches!(chosen(sandbox, emulated), Sandbox::Seccomp | Sandbox::Refuse)
}

/// From here on, in all threads, only the system calls that executing CUDA takes. To be called when libcuda is up
/// and the context made, which takes many more.
pub fn close(sandbox: Sandbox, emulated: bool) -> anyhow::Result<()> {
    let sandbox = chosen(sandbox, emulated);
    if sandbox == Sandbox::Off {
        return Ok(());
    }
    report::install()?;
    for program in filter::programs(sandbox, emulated)? {
        seccompiler::apply_filter_all_threads(&program)?;
    }
    Ok(())
}

/// Where messages of the sandbox go; stderr itself is the guest's.
pub fn report_to(log: std::os::fd::RawFd) {
    report::to(log);
}

#[cfg(test)]
mod tests;
