// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of a guest process: payloads, arguments and bulk data, and the order of calls.
//!
//! An input is a byte of options, followed by calls until it ends. The row of a call decides how its arguments are
//! made of the bytes, so that most of them are meaningful: few names, addresses near allocations, short numbers.

use std::os::unix::fs::FileExt;

use vhost_cuda_choices::Choices;
use vhost_cuda_common::link::{Frame, TO_CALL, TO_SHARE, TO_UNPIN, ToWorker};
use virtio_cuda_protocol::cuda::table::ROWS;
use virtio_cuda_protocol::cuda::*;
use virtio_cuda_protocol::transport::{FLAG_KEEP, MemEntry, REPLY_INVALID, REPLY_OK};
use zerocopy::{FromBytes, IntoBytes};

use super::super::call::ThreadState;
use super::super::gpu::null;
use super::super::recipe;
use super::super::serve::control;
use super::super::serve::execute::{execute, execute_posted};
use super::device_address;
use super::session::{FuzzSession, MEMORY_BASE, MEMORY_BYTES, memory};

/// The maximum number of calls of an input.
const MAX_CALLS: usize = 48;
/// The maximum length of generated bulk data, in bytes.
const MAX_BULK: usize = 512;
const PAGE: u64 = 4096;
/// The context that exists from the beginning.
const CONTEXT: u64 = FIRST_HANDLE + 4;

/// Rows that wait for the guest by design.
const WAITING: [Opcode; 2] = [Opcode::session_next_callback, Opcode::session_order];

/// Generates a value of `bytes` bytes, of the type whose name is `of`.
fn make(name: &str, of: &str, bytes: usize, choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    let end = out.len() + bytes;
    match of {
        "DevicePtr" => out.extend_from_slice(&device_address(choices).to_le_bytes()),
        "DeviceOrdinal" => out.extend_from_slice(&u32::from(choices.byte() % 3).to_le_bytes()),
        "u64" if name == "tag" => out.extend_from_slice(&u64::from(choices.byte()).to_le_bytes()),
        "u64" | "i64" => out.extend_from_slice(&choices.number().to_le_bytes()),
        "u32" | "i32" | "f32" => out.extend_from_slice(&(choices.number() as u32).to_le_bytes()),
        "u16" => out.extend_from_slice(&(choices.number() as u16).to_le_bytes()),
        "u8" => out.push(choices.byte()),
        _ if of.ends_with("Id") => out.extend_from_slice(&choices.name().to_le_bytes()),
        // A structure: each word is meaningful.
        _ => mixture(end - out.len(), choices, out),
    }
    out.resize(end, 0);
}

/// Generates words, each of which is a name, an address, a number, two numbers of half the length, or zero.
fn mixture(bytes: usize, choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    let end = out.len() + bytes;
    while out.len() < end && choices.more() {
        let kind = choices.byte();
        let word = match kind & 7 {
            0 => 0,
            1 => choices.name(),
            2 => device_address(choices),
            3 => choices.number(),
            4 => u64::from(choices.byte()) | u64::from(choices.byte()) << 32,
            5 => u64::from(kind >> 3),
            6 => u64::from(kind >> 3) << 32,
            _ => choices.any(),
        };
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.truncate(end);
}

/// Runs an input (see the module's documentation).
pub fn run(data: &[u8]) {
    let mut choices = Choices::of(data);
    let options = choices.byte();
    let session = FuzzSession::new(options & 1 != 0, options & 2 != 0);
    let mut guest = Guest { session: &session, thread: ThreadState::default() };
    guest.begin();
    for _ in 0..MAX_CALLS {
        if !choices.more() {
            break;
        }
        guest.request(&mut choices);
    }
    recipe::describe(session.state);
    let Guest { mut thread, .. } = guest;
    thread.held.release();
    thread.signal.end(&session.state.gpu);
    drop(thread);
}

struct Guest<'a> {
    session: &'a FuzzSession,
    thread: ThreadState,
}

