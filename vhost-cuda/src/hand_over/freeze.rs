// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stops the daemon's threads between two messages.
//!
//! A thread that has read a message is the only place where the message still exists. So each thread takes a [`permit`] before it
//! reads, waits for its socket without one, and gives the permit back when the message has had all its effects. While [`stop`]
//! is held, every message is either carried out or still in its socket, for the next process to read.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

static GATE: RwLock<()> = RwLock::new(());
static IS_LEAVING: AtomicBool = AtomicBool::new(false);

/// The maximum time for which threads wait because [`stop`] waits for others.
const ATTEMPT: Duration = Duration::from_millis(50);
/// The time for a message to arrive as a whole after its first byte. A sender that stalls would otherwise keep the permit of its
/// reader, and the program could not be replaced.
const WHOLE: Duration = Duration::from_secs(10);

/// Allows its thread to read messages and to carry them out.
pub type Permit = RwLockReadGuard<'static, ()>;
/// As long as it is held, no thread has a [`Permit`].
pub type Stopped = RwLockWriteGuard<'static, ()>;

/// As long as there is one, [`is_leaving`] is true.
#[derive(Debug)]
pub struct Leaving(());

impl Leaving {
    /// Begins an attempt to replace the program. There is one at a time.
    pub fn begin() -> Self {
        IS_LEAVING.store(true, Ordering::Release);
        Self(())
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        IS_LEAVING.store(false, Ordering::Release);
    }
}

/// Returns whether the program is about to be replaced. Work that takes long, and does not go over, should end.
pub fn is_leaving() -> bool {
    IS_LEAVING.load(Ordering::Acquire)
}

/// Waits while the daemon's threads are stopped.
pub fn permit() -> Permit {
    GATE.read()
}

/// Waits until `socket` has something to read, or has ended, and then for a permit.
pub fn readable(socket: impl AsFd) -> Permit {
    wait_for(socket.as_fd());
    permit()
}

/// Reads one message, of which the first byte is there.
#[derive(Debug)]
pub struct Message<'a> {
    socket: &'a UnixStream,
    until: Instant,
}

impl<'a> Message<'a> {
    /// Begins to read.
    pub fn of(socket: &'a UnixStream) -> Self {
        Self::within(socket, WHOLE)
    }

    /// The same, within this time.
    pub fn within(socket: &'a UnixStream, time: Duration) -> Self {
        Self { socket, until: Instant::now() + time }
    }
}

impl Read for Message<'_> {
    /// Errors: `TimedOut` if the rest does not come in time, and those of the socket.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match recv(self.socket, &mut *bytes, RecvFlags::DONTWAIT) {
                Ok((count, _)) => return Ok(count),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
            let left = Timespec::try_from(self.until.saturating_duration_since(Instant::now())).ok();
            match poll(&mut [PollFd::new(self.socket, PollFlags::IN)], left.as_ref()) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Waits for input. After an error the next read says what is wrong.
fn wait_for(socket: BorrowedFd<'_>) {
    while poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], None) == Err(Errno::INTR) {}
}

/// Stops all threads between two messages. Returns `None` if one is busy for longer than a moment.
pub fn stop() -> Option<Stopped> {
    GATE.try_write_for(ATTEMPT)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::thread;

    use super::*;

    #[test]
    fn a_message_that_comes_meanwhile_stays_in_its_socket() {
        let (mut reader, mut writer) = UnixStream::pair().unwrap();
        let stopped = (0..1000).find_map(|_| stop()).unwrap();
        thread::scope(|scope| {
            let read = scope.spawn(|| {
                let _permit = readable(&reader);
                let mut byte = [0];
                (&reader).read_exact(&mut byte).unwrap();
                byte
            });
            writer.write_all(b"m").unwrap();
            thread::sleep(Duration::from_millis(20));
            assert!(!read.is_finished());
            let unread = rustix::io::ioctl_fionread(&reader).unwrap();
            assert_eq!(unread, 1);
            drop(stopped);
            assert_eq!(read.join().unwrap(), *b"m");
        });
        writer.write_all(b"n").unwrap();
        let _permit = readable(&reader);
        assert!(reader.read_exact(&mut [0]).is_ok());
    }

    #[test]
    fn the_rest_of_a_message_is_not_waited_for_without_end() {
        let (reader, mut writer) = UnixStream::pair().unwrap();
        writer.write_all(b"half").unwrap();
        let mut bytes = [0; 8];
        let error = Message::within(&reader, Duration::from_millis(20)).read_exact(&mut bytes).unwrap_err();
        assert_eq!((error.kind(), &bytes[..4]), (io::ErrorKind::TimedOut, &b"half"[..]));
        thread::scope(|scope| {
            scope.spawn(|| {
                for byte in b"parts of" {
                    writer.write_all(&[*byte]).unwrap();
                    thread::sleep(Duration::from_millis(1));
                }
            });
            Message::of(&reader).read_exact(&mut bytes).unwrap();
        });
        assert_eq!(&bytes, b"parts of");
        drop(writer);
        assert_eq!(Message::of(&reader).read(&mut bytes).unwrap(), 0);
    }
}
