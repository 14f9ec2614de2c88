// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process that maps guest memory with `--guest-pages named`. It shares this worker's memory and nothing else: the
//! descriptors of guest memory are in its table alone, where the daemon installs them
//! (`sessions::named_pages`), and `/proc` shows the table to nobody, because this memory is not dumpable. The
//! process can map files and wait for orders. The daemon decides over each of its `mmap` calls.

mod process;

use std::ffi::c_void;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use rustix::thread::futex;
use vhost_cuda_common::mapping;

use crate::ending::end_process;
pub use process::MAX_PIECES;
use process::{Desk, ENDED, IDLE, ORDERED, STARTING, Slot, Start};

/// The process's stack in bytes. Its only function has no calls but system calls.
const STACK_BYTES: usize = 64 << 10;

/// The process, from the outside.
#[derive(Debug)]
pub struct Mapper {
    /// Locked by the thread that gives an order.
    desk: Mutex<&'static Desk>,
}

/// A file of guest memory that the process has.
#[derive(Clone, Debug)]
pub struct NamedFile {
    number: u64,
    mapper: Arc<Mapper>,
}

/// A piece of a file that is to be mapped.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// The address; `None`: anywhere.
    pub at: Option<usize>,
    /// Its bytes, whole pages.
    pub bytes: usize,
    /// Its place in the file.
    pub offset: u64,
    /// True for writing, too.
    pub writable: bool,
}

impl Mapper {
    /// Starts the process. It sends the listener of its filter over `socket`, and keeps that and `lock` open until it
    /// has ended. Must be called while this process has one thread, the one that lives as long as the process, and is
    /// not dumpable.
    pub fn start(socket: UnixStream, lock: Option<RawFd>) -> io::Result<Arc<Self>> {
        let desk: &'static Desk = Box::leak(Box::default());
        let mut start = Start::new(desk, &socket, lock)?;
        let stack = map_stack()?;
        // The process can handle no signal: it inherits a mask of all of them.
        let unblock = block_signals()?;
        let flags = libc::CLONE_VM | libc::CLONE_CHILD_CLEARTID;
        let none = ptr::null_mut::<c_void>();
        // SAFETY: the function makes system calls only, on the stack above, which stays mapped, and `start` lives until
        // it has taken what it needs (below). The process has a descriptor table and handlers of its own.
        let pid = unsafe {
            let argument = (&raw mut start).cast();
            libc::clone(process::run, stack, flags, argument, none, none, desk.state.as_ptr())
        };
        let error = io::Error::last_os_error();
        unblock()?;
        if pid < 0 {
            return Err(error);
        }
        match desk.wait_while(STARTING) {
            ENDED => Err(io::Error::from_raw_os_error(desk.error.load(Ordering::Acquire))),
            _ => Ok(Arc::new(Self { desk: Mutex::new(desk) })),
        }
    }

    /// Returns the file to which the daemon has given this number.
    pub fn file(self: &Arc<Self>, number: u64) -> NamedFile {
        NamedFile { number, mapper: self.clone() }
    }

    /// Lets the daemon install new files in the process, and take back those that are not used any more.
    pub fn refresh(&self) {
        // A question that is always refused.
        let nothing = Mapping { at: None, bytes: 1, offset: 0, writable: false };
        let _ = self.map(mapping::REFRESH, &[nothing], |_| {});
    }

    /// Maps pieces of the file with this descriptor for reading, and hands their addresses to `mapped` until one fails. Returns the error of that one.
    fn map(&self, file: u32, pieces: &[Mapping], mut mapped: impl FnMut(usize)) -> io::Result<()> {
        let desk = self.desk.lock();
        for (slot, piece) in desk.slots.iter().zip(pieces) {
            slot.order(file, piece);
        }
        desk.count.store(pieces.len() as u32, Ordering::Relaxed);
        let ordered = desk.state.compare_exchange(IDLE, ORDERED, Ordering::Release, Ordering::Relaxed);
        let _ = futex::wake(&desk.state, futex::Flags::empty(), 1);
        if ordered.is_err() || desk.wait_while(ORDERED) == ENDED {
            end_process("the process that maps guest memory has ended");
        }
        desk.slots.iter().zip(pieces).try_for_each(|(slot, _)| slot.answer().map(&mut mapped))
    }
}

impl Desk {
    /// Waits until the state is another one, and returns it.
    fn wait_while(&self, state: u32) -> u32 {
        loop {
            let now = self.state.load(Ordering::Acquire);
            if now != state {
                return now;
            }
            // The kernel wakes threads that wait for the process's end in this way, too.
            let _ = futex::wait(&self.state, futex::Flags::empty(), state, None);
        }
    }
}

