// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The questions of a worker to the daemon's exchange: about objects that processes of a guest share with each other, and about the
//! daemon's other services. Each worker has a socket for them.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use zerocopy::{FromZeros, IntoBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::files::{read_with, write_with};

/// The size of a token in bytes.
pub const TOKEN_BYTES: usize = 16;
/// The size of libcuda's own handles in bytes (`CU_IPC_HANDLE_SIZE`).
pub const HANDLE_BYTES: usize = 64;

/// [`Question::kind`]: stores an offer. The answer is its token.
pub const OFFER: u32 = 1;
/// [`Question::kind`]: returns the offer with this token.
pub const LOOK_UP: u32 = 2;
/// [`Question::kind`]: the offer with this token has ended. There is no answer.
pub const WITHDRAW: u32 = 3;

/// [`Question::kind`]: waits for the sessions that are ending, whose memory the worker may need, and suspends an idle one if the
/// device has no memory. The answer says whether there may be more memory.
pub const SETTLE: u32 = 4;
/// [`Question::kind`]: records a process for a profiler in the guest . The answer's file is a socket.
pub const RECORD: u32 = 5;

/// [`Question::kind`]: the events that the session has offered are about to end, and so are those that it has opened. They are made again
/// ([`BACK`]). Other sessions that look them up meanwhile wait. The answer says whether they may end: no other session has opened one.
pub const AWAY: u32 = 6;
/// [`Question::kind`]: the event with this token is there again, as the offer says. The answer says whether the session has offered it.
pub const BACK: u32 = 7;
/// [`Question::kind`]: an event with this token that the worker has looked up has ended there. There is no answer.
pub const CLOSED: u32 = 8;

/// [`Offer::what`]: memory (`CUipcMemHandle`).
pub const MEMORY: u32 = 1;
/// [`Offer::what`]: an event (`CUipcEventHandle`).
pub const EVENT: u32 = 2;
/// [`Offer::what`]: an allocation of `cuMemCreate`, with its file.
pub const ALLOCATION: u32 = 3;

/// [`Offer::what`]: a memory pool, with its file.
pub const POOL: u32 = 4;
/// [`Offer::what`]: an allocation of such a pool (`CUmemPoolPtrExportData`).
pub const POINTER: u32 = 5;

/// [`Offer::what`]: the memory of the emulator's NCCL that the ranks of a communicator share, with its file.
pub const COMMUNICATOR: u32 = 6;

/// A shared object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Offer {
    /// [`MEMORY`], [`EVENT`], [`ALLOCATION`], [`POOL`], [`POINTER`] or [`COMMUNICATOR`].
    pub what: u32,
    /// The guest's number of its device.
    pub device: u32,
    /// The size of memory in bytes.
    pub bytes: u64,
    /// libcuda's handle, or zeros if there is a file.
    pub handle: [u8; HANDLE_BYTES],
}

/// A worker's message.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Question {
    /// [`OFFER`] to [`CLOSED`].
    pub kind: u32,
    /// For [`SETTLE`], the number of a [`Shortage`]; for [`RECORD`], the process; else 0.
    pub number: u32,
    /// The token of a look-up or a withdrawal.
    pub token: [u8; TOKEN_BYTES],
    /// The offered object. A look-up uses only `what`, and [`SETTLE`] only `device`.
    pub offer: Offer,
}

/// The answer to a worker.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Answer {
    /// 1 or 0.
    pub found: u32,
    /// Zero.
    pub reserved: u32,
    /// The token of a new offer.
    pub token: [u8; TOKEN_BYTES],
    /// The object that a look-up found.
    pub offer: Offer,
}

/// The need of a worker that waits for sessions that are ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// It only wants to know how much memory there is.
    None,
    /// The device with this number of the worker's has no memory for a call. [`ANY_DEVICE`]: it is not known which one.
    Device(u32),
    /// The limit of its session or machine leaves no memory for a call.
    Limit,
}

/// A number of no device.
pub const ANY_DEVICE: u32 = u32::MAX;

