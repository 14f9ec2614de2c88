// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles SIGBUS, so that a front-end that shrinks its memory file harms only itself.
//!
//! An access to a mapping past the end of its file raises SIGBUS, which would end the daemon and with it every other
//! front-end's sessions. The handler replaces the whole mapping by empty memory, once, and the daemon disconnects the
//! front-end. Workers need no handler, because they serve the session that the front-end has broken.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::thread;

use vmm_sys_util::eventfd::{EFD_CLOEXEC, EventFd};

/// The maximum number of mappings that may be lost before the watcher reads them.
const MAX_LOST: usize = 1024;

/// The mappings that were lost: end, and start, which is written last. The start is 0 in a free entry.
static LOST: [[AtomicUsize; 2]; MAX_LOST] = [const { [const { AtomicUsize::new(0) }; 2] }; MAX_LOST];
static NEXT_LOST: AtomicUsize = AtomicUsize::new(0);
/// The descriptor that wakes the watcher; -1 without one.
static WATCHER: AtomicI32 = AtomicI32::new(-1);
/// The process's mappings (/proc/self/maps); -1 before the handler is installed. The threads that read guest memory open
/// no files.
static MAPS: AtomicI32 = AtomicI32::new(-1);
/// Taken by the handler that reads [`MAPS`]: lines change, and a reader that continues at a position would begin within
/// one if another reader had been between.
static READING: AtomicBool = AtomicBool::new(false);

/// Installs the handler for this process.
pub fn install() -> io::Result<()> {
    let maps = File::open("/proc/self/maps")?.into_raw_fd();
    if MAPS.compare_exchange(-1, maps, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: the descriptor is this call's own: the handler has an earlier one.
        drop(unsafe { File::from_raw_fd(maps) });
    }
    // SAFETY: the structure is plain data, and zero is its empty value; the handler makes only async-signal-safe
    // calls and has the type that SA_SIGINFO wants.
    let failed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) < 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Calls `on_lost` with the addresses of the mappings that were lost, from a thread of its own. Called once per
/// process.
pub fn watch(on_lost: impl Fn(&[Range<usize>]) + Send + 'static) -> io::Result<()> {
    static EVENT: OnceLock<EventFd> = OnceLock::new();
    let event = EventFd::new(EFD_CLOEXEC)?;
    let event = EVENT.get_or_init(|| event);
    WATCHER.store(event.as_raw_fd(), Ordering::Release);
    let watching = move || {
        while event.read().is_ok() {
            on_lost(&take_lost());
        }
    };
    thread::Builder::new().name("sigbus".into()).spawn(watching).map(drop)
}

/// Takes the mappings that were lost since the last call.
fn take_lost() -> Vec<Range<usize>> {
    let take = |[end, start]: &[AtomicUsize; 2]| match start.swap(0, Ordering::AcqRel) {
        0 => None,
        start => Some(start..end.load(Ordering::Acquire)),
    };
    LOST.iter().filter_map(take).collect()
}

extern "C" fn handle(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel gives a valid structure to a handler with SA_SIGINFO, and `errno` is the thread's own.
    let (address, code, errno) =
        unsafe { ((*info).si_addr() as usize, (*info).si_code, libc::__errno_location()) };
    // SAFETY: `errno` is the thread's own. It is kept so that what was interrupted finds it unchanged.
    let before = unsafe { *errno };
    let repaired = code == libc::BUS_ADRERR && repair(address);
    // SAFETY: `errno` is the thread's own; the default action for the next try is always a valid one.
    unsafe {
        *errno = before;
        if !repaired {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        }
    }
}

