// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worker, and the way to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use virtio_cuda_client::ClientError;
use virtio_cuda_client::protocol::*;
use virtio_cuda_client::transport::{Limits, Pieces, Reply, Request, Transport, UserMemory};
use virtio_cuda_ring::layout::{Header, REPLY_OFFSET};
use virtio_cuda_ring::{Consumer, Kind, LANE_BYTES, LaneMemory, MAX_REPLY_BYTES};
use zerocopy::{FromBytes, IntoBytes};

use super::Script;

/// Bytes of replies, and of bulk data.
const PAYLOAD_BYTES: usize = 96 << 10;
const BULK_BYTES: usize = 1 << 20;
/// Replies of a call after the end of the input: then the worker refuses, so that each call ends. The library gives up
/// earlier, or its loop has no end of its own.
const MAX_REPLIES: u32 = 100_000;

/// The answers of the worker when the input has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Afterwards {
    /// Errors.
    #[default]
    Refuses,
    /// Success, and zeros.
    Zeros,
    /// Success, and the maximum numbers.
    Ones,
}

/// The next lies of the worker.
#[derive(Debug, Default)]
struct Lies {
    script: Script,
    afterwards: Afterwards,
    replies: u32,
    tags: u64,
}

/// A worker.
#[derive(Debug, Default)]
pub struct Worker {
    lies: Mutex<Lies>,
    honest: AtomicBool,
    started: AtomicBool,
    lanes: Mutex<Vec<Lane>>,
}

/// A lane, which is never freed.
#[derive(Debug)]
struct Lane {
    header: &'static Header,
    /// The room for replies.
    room: usize,
    consumer: Consumer,
    /// Number of the last record.
    last: u64,
}

/// Returns the bytes of the results of a row.
fn result_bytes(opcode: Opcode) -> usize {
    let row = table::ROWS.iter().find(|row| row.opcode == opcode as u32);
    row.map_or(0, |row| row.result_bytes)
}

/// Silences the C library's stream, which receives device output.
pub fn silence() {
    unsafe extern "C" {
        static mut stdout: *mut libc::FILE;
        static mut stderr: *mut libc::FILE;
    }
    // SAFETY: nothing else of this process prints by the C library; both names are C strings.
    unsafe {
        let nowhere = libc::fopen(c"/dev/null".as_ptr(), c"w".as_ptr());
        assert!(!nowhere.is_null());
        (stdout, stderr) = (nowhere, nowhere);
    }
}

impl Worker {
    fn lies(&self) -> MutexGuard<'_, Lies> {
        self.lies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on answers come from `script`.
    pub fn lie(&self, script: &[u8], afterwards: u8) {
        let afterwards =
            [Afterwards::Refuses, Afterwards::Zeros, Afterwards::Ones][usize::from(afterwards % 3)];
        let mut lies = self.lies();
        lies.script = Script { bytes: script.to_vec(), at: 0 };
        (lies.afterwards, lies.replies) = (afterwards, 0);
        drop(lies);
        self.honest.store(false, Ordering::Relaxed);
        self.started.store(true, Ordering::Relaxed);
    }

    /// Makes the worker answer as the program expects.
    pub fn be_honest(&self) {
        self.honest.store(true, Ordering::Relaxed);
    }

    /// The program's next call; the worker writes into lanes before it.
    pub fn next_call(&self) -> Option<(u8, u64)> {
        let mut lies = self.lies();
        lies.replies = 0;
        if !lies.script.more() {
            return None;
        }
        let call = (lies.script.byte(), lies.script.number());
        if call.1 & 1 != 0 {
            self.write_lanes(&mut lies.script);
        }
        Some(call)
    }