impl Shortage {
    /// Returns its number and its device in a question.
    fn numbers(self) -> (u32, u32) {
        match self {
            Self::None => (0, 0),
            Self::Device(device) => (1, device),
            Self::Limit => (2, 0),
        }
    }

    /// Returns the shortage with these numbers, [`Shortage::None`] for an unknown one.
    pub fn of(number: u32, device: u32) -> Self {
        match number {
            1 => Self::Device(device),
            2 => Self::Limit,
            _ => Self::None,
        }
    }
}

/// The secret by which another session requests an offer.
pub type Token = [u8; TOKEN_BYTES];

/// Offers an object. Returns its token, if the daemon has accepted it.
pub fn offer(
    socket: &UnixStream,
    offer: Offer,
    file: Option<&File>,
) -> io::Result<Option<[u8; TOKEN_BYTES]>> {
    let question = Question { kind: OFFER, number: 0, token: [0; TOKEN_BYTES], offer };
    let (answer, _) = ask(socket, &question, file)?;
    Ok((answer.found == 1).then_some(answer.token))
}

/// Returns the object that was offered under a token, if there is one.
pub fn look_up(
    socket: &UnixStream,
    token: [u8; TOKEN_BYTES],
    what: u32,
) -> io::Result<Option<(Offer, Option<File>)>> {
    let question = Question { kind: LOOK_UP, number: 0, token, offer: Offer { what, ..Offer::new_zeroed() } };
    let (answer, file) = ask(socket, &question, None)?;
    Ok((answer.found == 1).then_some((answer.offer, file)))
}

/// Ends an offer.
pub fn withdraw(socket: &UnixStream, token: [u8; TOKEN_BYTES]) -> io::Result<()> {
    let question = Question { kind: WITHDRAW, number: 0, token, offer: Offer::new_zeroed() };
    write_with(socket, question.as_bytes(), None)
}

/// Says that the events of a session are about to end, and are made again. Returns whether they may.
pub fn away(socket: &UnixStream) -> io::Result<bool> {
    let question = Question { kind: AWAY, number: 0, token: [0; TOKEN_BYTES], offer: Offer::new_zeroed() };
    Ok(ask(socket, &question, None)?.0.found == 1)
}

/// Offers an event again that was away. Returns whether the session has offered it.
pub fn back(
    socket: &UnixStream,
    token: [u8; TOKEN_BYTES],
    offer: Offer,
    file: Option<&File>,
) -> io::Result<bool> {
    let question = Question { kind: BACK, number: 0, token, offer };
    Ok(ask(socket, &question, file)?.0.found == 1)
}

/// Says that an event that was looked up has ended here.
pub fn closed(socket: &UnixStream, token: [u8; TOKEN_BYTES]) -> io::Result<()> {
    let question = Question { kind: CLOSED, number: 0, token, offer: Offer::new_zeroed() };
    write_with(socket, question.as_bytes(), None)
}

/// Waits for the sessions that are ending, and for one that is suspended if the device has no memory. Returns whether there may be
/// more memory.
pub fn settle(socket: &UnixStream, shortage: Shortage) -> io::Result<bool> {
    let (number, device) = shortage.numbers();
    let offer = Offer { device, ..Offer::new_zeroed() };
    let question = Question { kind: SETTLE, number, token: [0; TOKEN_BYTES], offer };
    Ok(ask(socket, &question, None)?.0.found == 1)
}

/// Returns the socket from which the recording of a process is read.
pub fn record(socket: &UnixStream, pid: u32) -> io::Result<Option<File>> {
    let question =
        Question { kind: RECORD, number: pid, token: [0; TOKEN_BYTES], offer: Offer::new_zeroed() };
    Ok(ask(socket, &question, None)?.1)
}

fn ask(socket: &UnixStream, question: &Question, file: Option<&File>) -> io::Result<(Answer, Option<File>)> {
    write_with(socket, question.as_bytes(), file)?;
    let mut answer = Answer::new_zeroed();
    let file = read_with(socket, answer.as_mut_bytes(), |rest| {
        let mut socket = socket;
        socket.read_exact(rest)
    })?
    .ok_or(io::ErrorKind::ConnectionAborted)?;
    Ok((answer, file))
}
