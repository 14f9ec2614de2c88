// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contents of sessions that go ahead of their machine, while it runs. A front-end that wants them asks for the state of a device whose
//! queues run. It gets records: how much is still to come, and pieces of a stream for the other daemon. The stream begins with a
//! head of its own. Then come parts: [`kind::AHEAD`] before the chunks of a session, and [`kind::LAST`].
//!
//! The sessions take turns. Each pass over one sends the chunks that have changed since the last one. The pipe is read no faster than the
//! front-end may send, and so the worker waits. When the machine stops, the pass ends, and the rest goes with the state.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
#[cfg(any(test, fuzzing))]
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use log::{debug, error, info};
use vhost_cuda_common::link::CHUNK_BYTES;
use vhost_cuda_common::parts::{self, HEAD_BYTES, kind, malformed};
use zerocopy::FromBytes;

use crate::confine::threads;
use crate::front_end::device::Device;
use crate::front_end::patient::{self, Attended, Passing, Patient, widen};
use crate::sessions::session::Session;

/// The head of the stream: letters and a version.
const HEAD: [u8; 12] = *b"VCUDAHED\x01\0\0\0";
/// The least pause between two rounds. It is longer where a round takes longer, so that digests take a small part of the card's time.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_ROUNDS: u32 = 4;
/// The pause between two looks whether the machine has stopped.
const LOOK: Duration = Duration::from_millis(5);

/// The maximum number of threads that take chunks, and of those that wait for each: this bounds the memory for a transfer.
const MAX_THREADS: usize = 6;
const QUEUED: usize = 2;

/// Returns whether this is the head of contents that have come ahead.
pub fn is_head(head: &[u8]) -> bool {
    head == HEAD
}

/// The records for a front-end.
struct Records<W> {
    to: W,
    /// The chunks that each session has still to send, as far as that is known, by its label.
    pending: BTreeMap<u64, u64>,
}

impl<W: Write> Records<W> {
    /// Writes a piece of the stream, which may be nothing, and how much is still to come.
    fn put(&mut self, piece: &[u8]) -> io::Result<()> {
        self.put_head(piece.len())?;
        self.to.write_all(piece)
    }

    /// Does the same, but for the piece, which is `bytes` long.
    fn put_head(&mut self, bytes: usize) -> io::Result<()> {
        let chunks = self.pending.values().fold(0_u64, |sum, some| sum.saturating_add(*some));
        let pending = chunks.saturating_mul(CHUNK_BYTES);
        self.to.write_all(&[(bytes as u64).to_le_bytes(), pending.to_le_bytes()].concat())
    }

    fn put_part(&mut self, kind: u16, contents: &[u8]) -> io::Result<()> {
        self.put(&[&parts::head(kind, &[contents])?[..], contents].concat())
    }
}

/// How far the contents of one session have gone ahead.
#[derive(Default)]
struct Progress {
    has_begun: bool,
    /// Its contents do not go ahead any more.
    is_over: bool,
    /// A chunk may be lost that its worker has sent.
    is_cut: bool,
}

/// Sends contents until the machine stops. Returns the labels of the sessions that need not send them again.
///
/// Errors: those of `to`.
pub fn send(device: &Arc<Device>, to: File) -> io::Result<HashSet<u64>> {
    let sent = rounds(device, to);
    if sent.is_err() {
        device.end_ahead();
    }
    sent
}

fn rounds(device: &Device, to: File) -> io::Result<HashSet<u64>> {
    widen(&to);
    let to = Attended::new(to, || device.is_connected());
    let mut records = Records { to, pending: BTreeMap::new() };
    let mut all = BTreeMap::<u64, Progress>::new();
    let sessions = || device.sessions().into_iter().filter(|session| session.goes_on());
    for session in sessions() {
        records.pending.insert(session.label(), session.device_memory().div_ceil(CHUNK_BYTES));
    }
    records.put(&HEAD)?;
    while !device.is_stopped() {
        if !device.is_connected() {
            // Any other process may read its pipe on.
            return Err(io::Error::new(ErrorKind::ConnectionAborted, "the front-end has gone"));
        }
        let begun = Instant::now();
        let mut sent = 0;
        let now: Vec<_> = sessions().collect();
        records.pending.retain(|label, _| now.iter().any(|session| session.label() == *label));
        for session in now {
            let progress = all.entry(session.label()).or_default();
            if progress.is_over || device.is_stopped() || !session.can_go_ahead() {
                // It goes with the stop, however long that is put off.
                records.pending.remove(&session.label());
                continue;
            }
            match pass(device, &session, !progress.has_begun, &mut records)? {
                Ok(None) => continue,
                Ok(Some(bytes)) => sent += bytes,
                Err((reason, is_cut)) => {
                    debug!("{}: contents do not go ahead: {reason}", session.describe());
                    (progress.is_over, progress.is_cut) = (true, is_cut);
                }
            }
            progress.has_begun = true;
        }
        // The front-end may have gone.
        records.put(&[])?;
        let until =
            Instant::now() + if sent > 0 { PAUSE / 10 } else { PAUSE.max(PAUSE_ROUNDS * begun.elapsed()) };
        while Instant::now() < until && !device.is_stopped() && records.to.is_read() {
            thread::sleep(LOOK);
        }
    }
    records.put_part(kind::LAST, &[])?;
    let whole = all.into_iter().filter(|(_, progress)| progress.has_begun && !progress.is_cut);
    Ok(whole.map(|(label, _)| label).collect())
}

