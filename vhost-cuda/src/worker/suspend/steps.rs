// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The steps of a move, in both directions.

use super::parts::{Memory, Part};
use super::store::{CHUNK_BYTES, Store};
use super::transfer::{Carriers, Failure, Piece, fetch_all, send_all};
use crate::worker::gpu::CudaError;

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

impl From<Failure> for Unmoved {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Driver(error) => Self::Driver(error),
            Failure::HostMemory => Self::HostMemory,
            Failure::Differs => Self::Differs,
        }
    }
}

/// Copies the contents of all parts to a new store, and gives their memory back. If the driver fails to give some back, the
/// others come back; if these do not, all are in the store, and that counts as success.
///
/// Errors: the reason; all parts are as before.
///
/// # Safety
///
/// All parts must be the session's, and no work may use any.
pub unsafe fn give_back(
    memory: &impl Memory,
    carriers: &impl Carriers,
    parts: &mut [&mut Part],
    budget: u64,
) -> Result<Store, Unmoved> {
    if parts.is_empty() {
        return Err(Unmoved::Nothing);
    }
    let mut bytes = 0;
    let mut pieces = Vec::new();
    for part in &*parts {
        pieces.extend(Piece::all(part.address(), part.bytes, bytes));
        bytes += part.bytes.next_multiple_of(CHUNK_BYTES);
    }
    let store = Store::new(bytes, budget).map_err(|_| Unmoved::HostMemory)?;
    // SAFETY: the caller promises the session's memory without work; parts have chunks of the store of their own.
    unsafe { fetch_all(carriers, &pieces, &store) }?;
    let mut at = 0;
    for part in &mut *parts {
        part.stored = Some(at);
        at += part.bytes.next_multiple_of(CHUNK_BYTES);
    }
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
    Ok(store)
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
            Ok(()) => part.stored = None,
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
    let mut pieces = Vec::new();
    for part in &mut *parts {
        part.bring_back(memory).map_err(|error| match error {
            CudaError::OUT_OF_MEMORY => Unmoved::DeviceMemory,
            error => Unmoved::Driver(error),
        })?;
        // Also where the driver has kept the memory: an earlier attempt may have written it.
        if let Some(at) = part.stored {
            pieces.extend(Piece::all(part.address(), part.bytes, at));
        }
    }
    // SAFETY: the caller of `bring_back` promises the session's memory without work; it is mapped now.
    unsafe { send_all(carriers, &pieces, store) }?;
    Ok(())
}

#[cfg(test)]
#[path = "steps_test.rs"]
mod tests;
