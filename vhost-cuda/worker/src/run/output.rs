// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The output of device code and of the host's driver. Both write to file descriptors 1 and 2 of this process; these
//! are memory files, whose contents the guest library fetches.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use log::debug;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags, OFlags, fallocate, fcntl_setfl, memfd_create};
use virtio_cuda_protocol::cuda::{Opcode, RESULT_STDERR, RESULT_STDOUT};

use crate::gpu::{CuResult, CudaError};

use crate::outstanding::{OutstandingCalls, Runs, SoFar};

/// The maximum number of bytes per stream that are kept for a guest that does not fetch them; older ones are dropped.
const MAX_UNREAD: u64 = 64 << 20;
/// Pages are given back in this unit.
const PAGE: u64 = 4096;

/// The two captured streams.
#[derive(Debug)]
pub struct Output {
    streams: [Captured; 2],
    /// Calls that may have printed text. They end when the streams are found empty after them.
    causes: OutstandingCalls,
}

#[derive(Debug)]
struct Captured {
    file: File,
    /// Bytes from the start of the file that were fetched (or dropped). The file only grows: truncating it
    /// could lose bytes that are being written just then. Its pages are freed one by one.
    fetched: Mutex<u64>,
}

impl Output {
    /// Redirects file descriptors 1 and 2 of this process.
    pub fn capture() -> io::Result<Self> {
        Ok(Self { streams: [Captured::over(1)?, Captured::over(2)?], causes: OutstandingCalls::default() })
    }

    /// Must be called before a call. Returns the calls whose text is complete after it: all so far if the call waits for
    /// everything, else no calls.
    pub fn so_far(&self, opcode: Option<Opcode>) -> SoFar {
        if opcode == Some(Opcode::cuCtxSynchronize) { self.causes.so_far() } else { SoFar::default() }
    }

    /// Must be called after a call that may print: it brought work or code, or has failed ([`OutstandingCalls::count`]).
    pub fn count(&self, runs: Runs) {
        self.causes.count(runs);
    }

    /// `RESULT_*` flags of the streams that hold unfetched bytes, after a call for which [`Self::so_far`] returned
    /// `complete`. A call that `failed` may have found work that printed the reason: an assertion of device code.
    /// `code_prints`: loaded code may print otherwise, too.
    pub fn flags(&self, complete: SoFar, failed: bool, code_prints: bool) -> u32 {
        if !failed && self.causes.is_none(code_prints) {
            return 0;
        }
        let flags = self.look();
        // Calls whose text is complete print nothing more, and none of their text is left.
        if flags == 0 {
            self.causes.end(complete);
        }
        flags
    }

    /// Reads the text that was not fetched, in pieces of at most `most` bytes, and gives each to `write` with its file descriptor (1 or 2).
    ///
    /// Errors: those of reading it, and of `write`.
    pub fn read(&self, most: usize, mut write: impl FnMut(u32, &[u8]) -> io::Result<()>) -> io::Result<()> {
        self.look();
        for (fd, stream) in (1..).zip(&self.streams) {
            let mut at = *stream.fetched.lock();
            let end = stream.size();
            while at < end {
                let mut piece = vec![0; most.min((end - at) as usize)];
                stream.file.read_exact_at(&mut piece, at)?;
                at += piece.len() as u64;
                write(fd, &piece)?;
            }
        }
        Ok(())
    }

    /// Adds text that code of the session has printed in another worker.
    ///
    /// Errors: those of writing it; `InvalidInput` for another descriptor than 1 and 2, and for more text than is kept.
    pub fn add(&self, fd: u32, text: &[u8]) -> io::Result<()> {
        let stream = usize::try_from(fd).ok().and_then(|fd| self.streams.get(fd.checked_sub(1)?));
        let stream = stream.ok_or(io::ErrorKind::InvalidInput)?;
        let end = stream.size();
        if end - *stream.fetched.lock() + text.len() as u64 > MAX_UNREAD {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        stream.file.write_all_at(text, end)?;
        // The next call says that it is there.
        self.causes.count(Runs::Other);
        Ok(())
    }

    fn look(&self) -> u32 {
        // SAFETY: a null stream means all of them. The driver prints by stdio.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        let flag = |index: usize, flag| if self.streams[index].unread() > 0 { flag } else { 0 };
        flag(0, RESULT_STDOUT) | flag(1, RESULT_STDERR)
    }

    /// Takes up to `room` bytes that were printed to `fd` (1 or 2). Returns them, and the number of bytes that are left.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for another number, and if they cannot be read.
    pub fn take(&self, fd: u32, room: u64) -> CuResult<(Vec<u8>, u64)> {
        let index = match fd {
            1 => 0,
            2 => 1,
            _ => return Err(CudaError::INVALID_VALUE),
        };
        self.streams[index].take(room as usize).map_err(|_| CudaError::INVALID_VALUE)
    }
}

#[cfg(any(test, fuzzing))]
impl Output {
    /// Returns streams to which nothing is printed.
    pub fn fixture() -> Self {
        let captured = || {
            let file = vhost_cuda_common::files::memory_file(c"device-output").expect("a file in memory");
            Captured { file, fetched: Mutex::new(0) }
        };
        Self { streams: [captured(), captured()], causes: OutstandingCalls::default() }
    }

