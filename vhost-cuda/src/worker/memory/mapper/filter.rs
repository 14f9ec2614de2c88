// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The filters of the process that maps guest memory. `seccompiler` knows no calls that another process decides over.

use std::io;
use std::mem::offset_of;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use libc::{c_long, sock_filter};

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
pub fn trial() -> io::Result<OwnedFd> {
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
