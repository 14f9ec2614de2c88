// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A front-end that shrinks its memory file harms itself only.
//!
//! Reading or writing a mapping past the end of its file raises SIGBUS, which would end the daemon and with it
//! every other front-end's sessions. The handler puts an empty page there instead. Workers do without: theirs
//! is the session that the front-end has broken.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;

static PATCHED: AtomicU64 = AtomicU64::new(0);

/// Installs the handler for this process.
pub fn install() -> io::Result<()> {
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

/// Pages that were missing since the last call.
pub fn take_patched() -> u64 {
    PATCHED.swap(0, Ordering::Relaxed)
}

extern "C" fn handle(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel gives a valid structure to a handler with SA_SIGINFO. The fixed mapping replaces one
    // page that nobody can use: its file ends before it. If it fails, the default action comes with the next try.
    unsafe {
        let page = ((*info).si_addr() as usize & !(PAGE - 1)) as *mut c_void;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let past_the_end = (*info).si_code == libc::BUS_ADRERR;
        if past_the_end && libc::mmap(page, PAGE, protection, flags, -1, 0) != libc::MAP_FAILED {
            PATCHED.fetch_add(1, Ordering::Relaxed);
        } else {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use vm_memory::{Bytes, FileOffset, GuestAddress};
    use vmm_sys_util::tempfile::TempFile;

    #[test]
    fn memory_that_shrinks_reads_as_zeros() {
        install().unwrap();
        let file = TempFile::new().unwrap().into_file();
        file.set_len(4 * PAGE as u64).unwrap();
        let backing = Some(FileOffset::new(file.try_clone().unwrap(), 0));
        let memory = Memory::from_ranges_with_files([(GuestAddress(0), 4 * PAGE, backing)]).unwrap();
        memory.write_slice(b"before", GuestAddress(3 * PAGE as u64)).unwrap();
        file.set_len(PAGE as u64).unwrap();
        let mut bytes = [1; 6];
        memory.read_slice(&mut bytes, GuestAddress(3 * PAGE as u64)).unwrap();
        assert_eq!(bytes, [0; 6]);
        memory.write_slice(b"after", GuestAddress(2 * PAGE as u64)).unwrap();
        assert_eq!(take_patched(), 2);
    }
}
