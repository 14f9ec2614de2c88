// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The mappings of the process, and the files behind those that it shares.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;

use virtio_cuda_protocol::transport::PAGE_BYTES;

use crate::transport::UserMemory;

/// The name of the memfd of `SharedRam`.
const OWN_MEMORY: &str = "/memfd:virtio-cuda";
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
    /// True for memory of `SharedRam`.
    pub own: bool,
    /// The address of the mapping's first byte, and the one behind its last.
    whole: (usize, usize),
    /// The place in the file of the part's first byte.
    pub offset: u64,
    /// Device and inode as the kernel prints them: the file's identity.
    file: (String, u64),
    /// The file's name, if it still has one.
    path: Option<String>,
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
    Ok(parts_in(&fs::read_to_string("/proc/self/maps")?, memory))
}

fn parts_in(maps: &str, memory: UserMemory) -> Option<Vec<Part>> {
    let end = memory.address.checked_add(memory.bytes)?;
    let mut at = memory.address;
    let mut parts = Vec::new();
    for (mut part, is_readable) in maps.lines().filter_map(parse) {
        let (low, high) = part.whole;
        if high <= at {
            continue;
        }
        if low > at || !is_readable {
            return None;
        }
        part.memory = UserMemory { address: at, bytes: high.min(end) - at };
        part.offset += (at - low) as u64;
        at = part.memory.address + part.memory.bytes;
        parts.push(part);
        if at >= end {
            return Some(parts);
        }
    }
    None
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
    let path = rest.trim_start();
    let (low, high) = (usize::from_str_radix(low, 16).ok()?, usize::from_str_radix(high, 16).ok()?);
    let part = Part {
        memory: UserMemory { address: low, bytes: high.checked_sub(low)? },
        writable: *permissions.get(1)? == b'w',
        shared: *permissions.get(3)? == b's',
        own: path.starts_with(OWN_MEMORY),
        whole: (low, high),
        offset: u64::from_str_radix(offset, 16).ok()?,
        file: (device.to_owned(), inode.parse().ok()?),
        // The kernel writes a line break in a name as `\012`; such a file is not found.
        path: (path.starts_with('/') && !path.ends_with(" (deleted)")).then(|| path.to_owned()),
    };
    Some((part, permissions[0] == b'r'))
}

impl Part {
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
        let names = [Some(format!("/proc/self/map_files/{low:x}-{high:x}")), self.path.clone()];
        names.into_iter().flatten().find_map(|name| {
            let file = OpenOptions::new().read(true).write(writable).open(name).ok()?;
            self.is_of(&file).then_some(file)
        })
    }

    /// Returns whether this maps `file`: compares with a mapping of it, since some file systems report other numbers in
    /// stat(2) than in the list of mappings. The inode's number is a first, cheap look.
    fn is_of(&self, file: &File) -> bool {
        let Ok(about) = file.metadata() else { return false };
        if about.ino() != self.file.1 || !about.is_file() {
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
        let list = |address, bytes| parts_in(MAPS, UserMemory { address, bytes });
        let found = list(0x7f00_0000_1000, 0x3800).expect("mapped");
        let kinds: Vec<_> = found
            .iter()
            .map(|part| (part.memory.bytes, part.offset, part.writable, part.shared, part.own))
            .collect();
        assert_eq!(
            kinds,
            [
                (0x1000, 0x4000, false, true, false),
                (0x2000, 0, true, false, false),
                (0x800, 0, true, true, true)
            ]
        );
        assert_eq!(found[0].path.as_deref(), Some("/models/a b.gguf"));
        assert_eq!(found[0].file, ("fe:00".to_owned(), 1234));
        assert_eq!(found[2].path, None);
        assert!(list(0x7f00_0000_4000, 0x1001).is_none(), "not readable");
        assert!(list(0x7f00_0000_5000, 0x1001).is_none(), "behind the last one");
        assert!(list(0x1000, 0x1000).is_none());
        assert!(list(usize::MAX, 2).is_none());
    }
}
