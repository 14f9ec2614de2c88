// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The mappings of the process, and the files behind those that it shares.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;

use virtio_cuda_protocol::transport::PAGE_BYTES;

use crate::transport::UserMemory;
use crate::virtio_user::forks;

mod queries;

/// The list of the process's mappings.
const MAPS: &str = "/proc/self/maps";
/// The end of the name of a file without a name.
const DELETED: &str = " (deleted)";
/// The name of the memfd of `SharedRam`.
const OWN_MEMORY: &str = "/memfd:virtio-cuda";
/// The names of mappings of memfds, and of shared and anonymous memory.
const MEMFD: &str = "/memfd:";
const ANONYMOUS: &str = "/dev/zero (deleted)";
/// The lines of `/proc/self/smaps` with pages that are mapped several times.
const SHARED_PAGES: [&str; 2] = ["Shared_Clean:", "Shared_Dirty:"];
/// File systems whose files are memory that programs share, so that their contents change at any time: tmpfs, hugetlbfs, ramfs.
const MEMORY_FILE_SYSTEMS: [i64; 3] = [0x0102_1994, 0x9584_58f6, 0x8584_58f6];

/// A part of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The addresses.
    pub memory: UserMemory,
    /// True if the process may write there.
    pub writable: bool,
    /// True if other mappings of the file see writes.
    pub shared: bool,
    /// The address of the mapping's first byte, and the one behind its last.
    whole: (usize, usize),
    /// The place in the file of the part's first byte.
    pub offset: u64,
    /// The file's identity.
    file: FileId,
    /// The name that the kernel gives the mapping; empty for private ones.
    name: String,
}

/// Device and inode, as the kernel reports them for mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FileId {
    device: (u32, u32),
    inode: u64,
}

/// A file that a process has mapped.
#[derive(Debug)]
pub enum Backing {
    /// Open for reading and writing: another process can map it the same way.
    Writable(File),
    /// Open for reading, on a file system whose files do not change by themselves.
    ReadOnly(File),
}

/// The parts of mappings that make up `memory`. `None`: not all of it is mapped for reading.
pub fn parts(memory: UserMemory) -> io::Result<Option<Vec<Part>>> {
    let mut maps = File::open(MAPS)?;
    let asked = queries::from(&maps, memory.address).map(|found| cover(found, memory));
    if let Some(parts) = asked.transpose()? {
        return Ok(parts);
    }
    let mut text = String::new();
    maps.read_to_string(&mut text)?;
    cover(text.lines().filter_map(parse).map(Ok), memory)
}

/// Returns the parts of `memory` that lie in these mappings, which are in the order of their addresses.
fn cover(
    mappings: impl Iterator<Item = io::Result<(Part, bool)>>,
    memory: UserMemory,
) -> io::Result<Option<Vec<Part>>> {
    let Some(end) = memory.address.checked_add(memory.bytes) else { return Ok(None) };
    let mut at = memory.address;
    let mut parts = Vec::new();
    for mapping in mappings {
        let (mut part, is_readable) = mapping?;
        let (low, high) = part.whole;
        if high <= at {
            continue;
        }
        if low > at || !is_readable {
            return Ok(None);
        }
        part.memory = UserMemory { address: at, bytes: high.min(end) - at };
        part.offset += (at - low) as u64;
        at = part.memory.address + part.memory.bytes;
        parts.push(part);
        if at >= end {
            return Ok(Some(parts));
        }
    }
    Ok(None)
}

/// Parses a line of `/proc/self/maps`. Returns the mapping, and true if it is readable.
fn parse(line: &str) -> Option<(Part, bool)> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
        rest = after;
        word
    };
    let (low, high) = word().split_once('-')?;
    let (permissions, offset, device, inode) = (word().as_bytes(), word(), word(), word());
    let (major, minor) = device.split_once(':')?;
    let number = |hexadecimal| u32::from_str_radix(hexadecimal, 16).ok();
    let (low, high) = (usize::from_str_radix(low, 16).ok()?, usize::from_str_radix(high, 16).ok()?);
    let part = Part {
        memory: UserMemory { address: low, bytes: high.checked_sub(low)? },
        writable: *permissions.get(1)? == b'w',
        shared: *permissions.get(3)? == b's',
        whole: (low, high),
        offset: u64::from_str_radix(offset, 16).ok()?,
        file: FileId { device: (number(major)?, number(minor)?), inode: inode.parse().ok()? },
        // The kernel writes a line break in a name as `\012`; such a file is not found.
        name: rest.trim_start().to_owned(),
    };
    Some((part, permissions[0] == b'r'))
}

