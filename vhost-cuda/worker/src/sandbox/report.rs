// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports the system call that ended the worker.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering};

use syscalls::Sysno;

static LOG: AtomicI32 = AtomicI32::new(libc::STDERR_FILENO);

/// Writes messages to `log`, which stays open.
pub fn to(log: RawFd) {
    LOG.store(log, Ordering::Relaxed);
}

/// Handles the signal that a refused system call raises.
pub fn install() -> io::Result<()> {
    // SAFETY: all-zero is a valid action; the handler makes async-signal-safe calls only, and does not return.
    let failed = unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = refused as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `si_syscall` of the kernel's `siginfo_t` for SIGSYS, which `libc` does not define.
#[repr(C)]
struct SigsysInfo {
    head: [libc::c_int; 4],
    address: usize,
    number: libc::c_int,
}

extern "C" fn refused(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a siginfo of the signal that the handler is for, which has this form.
    let number = unsafe { (*info.cast::<SigsysInfo>()).number };
    let name = usize::try_from(number).ok().and_then(Sysno::new).map_or("unknown", |call| call.name());
    let mut line = [0; 160];
    let parts =
        ["worker ends: the sandbox does not allow the system call ", name, " (", "), see --sandbox\n"];
    let mut used = 0;
    let mut append = |bytes: &[u8]| {
        let end = line.len().min(used + bytes.len());
        line[used..end].copy_from_slice(&bytes[..end - used]);
        used = end;
    };
    let [begin, name, open, close] = parts.map(str::as_bytes);
    append(begin);
    append(name);
    append(open);
    append(digits(number.unsigned_abs(), &mut [0; 10]));
    append(close);
    // SAFETY: plain system calls, allowed by every filter; the buffer is a local.
    unsafe {
        libc::write(LOG.load(Ordering::Relaxed), line.as_ptr().cast(), used);
        libc::_exit(1);
    }
}

/// Returns the decimal digits of `number` without allocating.
fn digits(mut number: u32, room: &mut [u8; 10]) -> &[u8] {
    let mut at = room.len();
    loop {
        at -= 1;
        room[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &room[at..];
        }
    }
}
