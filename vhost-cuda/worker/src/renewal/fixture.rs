// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A session with something of each kind that goes to another worker, in this process, with the driver without a device.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use vhost_cuda_common::link::{
    FROM_REPLY, Frame, MOVED, MoveTerms, Moved, ON_CARD, TO_RESUME, TO_SHARE, TO_SUSPEND, ToWorker,
    receive_reply,
};
use virtio_cuda_protocol::cuda::{
    CALL_IN_INLINE, CALL_OUT_INLINE, CallHeader, FIRST_HANDLE, Opcode, RESERVATIONS_BASE, ResultHeader,
    WINDOW_BASE,
};
use virtio_cuda_protocol::transport::{FLAG_KEEP, MemEntry, PAGE_BYTES, REPLY_OK};
use virtio_cuda_ring::LANE_BYTES;
use zerocopy::{FromBytes, IntoBytes};

use crate::fuzz::session::{FuzzSession, MEMORY_BASE};
use crate::handlers::graph::again;
use crate::run::replies::Replies;
use crate::serve::again::MAKERS;
use crate::serve::executor::Executors;
use crate::suspend;
use crate::suspend::deep::deepen;
use crate::vendor::Vendor;

pub const CONTEXT: u64 = FIRST_HANDLE + 4;
pub const STREAM: u64 = FIRST_HANDLE + 16;
pub const EVENT: u64 = FIRST_HANDLE + 32;
pub const MODULE: u64 = FIRST_HANDLE + 48;
pub const ALLOCATION: u64 = FIRST_HANDLE + 64;
/// The number of the guest thread with the lane, of that lane, and the tag of its area.
pub const THREAD: u32 = 7;
pub const LANE: u32 = 3;
pub const TAG: u64 = 99;
/// The address of registered pages, and of claimed addresses.
pub const PAGES: u64 = WINDOW_BASE + 16 * PAGE_BYTES;
pub const CLAIM: u64 = RESERVATIONS_BASE + (7 << 30);
/// The number of the first page of the lane in guest memory.
const LANE_PAGE: u64 = 60;
/// The maximum length of an answer's payload in bytes.
const ROOM: u32 = 0x8000;

/// A guest process, its worker and the daemon's end of the link.
pub struct Guest {
    /// The worker's session.
    pub session: FuzzSession,
    /// Its executors.
    pub executors: Executors,
    /// Where it answers.
    pub replies: Arc<Replies>,
    daemon: UnixStream,
    last: u64,
    /// Answers that nobody has asked for yet.
    answers: HashMap<u64, Vec<u8>>,
}

impl Guest {
    /// A process without objects, which may have `limited` device memory.
    pub fn new(limited: bool) -> Self {
        let session = FuzzSession::with_one_device(limited, Vendor::open_none);
        let (daemon, worker) = UnixStream::pair().expect("a socket");
        let replies = Arc::new(Replies::new(worker));
        let waking = replies.clone();
        session.state.gate.on_wake(move || waking.wake());
        let executors = Executors::new(session.state, replies.clone());
        Self { session, executors, replies, daemon, last: 0, answers: HashMap::new() }
    }

    /// A process whose requests have ids behind this one.
    pub fn behind(last: u64) -> Self {
        Self { last, ..Self::new(true) }
    }

    /// A process with objects and memory of all kinds.
    pub fn with_all() -> Self {
        let mut guest = Self::new(true);
        guest.make(Opcode::cuDevicePrimaryCtxRetain, &[&0_u32.to_le_bytes(), &CONTEXT.to_le_bytes()], &[]);
        guest.make(Opcode::cuDevicePrimaryCtxRetain, &[&0_u32.to_le_bytes(), &CONTEXT.to_le_bytes()], &[]);
        guest.make(
            Opcode::cuStreamCreateWithPriority,
            &[&STREAM.to_le_bytes(), &1_u32.to_le_bytes(), &0_u32.to_le_bytes()],
            &[],
        );
        guest.make(Opcode::cuEventCreate, &[&EVENT.to_le_bytes(), &0_u32.to_le_bytes()], &[]);
        guest.make(Opcode::cuModuleLoadData, &[&MODULE.to_le_bytes()], b".global .u32 x;");
        guest.make(Opcode::cuThreadExchangeStreamCaptureMode, &[&2_u32.to_le_bytes()], &[]);
        guest.make(Opcode::vendor_environment, &[], b"NVIDIA_TF32_OVERRIDE=0\0");
        let small = [700, 1, 5000].map(|bytes| guest.allocate(bytes));
        guest.allocate(3 << 20);
        guest.make(Opcode::cuMemFree_v2, &[&small[1].to_le_bytes()], &[]);
        guest.map_created();
        guest.register();
        guest.make(Opcode::window_claim, &[&CLAIM.to_le_bytes(), &(4 * PAGE_BYTES).to_le_bytes()], &[]);
        guest.share_lane();
        guest
    }

