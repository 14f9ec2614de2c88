// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Puts other pages in the place of a program's, contents unchanged. Writes of other threads meanwhile are lost.
//!
//! The calling thread's own stack may be among the pages: between the copy of the contents and the exchange, the thread does not
//! write to its stack, and handles no signal.

use std::collections::HashMap;
use std::io;
use std::os::fd::RawFd;

use crate::transport::UserMemory;

/// Longer pieces become mappings of their own: there are few of them.
const MAX_SHADOWED_BYTES: usize = 1 << 20;
/// The length of a shadow. In a program that locks all its memory (`mlockall`), a shadow takes as much of it.
const SHADOW_BYTES: usize = 64 << 20;

/// A system call that exchanges pages, and its arguments.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    number: libc::c_long,
    arguments: [usize; 6],
}

impl Exchange {
    /// Maps a stretch of a file over `memory`.
    fn map(memory: UserMemory, file: RawFd, offset: u64, writable: bool) -> Self {
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let [protection, flags, file] = [protection, flags, file].map(|word| word as usize);
        let arguments = [memory.address, memory.bytes, protection, flags, file, offset as usize];
        Self { number: libc::SYS_mmap, arguments }
    }

    /// Moves the pages at `from` to `memory`.
    fn remap(from: usize, memory: UserMemory) -> Self {
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
        let arguments = [from, memory.bytes, memory.bytes, flags, memory.address, 0];
        Self { number: libc::SYS_mremap, arguments }
    }

    /// Copies the contents of `memory` to `copy`, then exchanges pages.
    ///
    /// # Safety
    ///
    /// `memory` must be readable, and `copy` room for as many bytes that nothing else uses. The pages that take the place of
    /// `memory` must have the contents of `copy`.
    unsafe fn after_copy(self, memory: UserMemory, copy: *mut u8) -> io::Result<()> {
        let is_own_stack = near_stack_pointer(memory);
        if is_own_stack && !cfg!(target_arch = "x86_64") {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let unblocked = is_own_stack.then(block_signals);
        // SAFETY: `# Safety`.
        let result = unsafe { copy_and_call(memory, copy, self) };
        if let Some(unblocked) = unblocked {
            // SAFETY: the set is the one that was valid before.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const unblocked, std::ptr::null_mut()) };
        }
        // Addresses that the kernel returns are no small negative numbers.
        if (-4095..0).contains(&result) { Err(io::Error::from_raw_os_error(-result as i32)) } else { Ok(()) }
    }
}

/// Copies and makes the system call in one step that uses registers only. Returns the kernel's result.
///
/// # Safety
///
/// As for [`Exchange::after_copy`].
#[cfg(target_arch = "x86_64")]
unsafe fn copy_and_call(memory: UserMemory, copy: *mut u8, exchange: Exchange) -> isize {
    let [first, second, third, fourth, fifth, sixth] = exchange.arguments;
    let result: isize;
    // SAFETY: the copy is the caller's promise, and so are the pages that the system call exchanges: their contents are the same, and
    // so are those of this thread's stack, which is not used between the two.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            "mov rdi, {first}",
            "mov rsi, {second}",
            "syscall",
            first = in(reg) first,
            second = in(reg) second,
            inout("rcx") memory.bytes => _,
            inout("rsi") memory.address => _,
            inout("rdi") copy => _,
            inout("rax") exchange.number as isize => result,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            in("r9") sixth,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Copies and makes the system call.
///
/// # Safety
///
/// As for [`Exchange::after_copy`]; the thread's own stack must not be among the memory.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_and_call(memory: UserMemory, copy: *mut u8, exchange: Exchange) -> isize {
    let [first, second, third, fourth, fifth, sixth] = exchange.arguments;
    // SAFETY: `# Safety`.
    let result = unsafe {
        std::ptr::copy_nonoverlapping(memory.address as *const u8, copy, memory.bytes);
        libc::syscall(exchange.number, first, second, third, fourth, fifth, sixth)
    };
    match result {
        -1 => -(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL) as isize),
        result => result as isize,
    }
}

/// Returns whether the stack frames in use, or those of a signal's handler, may be in `memory`.
fn near_stack_pointer(memory: UserMemory) -> bool {
    const DEPTH: usize = 64 << 10;
    let here = 0u8;
    let pointer = &raw const here as usize;
    memory.address < pointer + DEPTH && memory.address + memory.bytes > pointer.saturating_sub(DEPTH)
}

/// Keeps signals from the calling thread. Returns those that it had blocked before.
fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are the calls' own, which initialise them.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

