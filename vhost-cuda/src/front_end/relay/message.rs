// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of vhost-user (docs/interop/vhost-user.rst of QEMU): a head of three words, a body, and descriptors.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, send, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::hand_over::files::{Inherited, Leaving, Number};

/// The size of a head in bytes.
const HEAD: usize = 12;
/// The maximum size of a body in bytes, as in the library that handles the messages.
const MAX_BODY: u32 = 0x1000;
/// The maximum number of descriptors of a message, as in that library.
const MAX_FILES: usize = 32;
/// The flags of a message: its version, and bits for replies.
const VERSION: u32 = 1;
/// The flag of a reply.
const REPLY: u32 = 1 << 2;

/// A message.
#[derive(Debug, Default)]
pub struct Message {
    /// The request's number.
    pub request: u32,
    /// Version and flags.
    pub flags: u32,
    /// The body.
    pub body: Vec<u8>,
    /// Its descriptors.
    pub files: Vec<File>,
}

/// A message that is handed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedMessage {
    request: u32,
    body: Vec<u8>,
    files: Vec<Number>,
}

impl SavedMessage {
    /// Returns a message with one descriptor.
    pub fn of_file(request: u32, body: Vec<u8>, file: Number) -> Self {
        Self { request, body, files: vec![file] }
    }
}

impl Message {
    /// Returns a request without a reply.
    pub fn request(request: u32, body: Vec<u8>) -> Self {
        Self { request, flags: VERSION, body, files: Vec::new() }
    }

    /// Returns true if it is a reply to a request of this number.
    pub fn is_reply_to(&self, request: u32) -> bool {
        self.request == request && self.flags & REPLY != 0
    }

    /// Returns a word of 32 bits of its body, by its position in bytes.
    pub fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.body.get(at..at + 4)?.try_into().ok()?))
    }

    /// Returns the same request without its reply.
    ///
    /// Errors: its descriptors cannot be copied.
    pub fn to_record(&self) -> io::Result<Self> {
        let files = self.files.iter().map(File::try_clone).collect::<io::Result<_>>()?;
        Ok(Self { request: self.request, flags: VERSION, body: self.body.clone(), files })
    }

    /// Sends it. Waits while the other end does not read, as long as the socket's time limit for writing.
    pub fn send(&self, socket: &UnixStream) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(HEAD + self.body.len());
        for word in [self.request, self.flags, self.body.len() as u32] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(&self.body);
        let files: Vec<BorrowedFd<'_>> = self.files.iter().map(File::as_fd).collect();
        let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut sent = loop {
            match sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                result => break result?,
            }
        };
        while sent < bytes.len() {
            match send(socket, &bytes[sent..], SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                result => sent += result?,
            }
        }
        Ok(())
    }

    /// Returns what the next program needs.
    pub fn save(&self, files: &mut Leaving) -> SavedMessage {
        let numbers = self.files.iter().map(|file| files.add(file)).collect();
        SavedMessage { request: self.request, body: self.body.clone(), files: numbers }
    }

    /// Takes over a message of the program before this one.
    ///
    /// Errors: the state is wrong.
    pub fn restore(saved: SavedMessage, files: &mut Inherited) -> io::Result<Self> {
        if saved.body.len() > MAX_BODY as usize || saved.files.len() > MAX_FILES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let files = saved.files.into_iter().map(|number| files.take(number).map(File::from));
        let files = files.collect::<io::Result<_>>()?;
        Ok(Self { request: saved.request, flags: VERSION, body: saved.body, files })
    }
}

/// The part of a message that has been received.
#[derive(Debug, Default)]
pub struct Incoming {
    bytes: Vec<u8>,
    files: Vec<File>,
}

/// The result of [`Incoming::receive`].
#[derive(Debug)]
pub enum Received {
    /// A whole message.
    Whole(Message),
    /// Its rest is not there yet.
    Part,
    /// The other end has closed the socket.
    End,
}

/// A part of a message that is handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedIncoming {
    bytes: Vec<u8>,
    files: Vec<Number>,
}

