// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Calls that keep the session and its lanes going: numbers only, and no order. A [`crate::Call`] makes all others, and needs these.

use virtio_cuda_protocol::cuda::{CALL_INTERNAL, CallHeader, Malformed, Opcode, Reader};
use zerocopy::IntoBytes;

use crate::reply::Answer;
use crate::transport::{Request, Transport, UserMemory};
use crate::{Caller, ClientError};

const HEADER_BYTES: usize = size_of::<CallHeader>();
/// Maximum bytes of arguments.
const MAX_ARGUMENTS: usize = 24;
/// Bytes of a reply, more than any of these calls has.
pub(crate) const REPLY_BYTES: usize = 64;

/// The payload of such a call.
#[derive(Debug)]
pub(crate) struct Payload {
    thread: u32,
    room: [u8; HEADER_BYTES + MAX_ARGUMENTS],
    bytes: usize,
}

impl Payload {
    /// A call of thread `thread` with `arguments`, little-endian numbers.
    pub fn new(opcode: Opcode, thread: u32, caller: Caller, arguments: &[&[u8]]) -> Self {
        let mut this = Self { thread, room: [0; _], bytes: HEADER_BYTES };
        for argument in arguments {
            this.room[this.bytes..][..argument.len()].copy_from_slice(argument);
            this.bytes += argument.len();
        }
        let header = CallHeader {
            opcode: opcode as u32,
            thread,
            args_bytes: (this.bytes - HEADER_BYTES) as u32,
            flags: if caller.is_internal() { CALL_INTERNAL } else { 0 },
            ..CallHeader::default()
        };
        this.room[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        this
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.room[..self.bytes]
    }
}

/// Sends a call through the request queue, at once. `take` reads the results.
pub(crate) fn send<T>(
    transport: &dyn Transport,
    payload: &Payload,
    take: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Answer<T>, ClientError> {
    let mut reply = [0; REPLY_BYTES];
    let request = Request {
        payload: payload.bytes(),
        reply: &mut reply,
        input: UserMemory::NONE,
        output: UserMemory::NONE,
        keep: false,
        track: false,
        read_only: false,
        thread: payload.thread,
        delivers_output: |_| false,
    };
    // SAFETY: the request names no memory.
    let written = unsafe { transport.call(request) }?.bytes;
    Answer::read(reply.get(..written).ok_or(ClientError::Protocol)?, take, no_bulk)
}

/// Accepts the bulk output of a call that has no bulk output.
pub(crate) fn no_bulk(bulk: &[u8]) -> Result<(), ClientError> {
    if bulk.is_empty() { Ok(()) } else { Err(ClientError::Protocol) }
}