    /// The words that the worker writes, and now and then those that it does not.
    fn write_lanes(&self, script: &mut Script) {
        for Lane { header, room, last, .. } in self.lanes().iter() {
            let (what, number) = (script.byte(), script.number());
            match what % 9 {
                0 => header.head.0.store(number, Ordering::Relaxed),
                1 => header.head.0.store(header.tail.0.load(Ordering::Relaxed), Ordering::Relaxed),
                2 => header.sleeping.0.store(number as u32, Ordering::Relaxed),
                3 => header.deferred.0.store(number as u32, Ordering::Relaxed),
                4 => header.verdict.0.store(number as u32, Ordering::Relaxed),
                // The answer to a record that comes soon.
                _ => {
                    let answer = &header.reply.0;
                    answer.bytes.store(script.number() as u32, Ordering::Relaxed);
                    for word in &answer.short {
                        word.store(script.number(), Ordering::Relaxed);
                    }
                    let head = ResultHeader {
                        results_bytes: script.number() as u32,
                        bulk_out_bytes: script.number() as u32,
                        ..ResultHeader::default()
                    };
                    // SAFETY: the room for replies begins there, aligned, and is longer.
                    unsafe { (*room as *mut ResultHeader).write_volatile(head) };
                    answer.number.store(last + 1 + number % 4, Ordering::Release);
                }
            }
        }
    }

    /// Executes what lies in the lanes.
    fn serve(&self) {
        let (mut contents, mut room) = (Vec::new(), vec![0; MAX_REPLY_BYTES]);
        // Answers write into lanes, too.
        let mut lanes = std::mem::take(&mut *self.lanes());
        for lane in &mut lanes {
            while let Ok(Some(record)) = lane.consumer.next(&mut contents) {
                lane.last = record.number;
                lane.consumer.release();
                let Ok((header, _)) = CallHeader::read_from_prefix(&contents) else { continue };
                if record.kind == Kind::Wait {
                    let bytes = self.answer(&header, UserMemory::NONE, &mut room).unwrap_or(0);
                    lane.consumer.reply(record.number, &room[..bytes.min(MAX_REPLY_BYTES)]);
                }
            }
        }
        self.lanes().extend(lanes);
    }

    /// The reply to a call.
    fn answer(
        &self,
        header: &CallHeader,
        output: UserMemory,
        reply: &mut [u8],
    ) -> Result<usize, ClientError> {
        let Some(opcode) = Opcode::from_u32(header.opcode) else { return Err(ClientError::Protocol) };
        let results = result_bytes(opcode);
        if opcode == Opcode::session_next_callback {
            // The thread of callbacks waits forever.
            loop {
                std::thread::park();
            }
        }
        if opcode == Opcode::session_wait {
            self.serve();
        }
        let mut lies = self.lies();
        if !self.started.load(Ordering::Relaxed) || self.honest.load(Ordering::Relaxed) {
            return Ok(honest(opcode, results, reply));
        }
        if !lies.script.more() {
            lies.replies += 1;
            let afterwards = if lies.replies > MAX_REPLIES {
                panic!("{} is asked for again and again", opcode.name());
            } else {
                lies.afterwards
            };
            return Ok(match afterwards {
                Afterwards::Refuses => put(reply, 999, 0, &[], 0),
                Afterwards::Zeros => put(reply, 0, 0, &vec![0; results], 0),
                Afterwards::Ones => {
                    fill(output, 0xff);
                    let bulk = if header.flags & 2 != 0 { header.bulk_out_bytes } else { 0 };
                    put(reply, 0, 0, &vec![0xff; results], bulk as usize)
                }
            });
        }
        let script = &mut lies.script;
        let how = script.byte();
        if how & 0x80 != 0 {
            self.write_lanes(script);
        }
        if how & 0x40 != 0 {
            fill(output, script.byte());
        }
        // One in eight has nothing right.
        if how & 7 == 7 {
            let bytes = (script.number() as usize).min(reply.len());
            reply[..bytes.min(64)].fill_with(|| script.byte());
            return Ok(if how & 0x20 != 0 { script.number() as usize } else { bytes });
        }
        let mut values = Vec::new();
        while values.len() < results {
            values.extend_from_slice(&script.number().to_le_bytes()[..if how & 8 != 0 { 4 } else { 8 }]);
        }
        values.truncate(results);
        if opcode == Opcode::cuModuleGetGlobal_v2 {
            // The worker chooses the size of a managed variable, up to a limit: otherwise it would be all memory that
            // a target may have.
            values[12..16].fill(0);
            values[11] &= 3;
        }
        let bulk = if how & 0x10 != 0 { header.bulk_out_bytes } else { script.number() };
        let flags = if how & 7 == 6 { u32::from(script.byte()) } else { 0 };
        let result = if how & 7 == 5 { script.number() as i32 } else { 0 };
        let bytes = put(reply, result, flags, &values, bulk.min(PAYLOAD_BYTES as u64) as usize);
        for at in 0..bytes.saturating_sub(size_of::<ResultHeader>() + results).min(64) {
            reply[size_of::<ResultHeader>() + results + at] = script.byte();
        }
        Ok(bytes)
    }
}

