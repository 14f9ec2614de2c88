// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The filters of the thread that maps guest memory, over those of the whole worker. `seccompiler` knows no calls that
//! another process decides over.

use std::io;
use std::mem::offset_of;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use libc::{c_long, sock_filter};

/// `AUDIT_ARCH_X86_64`.
const X86_64: u32 = 0xc000_003e;
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

/// The system calls of the thread besides mapping: it takes orders and files, and allocates. None of these reads,
/// copies, sends or changes a file.
const ALLOWED: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
];
/// The further system calls until it is ready.
const AT_FIRST: &[c_long] = &[libc::SYS_seccomp, libc::SYS_sendmsg];

/// Installs the filter under which each mapping of a file waits for the owner of the listener.
pub fn guarded() -> io::Result<OwnedFd> {
    let mut program = checked_number();
    let mmap = [
        load(offset_of!(libc::seccomp_data, args) + 4 * size_of::<u64>()),
        // Memory of no file.
        unless_equal(u32::MAX, 1),
        answer(libc::SECCOMP_RET_ALLOW),
        answer(libc::SECCOMP_RET_USER_NOTIF),
    ];
    program.push(unless_equal(libc::SYS_mmap as u32, mmap.len() as u8));
    program.extend(mmap);
    for &number in ALLOWED.iter().chain(AT_FIRST) {
        program.extend([unless_equal(number as u32, 1), answer(libc::SECCOMP_RET_ALLOW)]);
    }
    program.push(answer(REFUSE));
    let listener = install(program, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)?;
    // SAFETY: with the flag the call returns a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as RawFd) })
}

/// Installs the filter under which the thread sends nothing, and cannot change its filters.
pub fn silent() -> io::Result<()> {
    let mut program = checked_number();
    for &number in AT_FIRST {
        program.extend([unless_equal(number as u32, 1), answer(REFUSE)]);
    }
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    install(program, 0).map(drop)
}

/// Refuses calls of other architectures, and loads the call's number.
fn checked_number() -> Vec<sock_filter> {
    vec![
        load(offset_of!(libc::seccomp_data, arch)),
        jump(X86_64, 1, 0),
        answer(REFUSE),
        load(offset_of!(libc::seccomp_data, nr)),
    ]
}

fn load(offset: usize) -> sock_filter {
    sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: offset as u32 }
}

fn jump(value: u32, if_equal: u8, otherwise: u8) -> sock_filter {
    let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    sock_filter { code, jt: if_equal, jf: otherwise, k: value }
}

/// Skips `skipped` instructions unless the loaded word is `value`.
fn unless_equal(value: u32, skipped: u8) -> sock_filter {
    jump(value, 0, skipped)
}

fn answer(value: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: value }
}

fn install(mut program: Vec<sock_filter>, flags: libc::c_ulong) -> io::Result<c_long> {
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: the program is a valid list of that length and lives across the call, which copies it.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
