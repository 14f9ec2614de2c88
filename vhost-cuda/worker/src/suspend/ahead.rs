// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contents that go ahead of the session's machine, while the session runs (`TO_AHEAD`).
//!
//! A pass looks at the digests of all chunks, and sends those that differ from what was sent last. Kernels may write to a chunk meanwhile,
//! so it is copied to another place of the device first: that copy is what is sent, and its digest is the one that counts. The
//! store keeps it, too, so that the suspension copies only what has changed since.
//!
//! Several threads do that, a few chunks each at a time. Memory that the program frees stays mapped while it is copied on the device, because
//! its table is locked for that time, and moves wait for that. Nothing of the session is locked while the pipe is full.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use log::debug;
use parking_lot::Mutex;
use vhost_cuda_common::link::{AheadTerms, Frame, ahead_terms_of};
use vhost_cuda_common::parts::{self, Contents, kind};
use vhost_cuda_common::recipes::Description;
use virtio_cuda_protocol::transport::REPLY_OK;
use zerocopy::IntoBytes;

use super::digests::Digest;
use super::pages::Pages;
use super::pinned::{InContext, Pinned};
use super::room::{CHUNK, CHUNK_BYTES, Room};
use super::store::{Name, Store};
use super::suspended::Sent;
use super::transfer::{BUFFERS, Carrier, Carriers, each};
use super::{carriers, devices_of};
use crate::gpu::{CuResult, CudaError, Driver};
use crate::memory::parts::Part;
use crate::objects::contexts::Context;
use crate::run::replies::Replies;
use crate::state::SessionState;

/// The maximum number of chunks whose digests are computed while the table of memory is locked.
const LOOK: usize = 512;
/// The maximum number of threads of a pass: more do not fill its pipe faster.
const MAX_THREADS: usize = 4;
/// The number of chunks of a suspended session that are copied at a time.
const SOME: usize = 8;

/// A chunk of the session's memory.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// The address and the bytes of its part.
    part: (u64, u64),
    address: u64,
}

/// The address, digest and contents of a chunk.
type Loaded = (u64, Digest, Vec<u8>);

/// Executes a request to write contents ahead, on a thread of its own. It is always answered.
pub fn start(session: &'static SessionState, frame: &mut Frame, replies: &Arc<Replies>) {
    let id = frame.header.id;
    let answer = move |replies: &Replies, result: Result<u64, String>| {
        let description = match result {
            Ok(bytes) => Description { bytes, ..Description::default() },
            Err(reason) => Description { obstacle: Some(reason), ..Description::default() },
        };
        replies.send(id, &(REPLY_OK, description.to_bytes()));
    };
    let (Some(pipe), Some(terms)) = (frame.file.take(), ahead_terms_of(&frame.payload)) else {
        return answer(replies, Err("a frame without its file, or of the wrong size".to_owned()));
    };
    let theirs = replies.clone();
    let run = move || {
        let written = pass(session, pipe, terms);
        if let Err(reason) = &written {
            debug!("contents do not go ahead: {reason}");
        }
        answer(&theirs, written);
    };
    if let Err(error) = thread::Builder::new().name("ahead".into()).spawn(run) {
        answer(replies, Err(format!("there is no thread for it: {error}")));
    }
}

/// Writes all contents of a session that leaves, but those that were sent and are the same still. Returns their bytes.
///
/// Errors: those of `to`, and of [`Room::load`].
pub fn write(mut to: impl Write, name: Name, store: &Store, sent: &Sent) -> io::Result<u64> {
    let bytes = store.stored_bytes();
    let head = Contents { name, chunks: bytes / CHUNK_BYTES };
    parts::write(&mut to, kind::CONTENTS, &[head.as_bytes()])?;
    let is_there = |address: u64, digest: Digest| sent.get(&address) == Some(&digest);
    let there: Vec<u64> =
        store.rooms().filter(|one| is_there(one.0, one.1)).map(|(address, ..)| address).collect();
    parts::write_rows(&mut to, kind::ARRIVED, &there)?;
    let mut chunk = vec![0; CHUNK];
    for (address, _, room) in store.rooms().filter(|one| !is_there(one.0, one.1)) {
        // SAFETY: a room of the store, which is not changed meanwhile; moves wait.
        unsafe { room.load(&mut chunk) }?;
        parts::write(&mut to, kind::CHUNK, &[&address.to_le_bytes(), &chunk])?;
    }
    parts::write(&mut to, kind::END, &[])?;
    debug!("{} of {} chunks have gone ahead", there.len(), head.chunks);
    Ok(bytes)
}

