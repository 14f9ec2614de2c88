// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::fs::OpenOptions;
use std::io::{Seek, Write};
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

use super::*;
use crate::virtio_user::mappings::is_steady;

const PAGE: usize = 4096;

/// A daemon that takes all files.
#[derive(Debug, Default)]
struct FakeDaemon(Mutex<Vec<RamRange>>);

/// The place of the next file in guest memory, which is behind all memfds.
const BEHIND: u64 = 1 << 40;

impl FileRegions for FakeDaemon {
    fn add(&self, _: &File, offset: u64, memory: UserMemory) -> Result<FileRegion, ClientError> {
        let mut taken = self.0.lock().expect("a lock");
        let range = RamRange { offset: BEHIND + ((taken.len() as u64) << 30), bytes: memory.bytes as u64 };
        taken.push(range);
        Ok(FileRegion { range, address: memory.address as u64, file_offset: offset })
    }

    fn remove(&self, region: FileRegion) {
        self.0.lock().expect("a lock").retain(|range| *range != region.range);
    }
}

fn adopt(pages: &SharedPages, ram: &SharedRam, memory: UserMemory) -> Result<(), ClientError> {
    pages.adopt(ram, &FakeDaemon::default(), memory, false)
}

fn release(pages: &SharedPages, ram: &SharedRam, memory: UserMemory) {
    pages.release(ram, &FakeDaemon::default(), memory);
}

fn mapped(file: &File, first: usize, pages: usize, protection: i32, flags: i32) -> UserMemory {
    let offset = (first * PAGE) as libc::off_t;
    // SAFETY: a new mapping.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), pages * PAGE, protection, flags, file.as_raw_fd(), offset)
    };
    assert_ne!(at, libc::MAP_FAILED);
    UserMemory { address: at as usize, bytes: pages * PAGE }
}

/// Fills a file with the number of each page plus one.
fn fill(mut file: File) -> File {
    file.rewind().expect("a file");
    for page in 1..=4 {
        file.write_all(&[page; PAGE]).expect("written");
    }
    file
}

fn in_memory() -> File {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"weights".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: the descriptor was made just above and has no other owner.
    fill(unsafe { File::from_raw_fd(fd) })
}

