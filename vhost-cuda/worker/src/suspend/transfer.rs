// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies contents between the device and the store: the device does it alone where rooms are registered with the driver, and several
//! threads do it through pinned buffers elsewhere.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::digests::Digest;
use super::lent::Offer;
use super::room::{CHUNK_BYTES, Room};
use crate::gpu::{CuResult, CudaError};

/// The maximum number of threads for a device: about as many as fill its link.
const MAX_THREADS: usize = 12;
/// Buffers per thread, so that the device copies while the thread does.
pub const BUFFERS: usize = 3;

/// A chunk of the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its first address.
    pub address: u64,
    /// The room for its contents. `None` for zeros.
    pub room: Option<Room>,
}

/// The copies of one thread, through [`BUFFERS`] buffers. A trait, so that tests can replace it. Dropping it waits for copies.
pub trait Carrier {
    /// Starts a copy of a chunk from the device into a buffer.
    ///
    /// # Safety
    ///
    /// The device's memory must be the session's, and mapped until the copy has ended.
    unsafe fn fetch(&mut self, buffer: usize, address: u64) -> CuResult<()>;
    /// Starts a copy of a chunk from a buffer to the device.
    ///
    /// # Safety
    ///
    /// As for [`Self::fetch`].
    unsafe fn send(&mut self, buffer: usize, address: u64) -> CuResult<()>;
    /// Starts to fill a chunk of the device with zeros. [`Self::finish`] waits for it.
    ///
    /// # Safety
    ///
    /// As for [`Self::fetch`].
    unsafe fn clear(&mut self, address: u64) -> CuResult<()>;
    /// Starts a copy of `chunks` chunks from the device straight to rooms. [`Self::finish`] waits for it.
    ///
    /// # Safety
    ///
    /// As for [`Self::fetch`]. So many rooms must lie one after the other from `room` on, registered, and used by nobody else until the
    /// copy has ended.
    unsafe fn fetch_to(&mut self, room: Room, address: u64, chunks: usize) -> CuResult<()>;
    /// Starts a copy of `chunks` chunks straight from rooms to the device.
    ///
    /// # Safety
    ///
    /// As for [`Self::fetch_to`].
    unsafe fn send_from(&mut self, room: Room, address: u64, chunks: usize) -> CuResult<()>;
    /// Waits for all copies.
    fn finish(&mut self) -> CuResult<()>;
    /// Returns the digests of the chunks at these addresses. No copies may be under way.
    ///
    /// # Safety
    ///
    /// The chunks must be the session's memory, mapped, and used by no work.
    unsafe fn digests(&mut self, addresses: &[u64]) -> CuResult<Vec<Digest>>;
    /// Waits for the copies of a buffer, and returns it.
    fn wait(&mut self, buffer: usize) -> CuResult<&mut [u8]>;
}

/// Makes a [`Carrier`] for each thread.
pub trait Carriers: Sync {
    /// The copies of a thread.
    type Carrier: Carrier;
    /// Lets the calling thread use the driver for this device. Errors: the driver's.
    fn enter(&self) -> CuResult<()>;
    /// Prepares the calling thread for copies, as [`Self::enter`] does. Errors: the driver's.
    fn carrier(&self) -> CuResult<Self::Carrier>;
    /// Returns the number of devices that copy at the same time: they share the processors.
    fn devices(&self) -> usize;
    /// Returns the digest of a chunk of zeros.
    fn zeros(&self) -> Digest;
}

