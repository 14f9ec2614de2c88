// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The steps of a move, in both directions. The memory of all devices moves at once, each device's by threads of its own.

use std::collections::BTreeMap;
use std::thread;
use std::time::Instant;

use log::debug;
use parking_lot::Mutex;

use super::digests::Digest;
use super::room::CHUNK_BYTES;
use super::store::Store;
use super::transfer::{Carrier, Carriers, fetch_all, send_all};
use crate::gpu::{CuResult, CudaError};
use crate::memory::parts::{Memory, Part};

/// Says how long each step takes.
pub struct Steps(Instant);

impl Steps {
    pub fn begin() -> Self {
        Self(Instant::now())
    }

    /// Ends a step.
    pub fn end(&mut self, what: &str) {
        debug!("{what}: {:.3} s", self.0.elapsed().as_secs_f64());
        self.0 = Instant::now();
    }
}

/// The reason for which nothing has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmoved {
    /// There is no memory that may move.
    Nothing,
    /// The budget does not suffice, or the host has no memory.
    HostMemory,
    /// The device with this number of the driver's has no memory.
    DeviceMemory(i32),
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

/// The parts of one device, and what copies their contents.
pub struct Group<'a, 'p, C> {
    /// The copies of the device's memory.
    pub carriers: &'a C,
    /// The parts, all of this device.
    pub parts: Vec<&'p mut Part>,
}

/// Runs `work` for each of `all`, for all at once where there are threads. Returns the results in their order.
///
/// Errors: that of the first in this order.
fn for_each_at_once<G: Send, T: Send>(
    all: impl ExactSizeIterator<Item = G> + Send,
    work: impl Fn(G) -> Result<T, Unmoved> + Sync,
) -> Result<Vec<T>, Unmoved> {
    let count = all.len();
    let (left, results) = (Mutex::new(all.enumerate()), Mutex::new(BTreeMap::new()));
    let run = || {
        let next = || left.lock().next();
        while let Some((index, group)) = next() {
            let result = work(group);
            results.lock().insert(index, result);
        }
    };
    thread::scope(|scope| {
        for _ in 1..count {
            // Without a thread the others do its work.
            let _ = thread::Builder::new().name("suspend-device".into()).spawn_scoped(scope, run);
        }
        run();
    });
    results.into_inner().into_values().collect()
}

/// Copies the contents of parts that are on their devices to the store, and gives their memory back. Contents that `store` has already,
/// from an earlier suspension, are not copied. `budget` is the host memory in bytes that the whole store may take; with `in_pieces` only
/// the parts move for which that suffices. Returns the number of bytes that were copied. If the driver fails to give some memory
/// back, the others come back, on all devices; if these do not, all are in the store, and that counts as success.
///
/// Errors: the reason; all parts are as before, and the store has nothing of them.
///
/// # Safety
///
/// All parts must be the session's, whole chunks, and no work may use any.
pub unsafe fn give_back<C: Carriers>(
    memory: &(impl Memory + Sync),
    mut groups: Vec<Group<'_, '_, C>>,
    budget: u64,
    in_pieces: bool,
    store: &mut Store,
) -> Result<u64, Unmoved> {
    let parts = groups.iter().flat_map(|group| &group.parts);
    let addresses: Vec<u64> = parts.map(|part| part.address()).collect();
    // SAFETY: the caller's promises.
    let outcome = unsafe { try_to_give_back(memory, &mut groups, budget, in_pieces, store) };
    if outcome.is_err() {
        addresses.iter().for_each(|address| store.remove(*address));
    }
    outcome
}