fn pass(session: &'static SessionState, to: File, terms: AheadTerms) -> Result<u64, String> {
    let mut sent = session.suspension.sent.try_lock().ok_or("another pass is under way")?;
    if terms.is_first != 0 {
        sent.clear();
    }
    if session.devices.len() != 1 {
        return Err("it has several devices".to_owned());
    }
    let is_suspended = session.suspension.suspended.lock().is_some();
    let pass = Pass {
        session,
        budget: terms.budget_bytes,
        output: Mutex::new(Output { to, sent: &mut sent, bytes: 0 }),
    };
    let written = if is_suspended { pass.send_stored() } else { pass.send_changed() };
    written.map_err(|Reason(reason)| reason)?;
    let Output { mut to, bytes, .. } = pass.output.into_inner();
    parts::write(&mut to, kind::END, &[]).map_err(|error| Reason::unwritten(error).0)?;
    Ok(bytes)
}

/// The reason for which contents do not go ahead.
struct Reason(String);

impl Reason {
    fn unwritten(error: io::Error) -> Self {
        Self(format!("the contents cannot be written: {error}"))
    }

    fn unread(error: io::Error) -> Self {
        Self(format!("the contents cannot be read: {error}"))
    }

    fn no_memory(error: io::Error) -> Self {
        Self(format!("there is no memory for its contents: {error}"))
    }
}

impl From<CudaError> for Reason {
    fn from(error: CudaError) -> Self {
        Self(format!("the driver failed: {error}"))
    }
}

/// The stream of a pass, to which its threads write in turn.
struct Output<'a> {
    to: File,
    sent: &'a mut Sent,
    /// The contents that were sent, in bytes.
    bytes: u64,
}

struct Pass<'a> {
    session: &'static SessionState,
    /// The maximum host memory for contents, in bytes.
    budget: u64,
    output: Mutex<Output<'a>>,
}

