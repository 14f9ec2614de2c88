// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The questions of a worker to the daemon's cache of device code. Each worker has a socket for them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use rustix::fs::SealFlags;
use zerocopy::{FromZeros, IntoBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::files::{FIXED_LENGTH, add_seals, invalid, memory_file, read_with, write_with};

/// The seals that make a file's contents and length final.
pub const SEALS: SealFlags = FIXED_LENGTH.union(SealFlags::WRITE);
/// The size of a digest in bytes.
pub const DIGEST_BYTES: usize = 32;
/// [`Question::kind`]: asks for an image with this digest and length.
pub const ASK: u32 = 1;
/// [`Question::kind`]: stores the image in the accompanying file. There is no answer.
pub const KEEP: u32 = 2;

/// A worker's message.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Question {
    /// [`ASK`] or [`KEEP`].
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
    /// The image's size in bytes, without the NUL.
    pub bytes: u64,
    /// Its digest.
    pub digest: [u8; DIGEST_BYTES],
}

/// The answer to an [`ASK`], with the image's file if it was found.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Answer {
    /// 1 or 0.
    pub found: u32,
}

/// Creates a sealed file of an image.
pub fn seal(image: &[u8]) -> io::Result<File> {
    let mut file = memory_file(c"cuda-image")?;
    file.write_all(image)?;
    file.write_all(&[0])?;
    add_seals(&file, SEALS)?;
    Ok(file)
}

/// Sends a question, with a file.
pub fn send(socket: &UnixStream, question: &Question, file: Option<&File>) -> io::Result<()> {
    write_with(socket, question.as_bytes(), file)
}

/// Reads the answer to an [`ASK`].
pub fn receive_answer(socket: &UnixStream) -> io::Result<Option<File>> {
    let mut answer = Answer::new_zeroed();
    let file = read_with(socket, answer.as_mut_bytes(), |rest| {
        let mut socket = socket;
        socket.read_exact(rest)
    })?
    .ok_or_else(|| invalid("the daemon has gone"))?;
    Ok(file.filter(|_| answer.found == 1))
}
