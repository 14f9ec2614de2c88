// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The transport's operations: sessions, and the memory that they keep.

use std::collections::{HashMap, VecDeque};

use virtio_cuda_protocol::transport::{
    Event, FLAG_KEEP, FLAG_READ, Hello, MemEntry, OP_CALL, OP_CLOSE, OP_HELLO, OP_OPEN, OP_SHARE, OP_UNPIN,
    Open, Opened, PROTOCOL_VERSION, REPLY_INVALID, REPLY_NO_RESOURCES, REPLY_OK, REPLY_SESSION_LOST,
    RequestHeader,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::calls;
use crate::chain::{Chain, Snapshot, Vring};
use crate::pages::Pages;

/// The maximum number of sessions at once.
pub const MAX_SESSIONS: u32 = 64;

/// The area of this tag is never answered.
const UNANSWERED_AREA: u64 = 0x5ee_d000;

/// State of a session.
#[derive(Default)]
pub struct Session {
    /// Its user, as the driver named it.
    pub uid: u32,
    pub charged_uid: u32,
    /// Memory by its tag.
    pub kept: HashMap<u64, Pages>,
    /// Calls that are never answered.
    pub held: Vec<Chain>,
}

/// All of one guest.
#[derive(Default)]
pub struct Sessions {
    open: HashMap<u64, Session>,
    last: u64,
    events: VecDeque<Event>,
}

/// A request, taken apart.
pub struct Request {
    pub header: RequestHeader,
    pub payload: Vec<u8>,
    pub input: Pages,
    pub output: Pages,
}

/// The state of a session after a call.
pub enum Outcome {
    /// It continues, and gets these events.
    GoesOn(Vec<Event>),
    /// It is lost.
    Lost,
}

fn parse(bytes: &[u8]) -> Option<Request> {
    let (header, rest) = RequestHeader::read_from_prefix(bytes).ok()?;
    let (payload, rest) = rest.split_at_checked(header.payload_bytes as usize)?;
    let entries = |bytes: &[u8]| -> Option<Vec<MemEntry>> {
        bytes.chunks(size_of::<MemEntry>()).map(|entry| MemEntry::read_from_bytes(entry).ok()).collect()
    };
    let (ins, outs) = rest.split_at_checked(header.in_entries as usize * size_of::<MemEntry>())?;
    if outs.len() != header.out_entries as usize * size_of::<MemEntry>() {
        return None;
    }
    Some(Request {
        header,
        payload: payload.to_vec(),
        input: Pages { entries: entries(ins)?, read_only: true },
        output: Pages { entries: entries(outs)?, read_only: header.flags & FLAG_READ != 0 },
    })
}

impl Sessions {
    /// Executes one request.
    pub fn handle(&mut self, chain: Chain) {
        let Some(request) = parse(&chain.request) else { return chain.answer(REPLY_INVALID, &[]) };
        let id = request.header.session;
        match request.header.op {
            OP_HELLO => {
                self.open.clear();
                let hello = Hello { protocol_version: PROTOCOL_VERSION };
                chain.answer(REPLY_OK, hello.as_bytes());
            }
            OP_OPEN => match Open::read_from_bytes(&request.payload) {
                Ok(open) => self.open(&open, chain),
                Err(_) => chain.answer(REPLY_INVALID, &[]),
            },
            OP_CLOSE => match self.end(id) {
                true => chain.answer(REPLY_OK, &[]),
                false => chain.answer(REPLY_SESSION_LOST, &[]),
            },
            op => match self.open.get_mut(&id) {
                None => chain.answer(REPLY_SESSION_LOST, &[]),
                Some(session) => match (op, session.kept.contains_key(&request.header.tag)) {
                    (OP_CALL, _) => self.call(request, chain),
                    (OP_SHARE, false) => {
                        session.kept.insert(request.header.tag, request.output);
                        if request.header.tag == UNANSWERED_AREA {
                            session.held.push(chain);
                        } else {
                            chain.answer(REPLY_OK, &[]);
                        }
                    }
                    (OP_UNPIN, true) => {
                        session.kept.remove(&request.header.tag);
                        chain.answer(REPLY_OK, &[]);
                    }
                    _ => chain.answer(REPLY_INVALID, &[]),
                },
            },
        }
    }

    fn open(&mut self, open: &Open, chain: Chain) {
        if self.open.len() >= MAX_SESSIONS as usize {
            return chain.answer(REPLY_NO_RESOURCES, &[]);
        }
        self.last += 1;
        self.open.insert(
            self.last,
            Session { uid: open.uid, charged_uid: open.charged_uid, ..Session::default() },
        );
        chain.answer(REPLY_OK, Opened { session: self.last }.as_bytes());
    }

    /// Answers the session's outstanding requests. Returns false if the session does not exist.
    fn end(&mut self, id: u64) -> bool {
        let Some(session) = self.open.remove(&id) else { return false };
        for chain in session.held {
            chain.answer(REPLY_SESSION_LOST, &[]);
        }
        true
    }

    fn call(&mut self, request: Request, chain: Chain) {
        let id = request.header.session;
        let Some(session) = self.open.get_mut(&id) else { return };
        let keep =
            (request.header.flags & FLAG_KEEP != 0).then(|| (request.header.tag, request.output.clone()));
        let (outcome, refused) = calls::execute(session, request, chain);
        if let (Some((tag, pages)), false) = (keep, refused) {
            session.kept.insert(tag, pages);
        }
        match outcome {
            Outcome::GoesOn(events) => self.events.extend(events),
            Outcome::Lost => drop(self.end(id)),
        }
    }

    /// Sends as many events as there are buffers for.
    pub fn send_events(&mut self, vring: &Vring, memory: &Snapshot) {
        while !self.events.is_empty()
            && let Some(buffer) = Chain::next(vring, memory)
            && let Some(event) = self.events.pop_front()
        {
            buffer.fill(event.as_bytes());
        }
    }
}