    /// Returns the same streams once more.
    pub fn again(&self) -> Self {
        let captured = |one: &Captured| Captured {
            file: one.file.try_clone().expect("a descriptor"),
            fetched: Mutex::new(0),
        };
        let streams = [captured(&self.streams[0]), captured(&self.streams[1])];
        Self { streams, causes: OutstandingCalls::default() }
    }
}

impl Captured {
    fn over(fd: i32) -> io::Result<Self> {
        let file = File::from(memfd_create(c"device-output", MemfdFlags::CLOEXEC)?);
        // Every write goes to the end, whatever position the copies share.
        fcntl_setfl(&file, OFlags::APPEND)?;
        // SAFETY: a plain system call; `fd` is standard output or error, which stay open.
        if unsafe { libc::dup2(file.as_raw_fd(), fd) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { file, fetched: Mutex::new(0) })
    }

    fn size(&self) -> u64 {
        self.file.metadata().map_or(0, |meta| meta.len())
    }

    fn unread(&self) -> u64 {
        let size = self.size();
        let mut fetched = self.fetched.lock();
        if size - *fetched > MAX_UNREAD {
            let from = *fetched;
            *fetched = size - MAX_UNREAD;
            self.give_back(from, *fetched);
        }
        size - *fetched
    }

    fn take(&self, room: usize) -> io::Result<(Vec<u8>, u64)> {
        let size = self.size();
        let mut fetched = self.fetched.lock();
        let mut bytes = vec![0; room.min((size - *fetched) as usize)];
        self.file.read_exact_at(&mut bytes, *fetched)?;
        let from = *fetched;
        *fetched += bytes.len() as u64;
        self.give_back(from, *fetched);
        Ok((bytes, size - *fetched))
    }

    /// Frees the whole pages between two positions, which are not read again.
    fn give_back(&self, from: u64, to: u64) {
        let (from, to) = (from / PAGE * PAGE, to / PAGE * PAGE);
        if from == to {
            return;
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(error) = fallocate(&self.file, mode, from, to - from) {
            debug!("pages of printed output cannot be freed: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn captured() -> (Captured, File) {
        // Some descriptor that the test owns stands for stdout.
        let stand_in = File::open("/dev/null").unwrap();
        let captured = Captured::over(stand_in.as_raw_fd()).unwrap();
        (captured, stand_in)
    }

    #[test]
    fn what_was_printed_is_fetched_once_and_in_order() {
        let (captured, mut stdout) = captured();
        stdout.write_all(b"hello world").unwrap();
        assert_eq!(captured.unread(), 11);
        assert_eq!(captured.take(5).unwrap(), (b"hello".to_vec(), 6));
        stdout.write_all(b"!").unwrap();
        assert_eq!(captured.take(100).unwrap(), (b" world!".to_vec(), 0));
        assert_eq!(captured.unread(), 0);
    }

    #[test]
    fn fetched_pages_are_given_back_and_unfetched_ones_bounded() {
        use std::os::unix::fs::MetadataExt;
        let (captured, mut stdout) = captured();
        stdout.write_all(&[b'x'; 3 * PAGE as usize]).unwrap();
        captured.take(2 * PAGE as usize).unwrap();
        assert_eq!(captured.file.metadata().unwrap().blocks() * 512, PAGE);
        for _ in 0..65 {
            stdout.write_all(&vec![b'y'; 1 << 20]).unwrap();
        }
        assert_eq!(captured.unread(), MAX_UNREAD);
        assert!(captured.file.metadata().unwrap().blocks() * 512 <= MAX_UNREAD + PAGE);
    }
}