unsafe fn try_to_give_back<C: Carriers>(
    memory: &(impl Memory + Sync),
    groups: &mut [Group<'_, '_, C>],
    budget: u64,
    in_pieces: bool,
    store: &mut Store,
) -> Result<u64, Unmoved> {
    let Some(zeros) = groups.first().map(|group| group.carriers.zeros()) else {
        return Err(Unmoved::Nothing);
    };
    let mut steps = Steps::begin();
    // SAFETY: the caller promises the session's memory without work.
    let digests = for_each_at_once(groups.iter(), |group| unsafe { digests_of_parts(group) })?;
    steps.end("digests are there");
    let need = |digests: &Vec<Digest>| {
        digests.iter().filter(|digest| **digest != zeros).count() as u64 * CHUNK_BYTES
    };
    let needs: Vec<u64> = digests.iter().flatten().map(need).collect();
    let parts = groups.iter().flat_map(|group| &group.parts);
    let of_these: u64 = parts.map(|part| store.stored_bytes_of(part.address())).sum();
    let of_others = store.stored_bytes() - of_these;
    let chosen = chosen(&needs, budget.saturating_sub(of_others), in_pieces).ok_or(Unmoved::HostMemory)?;
    let mut goes = chosen.into_iter();
    let mut pieces = Vec::with_capacity(groups.len());
    for (group, digests) in groups.iter_mut().zip(digests) {
        let (mut digests, mut left) = (digests.into_iter(), Vec::new());
        group.parts.retain(|part| {
            let of_part = digests.next().unwrap_or_default();
            let goes = goes.next() == Some(true);
            if goes {
                left.extend(of_part);
            } else {
                store.remove(part.address());
            }
            goes
        });
        let places: Vec<_> = group.parts.iter().map(|part| (part.address(), part.bytes)).collect();
        pieces.push(store.prepare(&places, &left, zeros).map_err(|_| Unmoved::HostMemory)?);
    }
    for_each_at_once(groups.iter().zip(&pieces), |(group, pieces)| {
        // SAFETY: the caller promises the session's memory without work; the store's chunks have rooms of their own.
        Ok(unsafe { fetch_all(group.carriers, pieces, store.offer.as_ref()) }?)
    })?;
    store.settle().map_err(|_| Unmoved::HostMemory)?;
    steps.end("contents are copied");
    groups.iter_mut().flat_map(|group| &mut group.parts).for_each(|part| part.stored = true);
    let outcome = for_each_at_once(groups.iter_mut(), |group| {
        group.carriers.enter()?;
        // SAFETY: the caller promises that no work uses any part.
        Ok(group.parts.iter_mut().try_for_each(|part| unsafe { part.give_back(memory) })?)
    });
    if let Err(error) = outcome
        // SAFETY: the caller promises that no work uses any part.
        && unsafe { bring_back(memory, groups, store) }.is_ok()
    {
        return Err(error);
    }
    steps.end("memory is given back");
    Ok(pieces.iter().map(Vec::len).sum::<usize>() as u64 * CHUNK_BYTES)
}

/// Gives the memory of all parts back to the driver, but has files keep it, with its contents, on the card. If the driver fails to give
/// some back, the others come back; if these do not, all are held, and that counts as success.
///
/// Errors: the driver's; all parts are as before.
///
/// # Safety
///
/// As for [`give_back`].
pub unsafe fn hold<C: Carriers>(
    memory: &(impl Memory + Sync),
    groups: &mut [Group<'_, '_, C>],
) -> Result<(), Unmoved> {
    let held = for_each_at_once(groups.iter_mut(), |group| {
        group.carriers.enter()?;
        Ok(group.parts.iter_mut().try_for_each(|part| part.hold(memory))?)
    });
    if let Err(error) = held {
        groups.iter_mut().flat_map(|group| &mut group.parts).for_each(|part| part.is_back());
        return Err(error);
    }
    let outcome = for_each_at_once(groups.iter_mut(), |group| {
        group.carriers.enter()?;
        // SAFETY: the caller promises that no work uses any part.
        Ok(group.parts.iter_mut().try_for_each(|part| unsafe { part.give_back(memory) })?)
    });
    if let Err(error) = outcome
        // SAFETY: the caller promises that no work uses any part. Nothing of these is in the store.
        && unsafe { bring_back(memory, groups, &Store::default()) }.is_ok()
    {
        return Err(error);
    }
    Ok(())
}