/// Has the worker of a session write what has changed, and passes it on. Returns the bytes, `None` while the session moves, or the
/// reason for which its contents do not go ahead, and whether a chunk may be lost on the way.
///
/// Errors: those of the front-end's pipe.
fn pass(
    device: &Device,
    session: &Arc<Session>,
    is_first: bool,
    records: &mut Records<Attended<impl Fn() -> bool + Send>>,
) -> io::Result<Result<Option<u64>, (String, bool)>> {
    let (from, pipe) = io::pipe()?;
    widen(&pipe);
    let (written, passed) = thread::scope(|scope| {
        let pass = move || {
            threads::read_foreign_bytes();
            let passed = pass_on(Patient::new(OwnedFd::from(from).into()), session, records);
            if matches!(&passed, Err(Passing::From(error)) if error.kind() == ErrorKind::TimedOut) {
                error!("{}: ended: its worker has stopped to write its contents", session.describe());
                session.end_worker();
            }
            passed
        };
        let passing = thread::Builder::new().name("device-ahead".into()).spawn_scoped(scope, pass)?;
        let written = device.settings.suspender.send_ahead(session, pipe.into(), is_first);
        let passed = passing.join().map_err(|_| io::Error::other("its thread has failed"))?;
        io::Result::Ok((written, passed))
    })?;
    match (passed, written) {
        (Err(Passing::To(error)), _) => Err(error),
        (_, Ok(None)) => Ok(Ok(None)),
        (Err(Passing::From(error)), written) => {
            let is_cut = error.kind() != ErrorKind::UnexpectedEof;
            Ok(Err((written.err().unwrap_or_else(|| error.to_string()), is_cut)))
        }
        (Ok(_), Err(reason)) => Ok(Err((reason, false))),
        (Ok(bytes), Ok(_)) => Ok(Ok(Some(bytes))),
    }
}

/// Passes the chunks of one pass on. Returns their bytes.
fn pass_on(
    mut from: Patient,
    session: &Session,
    records: &mut Records<Attended<impl Fn() -> bool>>,
) -> Result<u64, Passing> {
    let (mut part, mut found, mut bytes) = (Vec::new(), 0, 0);
    loop {
        let now = parts::copy_head(&mut from, &mut part).map_err(Passing::From)?;
        if now != kind::CHUNK {
            from.read_exact(&mut part[HEAD_BYTES..]).map_err(Passing::From)?;
        }
        match now {
            kind::PASS => {
                let (_, contents) = parts::parse(&part).map_err(Passing::From)?;
                let chunks = u64::read_from_bytes(contents);
                found = chunks.map_err(|_| Passing::From(malformed("a pass has another head")))?;
                // As many may have changed when all are sent. A worker cannot keep its machine from moving.
                let memory = session.device_memory().max(session.residence().moves().stored_bytes);
                let most = memory.div_ceil(CHUNK_BYTES);
                found = found.min(most);
                records.pending.insert(session.label(), found.saturating_mul(2));
                records.put_part(kind::AHEAD, &session.id().to_le_bytes()).map_err(Passing::To)?;
            }
            kind::CHUNK => {
                bytes += CHUNK_BYTES;
                if let Some(pending) = records.pending.get_mut(&session.label()) {
                    *pending = found.max(pending.saturating_sub(1));
                }
                records.put_head(part.len()).map_err(Passing::To)?;
                records.to.write_all(&part[..HEAD_BYTES]).map_err(Passing::To)?;
                let mut left = part.len() - HEAD_BYTES;
                if let Err(error) = patient::pass(&from, &records.to, &mut left) {
                    // The record must be whole. The other daemon finds that the chunk is not.
                    records.to.write_all(&vec![0; left]).map_err(Passing::To)?;
                    return Err(error);
                }
            }
            kind::END => return Ok(bytes),
            _ => return Err(Passing::From(malformed("its worker has written a part that is no chunk"))),
        }
    }
}