/// Writes a reply, and returns its length. Data that does not fit is cut off, though the head announces it.
fn put(room: &mut [u8], result: i32, flags: u32, results: &[u8], bulk: usize) -> usize {
    let head =
        ResultHeader { result, results_bytes: results.len() as u32, flags, bulk_out_bytes: bulk as u32 };
    let all = [head.as_bytes(), results].concat();
    let bytes = all.len().min(room.len());
    room[..bytes].copy_from_slice(&all[..bytes]);
    (all.len() + bulk).min(room.len())
}

fn fill(memory: UserMemory, with: u8) {
    if memory.bytes == 0 {
        return;
    }
    // SAFETY: the memory that a request lends for as long as it lasts.
    unsafe { std::ptr::write_bytes(memory.address as *mut u8, with, memory.bytes) };
}

/// Returns the answers that a program needs to begin with.
fn honest(opcode: Opcode, results: usize, room: &mut [u8]) -> usize {
    let mut values = vec![0; results];
    if opcode == Opcode::session_hello {
        let version = CALL_TABLE_VERSION.to_le_bytes();
        values.copy_from_slice(&[version, 13_000_i32.to_le_bytes(), 1_u32.to_le_bytes()].concat());
    }
    put(room, 0, 0, &values, 0)
}

/// The way to the worker, as the library has it.
#[derive(Debug)]
pub struct Way(pub Arc<Worker>);

impl Transport for Way {
    fn limits(&self) -> Limits {
        Limits {
            payload_bytes: PAYLOAD_BYTES,
            bulk_bytes: BULK_BYTES,
            copy_bytes: BULK_BYTES,
            outstanding: 8,
            kept_bytes: 1 << 30,
        }
    }

    fn pieces(&self, _: UserMemory) -> Pieces {
        Pieces { piece_bytes: BULK_BYTES, at_once: 1 }
    }

    unsafe fn call(&self, request: Request<'_>) -> Result<Reply, ClientError> {
        let (header, _) = CallHeader::read_from_prefix(request.payload).map_err(|_| ClientError::Protocol)?;
        let output = if request.keep { UserMemory::NONE } else { request.output };
        let bytes = self.0.answer(&header, output, request.reply)?;
        let mut lies = self.0.lies();
        lies.tags += u64::from(request.keep);
        Ok(Reply { bytes, tag: if request.keep { lies.tags } else { 0 } })
    }

    fn unpin(&self, _: u64) -> Result<(), ClientError> {
        Ok(())
    }

    fn share(&self, bytes: usize) -> Result<(*mut u8, u64), ClientError> {
        assert_eq!(bytes, LANE_BYTES);
        let at = anonymous(std::ptr::null_mut(), bytes, 0)?;
        // SAFETY: mapped just above, for good; the head of a lane is of atomics, and zeros are valid.
        let header = unsafe { &*at.cast::<Header>() };
        // SAFETY: mapped just above, for good, and as long as a lane.
        let consumer = Consumer::set_up(unsafe { LaneMemory::new(at) });
        self.0.lanes().push(Lane { header, room: at as usize + REPLY_OFFSET, consumer, last: 0 });
        Ok((at, at as u64))
    }

    fn map(&self, memory: UserMemory) -> Result<(), ClientError> {
        anonymous(memory.address as *mut _, memory.bytes, libc::MAP_FIXED).map(drop)
    }

    fn unmap(&self, memory: UserMemory) {
        // SAFETY: the caller owns the addresses, and keeps them.
        unsafe { libc::mprotect(memory.address as *mut _, memory.bytes, libc::PROT_NONE) };
    }

    fn adopt(&self, _: UserMemory, _: bool) -> Result<(), ClientError> {
        Ok(())
    }

    fn release(&self, _: UserMemory) {}

    fn in_child(&self) {}
}

fn anonymous(at: *mut libc::c_void, bytes: usize, flags: i32) -> Result<*mut u8, ClientError> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, or one in place of addresses that the caller of `map` owns.
    let at = unsafe { libc::mmap(at, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(std::io::Error::last_os_error().into()) } else { Ok(at.cast()) }
}
