// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The program's side of allocations: pages of one memfd, mapped twice. The program has those of its blocks at the
//! allocation's address. This library has all of them at another address, for copies.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};

use virtio_cuda_client::transport::UserMemory;

/// Pages of a memfd: those of all managed allocations, at their offset in the window, or those of one `cuMemCreate`
/// allocation.
#[derive(Debug)]
pub struct Store(File);

impl Store {
    /// Creates a store with room for `bytes` bytes. Only used pages take memory.
    pub fn new(bytes: u64) -> io::Result<Self> {
        // A file longer than the process's limit would end the process.
        // SAFETY: zero is a valid limit, and the call fills it in.
        let limit = unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            check(libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit))?;
            limit.rlim_cur
        };
        if limit < bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        // SAFETY: the name is a constant.
        let made = unsafe { libc::memfd_create(c"cuda-memory".as_ptr(), libc::MFD_CLOEXEC) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was created just above, and has no other owner.
        let file = unsafe { File::from_raw_fd(made) };
        file.set_len(bytes)?;
        Ok(Self(file))
    }

    /// Allocates pages; new ones are zero.
    pub fn make(&self, bytes: Range<u64>) -> io::Result<()> {
        self.fallocate(0, bytes.start, bytes.end - bytes.start)
    }

    /// Allocates the first `bytes` bytes, with huge pages if the kernel supports them for such files. Contiguous pages
    /// make short page lists for the device.
    pub fn populate(&self, bytes: u64) -> io::Result<()> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let at = map(0, bytes, Some((self, 0)), access, libc::MAP_SHARED | libc::MAP_NORESERVE)?;
        // These are hints: the remaining pages are allocated below, which also reports a lack of memory.
        // SAFETY: the range was mapped just above, and nothing refers to it.
        unsafe {
            libc::madvise(at as *mut _, bytes as usize, libc::MADV_HUGEPAGE);
            libc::madvise(at as *mut _, bytes as usize, libc::MADV_POPULATE_WRITE);
            libc::munmap(at as *mut _, bytes as usize);
        }
        self.make(0..bytes)
    }

    /// Maps the first `bytes` bytes at `address`, which this library has reserved. They are inaccessible until
    /// [`open`]. A forked child does not inherit them.
    pub fn map_closed(&self, address: u64, bytes: u64) -> io::Result<()> {
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
        map(address, bytes, Some((self, 0)), libc::PROT_NONE, flags)?;
        // SAFETY: the range was mapped just above.
        let advised = check(unsafe { libc::madvise(address as *mut _, bytes as usize, libc::MADV_DONTFORK) });
        advised.inspect_err(|_| _ = self.unmap(address, bytes))
    }

    /// Reverts [`Self::map_closed`]; the addresses stay reserved.
    pub fn unmap(&self, address: u64, bytes: u64) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        map(address, bytes, None, libc::PROT_NONE, flags).map(drop)
    }

    fn fallocate(&self, mode: libc::c_int, start: u64, bytes: u64) -> io::Result<()> {
        // SAFETY: the descriptor is open, and the call takes numbers only.
        check(unsafe {
            libc::fallocate(self.0.as_raw_fd(), mode, start as libc::off_t, bytes as libc::off_t)
        })
    }
}

/// The pages of one allocation.
///
/// # Invariants
///
/// `address` is a part of this library's own reservation of addresses, and `alias` a mapping of the store; both are
/// `bytes` bytes long for as long as this exists. No other pages have the same part of the store.
#[derive(Debug)]
pub struct Pages {
    store: &'static Store,
    offset: u64,
    address: u64,
    alias: u64,
    bytes: u64,
}

