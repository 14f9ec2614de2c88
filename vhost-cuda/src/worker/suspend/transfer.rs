// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies contents between the device and the store, by several threads through pinned buffers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::digests::Digest;
use super::store::Room;
use crate::worker::gpu::CuResult;

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
    /// Starts to fill a chunk of the device with zeros, behind the copies of a buffer.
    ///
    /// # Safety
    ///
    /// As for [`Self::fetch`].
    unsafe fn clear(&mut self, buffer: usize, address: u64) -> CuResult<()>;
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

/// Copies all pieces to their rooms.
///
/// Errors: those of the first copy that fails. The device's memory is as before.
///
/// # Safety
///
/// The pieces must be the session's memory, which no work uses and which stays mapped, and each one in the list once. Their
/// rooms must be those of a store that nobody else uses.
pub unsafe fn fetch_all(carriers: &impl Carriers, pieces: &[Piece]) -> CuResult<()> {
    each(carriers, pieces, |carrier, next| {
        let mut started = VecDeque::with_capacity(BUFFERS);
        let mut buffer = 0;
        loop {
            while started.len() < BUFFERS
                && let Some(piece) = next()
            {
                // SAFETY: the caller of `fetch_all` promises memory of the session that stays mapped; dropping the carrier
                // waits for the copy.
                unsafe { carrier.fetch(buffer, piece.address) }?;
                started.push_back((buffer, piece.room));
                buffer = (buffer + 1) % BUFFERS;
            }
            let Some((buffer, room)) = started.pop_front() else { return Ok(()) };
            let contents = carrier.wait(buffer)?;
            if let Some(room) = room {
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
    each(carriers, pieces, |carrier, next| {
        let mut buffer = 0;
        while let Some(&Piece { address, room }) = next() {
            match room {
                Some(room) => {
                    let contents = carrier.wait(buffer)?;
                    // SAFETY: as in `fetch_all`.
                    unsafe {
                        room.load(contents);
                        carrier.send(buffer, address)
                    }?;
                }
                // SAFETY: as in `fetch_all`.
                None => unsafe { carrier.clear(buffer, address) }?,
            }
            buffer = (buffer + 1) % BUFFERS;
        }
        (0..BUFFERS).try_for_each(|buffer| carrier.wait(buffer).map(drop))
    })
}

/// Runs `body` on several threads, each with a carrier and a function that returns the next piece, until there is none.
fn each<C: Carriers>(
    carriers: &C,
    pieces: &[Piece],
    body: impl for<'p> Fn(&mut C::Carrier, &mut dyn FnMut() -> Option<&'p Piece>) -> CuResult<()> + Sync,
) -> CuResult<()> {
    if pieces.is_empty() {
        return Ok(());
    }
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    let run = || {
        let mut take = || {
            let index = next.fetch_add(1, Ordering::Relaxed);
            pieces.get(index)
        };
        let outcome = carriers.carrier().and_then(|mut carrier| body(&mut carrier, &mut take));
        if let Err(error) = outcome {
            // The others stop after the pieces that they have begun.
            next.store(pieces.len(), Ordering::Relaxed);
            failure.lock().get_or_insert(error);
        }
    };
    let processors = thread::available_parallelism().map_or(1, |count| count.get());
    let threads = (processors / carriers.devices().max(1)).clamp(1, MAX_THREADS).min(pieces.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            // Without a thread the others copy its pieces.
            let _ = thread::Builder::new().name("suspend-copy".into()).spawn_scoped(scope, run);
        }
        run();
    });
    failure.into_inner().map_or(Ok(()), Err)
}
