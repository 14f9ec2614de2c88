// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Passes a recording that the daemon makes to a profiler in the guest.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use parking_lot::Mutex;

use crate::gpu::{CuResult, CudaError};

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

    /// Fills `room` as far as there are bytes. Returns their number, and whether more may come.
    pub fn read(&self, room: &mut [u8]) -> (usize, bool) {
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
        assert_eq!(relay.read(&mut room), (0, false));
        let (mut daemon, worker) = UnixStream::pair().unwrap();
        worker.set_nonblocking(true).unwrap();
        relay.start(|| Ok(File::from(OwnedFd::from(worker)))).unwrap();
        assert_eq!(relay.start(|| Err(CudaError::UNKNOWN)), Err(CudaError::ILLEGAL_STATE));
        assert_eq!(relay.read(&mut room), (0, true));
        daemon.write_all(b"lines").unwrap();
        assert_eq!((relay.read(&mut room), &room), ((4, true), b"line"));
        relay.stop();
        assert_eq!(daemon.read(&mut [0]).unwrap(), 0, "the daemon notices");
        drop(daemon);
        assert_eq!((relay.read(&mut room), room[0]), ((1, false), b's'));
        assert_eq!(relay.start(|| Err(CudaError::UNKNOWN)), Err(CudaError::UNKNOWN));
    }
}