impl Incoming {
    /// Receives what is there of one message, without waiting.
    ///
    /// Errors: a message that is too long or has too many descriptors, and those of the socket.
    pub fn receive(&mut self, socket: &UnixStream) -> io::Result<Received> {
        loop {
            let missing = self.length()? - self.bytes.len();
            if missing == 0 {
                return Ok(Received::Whole(self.take()));
            }
            let mut bytes = [0; HEAD + MAX_BODY as usize];
            let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FILES))];
            let mut control = RecvAncillaryBuffer::new(&mut room);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let received =
                match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes[..missing])], &mut control, flags) {
                    Ok(received) => received.bytes,
                    Err(Errno::AGAIN) => return Ok(Received::Part),
                    Err(Errno::INTR) => continue,
                    Err(Errno::CONNRESET) => 0,
                    Err(error) => return Err(error.into()),
                };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(files) = message {
                    self.files.extend(files.map(File::from));
                }
            }
            if self.files.len() > MAX_FILES {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors"));
            }
            if received == 0 {
                return Ok(Received::End);
            }
            self.bytes.extend_from_slice(&bytes[..received]);
        }
    }

    /// The length of the message as far as it is known, in bytes.
    fn length(&self) -> io::Result<usize> {
        if self.bytes.len() < HEAD {
            return Ok(HEAD);
        }
        let body = self.word(8);
        if body > MAX_BODY {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message that is too long"));
        }
        Ok(HEAD + body as usize)
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = self.bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    }

    fn take(&mut self) -> Message {
        let (request, flags) = (self.word(0), self.word(4));
        let body = self.bytes.split_off(HEAD);
        self.bytes.clear();
        Message { request, flags, body, files: std::mem::take(&mut self.files) }
    }

    /// Returns what the next program needs.
    pub fn save(&self, files: &mut Leaving) -> SavedIncoming {
        let numbers = self.files.iter().map(|file| files.add(file)).collect();
        SavedIncoming { bytes: self.bytes.clone(), files: numbers }
    }

    /// Takes over a part of a message from the program before this one.
    ///
    /// Errors: the state is wrong.
    pub fn restore(saved: SavedIncoming, files: &mut Inherited) -> io::Result<Self> {
        let files = saved.files.into_iter().map(|number| files.take(number).map(File::from));
        let incoming = Self { bytes: saved.bytes, files: files.collect::<io::Result<_>>()? };
        match incoming.length()? < incoming.bytes.len() {
            true => Err(io::ErrorKind::InvalidData.into()),
            false => Ok(incoming),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn whole(incoming: &mut Incoming, socket: &UnixStream) -> Option<Message> {
        match incoming.receive(socket).unwrap() {
            Received::Whole(message) => Some(message),
            _ => None,
        }
    }

    #[test]
    fn messages_arrive_whole_and_with_their_files() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut message = Message::request(5, vec![7; 40]);
        message.files = vec![File::open("/dev/null").unwrap(), File::open("/dev/zero").unwrap()];
        message.send(&theirs).unwrap();
        Message::request(6, vec![]).send(&theirs).unwrap();
        let mut incoming = Incoming::default();
        let first = whole(&mut incoming, &ours).unwrap();
        assert_eq!((first.request, first.body, first.files.len()), (5, vec![7; 40], 2));
        let second = whole(&mut incoming, &ours).unwrap();
        assert_eq!((second.request, second.files.len()), (6, 0));
        assert!(whole(&mut incoming, &ours).is_none());
        drop(theirs);
        assert!(matches!(incoming.receive(&ours), Ok(Received::End)));
    }

    #[test]
    fn a_part_of_a_message_waits_for_its_rest() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut incoming = Incoming::default();
        let bytes = [5, 1, 3].map(u32::to_ne_bytes).concat();
        for byte in bytes.iter().chain(b"ab") {
            theirs.write_all(&[*byte]).unwrap();
            assert!(whole(&mut incoming, &ours).is_none());
        }
        let saved = incoming.save(&mut Leaving::default());
        theirs.write_all(b"c").unwrap();
        assert_eq!(whole(&mut incoming, &ours).unwrap().body, b"abc");
        let mut nothing = Inherited::of(&[]).unwrap();
        let mut again = Incoming::restore(saved.clone(), &mut nothing).unwrap();
        theirs.write_all(b"d").unwrap();
        assert_eq!(whole(&mut again, &ours).unwrap().body, b"abd");
        let long = SavedIncoming { bytes: [saved.bytes, vec![0; 9]].concat(), files: vec![] };
        assert!(Incoming::restore(long, &mut nothing).is_err());
    }

    #[test]
    fn a_message_that_is_too_long_is_refused() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&[5, 1, MAX_BODY + 1].map(u32::to_ne_bytes).concat()).unwrap();
        assert!(Incoming::default().receive(&ours).is_err());
        let saved = SavedIncoming { bytes: [5, 1, u32::MAX].map(u32::to_ne_bytes).concat(), files: vec![] };
        assert!(Incoming::restore(saved, &mut Inherited::of(&[]).unwrap()).is_err());
    }
}