    /// Makes a call that must succeed. Returns its results.
    pub fn make(&mut self, opcode: Opcode, arguments: &[&[u8]], bulk: &[u8]) -> Vec<u8> {
        let id = self.send(opcode, &arguments.concat(), bulk);
        self.result(id)
    }

    /// Sends a call of [`THREAD`]. Returns its id.
    pub fn send(&mut self, opcode: Opcode, arguments: &[u8], bulk: &[u8]) -> u64 {
        let frame = Frame::of_payload(ToWorker::default(), payload(opcode, arguments, bulk));
        self.submit(frame)
    }

    /// Sends a frame under a new id, which is returned.
    pub fn submit(&mut self, mut frame: Frame) -> u64 {
        self.last += 1;
        frame.header.id = self.last;
        frame.header.reply_room = ROOM;
        self.executors.submit(frame);
        self.last
    }

    /// Receives the answer to a call, which must have succeeded.
    pub fn result(&mut self, id: u64) -> Vec<u8> {
        let payload = self.answer(id);
        let (header, results) = ResultHeader::read_from_prefix(&payload).expect("a result");
        assert_eq!(header.result, 0, "request {id}");
        results.to_vec()
    }

    /// Receives the answer to a request, whatever else is answered before.
    pub fn answer(&mut self, id: u64) -> Vec<u8> {
        loop {
            if let Some(payload) = self.answers.remove(&id) {
                return payload;
            }
            let (header, payload) = receive_reply(&self.daemon).expect("a frame").expect("no end");
            if header.kind == FROM_REPLY {
                assert_eq!(header.status, REPLY_OK, "request {}", header.id);
                assert!(self.answers.insert(header.id, payload).is_none(), "request {}: twice", header.id);
            }
        }
    }

    fn allocate(&mut self, bytes: u64) -> u64 {
        let results = self.make(Opcode::cuMemAlloc_v2, &[&bytes.to_le_bytes()], &[]);
        u64::from_le_bytes(results[..8].try_into().expect("an address"))
    }

    fn map_created(&mut self) {
        const BYTES: u64 = 4 << 20;
        let properties = [1_u32, 0, 1, 0, 0, 0, 0];
        let properties: Vec<u8> = properties.iter().flat_map(|word| word.to_le_bytes()).collect();
        let arguments = [&ALLOCATION.to_le_bytes()[..], &BYTES.to_le_bytes(), &properties, &[0; 8]];
        self.make(Opcode::cuMemCreate, &arguments, &[]);
        let wanted = [2 * BYTES, 0, 0, 0].map(u64::to_le_bytes).concat();
        let at = self.make(Opcode::cuMemAddressReserve, &[&wanted], &[]);
        let map = [&at[..8], &BYTES.to_le_bytes(), &[0; 8], &ALLOCATION.to_le_bytes(), &[0; 8]];
        self.make(Opcode::cuMemMap, &map, &[]);
        let access = [1_u32, 0, 3].map(u32::to_le_bytes).concat();
        self.make(Opcode::cuMemSetAccess, &[&at[..8], &BYTES.to_le_bytes(), &access], &[]);
    }

    fn register(&mut self) {
        let arguments = [PAGES, 2 * PAGE_BYTES].map(u64::to_le_bytes).concat();
        let arguments = [&arguments[..], &0_u32.to_le_bytes()].concat();
        let payload = payload_with(0, Opcode::cuMemHostRegister_v2, &arguments, &[]);
        let mut frame =
            Frame::of_payload(ToWorker { flags: FLAG_KEEP, tag: 5, ..ToWorker::default() }, payload);
        frame.out_entries = [9, 3].map(|page| entry(page, 1)).to_vec();
        let id = self.submit(frame);
        self.result(id);
    }

