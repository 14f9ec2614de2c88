// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Allocations that several processes have mapped: each lies in a memory file of its own, so that who has the file reaches
//! nothing else.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::window::PAGE;
use super::{Memory, RangeKind};

/// The number of bytes that are copied at a time. Pieces of zeros stay holes.
const PIECE: usize = 1 << 20;
/// The seals that fix the file's length. A shorter file would make accesses fail in all processes.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Returns the bytes that an allocation takes of a file: whole pages.
pub(super) fn pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE)
}

impl Memory {
    /// Returns the file that contains the allocation at `base` from now on. The allocation must not be used during
    /// the call, because writes could be lost.
    pub(crate) fn export(&self, base: u64) -> io::Result<Arc<File>> {
        let mut state = self.write_state();
        let range = state.ranges.at(base).filter(|range| range.kind == RangeKind::Device);
        let range = range.ok_or(io::ErrorKind::NotFound)?;
        if let Some(file) = state.shared.get(&base) {
            return Ok(Arc::clone(file));
        }
        let bytes = pages(range.bytes);
        let file = memory_file(bytes)?;
        let mut piece = vec![0; PIECE];
        for offset in (0..bytes).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min((bytes - offset) as usize)];
            // SAFETY: the pages are committed and belong to this allocation (`State::charged`), which the lock keeps.
            unsafe { std::ptr::copy((base + offset) as *const u8, piece.as_mut_ptr(), piece.len()) };
            if piece.iter().any(|byte| *byte != 0) {
                file.write_all_at(piece, offset)?;
            }
        }
        state.window.share(base, bytes, &file)?;
        let file = Arc::new(file);
        state.shared.insert(base, Arc::clone(&file));
        Ok(file)
    }

    /// Maps `bytes` bytes of another process's allocation; [`Self::free`] ends that. The file is not trusted.
    pub(crate) fn import(&self, file: File, bytes: u64) -> io::Result<u64> {
        // SAFETY: asks for the seals of a file that is open; anything but a memory file refuses.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & SEALS != SEALS || bytes == 0 || file.metadata()?.len() != pages(bytes) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut state = self.write_state();
        let allocated = state.allocate(bytes, PAGE, RangeKind::Device);
        let base = allocated.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // Recorded as shared first: should mapping fail, the free renews the pages.
        state.shared.insert(base, Arc::new(file.try_clone()?));
        let mapped = state.window.share(base, pages(bytes), &file);
        drop(state);
        if let Err(error) = mapped {
            self.free(base);
            return Err(error);
        }
        self.mark_initialised(base, bytes);
        Ok(base)
    }
}

/// A new sealed memory file.
pub(crate) fn memory_file(bytes: u64) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a name that ends with NUL; the result is checked.
    let descriptor = unsafe { libc::memfd_create(c"cuda-emulator".as_ptr(), flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which nobody else owns.
    let file = unsafe { File::from_raw_fd(descriptor) };
    file.set_len(bytes)?;
    // SAFETY: only adds seals to the new file.
    if unsafe { libc::fcntl(descriptor, libc::F_ADD_SEALS, SEALS) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_writes_the_other_sees_until_it_is_freed() {
        let (one, two) = (Memory::new(1 << 30).unwrap(), Memory::new(1 << 30).unwrap());
        let (base, neighbour) = (one.allocate(5000, 1).unwrap(), one.allocate(100, 1).unwrap());
        one.write(base, &[7; 5000]).unwrap();
        one.write(neighbour, &[9; 100]).unwrap();
        let file = one.export(base).unwrap();
        assert!(Arc::ptr_eq(&file, &one.export(base).unwrap()));
        assert_eq!(file.metadata().unwrap().len(), 8192);
        let there = two.import(file.try_clone().unwrap(), 5000).unwrap();
        let mut bytes = [0; 5000];
        two.read(there, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 5000]);
        two.write(there, &[8; 10]).unwrap();
        one.read(base, &mut bytes).unwrap();
        assert_eq!((bytes[9], bytes[10]), (8, 7));
        assert!(two.write(there + 5000, &[1]).is_err());
        // Freed on one side, the memory stays on the other, and the place is private again.
        assert!(one.free(base));
        let again = one.allocate(5000, 1).unwrap();
        assert_eq!(again, base);
        one.read(again, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 5000]);
        one.write(again, &[1; 5000]).unwrap();
        two.read(there, &mut bytes).unwrap();
        assert_eq!(bytes[..10], [8; 10]);
        assert!(two.free(there) && one.free(again) && one.free(neighbour));
        assert_eq!((one.free_bytes(), two.free_bytes()), (1 << 30, 1 << 30));
    }

    #[test]
    fn files_of_others_are_checked() {
        let memory = Memory::new(1 << 30).unwrap();
        let file = memory_file(8192).unwrap();
        assert!(file.set_len(100).is_err());
        assert!(memory.import(file.try_clone().unwrap(), 4096).is_err());
        assert!(memory.import(file.try_clone().unwrap(), 0).is_err());
        assert!(memory.import(File::open("/proc/self/exe").unwrap(), 100).is_err());
        assert!(memory.import(file, 8000).is_ok());
        assert!(memory.export(0x1234).is_err());
    }
}
