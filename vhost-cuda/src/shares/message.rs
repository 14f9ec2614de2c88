// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages between daemons and the arbiter: all have one size, and some have files.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::net::UnixStream;

use vmm_sys_util::sock_ctrl_msg::ScmSocket;
use zerocopy::{FromZeros, IntoBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The version of the messages.
pub const VERSION: u32 = 3;

/// A daemon's first message: the version, and its weight.
pub const HELLO: u32 = 1;
/// A worker was started. Sent with its page and its bell.
pub const WORKER: u32 = 2;
/// A worker has ended.
pub const ENDED: u32 = 3;
/// The arbiter's message: the machine's use of a GPU.
pub const USAGE: u32 = 4;
/// A GPU of a worker, which the daemon has read before the worker served a guest.
pub const GPU: u32 = 5;
/// A daemon's request that others make room for memory of one of its GPUs, or of any if none is named. Answered by the same kind and number, with a
/// [`Room`](super::room::Room) as value.
pub const ROOM: u32 = 6;
/// The arbiter asks how long the session has been idle that would make room first on the named GPU, or on any. Answered by the same kind and number, with
/// the time; 0: there is none.
pub const IDLE: u32 = 7;
/// The arbiter tells a daemon to suspend that session. Answered by the same kind and number, with a
/// [`Room`](super::room::Room) as value.
pub const MAKE_ROOM: u32 = 8;

/// The maximum weight.
pub const MAX_WEIGHT: u32 = 10_000;

/// A message. Fields that the kind does not use are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Message {
    /// The kind of message.
    pub kind: u32,
    /// [`VERSION`] in [`HELLO`], the slot of the worker's page in [`GPU`], or what was found in an answer to [`ROOM`] or [`MAKE_ROOM`].
    pub value: u32,
    /// The worker's number, the weight in [`HELLO`], or the number of a request.
    pub number: u64,
    /// GPU time that was charged while machines competed, or the time without calls in [`IDLE`], in nanoseconds.
    pub used: u64,
    /// Time for which the machine was held back, in nanoseconds.
    pub held: u64,
    /// The GPU.
    pub uuid: [u8; 16],
}

/// Sends a message.
///
/// Errors: `WouldBlock` if the other side does not read.
pub fn send(socket: &UnixStream, message: &Message, files: &[RawFd]) -> io::Result<()> {
    match socket.send_with_fds(&[message.as_bytes()], files) {
        Ok(bytes) if bytes == size_of::<Message>() => Ok(()),
        Ok(_) => Err(io::Error::new(io::ErrorKind::WriteZero, "the other side takes parts of messages only")),
        Err(error) => Err(io::Error::from_raw_os_error(error.errno())),
    }
}

/// Receives a message with up to two files. Returns `None` if the other side has ended.
pub fn receive(socket: &UnixStream) -> io::Result<Option<(Message, Vec<File>)>> {
    let mut message = Message::new_zeroed();
    let mut fds: [RawFd; 2] = [-1; 2];
    let mut buffers =
        [libc::iovec { iov_base: message.as_mut_bytes().as_mut_ptr().cast(), iov_len: size_of::<Message>() }];
    // SAFETY: the buffer is a local of that size, of which any bytes are valid.
    let (bytes, count) = unsafe { socket.recv_with_fds(&mut buffers, &mut fds) }
        .map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
    // SAFETY: the kernel has just made these descriptors, and nobody else has them.
    let files = fds.iter().take(count).map(|&fd| unsafe { File::from_raw_fd(fd) }).collect();
    match bytes {
        0 => Ok(None),
        bytes if bytes == size_of::<Message>() => Ok(Some((message, files))),
        bytes => Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {bytes} bytes"))),
    }
}

/// The process at the other end of a socket, as the kernel reports it.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its process id when it connected.
    pub pid: i32,
    /// Its effective user id when it connected.
    pub uid: u32,
}

impl Peer {
    /// Returns the process that has connected `socket`.
    pub fn of(socket: &UnixStream) -> io::Result<Self> {
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: both pointers are to locals of the sizes given.
        let failed = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &raw mut bytes,
            )
        };
        if failed == 0 { Ok(Self { pid: peer.pid, uid: peer.uid }) } else { Err(io::Error::last_os_error()) }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} of user {}", self.pid, self.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn messages_come_with_their_files() {
        let (one, other) = UnixStream::pair().unwrap();
        let message = Message { kind: WORKER, number: 9, ..Message::default() };
        send(&one, &message, &[one.as_raw_fd(), other.as_raw_fd()]).unwrap();
        let (received, files) = receive(&other).unwrap().unwrap();
        assert_eq!((received, files.len()), (message, 2));
        (&one).write_all(&[1, 2, 3]).unwrap();
        assert!(receive(&other).is_err());
        drop((one, files));
        assert!(receive(&other).unwrap().is_none());
    }
}