/// Receives contents behind the head of their stream, for sessions that come later. Nothing of it is trusted. If the stream ends before it
/// is whole, they are given up: the machine does not come.
///
/// Errors: those of `from`; the reason for which they are refused.
pub fn receive(device: &Device, from: impl Read) -> io::Result<()> {
    device.forget_arrived();
    let received = read(from, |session, address, chunk| match chunk {
        Some(chunk) => device.take_ahead_of(session, address, chunk),
        None => {
            device.forget_ahead_of(session, address);
            Ok(())
        }
    });
    match received {
        Ok(bytes) => {
            info!("connection {}: {} MiB of contents have come ahead", device.connection, bytes >> 20);
            Ok(())
        }
        Err(error) => {
            device.forget_arrived();
            // The source has given the transfer up, and sends all with the state.
            if error.kind() == ErrorKind::UnexpectedEof { Ok(()) } else { Err(error) }
        }
    }
}

/// A chunk that has come: its session, and its part.
type Come = (u64, Vec<u8>);

/// Reads the parts of a stream. Several threads check the chunks, and have them taken: a damaged one without its contents. Returns their bytes.
fn read(from: impl Read, take: impl Fn(u64, u64, Option<&[u8]>) -> io::Result<()> + Sync) -> io::Result<u64> {
    let threads = thread::available_parallelism().map_or(1, |count| count.get()).clamp(1, MAX_THREADS);
    let (give_back, free) = sync_channel(threads * (QUEUED + 2));
    thread::scope(|scope| {
        let begin = |_| {
            let (sender, chunks) = sync_channel::<Come>(QUEUED);
            let (take, give_back) = (&take, give_back.clone());
            let run = move || take_all(chunks, give_back, take);
            let thread = thread::Builder::new().name("device-chunks".into()).spawn_scoped(scope, run);
            thread.map(|thread| (sender, thread))
        };
        let all: io::Result<Vec<_>> = (0..threads).map(begin).collect();
        let (senders, threads): (Vec<_>, Vec<_>) = all?.into_iter().unzip();
        let passed = pass_to(from, &senders, &free);
        drop(senders);
        let joined = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread for its chunks has failed")))
        });
        // All threads end before any error counts, and theirs is the first one.
        let taken: Vec<io::Result<()>> = joined.collect();
        taken.into_iter().collect::<io::Result<()>>()?;
        passed
    })
}

/// Passes chunks on to the threads: those of one address to the same one, in their order. Returns their bytes.
fn pass_to(mut from: impl Read, to: &[SyncSender<Come>], free: &Receiver<Vec<u8>>) -> io::Result<u64> {
    let (mut part, mut session, mut bytes) = (Vec::new(), None, 0);
    loop {
        match (parts::copy(&mut from, &mut part)?, session) {
            (kind::AHEAD, _) => {
                let id = u64::read_from_bytes(parts::parse(&part)?.1);
                session = Some(id.map_err(|_| malformed("a session has another head"))?);
            }
            (kind::CHUNK, Some(session)) => {
                let address = part[HEAD_BYTES..].first_chunk();
                let address = u64::from_le_bytes(*address.ok_or_else(|| malformed("a chunk is too short"))?);
                bytes += (part.len() - HEAD_BYTES - size_of::<u64>()) as u64;
                let next = free.try_recv().unwrap_or_default();
                let thread = (address / CHUNK_BYTES) as usize % to.len();
                if to[thread].send((session, std::mem::replace(&mut part, next))).is_err() {
                    return Err(malformed("a chunk was refused"));
                }
            }
            (kind::LAST, _) if parts::parse(&part)?.1.is_empty() => return Ok(bytes),
            _ => return Err(malformed("a part is at a place where none of its kind can be")),
        }
    }
}

/// Checks chunks, and has them taken. Gives their buffers back.
///
/// Errors: those of `take`.
fn take_all(
    chunks: Receiver<Come>,
    give_back: SyncSender<Vec<u8>>,
    take: impl Fn(u64, u64, Option<&[u8]>) -> io::Result<()>,
) -> io::Result<()> {
    for (session, part) in chunks {
        let (address, chunk) =
            part[HEAD_BYTES..].split_first_chunk().ok_or_else(|| malformed("a chunk is too short"))?;
        take(session, u64::from_le_bytes(*address), parts::parse(&part).is_ok().then_some(chunk))?;
        let _ = give_back.try_send(part);
    }
    Ok(())
}

