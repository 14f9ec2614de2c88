// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The code of the process itself. It runs in the worker's memory beside its threads, with the thread-local storage of
//! the one that has started it. So it makes system calls directly (the C library's wrappers write `errno`), and neither
//! allocates, locks, formats nor panics.

use std::arch::asm;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicIsize, AtomicU32, AtomicUsize, Ordering};

use libc::{c_long, sock_filter, sock_fprog};
use vhost_cuda_common::mapping;

/// The process's name (`ps -o comm`).
const NAME: &std::ffi::CStr = c"cuda-mapper";
/// The maximum number of pieces per order: other threads wait meanwhile.
pub const MAX_PIECES: usize = 256;

/// [`Desk::state`]: the process has ended. The kernel writes this.
pub const ENDED: u32 = 0;
/// [`Desk::state`]: the process has not installed its filters yet.
pub const STARTING: u32 = 1;
/// [`Desk::state`]: there is no order, and the results of the last one are there.
pub const IDLE: u32 = 2;
/// [`Desk::state`]: there is an order.
pub const ORDERED: u32 = 3;

/// The memory for orders to the process. The layout is fixed for a test that plays an attacker
/// (`tests/tests/hostile/programs/takeover.c`).
#[derive(Debug)]
#[repr(C)]
pub struct Desk {
    /// One of the states above. Both sides wait for changes.
    pub state: AtomicU32,
    /// The error of the start.
    pub error: AtomicI32,
    /// The number of slots in use.
    pub count: AtomicU32,
    /// The pieces to map.
    pub slots: [Slot; MAX_PIECES],
}

/// A call of `mmap`.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Slot {
    pub arguments: [AtomicUsize; 6],
    /// The address, or an error as a negative number.
    pub result: AtomicIsize,
}

impl Default for Desk {
    fn default() -> Self {
        Self {
            state: AtomicU32::new(STARTING),
            error: AtomicI32::new(0),
            count: AtomicU32::new(0),
            slots: std::array::from_fn(|_| Slot::default()),
        }
    }
}

/// Everything that the process needs until it is ready.
pub struct Start {
    desk: &'static Desk,
    parent: libc::pid_t,
    socket: RawFd,
    lock: RawFd,
    guarded: Program,
    silent: Program,
    message: Message,
}

/// A message of one byte and one descriptor.
struct Message {
    head: libc::msghdr,
    _byte: Box<u8>,
    _part: Box<libc::iovec>,
    _control: Box<[usize; 4]>,
    /// The place of the descriptor in `_control`.
    descriptor: *mut c_int,
}

/// A filter as the kernel takes it.
struct Program {
    head: sock_fprog,
    _instructions: Vec<sock_filter>,
}

impl Program {
    fn new(mut instructions: Vec<sock_filter>) -> io::Result<Self> {
        let len = u16::try_from(instructions.len()).map_err(io::Error::other)?;
        Ok(Self { head: sock_fprog { len, filter: instructions.as_mut_ptr() }, _instructions: instructions })
    }
}

impl Message {
    fn new() -> Self {
        let mut byte = Box::new(0_u8);
        let mut part = Box::new(libc::iovec { iov_base: (&raw mut *byte).cast(), iov_len: 1 });
        let mut control = Box::new([0_usize; 4]);
        // SAFETY: all-zero is a valid header. The control message fits its memory (`CMSG_SPACE` of one descriptor is 24
        // bytes), which is aligned for it.
        unsafe {
            let mut head: libc::msghdr = std::mem::zeroed();
            (head.msg_iov, head.msg_iovlen) = (&raw mut *part, 1);
            head.msg_control = control.as_mut_ptr().cast();
            head.msg_controllen = libc::CMSG_SPACE(size_of::<c_int>() as u32) as _;
            let first = libc::CMSG_FIRSTHDR(&raw const head);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as _;
            let descriptor = libc::CMSG_DATA(first).cast();
            Self { head, _byte: byte, _part: part, _control: control, descriptor }
        }
    }
}

impl Start {
    pub fn new(desk: &'static Desk, socket: &UnixStream, lock: Option<RawFd>) -> io::Result<Self> {
        let (socket, lock) = (socket.as_raw_fd(), lock.unwrap_or(-1));
        if socket <= LOCK || (0..=LOCK).contains(&lock) {
            return Err(io::Error::other("a descriptor of the mapper has the number of a standard stream"));
        }
        let (guarded, silent) = (Program::new(mapping::guarded())?, Program::new(mapping::silent())?);
        let parent = std::process::id() as libc::pid_t;
        Ok(Self { desk, parent, socket, lock, guarded, silent, message: Message::new() })
    }
}

