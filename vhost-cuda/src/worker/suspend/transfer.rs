// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies contents between the device and the store, by several threads through pinned buffers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::store::{CHUNK_BYTES, Store};
use crate::worker::gpu::{CuResult, CudaError};

/// The maximum number of threads: about as many as fill the link.
const MAX_THREADS: usize = 8;
/// Buffers per thread, so that the device copies while the thread does.
pub const BUFFERS: usize = 3;

/// A chunk of the device's memory, and its position in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its first address.
    pub address: u64,
    /// Its size in bytes, at most [`CHUNK_BYTES`].
    pub bytes: u64,
    /// The position in the store.
    pub at: u64,
}

impl Piece {
    /// The chunks of `bytes` bytes at `address`, which are stored from `at` on.
    pub fn all(address: u64, bytes: u64, at: u64) -> impl Iterator<Item = Self> {
        let starts = (0..bytes).step_by(CHUNK_BYTES as usize);
        starts.map(move |offset| Self {
            address: address + offset,
            bytes: CHUNK_BYTES.min(bytes - offset),
            at: at + offset,
        })
    }
}

/// The reason for which a copy has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The driver's error.
    Driver(CudaError),
    /// The store's budget does not suffice, or the host has no memory.
    HostMemory,
    /// Contents in the store have changed.
    Differs,
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Self {
        Self::Driver(error)
    }
}

/// The copies of one thread, through [`BUFFERS`] buffers. A trait, so that tests can replace it. Dropping it waits for copies.
pub trait Carrier {
    /// Starts a copy from the device into a buffer.
    ///
    /// # Safety
    ///
    /// The device's memory must be the session's, and mapped until the copy has ended.
    unsafe fn fetch(&mut self, buffer: usize, piece: &Piece) -> CuResult<()>;
    /// Starts a copy from a buffer to the device.
    ///
    /// # Safety
    ///
    /// As for [`Self::fetch`].
    unsafe fn send(&mut self, buffer: usize, piece: &Piece) -> CuResult<()>;
    /// Waits for the copies of a buffer, and returns it.
    fn wait(&mut self, buffer: usize) -> CuResult<&mut [u8]>;
}

/// Makes a [`Carrier`] for each thread.
pub trait Carriers: Sync {
    /// The copies of a thread.
    type Carrier: Carrier;
    /// Prepares the calling thread. Errors: the driver's.
    fn carrier(&self) -> CuResult<Self::Carrier>;
}

/// Copies all pieces to the store.
///
/// Errors: those of the first copy that fails. The device's memory is as before.
///
/// # Safety
///
/// The pieces must be the session's memory, which no work uses and which stays mapped, and chunks of the store, each one once.
pub unsafe fn fetch_all(carriers: &impl Carriers, pieces: &[Piece], store: &Store) -> Result<(), Failure> {
    each(carriers, pieces, |carrier, next| {
        let mut started = VecDeque::with_capacity(BUFFERS);
        let mut buffer = 0;
        loop {
            while started.len() < BUFFERS
                && let Some(piece) = next()
            {
                // SAFETY: the caller of `fetch_all` promises memory of the session that stays mapped; dropping the carrier
                // waits for the copy.
                unsafe { carrier.fetch(buffer, piece) }?;
                started.push_back((buffer, piece));
                buffer = (buffer + 1) % BUFFERS;
            }
            let Some((buffer, piece)) = started.pop_front() else { return Ok(()) };
            let contents = &carrier.wait(buffer)?[..piece.bytes as usize];
            store.store(piece.at, contents).map_err(|_| Failure::HostMemory)?;
        }
    })
}

/// Copies all pieces from the store.
///
/// Errors: those of the first copy that fails.
///
/// # Safety
///
/// As for [`fetch_all`].
pub unsafe fn send_all(carriers: &impl Carriers, pieces: &[Piece], store: &Store) -> Result<(), Failure> {
    each(carriers, pieces, |carrier, next| {
        let mut buffer = 0;
        while let Some(piece) = next() {
            let contents = &mut carrier.wait(buffer)?[..piece.bytes as usize];
            if !store.load(piece.at, contents) {
                return Err(Failure::Differs);
            }
            // SAFETY: as in `fetch_all`.
            unsafe { carrier.send(buffer, piece) }?;
            buffer = (buffer + 1) % BUFFERS;
        }
        (0..BUFFERS).try_for_each(|buffer| carrier.wait(buffer).map(drop))?;
        Ok(())
    })
}

/// Runs `body` on several threads, each with a carrier and a function that returns the next piece, until there is none.
fn each<C: Carriers>(
    carriers: &C,
    pieces: &[Piece],
    body: impl for<'p> Fn(&mut C::Carrier, &mut dyn FnMut() -> Option<&'p Piece>) -> Result<(), Failure> + Sync,
) -> Result<(), Failure>
where
{
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    let run = || {
        let mut take = || {
            let index = next.fetch_add(1, Ordering::Relaxed);
            pieces.get(index)
        };
        let outcome =
            carriers.carrier().map_err(Failure::from).and_then(|mut carrier| body(&mut carrier, &mut take));
        if let Err(error) = outcome {
            // The others stop after the pieces that they have begun.
            next.store(pieces.len(), Ordering::Relaxed);
            failure.lock().get_or_insert(error);
        }
    };
    let processors = thread::available_parallelism().map_or(1, |count| count.get());
    let threads = MAX_THREADS.min(processors).min(pieces.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            // Without a thread the others copy its pieces.
            let _ = thread::Builder::new().name("suspend-copy".into()).spawn_scoped(scope, run);
        }
        run();
    });
    failure.into_inner().map_or(Ok(()), Err)
}