impl Part {
    /// Returns whether it is memory of `SharedRam`.
    pub fn is_own(&self) -> bool {
        self.name.starts_with(OWN_MEMORY)
    }

    /// Returns the file's name, if it still has one.
    fn path(&self) -> Option<String> {
        (self.name.starts_with('/') && !self.name.ends_with(DELETED)).then(|| self.name.clone())
    }

    /// Returns the smaller part at `memory`.
    pub fn of(&self, memory: UserMemory) -> Self {
        let skipped = (memory.address - self.memory.address) as u64;
        Self { memory, offset: self.offset + skipped, ..self.clone() }
    }

    /// Returns the file of a shared mapping. This looks for it among the process's descriptors and by its name. A file is the
    /// right one if a mapping of it has the same identity.
    ///
    /// A file that the process has mapped for reading only is not opened for writing: it may have given up that right on purpose.
    pub fn backing(&self) -> Option<Backing> {
        if let Some(file) = self.descriptor(true) {
            return Some(Backing::Writable(file));
        }
        if self.writable {
            return self.opened(true).map(Backing::Writable);
        }
        let file = self.descriptor(false).or_else(|| self.opened(false))?;
        is_steady(&file).then_some(Backing::ReadOnly(file))
    }

    /// Returns whether no other process or mapping is known to use the memory, which must be shared, without a file on a disk.
    pub fn is_only_here(&self) -> bool {
        let is_memory = self.name.starts_with(MEMFD) || self.name == ANONYMOUS;
        is_memory && !forks::may_share_mappings() && self.is_mapped_once().unwrap_or(false)
    }