/// A file beside this program, with its name.
fn on_disk(name: &str) -> (File, std::path::PathBuf) {
    let program = std::env::current_exe().expect("a program");
    let path = program.with_file_name(format!("{name}.{}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
    (fill(file.expect("made")), path)
}

/// Byte `PAGE * page` of the memory.
fn byte(memory: UserMemory, page: usize) -> u8 {
    // SAFETY: the tests map that memory.
    unsafe { (memory.address as *const u8).add(page * PAGE).read_volatile() }
}

fn is_writable(memory: UserMemory) -> bool {
    parts(memory).expect("a list").expect("mapped").iter().all(|part| part.writable)
}

fn anonymous(pages: usize) -> UserMemory {
    // SAFETY: a new mapping.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            pages * PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    UserMemory { address: at as usize, bytes: pages * PAGE }
}

fn part(memory: UserMemory, first: usize, pages: usize) -> UserMemory {
    UserMemory { address: memory.address + first * PAGE, bytes: pages * PAGE }
}

#[test]
fn adopted_pages_keep_their_contents_and_are_shared() {
    let (ram, pages) = (SharedRam::new().expect("memfd"), SharedPages::default());
    let memory = anonymous(4);
    let first = memory.address as *mut u8;
    // SAFETY: the test's own memory.
    unsafe { first.add(PAGE).write(42) };
    adopt(&pages, &ram, memory).expect("adopted");
    let entries = pages.entries(part(memory, 1, 2)).expect("located").0;
    let offset: u64 = entries[0].addr - super::super::memory::RAM_BASE;
    // SAFETY: `first` is the test's own memory; the offset was allocated for its pages.
    unsafe {
        assert_eq!(ram.at(offset).read(), 42);
        ram.at(offset).write(43);
        assert_eq!(first.add(PAGE).read_volatile(), 43, "both see the same page");
    }
    release(&pages, &ram, memory);
    assert!(pages.entries(memory).is_none());
    // SAFETY: the test's own memory: `release` leaves private pages there.
    assert_eq!(unsafe { first.add(PAGE).read_volatile() }, 43, "contents stay");
}

#[test]
fn overlapping_adoptions_are_counted_page_by_page() {
    let (ram, pages) = (SharedRam::new().expect("memfd"), SharedPages::default());
    let memory = anonymous(6);
    adopt(&pages, &ram, part(memory, 0, 3)).expect("adopted");
    adopt(&pages, &ram, part(memory, 2, 3)).expect("adopted");
    assert!(pages.entries(part(memory, 0, 5)).is_some());
    release(&pages, &ram, part(memory, 0, 3));
    assert!(pages.entries(part(memory, 0, 1)).is_none());
    assert!(pages.entries(part(memory, 2, 3)).is_some(), "the second one still holds page 2");
    release(&pages, &ram, part(memory, 2, 3));
    assert!(pages.entries(part(memory, 2, 1)).is_none());
}

#[test]
fn missing_memory_is_refused() {
    let (ram, pages) = (SharedRam::new().expect("memfd"), SharedPages::default());
    assert!(adopt(&pages, &ram, UserMemory { address: 0x1000, bytes: PAGE }).is_err());
}

/// Uses more and more of the stack; returns a sum that depends on all of it.
#[inline(never)]
fn deep(levels: u64) -> u64 {
    let frame = std::hint::black_box([levels; 64]);
    let below = if levels == 0 { 0 } else { deep(levels - 1) };
    below + std::hint::black_box(frame).iter().sum::<u64>()
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_own_stack_moves_while_it_is_in_use() {
    let (ram, pages) = (SharedRam::new().expect("memfd"), SharedPages::default());
    let mut value = 41_u64;
    let at = &raw mut value;
    let memory = UserMemory { address: (at as usize) & !(PAGE - 1), bytes: PAGE };
    // The pages of all frames around, too.
    let around = UserMemory { address: memory.address - 4 * PAGE, bytes: 6 * PAGE };
    for memory in [memory, around] {
        let before = deep(40);
        for _ in 0..50 {
            adopt(&pages, &ram, memory).expect("adopted");
            let (entries, _) = pages.entries(memory).expect("located");
            let page = (at as usize - memory.address) as u64;
            // SAFETY: the place was allocated for that page, and `at` is this function's variable.
            unsafe {
                let place = ram.at(entries[0].addr - super::super::memory::RAM_BASE + page).cast::<u64>();
                at.write_volatile(at.read_volatile() + 1);
                assert_eq!(place.read_volatile(), at.read_volatile(), "both see the same page");
            }
            assert_eq!(deep(40), before);
            release(&pages, &ram, memory);
            assert_eq!(deep(40), before);
        }
    }
    // SAFETY: this function's variable.
    assert_eq!(unsafe { at.read_volatile() }, 141);
}

/// The mappings of the process at `memory`.
fn mappings(memory: UserMemory) -> usize {
    parts(memory).expect("a list").expect("mapped").len()
}

#[test]
fn released_pages_become_one_mapping_again() {
    const PAGES: usize = 600;
    let (ram, pages) = (SharedRam::new().expect("memfd"), SharedPages::default());
    let memory = anonymous(PAGES);
    let write = |page: usize, value: u32| {
        // SAFETY: the test's own memory.
        unsafe { ((memory.address + page * PAGE) as *mut u32).write_volatile(value) };
    };
    let read = |page: usize| {
        // SAFETY: the test's own memory.
        unsafe { ((memory.address + page * PAGE) as *const u32).read_volatile() }
    };
    for round in 0..3 {
        for page in 0..PAGES {
            write(page, page as u32 + round);
            adopt(&pages, &ram, part(memory, page, 1)).expect("adopted");
        }
        // In another order.
        for index in 0..PAGES {
            let page = index * 7 % PAGES;
            write(page, page as u32 * 3 + round);
            release(&pages, &ram, part(memory, page, 1));
        }
        for page in 0..PAGES {
            assert_eq!(read(page), page as u32 * 3 + round);
        }
        assert!(mappings(memory) <= 4, "{} mappings", mappings(memory));
    }
    assert_eq!(pages.adopted.all().count(), 0);
}

#[test]
fn shared_memory_of_this_process_alone_moves_and_comes_back() {
    let (ram, pages, daemon) =
        (SharedRam::new().expect("memfd"), SharedPages::default(), FakeDaemon::default());
    let all = libc::PROT_READ | libc::PROT_WRITE;
    let memory = mapped(&in_memory(), 0, 4, all, libc::MAP_SHARED);
    let twice = || {
        // SAFETY: makes a second mapping of the test's memory.
        let at = unsafe { libc::mremap(memory.address as *mut _, 0, 4 * PAGE, libc::MREMAP_MAYMOVE) };
        assert_ne!(at, libc::MAP_FAILED);
        UserMemory { address: at as usize, bytes: 4 * PAGE }
    };
    let of_memory = || parts(memory).expect("a list").expect("mapped").remove(0);
    // `may_share_mappings` depends on the other tests of this process.
    assert!(of_memory().is_mapped_once().expect("a list"));
    let other = twice();
    assert!(!of_memory().is_mapped_once().expect("a list"), "the other mapping overlaps");
    // SAFETY: the second mapping was made above.
    unsafe { libc::munmap(other.address as *mut _, other.bytes) };

    let original = duplicate(memory).expect("mapped twice");
    let run = move_pages(&ram, &of_memory(), Kind::Kept(original)).expect("moved");
    pages.runs().by_address.insert(memory.address, Run { users: 1, ..run });
    assert!(of_memory().is_own());
    // SAFETY: the test's own memory.
    unsafe { (memory.address as *mut u8).add(2 * PAGE).write_volatile(99) };
    pages.release(&ram, &daemon, part(memory, 0, 1));
    pages.release(&ram, &daemon, part(memory, 1, 3));
    assert_eq!([0, 1, 2, 3].map(|page| byte(memory, page)), [1, 2, 99, 4]);
    assert!(!of_memory().is_own());
    let other = twice();
    assert_eq!(byte(other, 2), 99, "it is the program's file again");
}

#[test]
fn long_memory_becomes_several_entries() {
    let entries: Vec<_> = entries_of(0x1000, (2 << 30) + 5).map(|e| (e.addr, e.bytes)).collect();
    assert_eq!(entries, [(0x1000, 1 << 30), (0x4000_1000, 1 << 30), (0x8000_1000, 5)]);
}

#[test]
fn private_mappings_that_are_only_read_move_and_stay_so() {
    let (ram, pages, daemon) =
        (SharedRam::new().expect("memfd"), SharedPages::default(), FakeDaemon::default());
    let memory = mapped(&in_memory(), 0, 4, libc::PROT_READ, libc::MAP_PRIVATE);
    assert!(pages.adopt(&ram, &daemon, memory, false).is_err());
    assert!(pages.entries(memory).is_none());
    pages.adopt(&ram, &daemon, part(memory, 1, 3), true).expect("adopted");
    let (entries, writable) = pages.entries(part(memory, 2, 1)).expect("located");
    assert!(!writable);
    let place = ram.at(entries[0].addr - super::super::memory::RAM_BASE);
    // SAFETY: the place was allocated for that page.
    assert_eq!(unsafe { place.read_volatile() }, 3);
    assert_eq!([0, 1, 2, 3].map(|page| byte(memory, page)), [1, 2, 3, 4]);
    assert!(!is_writable(memory));
    pages.release(&ram, &daemon, part(memory, 1, 3));
    assert_eq!([0, 1, 2, 3].map(|page| byte(memory, page)), [1, 2, 3, 4]);
    assert!(!is_writable(memory) && pages.entries(memory).is_none());
    assert!(daemon.0.lock().expect("a lock").is_empty());
}

#[test]
fn the_daemon_gets_files_that_are_open_for_writing() {
    let (ram, pages, daemon) =
        (SharedRam::new().expect("memfd"), SharedPages::default(), FakeDaemon::default());
    let file = in_memory();
    let memory = mapped(&file, 1, 3, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let taken = || daemon.0.lock().expect("a lock").clone();
    pages.adopt(&ram, &daemon, part(memory, 0, 2), false).expect("adopted");
    pages.adopt(&ram, &daemon, part(memory, 1, 2), false).expect("adopted");
    assert_eq!(taken().iter().map(|range| range.bytes).collect::<Vec<_>>(), [2 * PAGE as u64, PAGE as u64]);
    let (entries, writable) = pages.entries(part(memory, 1, 1)).expect("located");
    assert!(writable);
    assert_eq!(entries[0].addr, super::super::memory::RAM_BASE + BEHIND + PAGE as u64);
    file.write_all_at(&[77], 2 * PAGE as u64).expect("written");
    assert_eq!(byte(memory, 1), 77, "it is still the file");
    pages.release(&ram, &daemon, part(memory, 0, 2));
    assert_eq!(taken().len(), 2, "the second one still holds its first page");
    pages.release(&ram, &daemon, part(memory, 1, 2));
    assert!(taken().is_empty());
    // To be read only, it is the same file.
    let memory = mapped(&file, 0, 4, libc::PROT_READ, libc::MAP_SHARED);
    pages.adopt(&ram, &daemon, memory, true).expect("adopted");
    assert_eq!(taken().len(), 1);
    assert!(!pages.entries(memory).expect("located").1);
    // Without a descriptor the contents may change behind a copy.
    let memory = mapped(&in_memory(), 0, 4, libc::PROT_READ, libc::MAP_SHARED);
    assert!(pages.adopt(&ram, &daemon, memory, true).is_err());
}

#[test]
fn a_copy_takes_the_place_of_a_file_on_a_disk() {
    let (ram, pages, daemon) =
        (SharedRam::new().expect("memfd"), SharedPages::default(), FakeDaemon::default());
    let (file, path) = on_disk("read-only");
    drop(file);
    let memory = mapped(&File::open(&path).expect("a file"), 0, 4, libc::PROT_READ, libc::MAP_SHARED);
    let adopted = pages.adopt(&ram, &daemon, part(memory, 1, 2), true);
    let file = OpenOptions::new().write(true).open(&path).expect("a file");
    std::fs::remove_file(&path).expect("removed");
    assert_eq!(adopted.is_ok(), is_steady(&file));
    if adopted.is_err() {
        return;
    }
    file.write_all_at(&[77], 2 * PAGE as u64).expect("written");
    assert_eq!([0, 1, 2, 3].map(|page| byte(memory, page)), [1, 2, 3, 4], "the contents at that time");
    assert!(!pages.entries(part(memory, 1, 2)).expect("located").1);
    pages.release(&ram, &daemon, part(memory, 1, 2));
    assert_eq!([0, 1, 2, 3].map(|page| byte(memory, page)), [1, 2, 77, 4], "the file again");
    assert!(!is_writable(memory) && daemon.0.lock().expect("a lock").is_empty());
}