/// Replaces the file mapping at `address` by empty memory. Uses only async-signal-safe calls.
fn repair(address: usize) -> bool {
    let Some(mapping) = find_mapping(address) else { return false };
    if !mapping.is_shared_file {
        // Another thread was faster.
        return mapping.is_anonymous;
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let (start, bytes) = (mapping.start, mapping.end - mapping.start);
    // SAFETY: the range is one whole mapping of a file, which stays mapped while anybody reads or writes there, as
    // the interrupted thread does. It gets other contents, as its file already has. One mapping takes the place of
    // one, so that the number of mappings does not grow.
    let mapped = unsafe { libc::mmap(start as *mut c_void, bytes, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return false;
    }
    let [last, first] = &LOST[NEXT_LOST.fetch_add(1, Ordering::AcqRel) % MAX_LOST];
    last.store(start + bytes, Ordering::Release);
    first.store(start, Ordering::Release);
    let one = 1_u64.to_ne_bytes();
    // SAFETY: eight bytes, as an eventfd wants; without a watcher the descriptor is bad, which is an error only.
    unsafe { libc::write(WATCHER.load(Ordering::Acquire), one.as_ptr().cast(), one.len()) };
    true
}

/// A line of /proc/self/maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mapping {
    start: usize,
    end: usize,
    is_shared_file: bool,
    is_anonymous: bool,
}

/// Returns the mapping that contains `address`. Does not allocate, because a signal handler calls it.
fn find_mapping(address: usize) -> Option<Mapping> {
    // The holder is in its handler, reads no guest memory there, and so gets no SIGBUS.
    while READING.swap(true, Ordering::Acquire) {
        // SAFETY: a plain system call.
        unsafe { libc::sched_yield() };
    }
    let found = scan(address);
    READING.store(false, Ordering::Release);
    found
}

fn scan(address: usize) -> Option<Mapping> {
    let maps = MAPS.load(Ordering::Acquire);
    let (mut lines, mut buffer, mut at) = (Lines::default(), [0_u8; 4096], 0);
    loop {
        // SAFETY: a buffer as long as said. The descriptor stays open.
        let read = unsafe { libc::pread(maps, buffer.as_mut_ptr().cast(), buffer.len(), at) };
        let bytes = usize::try_from(read).unwrap_or(0);
        if bytes == 0 {
            return None;
        }
        at += bytes as libc::off_t;
        let mut mappings = buffer[..bytes].iter().filter_map(|&byte| lines.push(byte));
        let found = mappings.find(|mapping| (mapping.start..mapping.end).contains(&address));
        if found.is_some() {
            return found;
        }
    }
}

/// Parses `start-end perms offset device inode path` byte by byte.
#[derive(Default)]
struct Lines {
    start: usize,
    end: usize,
    inode: u64,
    shared: bool,
    field: u8,
}

impl Lines {
    /// Returns the mapping if its line ends with `byte`.
    fn push(&mut self, byte: u8) -> Option<Mapping> {
        let digit = (byte as char).to_digit(16).unwrap_or(0) as usize;
        match (self.field, byte) {
            (_, b'\n') => {
                let line = std::mem::take(self);
                let is_file = line.inode != 0;
                return Some(Mapping {
                    start: line.start,
                    end: line.end,
                    is_shared_file: is_file && line.shared,
                    is_anonymous: !is_file,
                });
            }
            (0, b'-') | (1..=5, b' ') => self.field += 1,
            (0, _) => self.start = self.start << 4 | digit,
            (1, _) => self.end = self.end << 4 | digit,
            (2, b's') => self.shared = true,
            (5, _) => self.inode = self.inode.saturating_mul(10).saturating_add(digit as u64),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::memory::Memory;
    use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend};
    use vmm_sys_util::tempfile::TempFile;

    const PAGE: usize = 4096;

    fn memory(pages: usize) -> (Memory, std::fs::File) {
        let file = TempFile::new().unwrap().into_file();
        file.set_len((pages * PAGE) as u64).unwrap();
        let backing = Some(FileOffset::new(file.try_clone().unwrap(), 0));
        (Memory::from_ranges_with_files([(GuestAddress(0), pages * PAGE, backing)]).unwrap(), file)
    }

    #[test]
    fn memory_that_shrinks_is_replaced_at_once_and_as_a_whole() {
        const PAGES: usize = 4000;
        install().unwrap();
        let (memory, file) = memory(PAGES);
        memory.write_slice(b"before", GuestAddress(3 * PAGE as u64)).unwrap();
        let region = memory.iter().next().unwrap();
        let at = region.as_ptr() as usize;
        // Those of this memory: other tests of the process map theirs meanwhile.
        let is_inside = |line: &&str| {
            let (first, rest) = line.split_once('-').unwrap();
            let [first, end] = [first, rest.split(' ').next().unwrap()]
                .map(|address| usize::from_str_radix(address, 16).unwrap());
            first < at + PAGES * PAGE && end > at
        };
        let mappings =
            || std::fs::read_to_string("/proc/self/maps").unwrap().lines().filter(is_inside).count();
        assert_eq!(mappings(), 1);
        file.set_len(PAGE as u64).unwrap();
        let mut bytes = [1; 6];
        memory.read_slice(&mut bytes, GuestAddress(3 * PAGE as u64)).unwrap();
        assert_eq!(bytes, [0; 6]);
        let lost = || take_lost().iter().filter(|lost| lost.contains(&at)).count();
        assert_eq!(lost(), 1);
        // Every second page is accessed. None of them raises another signal, or needs a mapping.
        for page in (1..PAGES).step_by(2) {
            memory.write_slice(b"after", GuestAddress((page * PAGE) as u64)).unwrap();
        }
        assert_eq!(lost(), 0);
        assert_eq!(mappings(), 1);
        // A file that grows again is not mapped again.
        file.set_len((PAGES * PAGE) as u64).unwrap();
        memory.read_slice(&mut bytes, GuestAddress(0)).unwrap();
        assert_eq!(bytes, [0; 6]);
    }

    #[test]
    fn many_threads_may_lose_the_same_memory() {
        install().unwrap();
        for _ in 0..50 {
            let (memory, file) = memory(64);
            file.set_len(0).unwrap();
            thread::scope(|scope| {
                for first in 0..4 {
                    let memory = &memory;
                    scope.spawn(move || {
                        for page in (first..64).step_by(4) {
                            memory.write_slice(b"x", GuestAddress((page * PAGE) as u64)).unwrap();
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn lines_of_mappings_are_understood() {
        let mut lines = Lines::default();
        let text = b"7f0000001000-7f0000003000 rw-s 00001000 00:1f 4711     /memfd:a b - s (deleted)\n\
            7f0000003000-7f0000004000 rw-p 00000000 00:00 0 \n\
            ffff0000-ffff1000 r-xp 00000000 08:01 12 /lib/x\n";
        let found: Vec<_> = text.iter().filter_map(|&byte| lines.push(byte)).collect();
        let kinds: Vec<_> = found.iter().map(|one| (one.is_shared_file, one.is_anonymous)).collect();
        assert_eq!(kinds, [(true, false), (false, true), (false, false)]);
        assert_eq!((found[0].start, found[0].end), (0x7f00_0000_1000, 0x7f00_0000_3000));
        assert_eq!(found[2].end, 0xffff_1000);
    }
}