impl Slot {
    fn order(&self, file: u32, piece: &Mapping) {
        let (file, protection) = match piece.writable {
            true => (mapping::to_write(file), libc::PROT_READ | libc::PROT_WRITE),
            false => (file, libc::PROT_READ),
        };
        let fixed = if piece.at.is_some() { libc::MAP_FIXED } else { 0 };
        let arguments = [
            piece.at.unwrap_or(0),
            piece.bytes,
            protection as usize,
            (libc::MAP_SHARED | fixed) as usize,
            file as usize,
            piece.offset as usize,
        ];
        for (place, argument) in self.arguments.iter().zip(arguments) {
            place.store(argument, Ordering::Relaxed);
        }
        self.result.store(-(libc::ECANCELED as isize), Ordering::Relaxed);
    }

    fn answer(&self) -> io::Result<usize> {
        let result = self.result.load(Ordering::Relaxed);
        match i32::try_from(result) {
            Ok(error @ -4095..=-1) => Err(io::Error::from_raw_os_error(-error)),
            _ => Ok(result as usize),
        }
    }
}

impl NamedFile {
    /// Returns whether both are the same file.
    pub fn is(&self, other: &Self) -> bool {
        self.number == other.number
    }

    /// Maps pages of the file that the guest's process has named, and hands each piece with its address to `mapped`. An order
    /// to the process costs as much as a mapping, so that pieces go together.
    ///
    /// Errors: pieces that were not handed over are not mapped, unless they have an address: then they may be.
    ///
    /// # Safety
    ///
    /// Nothing else may use the memory at the addresses.
    pub unsafe fn map(&self, pieces: &[Mapping], mut mapped: impl FnMut(&Mapping, usize)) -> io::Result<()> {
        for pieces in pieces.chunks(MAX_PIECES) {
            let mut addresses = Vec::with_capacity(pieces.len());
            let file = mapping::to_read(self.number);
            let result = self.mapper.map(file, pieces, |address| addresses.push(address));
            if let Err(error) = result {
                let anywhere = pieces.iter().zip(addresses).filter(|(piece, _)| piece.at.is_none());
                for (piece, address) in anywhere {
                    // SAFETY: mapped above, and nothing has its address yet.
                    unsafe { libc::munmap(address as *mut _, piece.bytes) };
                }
                return Err(error);
            }
            pieces.iter().zip(addresses).for_each(|(piece, address)| mapped(piece, address));
        }
        Ok(())
    }
}

/// Maps a stack with a page below it that cannot be used. Returns its end.
fn map_stack() -> io::Result<*mut c_void> {
    const GUARD: usize = 4096;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping that replaces nothing, of which one page is made unusable.
    unsafe {
        let stack = libc::mmap(ptr::null_mut(), GUARD + STACK_BYTES, protection, flags, -1, 0);
        if stack == libc::MAP_FAILED || libc::mprotect(stack, GUARD, libc::PROT_NONE) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stack.add(GUARD + STACK_BYTES))
    }
}

/// Blocks all signals of the calling thread. Returns the function that restores its mask.
fn block_signals() -> io::Result<impl FnOnce() -> io::Result<()>> {
    let set = |mask: &libc::sigset_t, before: *mut libc::sigset_t| {
        // SAFETY: both are sets that live across the call, or null.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, before) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    };
    // SAFETY: all-zero is a valid set, and `sigfillset` writes the one that it gets.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::sigfillset(&raw mut all) };
    set(&all, &raw mut before)?;
    Ok(move || set(&before, ptr::null_mut()))
}

/// Maps a piece of a file that this process has, at its address or anywhere. Returns the address.
///
/// # Safety
///
/// Nothing else may use the memory at the address.
pub unsafe fn map_shared(file: RawFd, piece: &Mapping) -> io::Result<usize> {
    let protection = libc::PROT_READ | if piece.writable { libc::PROT_WRITE } else { 0 };
    let offset = libc::off_t::try_from(piece.offset).map_err(io::Error::other)?;
    let (at, flags) = match piece.at {
        Some(at) => (at, libc::MAP_SHARED | libc::MAP_FIXED),
        None => (0, libc::MAP_SHARED),
    };
    // SAFETY: without an address nothing is replaced; nothing else uses the memory at one that was given.
    let mapped = unsafe { libc::mmap(at as *mut _, piece.bytes, protection, flags, file, offset) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(mapped as usize) }
}

#[cfg(test)]
mod tests;