/// The process's descriptors: the socket, the lock of workers, and meanwhile the listener. The daemon's come behind.
const SOCKET: c_int = 0;
const LOCK: c_int = 1;

/// The first function of the process.
pub extern "C" fn run(start: *mut c_void) -> c_int {
    // SAFETY: `Mapper::start` passes a `Start`, and waits until this process is ready or has ended.
    let start = unsafe { &*start.cast::<Start>() };
    let desk = start.desk;
    let error = enter(start);
    if error < 0 {
        desk.error.store(-error as i32, Ordering::Release);
        return 1;
    }
    // From here on `start` may not be there any more.
    loop {
        desk.state.store(IDLE, Ordering::Release);
        futex(desk, libc::FUTEX_WAKE, c_int::MAX as u32);
        while desk.state.load(Ordering::Acquire) != ORDERED {
            futex(desk, libc::FUTEX_WAIT, IDLE);
        }
        let count = desk.count.load(Ordering::Relaxed) as usize;
        for slot in desk.slots.iter().take(count) {
            let [at, bytes, protection, flags, file, offset] = &slot.arguments;
            let argument = |place: &AtomicUsize| place.load(Ordering::Relaxed);
            // SAFETY: the thread that has given the order promises that nothing else uses the memory at the address.
            let result = unsafe {
                call(
                    libc::SYS_mmap,
                    [
                        argument(at),
                        argument(bytes),
                        argument(protection),
                        argument(flags),
                        argument(file),
                        argument(offset),
                    ],
                )
            };
            slot.result.store(result, Ordering::Relaxed);
            if (-4095..0).contains(&result) {
                break;
            }
        }
    }
}

/// Leaves everything that it shares with the worker but memory, and installs the filters. Returns a negative error, or 0.
#[inline(always)]
fn enter(start: &Start) -> isize {
    let number = |value: c_int| value as usize;
    let address = |pointer: *const c_void| pointer as usize;
    // SAFETY: plain system calls on the process's own state. The structures that they read live in `start`. The only
    // descriptors that it keeps are the ones that it was started for.
    unsafe {
        let mut results = [0; 8];
        results[0] =
            call(libc::SYS_prctl, [number(libc::PR_SET_PDEATHSIG), number(libc::SIGKILL), 0, 0, 0, 0]);
        // The worker may have ended before that.
        if call(libc::SYS_getppid, [0; 6]) != start.parent as isize {
            return -(libc::ESRCH as isize);
        }
        call(libc::SYS_prctl, [number(libc::PR_SET_NAME), address(NAME.as_ptr().cast()), 0, 0, 0, 0]);
        results[1] = call(libc::SYS_dup2, [number(start.socket), number(SOCKET), 0, 0, 0, 0]);
        let kept = if start.lock < 0 {
            SOCKET
        } else {
            results[2] = call(libc::SYS_dup2, [number(start.lock), number(LOCK), 0, 0, 0, 0]);
            LOCK
        };
        let behind = [number(kept) + 1, u32::MAX as usize, 0, 0, 0, 0];
        results[3] = call(libc::SYS_close_range, behind);
        let set = libc::SECCOMP_SET_MODE_FILTER as usize;
        let program = |program: &Program| address((&raw const program.head).cast());
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as usize;
        let listener = call(libc::SYS_seccomp, [set, flags, program(&start.guarded), 0, 0, 0]);
        results[4] = listener;
        ptr::write_volatile(start.message.descriptor, listener as c_int);
        let message = address((&raw const start.message.head).cast());
        results[5] = call(libc::SYS_sendmsg, [number(SOCKET), message, number(libc::MSG_NOSIGNAL), 0, 0, 0]);
        results[6] = call(libc::SYS_close_range, behind);
        results[7] = call(libc::SYS_seccomp, [set, 0, program(&start.silent), 0, 0, 0]);
        for result in results {
            if result < 0 {
                return result;
            }
        }
    }
    0
}

#[inline(always)]
fn futex(desk: &Desk, operation: c_int, value: u32) {
    // SAFETY: the word lives until the process ends.
    unsafe {
        call(libc::SYS_futex, [desk.state.as_ptr() as usize, operation as usize, value as usize, 0, 0, 0])
    };
}

/// Makes a system call. Returns its result, which is a negative number for an error.
///
/// # Safety
///
/// As for the system call.
#[inline(always)]
unsafe fn call(number: c_long, arguments: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result;
    // SAFETY: the kernel changes these registers only, and memory as the caller allows.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            in("r9") sixth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}
