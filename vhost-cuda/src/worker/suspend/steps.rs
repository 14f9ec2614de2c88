// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The steps of a move, in both directions.

use super::digests::Digest;
use super::parts::{Memory, Part};
use super::store::{CHUNK_BYTES, Store};
use super::transfer::{Carrier, Carriers, fetch_all, send_all};
use crate::worker::gpu::{CuResult, CudaError};

/// The reason for which nothing has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmoved {
    /// There is no memory that may move.
    Nothing,
    /// The budget does not suffice, or the host has no memory.
    HostMemory,
    /// The device has no memory.
    DeviceMemory,
    /// Contents in the store have changed.
    Differs,
    /// The driver's error.
    Driver(CudaError),
}

impl From<CudaError> for Unmoved {
    fn from(error: CudaError) -> Self {
        Self::Driver(error)
    }
}

/// Copies the contents of all parts to the store, and gives their memory back. Contents that `store` has already, from an earlier
/// suspension, are not copied. Returns the store, and the number of bytes that were copied. If the driver fails to give some
/// memory back, the others come back; if these do not, all are in the store, and that counts as success.
///
/// Errors: the reason; all parts are as before. The store has ended.
///
/// # Safety
///
/// All parts must be the session's, whole chunks, and no work may use any.
pub unsafe fn give_back(
    memory: &impl Memory,
    carriers: &impl Carriers,
    parts: &mut [&mut Part],
    budget: u64,
    mut store: Store,
) -> Result<(Store, u64), Unmoved> {
    if parts.is_empty() {
        return Err(Unmoved::Nothing);
    }
    let places: Vec<_> = parts.iter().map(|part| (part.address(), part.bytes)).collect();
    let chunks = |&(address, bytes): &(u64, u64)| (address..address + bytes).step_by(CHUNK_BYTES as usize);
    let addresses: Vec<u64> = places.iter().flat_map(chunks).collect();
    // SAFETY: the caller promises the session's memory without work.
    let digests = unsafe { digests_of(carriers, &addresses) }?;
    let pieces = store.prepare(&places, &digests, carriers.zeros()).map_err(|_| Unmoved::HostMemory)?;
    if store.stored_bytes() > budget {
        return Err(Unmoved::HostMemory);
    }
    // SAFETY: the caller promises the session's memory without work; the store's chunks have rooms of their own.
    unsafe { fetch_all(carriers, &pieces) }?;
    parts.iter_mut().for_each(|part| part.stored = true);
    let mut outcome = Ok(());
    for part in &mut *parts {
        // SAFETY: the caller promises that no work uses it.
        outcome = unsafe { part.give_back(memory) };
        if outcome.is_err() {
            break;
        }
    }
    if let Err(error) = outcome
        // SAFETY: the caller promises that no work uses any part.
        && unsafe { bring_back(memory, carriers, parts, &store) }.is_ok()
    {
        return Err(Unmoved::Driver(error));
    }
    Ok((store, pieces.len() as u64 * CHUNK_BYTES))
}

/// Brings all parts back with the contents in the store.
///
/// Errors: the reason; all contents are in the store still, and no part has more memory than the driver has failed to give back.
///
/// # Safety
///
/// As for [`give_back`]; the store must be the one that it has returned for these parts, or for these and others.
pub unsafe fn bring_back(
    memory: &impl Memory,
    carriers: &impl Carriers,
    parts: &mut [&mut Part],
    store: &Store,
) -> Result<(), Unmoved> {
    // SAFETY: the caller's promises.
    let outcome = unsafe { try_to_bring_back(memory, carriers, parts, store) };
    for part in &mut *parts {
        match outcome {
            Ok(()) => part.stored = false,
            // What the driver does not give back is given back by the next move.
            // SAFETY: the caller promises that no work uses it.
            Err(_) => drop(unsafe { part.give_back(memory) }),
        }
    }
    outcome
}

unsafe fn try_to_bring_back(
    memory: &impl Memory,
    carriers: &impl Carriers,
    parts: &mut [&mut Part],
    store: &Store,
) -> Result<(), Unmoved> {
    let (mut pieces, mut digests) = (Vec::new(), Vec::new());
    for part in &mut *parts {
        part.bring_back(memory).map_err(|error| match error {
            CudaError::OUT_OF_MEMORY => Unmoved::DeviceMemory,
            error => Unmoved::Driver(error),
        })?;
        // Also where the driver has kept the memory: an earlier attempt may have written it.
        if part.stored {
            for (piece, digest) in store.chunks(part.address()) {
                pieces.push(piece);
                digests.push(digest);
            }
        }
    }
    let addresses: Vec<u64> = pieces.iter().map(|piece| piece.address).collect();
    // SAFETY: the caller of `bring_back` promises the session's memory without work; it is mapped now.
    let found = unsafe {
        send_all(carriers, &pieces)?;
        digests_of(carriers, &addresses)
    }?;
    // Wrong contents would be worse for a program than none.
    if found == digests { Ok(()) } else { Err(Unmoved::Differs) }
}

/// # Safety
///
/// As for [`Carrier::digests`].
unsafe fn digests_of(carriers: &impl Carriers, addresses: &[u64]) -> CuResult<Vec<Digest>> {
    let mut carrier = carriers.carrier()?;
    // SAFETY: the caller's promise; there are no copies.
    unsafe { carrier.digests(addresses) }
}

#[cfg(test)]
#[path = "steps_test.rs"]
mod tests;