fn check(done: libc::c_int) -> io::Result<()> {
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes memory of [`Store::map_closed`] accessible.
pub fn open(memory: UserMemory) -> io::Result<()> {
    // SAFETY: a mapping of this library's, whose pages stay.
    check(unsafe {
        libc::mprotect(memory.address as *mut _, memory.bytes, libc::PROT_READ | libc::PROT_WRITE)
    })
}

/// Reverts [`open`].
pub fn close(memory: UserMemory) -> io::Result<()> {
    // SAFETY: a mapping of this library's, whose pages stay; the program has given its access up.
    check(unsafe { libc::mprotect(memory.address as *mut _, memory.bytes, libc::PROT_NONE) })
}

fn map(
    at: u64,
    bytes: u64,
    file: Option<(&Store, u64)>,
    protection: libc::c_int,
    flags: libc::c_int,
) -> io::Result<u64> {
    let (descriptor, offset) = file.map_or((-1, 0), |(store, offset)| (store.0.as_raw_fd(), offset));
    // SAFETY: with MAP_FIXED the callers pass addresses of this library's own; without it nothing is replaced.
    let at = unsafe {
        libc::mmap(at as *mut _, bytes as usize, protection, flags, descriptor, offset as libc::off_t)
    };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at as u64) }
}

impl Pages {
    /// Maps `bytes` bytes of zeros at `address`, which this library has reserved, from `offset` of the store on. A
    /// forked child does not inherit them.
    pub fn new(store: &'static Store, address: u64, offset: u64, bytes: u64) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let shared = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let alias = map(0, bytes, Some((store, offset)), access, shared)?;
        let pages = Self { store, offset, address, alias, bytes };
        map(address, bytes, Some((store, offset)), access, shared | libc::MAP_FIXED)?;
        for start in [address, alias] {
            pages.advise(start, bytes, libc::MADV_DONTFORK)?;
            // Without huge pages, the kernel uses small ones.
            let _ = pages.advise(start, bytes, libc::MADV_HUGEPAGE);
        }
        Ok(pages)
    }

    fn advise(&self, start: u64, bytes: u64, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: a part of one of the two mappings (invariant), whose pages the store keeps.
        check(unsafe { libc::madvise(start as *mut _, bytes as usize, advice) })
    }

    /// Returns this library's address of bytes of the allocation.
    pub fn alias(&self, bytes: Range<u64>) -> UserMemory {
        UserMemory { address: (self.alias + bytes.start) as usize, bytes: (bytes.end - bytes.start) as usize }
    }

    /// Returns bytes of the allocation.
    ///
    /// # Safety
    ///
    /// They are not mapped in the program, whose pages of them exist, and nothing writes them meanwhile.
    pub unsafe fn bytes(&self, bytes: Range<u64>) -> &[u8] {
        assert!(bytes.start <= bytes.end && bytes.end <= self.bytes);
        let alias = self.alias(bytes);
        // SAFETY: the alias is mapped for as long as `self` lives (invariant); the caller says that nothing writes.
        unsafe { std::slice::from_raw_parts(alias.address as *const u8, alias.bytes) }
    }

    /// Allocates pages for bytes of the allocation; new ones are zero.
    pub fn make(&self, bytes: Range<u64>) -> io::Result<()> {
        self.store.make(self.offset + bytes.start..self.offset + bytes.end)
    }