/// A fuzz target: any bytes as contents that come ahead.
#[cfg(any(test, fuzzing))]
pub(super) fn fuzz(data: &[u8]) {
    let bytes = AtomicU64::new(0);
    if let Ok(all) = read(data, |_, _, chunk| {
        bytes.fetch_add(chunk.map_or(0, <[u8]>::len) as u64, Ordering::Relaxed);
        Ok(())
    }) {
        assert!(all >= bytes.into_inner());
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    fn stream(rows: &[(u16, &[u8])]) -> Vec<u8> {
        let mut stream = Vec::new();
        for (kind, part) in rows {
            parts::write(&mut stream, *kind, &[part]).unwrap();
        }
        stream
    }

    #[test]
    fn chunks_come_with_their_session_or_not_at_all() {
        let (id, chunk) = (7_u64.to_le_bytes(), [&9_u64.to_le_bytes()[..], b"contents"].concat());
        let good = [(kind::AHEAD, &id[..]), (kind::CHUNK, &chunk), (kind::CHUNK, &chunk), (kind::LAST, b"")];
        let taken = Mutex::new(Vec::new());
        let bytes = read(&stream(&good)[..], |session, address, chunk| {
            taken.lock().push((session, address, chunk.map(<[u8]>::to_vec)));
            Ok(())
        });
        assert_eq!((bytes.unwrap(), taken.into_inner()), (16, vec![(7, 9, Some(b"contents".to_vec())); 2]));
        let mut damaged = stream(&good);
        let last = damaged.len() - HEAD_BYTES - 1;
        damaged[last] ^= 1;
        let taken = Mutex::new(Vec::new());
        let bytes = read(&damaged[..], |session, address, chunk| {
            taken.lock().push((session, address, chunk.is_some()));
            Ok(())
        });
        assert_eq!((bytes.unwrap(), taken.into_inner()), (16, vec![(7, 9, true), (7, 9, false)]));
        let wrong: [&[(u16, &[u8])]; 6] = [
            &[(kind::CHUNK, &chunk), (kind::LAST, b"")],
            &[(kind::AHEAD, &id[1..]), (kind::LAST, b"")],
            &[(kind::AHEAD, &id), (kind::CHUNK, b"short"), (kind::LAST, b"")],
            &[(kind::AHEAD, &id), (kind::PASS, &id), (kind::LAST, b"")],
            &[(kind::AHEAD, &id), (kind::LAST, b"x")],
            &[(kind::AHEAD, &id), (kind::CHUNK, &chunk)],
        ];
        for wrong in wrong {
            assert!(read(&stream(wrong)[..], |_, _, _| Ok(())).is_err(), "{wrong:?}");
        }
        let full = |_, _, _: Option<&[u8]>| Err(io::ErrorKind::OutOfMemory.into());
        assert_eq!(read(&stream(&good)[..], full).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }

    /// More than the queues of all threads hold.
    #[test]
    fn of_several_contents_the_last_ones_count() {
        const ADDRESSES: u64 = 40;
        let mut many = stream(&[(kind::AHEAD, &7_u64.to_le_bytes())]);
        for pass in 0..3_u64 {
            for address in 0..ADDRESSES {
                let chunk = [address * CHUNK_BYTES, pass].map(u64::to_le_bytes).concat();
                parts::write(&mut many, kind::CHUNK, &[&chunk]).unwrap();
            }
        }
        parts::write(&mut many, kind::LAST, &[]).unwrap();
        let taken = Mutex::new(BTreeMap::new());
        let bytes = read(&many[..], |_, address, chunk| {
            taken.lock().insert(address, chunk.unwrap().to_vec());
            Ok(())
        });
        assert_eq!(bytes.unwrap(), 3 * 8 * ADDRESSES);
        let taken = taken.into_inner();
        assert_eq!(taken.len() as u64, ADDRESSES);
        assert!(taken.values().all(|chunk| *chunk == 2_u64.to_le_bytes()));
    }

    #[test]
    fn records_say_how_much_is_to_come() {
        let (mut from, to) = io::pipe().unwrap();
        let mut records = Records { to, pending: [(1, 3), (2, 1)].into() };
        records.put(b"piece").unwrap();
        records.put(&[]).unwrap();
        drop(records);
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        let head = |length: u64| [length.to_le_bytes(), (8_u64 << 20).to_le_bytes()].concat();
        assert_eq!(bytes, [&head(5)[..], b"piece", &head(0)].concat());
    }
}