    /// Returns whether nothing else has any page of it mapped.
    pub fn is_mapped_once(&self) -> io::Result<bool> {
        let is_here = |mapping: &Self| mapping.whole == self.whole;
        let overlaps = |mapping: &Self| {
            let end = mapping.offset + mapping.memory.bytes as u64;
            mapping.file == self.file
                && self.offset < end
                && mapping.offset < self.offset + self.memory.bytes as u64
        };
        let mut inside = false;
        for line in fs::read_to_string("/proc/self/smaps")?.lines() {
            if let Some((mapping, _)) = parse(line) {
                inside = is_here(&mapping);
                if !inside && overlaps(&mapping) {
                    return Ok(false);
                }
            } else if inside && SHARED_PAGES.iter().any(|name| line.starts_with(name)) {
                let bytes = line.split_whitespace().nth(1);
                if bytes != Some("0") {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// A duplicate of a descriptor of the process.
    fn descriptor(&self, writable: bool) -> Option<File> {
        let numbers = fs::read_dir("/proc/self/fd").ok()?;
        numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).find_map(|number: i32| {
            // SAFETY: the call takes numbers only; another thread may have closed the descriptor, then it fails.
            let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
            if copy < 0 {
                return None;
            }
            // SAFETY: the descriptor was made just above and has no other owner.
            let file = unsafe { File::from_raw_fd(copy) };
            // SAFETY: the descriptor is open, and the call takes numbers only.
            let flags = unsafe { libc::fcntl(copy, libc::F_GETFL) };
            let fits = flags >= 0
                && flags & libc::O_PATH == 0
                && match flags & libc::O_ACCMODE {
                    libc::O_RDWR => true,
                    libc::O_RDONLY => !writable,
                    _ => false,
                };
            (fits && self.is_of(&file)).then_some(file)
        })
    }

    /// The file, opened again.
    fn opened(&self, writable: bool) -> Option<File> {
        let (low, high) = self.whole;
        // The first name works without the file's own one, with the right privilege.
        let names = [Some(format!("/proc/self/map_files/{low:x}-{high:x}")), self.path()];
        names.into_iter().flatten().find_map(|name| {
            let file = OpenOptions::new().read(true).write(writable).open(name).ok()?;
            self.is_of(&file).then_some(file)
        })
    }

    /// Returns whether this maps `file`: compares with a mapping of it, since some file systems report other numbers in
    /// stat(2) than in the list of mappings. The inode's number is a first, cheap look.
    fn is_of(&self, file: &File) -> bool {
        let Ok(about) = file.metadata() else { return false };
        if about.ino() != self.file.inode || !about.is_file() {
            return false;
        }
        let (bytes, offset) = (PAGE_BYTES as usize, self.offset as libc::off_t);
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file.as_raw_fd(), offset) };
        if at == libc::MAP_FAILED {
            return false;
        }
        let found = parts(UserMemory { address: at as usize, bytes });
        // SAFETY: the mapping was made above, and nothing refers to it.
        unsafe { libc::munmap(at, bytes) };
        found.is_ok_and(|parts| parts.is_some_and(|parts| parts[0].file == self.file))
    }
}

/// Returns whether the file lies on a file system whose files do not change by themselves.
pub fn is_steady(file: &File) -> bool {
    // SAFETY: all-zero is a valid value of the structure, which lives across the call.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and the structure is the one that the call writes.
    let known = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut about) } == 0;
    known && !MEMORY_FILE_SYSTEMS.contains(&(about.f_type as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
7f0000000000-7f0000002000 r--s 00003000 fe:00 1234                       /models/a b.gguf
7f0000002000-7f0000004000 rw-p 00000000 00:00 0 
7f0000004000-7f0000005000 rw-s 00000000 00:01 77                         /memfd:virtio-cuda (deleted)
7f0000005000-7f0000006000 ---p 00000000 00:00 0 
";

    #[test]
    fn parts_cover_the_memory_or_there_are_none() {
        let text = || MAPS.lines().filter_map(parse).map(Ok);
        let list = |address, bytes| cover(text(), UserMemory { address, bytes }).expect("no error");
        let found = list(0x7f00_0000_1000, 0x3800).expect("mapped");
        let kinds: Vec<_> = found
            .iter()
            .map(|part| (part.memory.bytes, part.offset, part.writable, part.shared, part.is_own()))
            .collect();
        assert_eq!(
            kinds,
            [
                (0x1000, 0x4000, false, true, false),
                (0x2000, 0, true, false, false),
                (0x800, 0, true, true, true)
            ]
        );
        assert_eq!(found[0].path().as_deref(), Some("/models/a b.gguf"));
        assert_eq!(found[0].file, FileId { device: (0xfe, 0), inode: 1234 });
        assert_eq!(found[2].path(), None);
        assert!(list(0x7f00_0000_4000, 0x1001).is_none(), "not readable");
        assert!(list(0x7f00_0000_5000, 0x1001).is_none(), "behind the last one");
        assert!(list(0x1000, 0x1000).is_none());
        assert!(list(usize::MAX, 2).is_none());
    }

    #[test]
    fn the_kernel_answers_as_its_list_says() {
        let (bytes, flags) = (3 * PAGE_BYTES as usize, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let all = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, the end of which then becomes another one.
        let at = unsafe {
            let at = libc::mmap(std::ptr::null_mut(), bytes, all, flags, -1, 0);
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            libc::mmap(at.byte_add(2 * bytes / 3), bytes / 3, libc::PROT_READ, flags, -1, 0);
            at as usize
        };
        let memory = UserMemory { address: at + 8, bytes: bytes - 16 };
        let text = fs::read_to_string(super::MAPS).expect("a list");
        let listed = cover(text.lines().filter_map(parse).map(Ok), memory).expect("read").expect("mapped");
        let file = File::open(super::MAPS).expect("a list");
        let Some(asked) = queries::from(&file, memory.address) else { return };
        let asked = cover(asked, memory).expect("answered").expect("mapped");
        let of = |part: &Part| (part.memory, part.writable, part.shared, part.offset, part.file);
        let shared = |parts: &[Part]| parts.last().map(|part| (of(part), part.name.clone(), part.whole));
        assert_eq!(shared(&asked), shared(&listed));
        assert_eq!(of(&asked[0]), of(&listed[0]));
        assert!(!asked[0].shared && asked[1].shared && asked.len() == 2);
        // SAFETY: the mappings were made above.
        unsafe { libc::munmap(at as *mut _, bytes) };
        let gone = cover(queries::from(&file, at).expect("answers"), memory);
        assert_eq!(gone.expect("answered"), None);
    }
}
