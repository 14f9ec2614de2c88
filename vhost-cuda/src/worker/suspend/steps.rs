// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The steps of a move, in both directions.

use super::digests::Digest;
use super::parts::{Memory, Part};
use super::room::CHUNK_BYTES;
use super::store::Store;
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

/// Returns which parts move, by the host memory that each one's contents need: all if `room` suffices; else, in pieces, those that fit
/// one after another. `None`: nothing moves.
fn chosen(needs: &[u64], room: u64, in_pieces: bool) -> Option<Vec<bool>> {
    if needs.iter().fold(0_u64, |sum, need| sum.saturating_add(*need)) <= room {
        return Some(vec![true; needs.len()]);
    }
    let mut left = room;
    let fits = |need: &u64| match left.checked_sub(*need) {
        Some(rest) if in_pieces => {
            left = rest;
            true
        }
        _ => false,
    };
    let chosen: Vec<bool> = needs.iter().map(fits).collect();
    chosen.contains(&true).then_some(chosen)
}

/// Copies the contents of parts that are on the device to the store, and gives their memory back. Contents that `store` has already, from
/// an earlier suspension, are not copied. `budget` is the host memory in bytes that the whole store may take; with `in_pieces` only
/// the parts move for which that suffices. Returns the number of bytes that were copied. If the driver fails to give some memory
/// back, the others come back; if these do not, all are in the store, and that counts as success.
///
/// Errors: the reason; all parts are as before, and the store has nothing of them.
///
/// # Safety
///
/// All parts must be the session's, whole chunks, and no work may use any.
pub unsafe fn give_back(
    memory: &impl Memory,
    carriers: &impl Carriers,
    mut parts: Vec<&mut Part>,
    budget: u64,
    in_pieces: bool,
    store: &mut Store,
) -> Result<u64, Unmoved> {
    let addresses: Vec<u64> = parts.iter().map(|part| part.address()).collect();
    // SAFETY: the caller's promises.
    let outcome = unsafe { try_to_give_back(memory, carriers, &mut parts, budget, in_pieces, store) };
    if outcome.is_err() {
        addresses.iter().for_each(|address| store.remove(*address));
    }
    outcome
}

unsafe fn try_to_give_back(
    memory: &impl Memory,
    carriers: &impl Carriers,
    parts: &mut Vec<&mut Part>,
    budget: u64,
    in_pieces: bool,
    store: &mut Store,
) -> Result<u64, Unmoved> {
    if parts.is_empty() {
        return Err(Unmoved::Nothing);
    }
    let chunks =
        |part: &&mut Part| (part.address()..part.address() + part.bytes).step_by(CHUNK_BYTES as usize);
    let addresses: Vec<u64> = parts.iter().flat_map(chunks).collect();
    // SAFETY: the caller promises the session's memory without work.
    let mut digests = unsafe { digests_of(carriers, &addresses) }?.into_iter();
    let digests: Vec<Vec<Digest>> = parts
        .iter()
        .map(|part| digests.by_ref().take((part.bytes / CHUNK_BYTES) as usize).collect())
        .collect();
    let zeros = carriers.zeros();
    let need = |digests: &Vec<Digest>| {
        digests.iter().filter(|digest| **digest != zeros).count() as u64 * CHUNK_BYTES
    };
    let needs: Vec<u64> = digests.iter().map(need).collect();
    let of_others =
        store.stored_bytes() - parts.iter().map(|part| store.stored_bytes_of(part.address())).sum::<u64>();
    let chosen = chosen(&needs, budget.saturating_sub(of_others), in_pieces).ok_or(Unmoved::HostMemory)?;
    let mut goes = chosen.iter();
    parts.retain(|part| {
        let goes = goes.next() == Some(&true);
        if !goes {
            store.remove(part.address());
        }
        goes
    });
    let places: Vec<_> = parts.iter().map(|part| (part.address(), part.bytes)).collect();
    let digests: Vec<Digest> = digests
        .into_iter()
        .zip(&chosen)
        .filter(|(_, goes)| **goes)
        .flat_map(|(digests, _)| digests)
        .collect();
    let pieces = store.prepare(&places, &digests, zeros).map_err(|_| Unmoved::HostMemory)?;
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
        && unsafe { bring_back(memory, carriers, parts, store) }.is_ok()
    {
        return Err(Unmoved::Driver(error));
    }
    Ok(pieces.len() as u64 * CHUNK_BYTES)
}

/// Brings back as many of the parts in the store as the device has room for. Their contents leave the store. Returns whether
/// these are all.
///
/// Errors: the reason, if there is no room for any; otherwise as for [`bring_back`].
///
/// # Safety
///
/// As for [`bring_back`].
pub unsafe fn bring_back_pieces(
    memory: &impl Memory,
    carriers: &impl Carriers,
    parts: Vec<&mut Part>,
    store: &mut Store,
) -> Result<bool, Unmoved> {
    let count = parts.len();
    let (mut back, mut failure, mut too_many) = (Vec::new(), None, u64::MAX);
    for part in parts {
        if failure.is_some() || part.bytes >= too_many {
            continue;
        }
        match part.bring_back(memory) {
            Ok(()) => {
                back.push(part);
                continue;
            }
            Err(CudaError::OUT_OF_MEMORY) => too_many = part.bytes,
            Err(error) => failure = Some(error),
        }
        // What the driver does not give back is given back by the next move.
        // SAFETY: the caller promises that no work uses it; its contents are in the store.
        let _ = unsafe { part.give_back(memory) };
    }
    if let Some(error) = failure {
        for part in back {
            // SAFETY: as above.
            let _ = unsafe { part.give_back(memory) };
        }
        return Err(Unmoved::Driver(error));
    }
    if back.is_empty() {
        return Err(Unmoved::DeviceMemory);
    }
    // SAFETY: the caller's promises.
    unsafe { bring_back(memory, carriers, &mut back, store) }?;
    back.iter().for_each(|part| store.remove(part.address()));
    Ok(back.len() == count)
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