impl Pass<'_> {
    fn begin(&self, chunks: usize) -> Result<(), Reason> {
        let to = &mut self.output.lock().to;
        parts::write(to, kind::PASS, &[&(chunks as u64).to_le_bytes()]).map_err(Reason::unwritten)
    }

    fn send(&self, address: u64, digest: Digest, chunk: &[u8]) -> Result<(), Reason> {
        let bytes = address.to_le_bytes();
        // Its digest takes as long as the copy to the pipe: threads compute theirs at the same time.
        let head = parts::head(kind::CHUNK, &[&bytes, chunk]).map_err(Reason::unwritten)?;
        let mut output = self.output.lock();
        let mut write = |piece: &[u8]| output.to.write_all(piece).map_err(Reason::unwritten);
        write(&[&head[..], &bytes].concat())?;
        write(chunk)?;
        output.sent.insert(address, digest);
        output.bytes += CHUNK_BYTES;
        Ok(())
    }

    fn is_new(&self, address: u64, digest: Digest) -> bool {
        self.output.lock().sent.get(&address) != Some(&digest)
    }

    /// Sends contents of a session that is suspended, as long as it is.
    fn send_stored(&self) -> Result<(), Reason> {
        let some = || -> io::Result<Option<(Vec<Loaded>, usize)>> {
            let suspended = self.session.suspension.suspended.lock();
            let Some(now) = suspended.as_ref().filter(|now| now.saved.is_none()) else { return Ok(None) };
            let mut new = now.store.rooms().filter(|&(address, digest, _)| self.is_new(address, digest));
            let load = |(address, digest, room): (u64, Digest, Room)| {
                let mut chunk = vec![0; CHUNK];
                // SAFETY: a room of the store, which is not changed while it is locked.
                unsafe { room.load(&mut chunk) }?;
                io::Result::Ok((address, digest, chunk))
            };
            let some = new.by_ref().take(SOME).map(load).collect::<io::Result<Vec<_>>>()?;
            let left = new.count();
            Ok((!some.is_empty()).then_some((some, left)))
        };
        let mut has_begun = false;
        while let Some((some, left)) = some().map_err(Reason::unread)? {
            if self.session.gate.has_left() {
                break;
            }
            if !std::mem::replace(&mut has_begun, true) {
                self.begin(some.len() + left)?;
            }
            some.into_iter().try_for_each(|(address, digest, chunk)| self.send(address, digest, &chunk))?;
        }
        if has_begun { Ok(()) } else { self.begin(0) }
    }

    /// Sends contents of a session that runs, as long as it does.
    fn send_changed(&self) -> Result<(), Reason> {
        let begun = Instant::now();
        let contexts = self.session.contexts.all();
        let Some(carriers) = carriers_of(self.session, &contexts)? else { return self.begin(0) };
        let changed = self.find_changed(&mut carriers.carrier()?, carriers.zeros())?;
        let looked = begun.elapsed();
        self.begin(changed.len())?;
        let some: Vec<&[Found]> = changed.chunks(BUFFERS).collect();
        each(&carriers, &some, MAX_THREADS, |carrier, next| {
            let mut reader = Reader::new(&self.session.gpu, carrier, carriers.zeros())?;
            while let Some(some) = next() {
                if self.session.gate.has_left() {
                    break;
                }
                self.fetch(&mut reader, some)?;
            }
            Ok::<_, Reason>(())
        })?;
        debug!(
            "{} chunks went ahead: {looked:.3?} to find them, {:.3?} in all",
            changed.len(),
            begun.elapsed()
        );
        Ok(())
    }

    /// Returns the chunks that differ from what was sent, and are not zeros.
    fn find_changed(&self, carrier: &mut Pinned<'_>, zeros: Digest) -> Result<Vec<Found>, Reason> {
        let (mut changed, mut next) = (Vec::new(), 0);
        self.session.placed.end_freed(&self.session.gpu);
        loop {
            let suspended = self.session.suspension.suspended.lock();
            if suspended.is_some() || self.session.gate.has_left() {
                return Ok(Vec::new());
            }
            let mut placed = self.session.placed.lock();
            let behind = placed.movable().flat_map(|part| chunks(part)).filter(|one| one.address >= next);
            let some: Vec<Found> = behind.take(LOOK).collect();
            let Some(last) = some.last() else { return Ok(changed) };
            next = last.address + CHUNK_BYTES;
            let addresses: Vec<u64> = some.iter().map(|one| one.address).collect();
            // SAFETY: memory of the session, which stays mapped while its table is locked. Work may write to it: then the digest is that
            // of no contents, and the chunk is sent.
            let digests = unsafe { carrier.digests(&addresses) }?;
            drop((placed, suspended));
            let is_changed =
                |(one, digest): &(Found, Digest)| *digest != zeros && self.is_new(one.address, *digest);
            changed.extend(some.into_iter().zip(digests).filter(is_changed).map(|(one, _)| one));
        }
    }

    /// Copies a few chunks, keeps them in the store, and sends them. Those that are not there any more are left out.
    fn fetch(&self, reader: &mut Reader<'_, '_>, some: &[Found]) -> Result<(), Reason> {
        let suspension = &self.session.suspension;
        let suspended = suspension.suspended.lock();
        if suspended.is_some() {
            return Ok(());
        }
        let mut placed = self.session.placed.lock();
        let is_there: BTreeMap<u64, u64> =
            placed.movable().map(|part| (part.address(), part.bytes)).collect();
        let there = some.iter().filter(|one| is_there.get(&one.part.0) == Some(&one.part.1));
        let there: Vec<Found> = there.copied().collect();
        // SAFETY: memory of the session, which stays mapped while its table is locked.
        unsafe { reader.stage(&there) }?;
        drop((placed, suspended));
        let digests = reader.fetch_staged(there.len())?;
        let all: Vec<(Found, Digest)> = there.into_iter().zip(digests).collect();
        let count = all.iter().filter(|(_, digest)| *digest != reader.zeros).count();
        let mut rooms = Taken {
            pages: &suspension.pages,
            rooms: suspension.pages.take(count).map_err(Reason::no_memory)?.into(),
        };
        for (buffer, room) in reader.buffers(&all).zip(&rooms.rooms) {
            // SAFETY: a room that was taken here, and that nobody else knows.
            unsafe { room.store(reader.carrier.wait(buffer)?) };
        }
        self.keep(&all, reader.zeros, &mut rooms)?;
        for buffer in reader.buffers(&all) {
            let (one, digest) = all[buffer];
            self.send(one.address, digest, reader.carrier.wait(buffer)?)?;
        }
        Ok(())
    }

    /// Keeps chunks whose contents are in these rooms, unless the session was suspended meanwhile.
    fn keep(&self, all: &[(Found, Digest)], zeros: Digest, rooms: &mut Taken<'_>) -> Result<(), Reason> {
        let suspension = &self.session.suspension;
        let suspended = suspension.suspended.lock();
        if suspended.is_some() {
            return Ok(());
        }
        let mut kept = suspension.kept.lock();
        let store = kept.get_or_insert_with(|| Store::new(&suspension.pages));
        if store.stored_bytes() + rooms.rooms.len() as u64 * CHUNK_BYTES > self.budget {
            return Err(Reason("there is not enough host memory for its contents".to_owned()));
        }
        for (one, digest) in all {
            let room = if *digest == zeros { None } else { rooms.rooms.pop_front() };
            store.renew(one.part, one.address, *digest, room).map_err(Reason::no_memory)?;
        }
        Ok(())
    }
}