impl Guest<'_> {
    /// Every program has a context.
    fn begin(&mut self) {
        let mut args = 0_u32.to_le_bytes().to_vec();
        args.extend_from_slice(&CONTEXT.to_le_bytes());
        let header = CallHeader {
            opcode: Opcode::cuDevicePrimaryCtxRetain as u32,
            args_bytes: args.len() as u32,
            ..CallHeader::default()
        };
        let payload = [header.as_bytes(), &args].concat();
        let header = ToWorker { reply_room: 4096, ..ToWorker::default() };
        let (status, _) =
            execute(self.session.state, &mut self.thread, &mut Frame::of_payload(header, payload));
        assert_eq!(status, REPLY_OK);
    }

    fn request(&mut self, choices: &mut Choices<'_>) {
        let how = choices.byte();
        match how {
            0xf0..=0xf7 => self.control(TO_UNPIN, choices),
            0xf8..=0xff => self.control(TO_SHARE, choices),
            _ => self.call(how, choices),
        }
    }

    /// Requests of the guest's driver.
    fn control(&self, kind: u32, choices: &mut Choices<'_>) {
        let header = ToWorker { kind, tag: u64::from(choices.byte() & 15), ..ToWorker::default() };
        let mut frame = Frame::of_payload(header, Vec::new());
        frame.header.kind = kind;
        if kind == TO_SHARE {
            // The daemon only passes whole pages on.
            frame.out_entries = entries(choices, true);
        }
        control::execute(self.session.state, &frame);
    }

    fn call(&mut self, how: u8, choices: &mut Choices<'_>) {
        let mut frame = frame(how, choices);
        let script = choices.byte();
        let fail_in = if script & 0xc0 == 0xc0 { u32::from(script & 7) + 1 } else { 0 };
        null::script(u64::from(script), fail_in, [2, 1, 600, 700][usize::from(script >> 4 & 3)]);
        let state = self.session.state;
        if how & 0x80 != 0 {
            let _ = execute_posted(state, &mut self.thread, &mut frame);
        } else {
            let room = frame.header.reply_room;
            let (status, reply) = execute(state, &mut self.thread, &mut frame);
            check_reply(status, &reply, room);
        }
        // No lane is served here, and the worker must not refuse all calls for the rest of the input.
        self.thread.new_lane = None;
        state.refused.store(false, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Checks the properties that the guest library relies on.
fn check_reply(status: u32, reply: &[u8], room: u32) {
    assert!(reply.len() <= room as usize, "the reply fits");
    if status == REPLY_OK {
        let (header, rest) = ResultHeader::read_from_prefix(reply).expect("a reply has a head");
        let bytes = u64::from(header.results_bytes) + u64::from(header.bulk_out_bytes);
        assert_eq!(rest.len() as u64, bytes, "the lengths fit");
        assert!(header.result == 0 || rest.is_empty(), "an error has no results");
    } else {
        assert_eq!(status, REPLY_INVALID);
        assert!(reply.is_empty());
    }
}

/// Generates a call. Bits of `how`: 1: bulk input inline, 2: in pages; 4: room for bulk output inline, 8: in pages;
/// 0x10: it may keep pages; 0x20: the input defines lengths and flags; 0x40: in another context.
fn frame(how: u8, choices: &mut Choices<'_>) -> Frame {
    let row = &ROWS[choices.below(ROWS.len())];
    let mut args = Vec::with_capacity(row.input_bytes);
    for input in row.inputs {
        make(input.name, input.of, input.bytes, choices, &mut args);
    }
    let mut header = CallHeader {
        opcode: row.opcode,
        thread: 1,
        context: if how & 0x40 == 0 { CONTEXT } else { choices.name() },
        args_bytes: args.len() as u32,
        ..CallHeader::default()
    };
    let mut bulk = Vec::new();
    let (mut ins, mut outs) = (Vec::new(), Vec::new());
    if how & 3 != 0 {
        let length = choices.below(MAX_BULK);
        if length & 1 != 0 {
            mixture(length, choices, &mut bulk);
        } else {
            bulk.extend_from_slice(choices.bytes(length));
        }
    }
    if how & 3 == 2 {
        let bytes = bulk.len() as u32;
        let _ = memory().write_all_at(&bulk, PAGE);
        ins = if bytes > 0 { vec![entry(MEMORY_BASE + PAGE, bytes)] } else { entries(choices, false) };
        header.bulk_in_bytes = ins.iter().map(|entry| u64::from(entry.bytes)).sum();
        bulk.clear();
    } else if how & 3 != 0 {
        header.flags |= CALL_IN_INLINE;
        header.bulk_in_bytes = bulk.len() as u64;
    }
    if how & 8 != 0 {
        outs = entries(choices, how & 0x10 != 0);
        header.bulk_out_bytes = outs.iter().map(|entry| u64::from(entry.bytes)).sum();
    } else if how & 4 != 0 {
        header.flags |= CALL_OUT_INLINE;
        header.bulk_out_bytes = choices.number() & 0x3fff;
    }
    let mut to_worker = ToWorker { kind: TO_CALL, reply_room: 0x8000, ..ToWorker::default() };
    if how & 0x10 != 0 {
        to_worker.flags = FLAG_KEEP;
        to_worker.tag = u64::from(choices.byte() & 15);
    }
    if how & 0x20 != 0 {
        match choices.byte() & 7 {
            0 => header.args_bytes = choices.number() as u32,
            1 => header.flags = choices.number() as u32,
            2 => header.bulk_in_bytes = choices.number(),
            3 => header.bulk_out_bytes = choices.number(),
            4 => to_worker.reply_room = choices.number() as u32 & 0xffff,
            5 => header.opcode = choices.number() as u32,
            6 => args.truncate(choices.below(64)),
            _ => args.extend_from_slice(choices.bytes(9)),
        }
    }
    if WAITING.iter().any(|opcode| header.opcode == *opcode as u32) {
        header.opcode = Opcode::session_statistics as u32;
    }
    let mut frame = Frame::of_payload(to_worker, [header.as_bytes(), &args, &bulk].concat());
    (frame.in_entries, frame.out_entries) = (ins, outs);
    frame
}

fn entry(addr: u64, bytes: u32) -> MemEntry {
    MemEntry { addr, bytes, reserved: 0 }
}

/// Generates entries as the daemon passes them on: in the guest's memory, not empty, and of whole pages if they are
/// `kept`.
fn entries(choices: &mut Choices<'_>, kept: bool) -> Vec<MemEntry> {
    let count = choices.byte() & 3;
    (0..=count)
        .map(|_| {
            let (at, bytes) = (u64::from(choices.byte()), u64::from(choices.byte()));
            let unit = if kept || at & 0x80 != 0 { PAGE } else { 16 };
            let at = at % (MEMORY_BYTES / PAGE + 8) * PAGE + if kept { 0 } else { bytes & 7 };
            let bytes = (1 + bytes % 4) * unit;
            entry(MEMORY_BASE + at, bytes as u32)
        })
        .collect()
}