/// Copies all pieces to their rooms, or to the files of `offer`.
///
/// Errors: those of the first copy that fails. The device's memory is as before.
///
/// # Safety
///
/// The pieces must be the session's memory, which no work uses and which stays mapped, and each one in the list once. Their
/// rooms must be those of a store that nobody else uses.
pub unsafe fn fetch_all(carriers: &impl Carriers, pieces: &[Piece], offer: Option<&Offer>) -> CuResult<()> {
    let is_direct = |piece: &Piece| offer.is_none() && piece.room.is_some_and(Room::is_registered);
    let (direct, others): (Vec<Piece>, Vec<Piece>) =
        pieces.iter().copied().partition(|piece| is_direct(piece));
    if !direct.is_empty() {
        let mut carrier = carriers.carrier()?;
        for run in runs(&direct) {
            let Some(room) = run[0].room else { continue };
            // SAFETY: the caller promises memory of the session that stays mapped, and rooms that nobody else uses; dropping the carrier
            // waits for the copies. The rooms of a run are one after the other.
            unsafe { carrier.fetch_to(room, run[0].address, run.len()) }?;
        }
        carrier.finish()?;
    }
    each(carriers, &others, MAX_THREADS, |carrier, next| {
        let mut started = VecDeque::with_capacity(BUFFERS);
        let mut buffer = 0;
        loop {
            while started.len() < BUFFERS
                && let Some(piece) = next()
            {
                // SAFETY: the caller of `fetch_all` promises memory of the session that stays mapped; dropping the carrier
                // waits for the copy.
                unsafe { carrier.fetch(buffer, piece.address) }?;
                started.push_back((buffer, *piece));
                buffer = (buffer + 1) % BUFFERS;
            }
            let Some((buffer, Piece { address, room })) = started.pop_front() else { return Ok(()) };
            let contents = carrier.wait(buffer)?;
            if let Some(room) = room
                && !offer.is_some_and(|offer| offer.take(address, contents))
            {
                // SAFETY: the caller promises a store that nobody else uses; each piece is one thread's.
                unsafe { room.store(contents) };
            }
        }
    })
}

/// Copies all pieces from their rooms, and fills those without room with zeros.
///
/// Errors: those of the first copy that fails.
///
/// # Safety
///
/// As for [`fetch_all`].
pub unsafe fn send_all(carriers: &impl Carriers, pieces: &[Piece]) -> CuResult<()> {
    let is_direct = |piece: &Piece| piece.room.is_none_or(Room::is_registered);
    let (direct, others): (Vec<Piece>, Vec<Piece>) =
        pieces.iter().copied().partition(|piece| is_direct(piece));
    if !direct.is_empty() {
        let mut carrier = carriers.carrier()?;
        for run in runs(&direct) {
            // SAFETY: as in `fetch_all`.
            unsafe {
                match run[0].room {
                    Some(room) => carrier.send_from(room, run[0].address, run.len()),
                    None => carrier.clear(run[0].address),
                }
            }?;
        }
        carrier.finish()?;
    }
    each(carriers, &others, MAX_THREADS, |carrier, next| {
        let mut buffer = 0;
        while let Some(&Piece { address, room }) = next() {
            let Some(room) = room else { continue };
            let contents = carrier.wait(buffer)?;
            // SAFETY: as in `fetch_all`.
            unsafe {
                room.load(contents).map_err(|_| CudaError::OPERATING_SYSTEM)?;
                carrier.send(buffer, address)
            }?;
            buffer = (buffer + 1) % BUFFERS;
        }
        (0..BUFFERS).try_for_each(|buffer| carrier.wait(buffer).map(drop))
    })
}

/// Returns the pieces in runs that one copy carries: chunks one after the other on the device, whose rooms are one after the other, too.
fn runs(pieces: &[Piece]) -> impl Iterator<Item = &[Piece]> {
    pieces.chunk_by(|one, next| {
        let is_next = one.address + CHUNK_BYTES == next.address;
        is_next && one.room.zip(next.room).is_some_and(|(one, next)| one.is_before(next))
    })
}

/// Runs `body` on up to `most` threads, each with a carrier and a function that returns the next piece, until there is none.
///
/// Errors: those of the first thread that fails.
pub fn each<C: Carriers, T: Sync, E: From<CudaError> + Send>(
    carriers: &C,
    pieces: &[T],
    most: usize,
    body: impl for<'p> Fn(&mut C::Carrier, &mut dyn FnMut() -> Option<&'p T>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    if pieces.is_empty() {
        return Ok(());
    }
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    let run = || {
        let mut take = || {
            let index = next.fetch_add(1, Ordering::Relaxed);
            pieces.get(index)
        };
        let carrier = carriers.carrier().map_err(E::from);
        let outcome = carrier.and_then(|mut carrier| body(&mut carrier, &mut take));
        if let Err(error) = outcome {
            // The others stop after the pieces that they have begun.
            next.store(pieces.len(), Ordering::Relaxed);
            failure.lock().get_or_insert(error);
        }
    };
    let processors = thread::available_parallelism().map_or(1, |count| count.get());
    let threads = (processors / carriers.devices().max(1)).clamp(1, most).min(pieces.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            // Without a thread the others copy its pieces.
            let _ = thread::Builder::new().name("suspend-copy".into()).spawn_scoped(scope, run);
        }
        run();
    });
    failure.into_inner().map_or(Ok(()), Err)
}
