// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Passes a recording that the daemon makes to a profiler in the guest.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use parking_lot::Mutex;

use crate::gpu::{CuResult, CudaError};
use vhost_cuda_common::gates::now;

/// The maximum number of bytes in one answer, because a guest may offer room for any number.
const MAX_READ: u64 = 256 << 10;

/// The daemon's socket, while there is a recording.
#[derive(Debug, Default)]
pub struct Relay(Mutex<Option<UnixStream>>);

impl Relay {
    /// Begins to pass on what comes through `socket`, which the daemon has made nonblocking.
    ///
    /// Errors: `CUDA_ERROR_ILLEGAL_STATE` if there is a recording.
    pub fn start(&self, socket: impl FnOnce() -> CuResult<File>) -> CuResult<()> {
        let mut relay = self.0.lock();
        if relay.is_some() {
            return Err(CudaError::ILLEGAL_STATE);
        }
        *relay = Some(UnixStream::from(OwnedFd::from(socket()?)));
        Ok(())
    }

    /// Returns whether there is a recording that was not read to its end.
    pub fn is_open(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Takes up to `room` bytes of the recording. Returns them, whether more may come, and the time of the recording's clock in
    /// nanoseconds.
    pub fn read(&self, room: u64) -> (Vec<u8>, bool, u64) {
        let mut bytes = vec![0; room.min(MAX_READ) as usize];
        let (read, open) = self.fill(&mut bytes);
        bytes.truncate(read);
        (bytes, open, now())
    }

    /// Fills `room` as far as there are bytes. Returns their number, and whether more may come.
    fn fill(&self, room: &mut [u8]) -> (usize, bool) {
        let mut relay = self.0.lock();
        let Some(mut socket) = relay.as_ref() else { return (0, false) };
        let mut bytes = 0;
        while bytes < room.len() {
            match socket.read(&mut room[bytes..]) {
                Ok(read) if read > 0 => bytes += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The daemon has ended the recording.
                _ => {
                    *relay = None;
                    return (bytes, false);
                }
            }
        }
        (bytes, true)
    }

    /// Asks the daemon to end the recording. It sends what it has until then.
    pub fn stop(&self) {
        if let Some(socket) = self.0.lock().as_ref() {
            // An error means that it has ended.
            let _ = socket.shutdown(Shutdown::Write);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_recording_is_read_until_the_daemon_ends_it() {
        let relay = Relay::default();
        let mut room = [0; 4];
        assert_eq!(relay.fill(&mut room), (0, false));
        let (mut daemon, worker) = UnixStream::pair().unwrap();
        worker.set_nonblocking(true).unwrap();
        relay.start(|| Ok(File::from(OwnedFd::from(worker)))).unwrap();
        assert_eq!(relay.start(|| Err(CudaError::UNKNOWN)), Err(CudaError::ILLEGAL_STATE));
        assert_eq!(relay.fill(&mut room), (0, true));
        daemon.write_all(b"lines").unwrap();
        assert_eq!((relay.fill(&mut room), &room), ((4, true), b"line"));
        relay.stop();
        assert_eq!(daemon.read(&mut [0]).unwrap(), 0, "the daemon notices");
        drop(daemon);
        assert_eq!((relay.fill(&mut room), room[0]), ((1, false), b's'));
        assert_eq!(relay.start(|| Err(CudaError::UNKNOWN)), Err(CudaError::UNKNOWN));
    }
}