/// Rooms that are in no store yet.
struct Taken<'a> {
    pages: &'a Pages,
    rooms: VecDeque<Room>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.rooms.drain(..).for_each(|room| self.pages.give(room));
    }
}

fn chunks(part: &Part) -> impl Iterator<Item = Found> {
    let (base, bytes) = (part.address(), part.bytes);
    let addresses = (base..base + bytes).step_by(CHUNK_BYTES as usize);
    addresses.map(move |address| Found { part: (base, bytes), address })
}

/// Returns what makes threads copy from the session's device. `None` for a session without memory that moves, or without a context.
///
/// Errors: the driver's.
fn carriers_of<'a>(session: &'a SessionState, contexts: &[Context]) -> CuResult<Option<InContext<'a>>> {
    let device = devices_of(contexts).next();
    let mut placed = session.placed.lock();
    let all: Vec<&mut Part> = placed.movable().filter(|part| Some(part.device()) == device).collect();
    if all.is_empty() {
        return Ok(None);
    }
    let carriers = carriers(session, contexts, &all, true)?;
    Ok(carriers.into_iter().next().map(|(_, carriers)| carriers))
}

/// Reads the device's memory on one thread, in a context of the session, through a place on the device for [`BUFFERS`] chunks.
///
/// # Invariants
///
/// `staging` is the address of memory of the driver's that only this value uses.
struct Reader<'a, 'b> {
    gpu: &'a Driver,
    carrier: &'b mut Pinned<'a>,
    staging: u64,
    zeros: Digest,
}

impl<'a, 'b> Reader<'a, 'b> {
    /// Errors: the driver's.
    fn new(gpu: &'a Driver, carrier: &'b mut Pinned<'a>, zeros: Digest) -> CuResult<Self> {
        let (staging,) = gpu.cuMemAlloc_v2(BUFFERS * CHUNK)?;
        Ok(Self { gpu, carrier, staging, zeros })
    }

    fn staged(&self, count: usize) -> Vec<u64> {
        (0..count.min(BUFFERS) as u64).map(|index| self.staging + index * CHUNK_BYTES).collect()
    }

    /// Returns the buffers of the chunks that are not zeros.
    fn buffers(&self, all: &[(Found, Digest)]) -> impl Iterator<Item = usize> + use<> {
        let zeros = self.zeros;
        let is_there: Vec<bool> = all.iter().map(|(_, digest)| *digest != zeros).collect();
        (0..is_there.len()).filter(move |buffer| is_there[*buffer])
    }

    /// Copies chunks to the place for them.
    ///
    /// # Safety
    ///
    /// They must be the session's memory, and mapped until this returns.
    unsafe fn stage(&mut self, chunks: &[Found]) -> CuResult<()> {
        for (to, from) in self.staged(chunks.len()).into_iter().zip(chunks) {
            // SAFETY: the place is this value's (invariant); the caller vouches for the chunk, and the copy ends below.
            unsafe { self.carrier.copy(to, from.address) }?;
        }
        self.carrier.finish()
    }

    /// Begins to copy staged chunks to the buffers. Returns their digests.
    fn fetch_staged(&mut self, count: usize) -> CuResult<Vec<Digest>> {
        let staged = self.staged(count);
        // SAFETY: this value's memory (invariant), which no copy uses.
        let digests = unsafe { self.carrier.digests(&staged) }?;
        for (buffer, &from) in staged.iter().enumerate() {
            // SAFETY: as above. It lives until the carrier has waited for its copies (`drop`).
            unsafe { self.carrier.fetch(buffer, from) }?;
        }
        Ok(digests)
    }
}

impl Drop for Reader<'_, '_> {
    fn drop(&mut self) {
        if self.carrier.finish().is_ok() {
            // SAFETY: this value's memory (invariant), whose copies have ended. The context is current on this thread.
            let _ = unsafe { self.gpu.cuMemFree_v2(self.staging) };
        }
    }
}