/// Maps a stretch of a file over `memory`, which gets its contents. `copy` is another mapping of that stretch.
///
/// # Safety
///
/// `memory` must be readable, and the stretch of the file must be the caller's.
pub unsafe fn move_into_file(
    memory: UserMemory,
    (file, offset): (RawFd, u64),
    copy: *mut u8,
    writable: bool,
) -> io::Result<()> {
    // SAFETY: `# Safety`; both mappings of the file have the same contents.
    unsafe { Exchange::map(memory, file, offset, writable).after_copy(memory, copy) }
}

/// Moves a mapping at `original` to `memory`, the contents of which it gets.
///
/// # Safety
///
/// `memory` must be readable; the mapping at `original`, of the same length, must be the caller's.
pub unsafe fn move_back(memory: UserMemory, original: usize) -> io::Result<()> {
    // SAFETY: `# Safety`.
    unsafe { Exchange::remap(original, memory).after_copy(memory, original as *mut u8) }
}

/// Private memory from which short pieces take the place of a program's pages.
///
/// Each part of the address space has a *shadow*, at the same distance for all of its pages. Neighbours that came from a shadow become
/// one mapping again: the kernel joins mappings if their pages were neighbours where they were first used.
#[derive(Debug, Default)]
pub struct Shadows(HashMap<usize, Option<usize>>);

impl Shadows {
    /// Returns the place of `memory` in its shadow. `None`: it is too long, or has none.
    fn place(&mut self, memory: UserMemory) -> Option<usize> {
        let (part, offset) = (memory.address / SHADOW_BYTES, memory.address % SHADOW_BYTES);
        if memory.bytes > MAX_SHADOWED_BYTES || offset + memory.bytes > SHADOW_BYTES {
            return None;
        }
        let shadow = *self.0.entry(part).or_insert_with(|| {
            // Where address space is limited, it is the program's.
            if is_address_space_limited() { None } else { shadow().ok() }
        });
        Some(shadow? + offset)
    }

    /// Replaces shared pages by private ones with the same contents, in one step.
    pub fn make_private(&mut self, memory: UserMemory, writable: bool) -> io::Result<()> {
        // Pages that are not writable have other neighbours.
        let Some(place) = self.place(memory).filter(|_| writable) else {
            return make_private(memory, writable);
        };
        // SAFETY: the place is this piece's alone; its pages replace those of `memory`, with the same contents.
        unsafe { move_back(memory, place)? };
        // If this fails, there is a hole, and moving another copy of the piece fails.
        map_private(place, memory.bytes, libc::MAP_FIXED).map(drop)
    }
}

/// Returns a new shadow.
fn shadow() -> io::Result<usize> {
    map_private(0, SHADOW_BYTES, libc::MAP_NORESERVE)
}

/// Maps fresh private pages, at `address` or anywhere. They are small: a shadow has a few pages at a time.
fn map_private(address: usize, bytes: usize, flags: libc::c_int) -> io::Result<usize> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: with an address, a hole that this module has made; else a new mapping.
    unsafe {
        let at = libc::mmap(address as *mut _, bytes, protection, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A hint only.
        libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE);
        Ok(at as usize)
    }
}

fn is_address_space_limited() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is the one that the call writes.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } == 0;
    !known || limit.rlim_cur != libc::RLIM_INFINITY
}

/// Replaces shared pages by private ones with the same contents, in one step. They are a mapping of their own. Takes no lock and
/// allocates nothing.
pub fn make_private(memory: UserMemory, writable: bool) -> io::Result<()> {
    // SAFETY: a new mapping; then its pages replace those of `memory`, which the program goes on using and
    // which hold the same bytes.
    unsafe {
        let copy = libc::mmap(
            std::ptr::null_mut(),
            memory.bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if copy == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let moved = if writable {
            move_back(memory, copy as usize)
        } else {
            std::ptr::copy_nonoverlapping(memory.address as *const u8, copy.cast(), memory.bytes);
            match libc::mprotect(copy, memory.bytes, libc::PROT_READ) {
                0 => remap(copy as usize, memory),
                _ => Err(io::Error::last_os_error()),
            }
        };
        moved.inspect_err(|_| {
            libc::munmap(copy, memory.bytes);
        })
    }
}

/// Moves pages to `memory`.
///
/// # Safety
///
/// The pages must be the caller's, and have the contents of `memory`.
unsafe fn remap(from: usize, memory: UserMemory) -> io::Result<()> {
    let (to, flags) = (memory.address as *mut libc::c_void, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
    // SAFETY: `# Safety`.
    let at = unsafe { libc::mremap(from as *mut _, memory.bytes, memory.bytes, flags, to) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}
