// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Ids of communicators (`ncclUniqueId`). An id has the handle of the memory file, and random bits by which this process knows
//! its own ids.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};

use rustix::rand::{GetRandomFlags, getrandom};

use super::driver::{HANDLE_BYTES, Handle};
#[cfg(not(test))]
use super::driver::{fetch, offer, withdraw};
use super::segment::Segment;
#[cfg(test)]
use super::tests::{fetch, offer, withdraw};
use super::{INVALID_ARGUMENT, SYSTEM_ERROR, Status, locked};

/// `NCCL_UNIQUE_ID_BYTES`
pub const ID_BYTES: usize = 128;
/// The first bytes of an id.
const MAGIC: [u8; 8] = *b"cudanccl";
const HANDLE: usize = MAGIC.len();
const RANDOM: usize = HANDLE + HANDLE_BYTES;
const RANDOM_BYTES: usize = 16;
/// The maximum number of ids of this process of which not all ranks have joined; the oldest one ends for a new one. Each is an
/// open file of the process that hands it out.
const MAX_OPEN: usize = 32;

/// An `ncclUniqueId`.
pub type Id = [u8; ID_BYTES];

#[derive(Default)]
struct Known {
    /// Made here, and not complete.
    open: VecDeque<(Id, Arc<Segment>)>,
    /// In use here: the ranks of a process have one mapping.
    used: HashMap<Id, Weak<Segment>>,
}

fn known() -> MutexGuard<'static, Known> {
    static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
    locked(&KNOWN)
}

fn handle_of(id: &Id) -> Handle {
    let mut handle = [0; HANDLE_BYTES];
    handle.copy_from_slice(&id[HANDLE..RANDOM]);
    handle
}

/// Creates the memory of a new communicator, and its id.
pub fn create() -> Result<Id, Status> {
    let mut id = [0; ID_BYTES];
    id[..HANDLE].copy_from_slice(&MAGIC);
    getrandom(&mut id[RANDOM..RANDOM + RANDOM_BYTES], GetRandomFlags::empty()).map_err(|_| SYSTEM_ERROR)?;
    let (segment, file) = Segment::create().map_err(|_| SYSTEM_ERROR)?;
    let oldest = {
        let mut known = known();
        if known.open.len() >= MAX_OPEN { known.open.pop_front() } else { None }
    };
    if let Some((id, _)) = oldest {
        withdraw(&handle_of(&id));
    }
    // Where this is not possible, ranks of this process still find each other.
    id[HANDLE..RANDOM].copy_from_slice(&offer(&file).unwrap_or([0; HANDLE_BYTES]));
    known().open.push_back((id, Arc::new(segment)));
    Ok(id)
}

/// The memory of the communicator with that id.
///
/// Errors: there is no such offer, or it has ended.
pub fn find(id: &Id) -> Result<Arc<Segment>, Status> {
    if !id.starts_with(&MAGIC) {
        return Err(INVALID_ARGUMENT);
    }
    let mut known = known();
    if let Some(segment) = known.used.get(id).and_then(Weak::upgrade) {
        return Ok(segment);
    }
    let own = known.open.iter().find(|(of, _)| of == id).map(|(_, segment)| segment.clone());
    let segment = match own {
        Some(segment) => segment,
        None => {
            let file = fetch(&handle_of(id)).ok_or(SYSTEM_ERROR)?;
            Arc::new(Segment::map(&file).map_err(|_| SYSTEM_ERROR)?)
        }
    };
    known.used.retain(|_, segment| segment.strong_count() > 0);
    known.used.insert(*id, Arc::downgrade(&segment));
    Ok(segment)
}

/// Closes the id after all ranks have joined.
pub fn close(id: &Id) {
    let mut known = known();
    let place = known.open.iter().position(|(of, _)| of == id);
    let closed = place.and_then(|place| known.open.remove(place));
    drop(known);
    if closed.is_some() {
        withdraw(&handle_of(id));
    }
}
