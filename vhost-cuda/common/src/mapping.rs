// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process that maps guest memory for a worker: its filters, and the numbers of files in its table.
//! `seccompiler` knows no calls that another process decides over.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::thread;

use libc::{c_long, sock_filter};
use rustix::thread::set_no_new_privs;

use crate::confine::listener::install;

/// The first number of a file. Lower ones are the mapper's own descriptors.
pub const FIRST_NUMBER: u32 = 16;
/// The maximum number of files at once. Bounds the mapper's table, and the daemon's files, of a front-end that adds memory
/// endlessly.
pub const MAX_FILES: u32 = 1024;
/// A descriptor that no file has. The mapper asks for it when it does not want to map, but to get changes of its table.
pub const REFRESH: u32 = u32::MAX;

/// Returns the descriptor for reading of the file that has this number. Numbers are even and never used again, as the worker
/// compares files by them. Descriptors are used again when their files have ended.
pub fn to_read(number: u64) -> u32 {
    let first = u64::from(FIRST_NUMBER);
    FIRST_NUMBER + (number.saturating_sub(first) % u64::from(2 * MAX_FILES)) as u32
}

/// Returns the descriptor for reading and writing of the file that has this one for reading.
pub fn to_write(to_read: u32) -> u32 {
    to_read | 1
}

/// `AUDIT_ARCH_X86_64`.
const X86_64: u32 = 0xc000_003e;
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
/// A number that no system call has.
const NO_CALL: u32 = u32::MAX;

/// The system calls of the process besides mapping. None of these receives, copies or closes a descriptor, so its table
/// holds what the daemon has installed, under the daemon's numbers.
const ALLOWED: &[c_long] = &[libc::SYS_exit, libc::SYS_exit_group, libc::SYS_futex];
/// The further system calls until it is ready.
const AT_FIRST: &[c_long] = &[libc::SYS_close_range, libc::SYS_seccomp, libc::SYS_sendmsg];

/// The filter under which each mapping waits for the owner of the listener.
pub fn guarded() -> Vec<sock_filter> {
    let mut program = checked_number();
    program.extend(answer_to(libc::SYS_mmap as u32, libc::SECCOMP_RET_USER_NOTIF));
    for &number in ALLOWED.iter().chain(AT_FIRST) {
        program.extend(answer_to(number as u32, libc::SECCOMP_RET_ALLOW));
    }
    program.push(answer(REFUSE));
    program
}

/// The filter under which the process sends nothing, closes nothing, and cannot change its filters.
pub fn silent() -> Vec<sock_filter> {
    let mut program = checked_number();
    for &number in AT_FIRST {
        program.extend(answer_to(number as u32, REFUSE));
    }
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program
}

/// Installs a filter for the calling thread under which no call waits. Returns its listener.
fn trial() -> io::Result<OwnedFd> {
    let mut program = checked_number();
    program.extend(answer_to(NO_CALL, libc::SECCOMP_RET_USER_NOTIF));
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: the program is a valid list of that length and lives across the call, which copies it.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: with the flag the call returns a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(result as RawFd) })
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

/// Gives an answer if the loaded word is `value`.
fn answer_to(value: u32, result: u32) -> [sock_filter; 2] {
    [jump(value, 0, 1), answer(result)]
}

fn answer(value: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: value }
}

/// Tests whether this host lets another process decide over mappings, and give it files.
///
/// Errors: the kernel has no such filters (before Linux 5.9), or the process that started this one, such as a container's
/// runtime, has installed one: there can be one only.
pub fn can_be_guarded() -> io::Result<()> {
    let attempt = thread::Builder::new().name("guard-attempt".into()).spawn(|| {
        set_no_new_privs(true)?;
        trial()
    })?;
    let listener = attempt.join().unwrap_or_else(|_| Err(io::Error::other("the attempt failed")))?;
    can_install(&listener)
}

/// Returns whether this kernel can install files in the table of a process that waits for an answer.
///
/// Errors: it cannot (before Linux 5.9).
fn can_install(listener: &OwnedFd) -> io::Result<()> {
    match install(listener.as_fd(), 0, listener, FIRST_NUMBER) {
        // There is no such call.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        result => result,
    }
}
