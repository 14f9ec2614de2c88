// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages of files in memory.
//!
//! A file has pages of 4 KiB unless its file system was mounted with `huge=…`, and these take ten times as long to provide, and to give
//! up. The kernel makes huge ones for a mapping that asks for it (`MADV_COLLAPSE`, from 6.1 on), whatever the file system says.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

use rustix::fs::fstatfs;

/// The sizes of small and huge pages in bytes.
const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;

/// Returns whether a file lies in memory (`TMPFS_MAGIC`).
pub fn is_in_memory(file: &File) -> io::Result<bool> {
    Ok(fstatfs(file)?.f_type as u64 == 0x0102_1994)
}

/// Lets the kernel provide the pages of a mapping of a file in memory, huge ones where it can. They have zeros, or what the file has there.
///
/// A call waits until all processors have given up what they keep for later, which takes milliseconds where they are busy. So it is for many
/// pages at once.
///
/// Errors: the kernel has none, or the file system is full. A kernel before 5.14 does not know the call (`EINVAL`).
///
/// # Safety
///
/// `address`, a multiple of the size of huge pages, must be that of `bytes` bytes of the mapping, which can be written.
pub unsafe fn provide(address: usize, bytes: usize) -> io::Result<()> {
    let advise = |offset: usize, bytes, advice| {
        // SAFETY: the caller vouches for the mapping. No advice here changes its contents.
        match unsafe { libc::madvise((address + offset) as *mut _, bytes, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // Only pages of which a part is there become huge.
    (0..bytes)
        .step_by(HUGE)
        .try_for_each(|offset| advise(offset, PAGE.min(bytes - offset), libc::MADV_POPULATE_WRITE))?;
    // Small ones do as well.
    let _ = advise(0, bytes, libc::MADV_COLLAPSE);
    advise(0, bytes, libc::MADV_POPULATE_WRITE)
}

/// The same for a part of a file, which begins at a multiple of the size of huge pages.
///
/// Errors: as for [`provide`]; the process gets no addresses.
pub fn provide_of(file: &File, offset: u64, bytes: usize) -> io::Result<()> {
    let place = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    let all = bytes.checked_add(HUGE).ok_or(io::ErrorKind::InvalidInput)?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping that replaces nothing.
    let base = unsafe { libc::mmap(null_mut(), all, libc::PROT_NONE, private, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let first = (base as usize).next_multiple_of(HUGE);
    let shared = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: it replaces a part of the new mapping, which nobody uses.
    let mapped = unsafe { libc::mmap(first as *mut _, bytes, protection, shared, file.as_raw_fd(), place) };
    let provided = if mapped == libc::MAP_FAILED {
        Err(io::Error::last_os_error())
    } else {
        // SAFETY: the new mapping of the file.
        unsafe { provide(first, bytes) }
    };
    // SAFETY: the mapping of this function, which nobody uses. The pages stay in the file.
    unsafe { libc::munmap(base, all) };
    provided
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;
    use crate::files::memory_file;

    #[test]
    fn pages_are_there_and_keep_what_they_have() {
        let file = memory_file(c"pages").unwrap();
        assert!(
            is_in_memory(&file).unwrap() && !is_in_memory(&File::open("/proc/version").unwrap()).unwrap()
        );
        file.set_len(3 * HUGE as u64).unwrap();
        let last = HUGE as u64 + 5;
        file.write_all_at(b"x", last).unwrap();
        provide_of(&file, HUGE as u64, 2 * HUGE).unwrap();
        assert_eq!(file.metadata().unwrap().blocks() * 512, 2 * HUGE as u64);
        let mut bytes = [1; 3];
        file.read_exact_at(&mut bytes, last - 1).unwrap();
        assert_eq!(bytes, *b"\0x\0");
        provide_of(&file, 0, PAGE).unwrap();
        assert!(provide_of(&file, u64::MAX, HUGE).is_err());
        assert!(provide_of(&file, 0, usize::MAX).is_err());
        // Not those that lie behind the end.
        assert!(provide_of(&file, 3 * HUGE as u64, HUGE).is_err());
    }
}