    fn share_lane(&mut self) {
        let pages = (LANE_BYTES as u64).div_ceil(PAGE_BYTES);
        let header = ToWorker { kind: TO_SHARE, tag: TAG, ..ToWorker::default() };
        let mut frame = Frame::of_payload(header, Vec::new());
        frame.header.kind = TO_SHARE;
        // All pages of guest memory, one after the other, as often as it needs: only the first one is written here.
        frame.out_entries = (0..pages).map(|page| entry((LANE_PAGE + page) % 80, 1)).collect();
        let id = self.submit(frame);
        self.answer(id);
        let arguments = [&TAG.to_le_bytes()[..], &LANE.to_le_bytes(), &160_u64.to_le_bytes()];
        self.make(Opcode::session_lane, &arguments, &[]);
    }

    /// Suspends the session deeply.
    pub fn suspend(&mut self) {
        self.suspend_flat();
        let told = deepen(self.session.state, again::describe);
        assert_eq!(told.obstacle, None);
    }

    /// Suspends the session deeply, with its memory on the card.
    pub fn suspend_on_card(&mut self) {
        let terms = MoveTerms { deadline_ms: 10_000, flags: ON_CARD, ..MoveTerms::default() };
        self.moves(TO_SUSPEND, terms);
        assert_eq!(deepen(self.session.state, again::describe).obstacle, None);
    }

    /// Suspends the session, but not deeply. Returns the reason.
    pub fn suspend_in_vain(&mut self) -> Option<String> {
        self.suspend_flat();
        deepen(self.session.state, again::describe).obstacle
    }

    fn suspend_flat(&mut self) {
        let terms = MoveTerms { deadline_ms: 10_000, budget_bytes: 1 << 30, ..MoveTerms::default() };
        self.moves(TO_SUSPEND, terms);
    }

    /// Resumes the session.
    pub fn resume(&mut self) {
        self.moves(TO_RESUME, MoveTerms::default());
    }

    /// Resumes the session if that is possible.
    pub fn try_to_resume(&mut self) {
        self.ask(TO_RESUME, MoveTerms::default());
    }

    fn moves(&mut self, kind: u32, terms: MoveTerms) {
        assert_eq!(self.ask(kind, terms), Some(MOVED));
    }

    /// On this thread: it may be the last one that uses a context.
    fn ask(&mut self, kind: u32, terms: MoveTerms) -> Option<u32> {
        let mut told = None;
        let answer = |moved: Moved| told = Some(moved.outcome);
        suspend::execute(self.session.state, kind == TO_SUSPEND, terms, MAKERS, answer);
        told
    }

    /// Ends the process.
    pub fn end(self) {
        // Executors refer to the session.
        self.executors.end();
        drop(self.session);
    }
}

/// Returns the stream of a session that is suspended deeply, and goes on with it. With a time it has stopped with its machine then.
pub fn stream_of(guest: &mut Guest, stopped_at: Option<u64>) -> Vec<u8> {
    let mut stream = Vec::new();
    let (threads, _) = super::stopped(guest.session.state, &mut guest.executors).expect("it can leave");
    let written =
        super::writing::session(&mut stream, guest.session.state, &threads, stopped_at, None, false);
    written.expect("it can be written");
    super::go_on(guest.session.state);
    stream
}

/// Ends a guest whose session is suspended, or of no use. Its threads execute nothing more: another guest may have their lane.
pub fn end_suspended(guest: Guest) {
    let Guest { session, executors, .. } = guest;
    session.state.gate.leave();
    executors.end();
    session.state.gate.stay();
    session.state.gate.open();
    session.state.gate.unseal();
    drop(session);
}

/// Pages of guest memory.
pub fn entry(page: u64, pages: u32) -> MemEntry {
    let bytes = pages * PAGE_BYTES as u32;
    MemEntry { addr: MEMORY_BASE + page * PAGE_BYTES, bytes, reserved: 0 }
}

/// The payload of a call of [`THREAD`].
pub fn payload(opcode: Opcode, arguments: &[u8], bulk: &[u8]) -> Vec<u8> {
    let has_bulk = if bulk.is_empty() { 0 } else { CALL_IN_INLINE };
    payload_with(has_bulk | CALL_OUT_INLINE, opcode, arguments, bulk)
}

fn payload_with(flags: u32, opcode: Opcode, arguments: &[u8], bulk: &[u8]) -> Vec<u8> {
    let header = CallHeader {
        opcode: opcode as u32,
        thread: THREAD,
        context: CONTEXT,
        flags,
        args_bytes: arguments.len() as u32,
        bulk_in_bytes: bulk.len() as u64,
        bulk_out_bytes: 0,
    };
    [header.as_bytes(), arguments, bulk].concat()
}
