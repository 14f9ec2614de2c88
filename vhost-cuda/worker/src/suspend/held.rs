// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that keep device memory go from one worker to another, over a socket between the two. The daemon has made it with
//! time limits, and reads and writes nothing there.
//!
//! The worker that gets them trusts none: the driver refuses a file that is not of its own, and memory that is shorter than its part. The other
//! one ends before anything is mapped here, and what the memory holds is its session's.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use vhost_cuda_common::parts::malformed;

use super::lent::Files;
use crate::memory::parts::Part;

/// The number of files that go at once: the kernel allows 253. Each time the other side says that it has them, because the kernel
/// limits those that are under way.
const AT_ONCE: usize = 250;

/// The way of a session's contents to another process.
#[derive(Debug)]
pub enum Way {
    /// Files.
    Memory(Files),
    /// A socket for the files that keep device memory.
    Card(UnixStream),
}

impl Way {
    /// Returns the files, if these are the way.
    pub fn memory(self) -> Option<Files> {
        match self {
            Self::Memory(files) => Some(files),
            Self::Card(_) => None,
        }
    }
}

/// Gives each part the file that keeps its memory.
///
/// Errors: a file is of no part, or a part has none.
pub fn put<'p>(
    parts: impl Iterator<Item = &'p mut Part>,
    mut files: std::collections::BTreeMap<u64, File>,
) -> Result<(), String> {
    for part in parts {
        let file = files.remove(&part.address()).ok_or("a piece of memory is not kept on the card")?;
        part.hold_in(file);
    }
    if files.is_empty() { Ok(()) } else { Err("memory on the card is of no allocation".to_owned()) }
}

/// Sends files.
///
/// Errors: those of the socket.
pub fn send(mut socket: &UnixStream, files: &[(u64, Arc<File>)]) -> io::Result<()> {
    for some in files.chunks(AT_ONCE) {
        let all: Vec<_> = some.iter().map(|(_, file)| file.as_fd()).collect();
        let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !control.push(SendAncillaryMessage::ScmRights(&all)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
        socket.read_exact(&mut [0])?;
    }
    Ok(())
}

/// Receives so many files.
///
/// Errors: those of the socket; `InvalidData` if there are others.
pub fn receive(mut socket: &UnixStream, count: usize) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    while files.len() < count {
        let expected = (count - files.len()).min(AT_ONCE);
        let (mut byte, before) = ([0], files.len());
        let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let received =
            recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                files.extend(some.map(File::from));
            }
        }
        // Fewer come if this process may have no more.
        if received.bytes == 0 || files.len() - before != expected {
            return Err(malformed("files of device memory are missing"));
        }
        socket.write_all(&[0])?;
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::thread;

    use vhost_cuda_common::files::memory_file;

    use super::*;

    #[test]
    fn files_go_over_in_their_order() {
        for count in [0, 1, AT_ONCE, 2 * AT_ONCE + 3] {
            let (here, there) = UnixStream::pair().unwrap();
            let sending = thread::spawn(move || {
                let file = |index: usize| {
                    let file = memory_file(c"held").unwrap();
                    file.set_len(index as u64).unwrap();
                    (0, Arc::new(file))
                };
                send(&there, &(0..count).map(file).collect::<Vec<_>>())
            });
            let files = receive(&here, count).unwrap();
            sending.join().unwrap().unwrap();
            let lengths = files.iter().map(|file| file.metadata().unwrap().size() as usize);
            assert!(lengths.eq(0..count), "{count}");
        }
    }

    #[test]
    fn other_files_than_announced_are_refused() {
        let file = || (0, Arc::new(memory_file(c"held").unwrap()));
        for (sent, expected) in [(1, 2), (2, 1), (0, 1)] {
            let (here, there) = UnixStream::pair().unwrap();
            let sending = thread::spawn(move || send(&there, &(0..sent).map(|_| file()).collect::<Vec<_>>()));
            assert!(receive(&here, expected).is_err(), "{sent} {expected}");
            drop(here);
            assert_eq!(sending.join().unwrap().is_err(), sent > 0);
        }
    }
}