/// Brings back as many of the parts in the store as their devices have room for. Their contents leave the store. Returns whether
/// these are all.
///
/// Errors: the reason, if there is no room for any; otherwise as for [`bring_back`].
///
/// # Safety
///
/// As for [`bring_back`].
pub unsafe fn bring_back_pieces<C: Carriers>(
    memory: &(impl Memory + Sync),
    groups: Vec<Group<'_, '_, C>>,
    store: &mut Store,
) -> Result<bool, Unmoved> {
    let (mut back, mut failure, mut is_all, mut full) = (Vec::new(), None, true, 0);
    for Group { carriers, parts } in groups {
        let (mut of_device, mut too_many) = (Vec::new(), u64::MAX);
        for part in parts {
            if failure.is_some() || part.bytes >= too_many {
                is_all = false;
                continue;
            }
            match part.bring_back(memory) {
                Ok(()) => {
                    of_device.push(part);
                    continue;
                }
                Err(CudaError::OUT_OF_MEMORY) => (too_many, full) = (part.bytes, part.device()),
                Err(error) => failure = Some(error),
            }
            is_all = false;
            // What the driver does not give back is given back by the next move.
            // SAFETY: the caller promises that no work uses it; its contents are in the store.
            let _ = unsafe { part.give_back(memory) };
        }
        back.push(Group { carriers, parts: of_device });
    }
    let mut brought = back.iter_mut().flat_map(|group| &mut group.parts);
    if let Some(error) = failure {
        for part in brought {
            // SAFETY: as above.
            let _ = unsafe { part.give_back(memory) };
        }
        return Err(Unmoved::Driver(error));
    }
    if brought.next().is_none() {
        return Err(Unmoved::DeviceMemory(full));
    }
    // SAFETY: the caller's promises.
    unsafe { bring_back(memory, &mut back, store) }?;
    back.iter().flat_map(|group| &group.parts).for_each(|part| store.remove(part.address()));
    Ok(is_all)
}

/// Brings all parts back with the contents in the store, those of all devices at once.
///
/// Errors: the reason; all contents are in the store still, and no part has more memory than the driver has failed to give back.
///
/// # Safety
///
/// As for [`give_back`]; the store must be the one that it has returned for these parts, or for these and others.
pub unsafe fn bring_back<C: Carriers>(
    memory: &(impl Memory + Sync),
    groups: &mut [Group<'_, '_, C>],
    store: &Store,
) -> Result<(), Unmoved> {
    // SAFETY: the caller's promises.
    let outcome =
        for_each_at_once(groups.iter_mut(), |group| unsafe { try_to_bring_back(memory, group, store) });
    for part in groups.iter_mut().flat_map(|group| &mut group.parts) {
        match outcome {
            Ok(_) => part.is_back(),
            // What the driver does not give back is given back by the next move.
            // SAFETY: the caller promises that no work uses it.
            Err(_) => drop(unsafe { part.give_back(memory) }),
        }
    }
    outcome.map(drop)
}

unsafe fn try_to_bring_back<C: Carriers>(
    memory: &impl Memory,
    group: &mut Group<'_, '_, C>,
    store: &Store,
) -> Result<(), Unmoved> {
    let (mut pieces, mut digests) = (Vec::new(), Vec::new());
    let mut steps = Steps::begin();
    group.carriers.enter()?;
    for part in &mut group.parts {
        part.bring_back(memory).map_err(|error| match error {
            CudaError::OUT_OF_MEMORY => Unmoved::DeviceMemory(part.device()),
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
    if pieces.is_empty() {
        return Ok(());
    }
    steps.end("memory is there");
    let addresses: Vec<u64> = pieces.iter().map(|piece| piece.address).collect();
    // SAFETY: the caller of `bring_back` promises the session's memory without work; it is mapped now.
    unsafe { send_all(group.carriers, &pieces) }?;
    steps.end("contents are copied back");
    // SAFETY: as above.
    let found = unsafe { digests_of(group.carriers, &addresses) }?;
    steps.end("digests are there");
    // Wrong contents would be worse for a program than none.
    if found == digests { Ok(()) } else { Err(Unmoved::Differs) }
}

/// Returns the digests of all chunks of each part of a group.
///
/// # Safety
///
/// As for [`Carrier::digests`].
unsafe fn digests_of_parts<C: Carriers>(group: &Group<'_, '_, C>) -> Result<Vec<Vec<Digest>>, Unmoved> {
    let chunks =
        |part: &&mut Part| (part.address()..part.address() + part.bytes).step_by(CHUNK_BYTES as usize);
    let addresses: Vec<u64> = group.parts.iter().flat_map(chunks).collect();
    // SAFETY: the caller's promise.
    let mut digests = unsafe { digests_of(group.carriers, &addresses) }?.into_iter();
    let of_part = |part: &&mut Part| digests.by_ref().take((part.bytes / CHUNK_BYTES) as usize).collect();
    Ok(group.parts.iter().map(of_part).collect())
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