    /// Unmaps bytes, so that the program's next access to them is reported. Their contents stay in the pages.
    pub fn unmap(&self, bytes: Range<u64>) -> io::Result<()> {
        self.advise(self.address + bytes.start, bytes.end - bytes.start, libc::MADV_DONTNEED)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // From now on, an access to the allocation is a segmentation fault, as on real hardware.
        if let Err(error) = map(self.address, self.bytes, None, libc::PROT_NONE, flags) {
            log::error!("Memory at {:#x} stays mapped: {error}", self.address);
        }
        // SAFETY: a mapping of this library (invariant), which is no longer used.
        unsafe { libc::munmap(self.alias as *mut _, self.bytes as usize) };
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        if let Err(error) = self.store.fallocate(mode, self.offset, self.bytes) {
            log::error!("{} bytes of freed managed memory stay in use: {error}", self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::state::moving::faults::Faults;

    const BYTES: u64 = 2 << 20;

    fn reserve() -> u64 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        map(0, BYTES, None, libc::PROT_NONE, flags).unwrap()
    }

    fn store() -> &'static Store {
        Box::leak(Box::new(Store::new(4 * BYTES).unwrap()))
    }

    #[test]
    fn what_the_program_writes_is_seen_and_survives_without_the_mapping() {
        let address = reserve();
        let pages = Pages::new(store(), address, BYTES, BYTES).unwrap();
        let alias = pages.alias(4096..8192);
        // SAFETY: both are mapped for as long as `pages` lives.
        let (own, other) = unsafe { (&*((address + 4096) as *const [u8; 4096]), alias.address as *mut u8) };
        // SAFETY: the alias is mapped for as long as `pages` lives, and there is no reference to it.
        unsafe { other.write(7) };
        assert_eq!(unsafe_read(own), 7);
        pages.unmap(0..BYTES).unwrap();
        assert_eq!(unsafe_read(own), 7, "the page is the memfd's");
        pages.make(0..BYTES).unwrap();
        drop(pages);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        // The kernel may have merged it with a neighbour.
        let protection = maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (first, end) = range.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            (number(first)..number(end)).contains(&address).then(|| rest[..4].to_owned())
        });
        assert_eq!(protection.as_deref(), Some("---p"));
    }

    fn unsafe_read(page: &[u8; 4096]) -> u8 {
        // SAFETY: a reference.
        unsafe { std::ptr::read_volatile(&raw const page[0]) }
    }

    #[test]
    fn one_file_has_several_mappings_that_open_and_close() {
        let (first, second) = (reserve(), reserve());
        let store = Store::new(BYTES).unwrap();
        store.populate(BYTES).unwrap();
        for address in [first, second] {
            store.map_closed(address, BYTES).unwrap();
            open(UserMemory { address: address as usize, bytes: BYTES as usize }).unwrap();
        }
        // SAFETY: both are mapped and open.
        unsafe {
            ((first + 4096) as *mut u8).write_volatile(9);
            assert_eq!(((second + 4096) as *const u8).read_volatile(), 9);
        }
        close(UserMemory { address: second as usize, bytes: BYTES as usize }).unwrap();
        store.unmap(first, BYTES).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.starts_with(&format!("{second:x}-"))).unwrap();
        assert!(line.contains(" ---s ") && line.contains("cuda-memory"), "{line}");
        assert!(store.populate(1 << 62).is_err(), "longer than the file may be");
        store.unmap(second, BYTES).unwrap();
    }

    #[test]
    fn pages_are_zeros_again_after_their_end() {
        let (store, address) = (store(), reserve());
        for _ in 0..2 {
            let pages = Pages::new(store, address, 0, BYTES).unwrap();
            let first = pages.alias(0..4096).address as *mut u8;
            // SAFETY: the alias is mapped for as long as `pages` lives.
            unsafe {
                assert_eq!(first.read_volatile(), 0);
                first.write_volatile(1);
            }
        }
    }

    #[test]
    fn a_touch_is_told_and_waits_until_the_page_is_mapped() {
        let Ok(faults) = Faults::open() else { return };
        let address = reserve();
        let pages = Pages::new(store(), address, BYTES, BYTES).unwrap();
        faults.watch(address..address + BYTES).unwrap();
        let toucher = std::thread::spawn(move || {
            // SAFETY: mapped until the thread has ended.
            unsafe {
                let first = std::ptr::read_volatile((address + 8192 + 5) as *const u8);
                std::ptr::write_volatile((address + 8192 + 6) as *mut u8, first + 1);
                first
            }
        });
        let touch = faults.next(None).unwrap().unwrap();
        assert_eq!(touch / 4096 * 4096, address + 8192);
        assert_eq!(faults.next(Some(Duration::ZERO)).unwrap(), None);
        pages.make(0..65536).unwrap();
        let alias = pages.alias(8192..12288).address as *mut u8;
        // SAFETY: the alias is mapped for as long as `pages` lives.
        unsafe { alias.add(5).write(41) };
        faults.map(address..address + 65536).unwrap();
        assert_eq!(toucher.join().unwrap(), 41);
        // SAFETY: the alias is mapped for as long as `pages` lives.
        assert_eq!(unsafe { alias.add(6).read_volatile() }, 42);
        faults.map(address + 4096..address + 16384).expect("mapped already");
    }
}
