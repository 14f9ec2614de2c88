// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contents that go ahead of a machine, and those that have come ahead of one.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use vhost_cuda_common::budget::Charge;
use vhost_cuda_common::files::{FIXED_LENGTH, add_seals, memory_file};
use vhost_cuda_common::link::CHUNK_BYTES;
use vhost_cuda_common::parts::{Place, malformed};

use super::Device;

/// The maximum number of sessions whose contents come ahead.
const MAX_SESSIONS: usize = 1024;
/// The host memory that is taken at a time, in bytes.
const STEP: u64 = 16 * CHUNK_BYTES;

/// Contents of a session that have come ahead, in a file in memory.
#[derive(Debug)]
pub struct Arrived {
    file: Arc<File>,
    /// The numbers of the chunks' places in the file, by their addresses.
    places: BTreeMap<u64, u64>,
    /// The number of the first place that was never used.
    next: u64,
    charge: Option<Charge>,
}

impl Arrived {
    /// Creates an empty file.
    pub fn new() -> io::Result<Self> {
        Ok(Self { file: memory_file(c"contents")?.into(), places: BTreeMap::new(), next: 0, charge: None })
    }

    /// Returns the place for a chunk, which is that of an earlier one at this address. `charge` takes host memory.
    ///
    /// Errors: there is not enough host memory.
    fn place(
        &mut self,
        address: u64,
        charge: impl FnOnce(u64) -> io::Result<Charge>,
    ) -> io::Result<(Arc<File>, u64)> {
        let place = self.places.get(&address).copied().unwrap_or(self.next);
        let bytes = (place + 1) * CHUNK_BYTES;
        if bytes > self.charge.as_ref().map_or(0, Charge::amount) as u64 {
            let more = charge(STEP)?;
            match &mut self.charge {
                Some(charge) => charge.merge(more),
                none => *none = Some(more),
            }
        }
        self.places.insert(address, place);
        self.next = self.next.max(place + 1);
        Ok((self.file.clone(), place * CHUNK_BYTES))
    }

    /// Makes it the file of all contents of the session, of which there are so many chunks.
    ///
    /// Errors: the file cannot be so long.
    pub fn complete(self, chunks: u64) -> io::Result<(Whole, Option<Charge>)> {
        let Self { file, places, next, charge } = self;
        let end = next.checked_add(chunks.max(1)).ok_or(io::ErrorKind::FileTooLarge)?;
        file.set_len(end.checked_mul(CHUNK_BYTES).ok_or(io::ErrorKind::FileTooLarge)?)?;
        // Workers map it, and a worker executes code of the guest.
        add_seals(&file, FIXED_LENGTH)?;
        Ok((Whole { file, arrived: places, rows: Vec::new(), next, end }, charge))
    }
}

/// All contents of a session that enters, in a file in memory.
#[derive(Debug)]
pub struct Whole {
    /// The file.
    pub file: Arc<File>,
    /// Chunks that have come ahead and were not named yet.
    arrived: BTreeMap<u64, u64>,
    rows: Vec<Place>,
    /// The places that nobody has used.
    next: u64,
    end: u64,
}

impl Whole {
    /// Notes that the contents of these chunks are those that have come ahead.
    ///
    /// Errors: one has not.
    pub fn keep(&mut self, addresses: &[u64]) -> io::Result<()> {
        for &address in addresses {
            let place = self.arrived.remove(&address);
            let place = place.ok_or_else(|| malformed("a chunk has not come ahead"))?;
            self.rows.push(Place { address, offset: place * CHUNK_BYTES });
        }
        Ok(())
    }

    /// Takes a chunk that has not come ahead, or has changed since.
    ///
    /// Errors: it is no chunk, or there are too many.
    pub fn put(&mut self, address: u64, chunk: &[u8]) -> io::Result<()> {
        let old = self.arrived.remove(&address);
        // All that stay were named before: the others are of no use.
        let place = old.or_else(|| self.arrived.pop_first().map(|(_, place)| place)).unwrap_or(self.next);
        if chunk.len() as u64 != CHUNK_BYTES || place >= self.end {
            return Err(malformed("it is no chunk, or there are too many"));
        }
        self.next = self.next.max(place + 1);
        self.file.write_all_at(chunk, place * CHUNK_BYTES)?;
        self.rows.push(Place { address, offset: place * CHUNK_BYTES });
        Ok(())
    }

    /// The chunks and their places.
    pub fn rows(&self) -> &[Place] {
        &self.rows
    }
}

impl Device {
    /// Takes a chunk of the session with this id, whose state comes later. Two of the same address must not come at once.
    ///
    /// Errors: it is no chunk, there is not enough host memory, or there are too many sessions.
    pub fn take_ahead_of(&self, session: u64, address: u64, chunk: &[u8]) -> io::Result<()> {
        if chunk.len() as u64 != CHUNK_BYTES {
            return Err(malformed("a chunk has another length"));
        }
        let mut arrived = self.arrived.lock();
        if arrived.len() >= MAX_SESSIONS && !arrived.contains_key(&session) {
            return Err(malformed("contents of too many sessions come ahead"));
        }
        let of_it = match arrived.remove(&session) {
            Some(of_it) => of_it,
            None => Arrived::new()?,
        };
        let of_it = arrived.entry(session).insert_entry(of_it).into_mut();
        let (file, place) = of_it.place(address, |bytes| {
            self.settings.suspender.charge_contents(0, bytes).map_err(io::Error::other)
        })?;
        drop(arrived);
        // Several threads write at the same time.
        file.write_all_at(chunk, place)
    }

    /// Forgets the chunk at this address, because another one that was to replace it has not come as a whole.
    pub fn forget_ahead_of(&self, session: u64, address: u64) {
        let mut arrived = self.arrived.lock();
        arrived.get_mut(&session).and_then(|of_it| of_it.places.remove(&address));
    }

    /// Returns the contents that have come ahead of a session.
    pub fn arrived(&self, session: u64) -> Option<Arrived> {
        self.arrived.lock().remove(&session)
    }

    /// Gives up contents that have come ahead.
    pub fn forget_arrived(&self) {
        self.arrived.lock().clear();
    }

    /// Notes the sessions, by their labels, all of whose contents so far have gone ahead to the daemon that loads the next state.
    pub fn has_gone_ahead(&self, sessions: HashSet<u64>) {
        *self.ahead.lock() = sessions;
    }

    /// Returns these sessions, once.
    pub fn gone_ahead(&self) -> HashSet<u64> {
        std::mem::take(&mut *self.ahead.lock())
    }

    /// Notes that no contents go ahead any more.
    pub fn end_ahead(&self) {
        self.ahead.lock().clear();
        self.sessions().iter().for_each(|session| session.residence().end_ahead());
    }
}

#[cfg(test)]
mod tests {
    use vhost_cuda_common::budget::Budget;

    use super::*;

    const CHUNK: usize = CHUNK_BYTES as usize;

    fn chunk(byte: u8) -> Vec<u8> {
        vec![byte; CHUNK]
    }

    #[test]
    fn what_has_come_ahead_is_used_where_it_is_the_same_still() {
        let budget = Budget::new(STEP as usize);
        let charge = |bytes: u64| budget.charge(bytes as usize).ok_or(io::ErrorKind::OutOfMemory.into());
        let mut arrived = Arrived::new().unwrap();
        for (address, byte) in [(10, 1), (20, 2), (30, 3), (20, 4)] {
            let (file, place) = arrived.place(address, charge).unwrap();
            file.write_all_at(&chunk(byte), place).unwrap();
        }
        arrived.places.remove(&30);
        for address in 100..113 {
            let place = arrived.place(address, charge).unwrap().1 / CHUNK_BYTES;
            assert_eq!(place, address - 97, "no place of another one");
        }
        assert!(arrived.place(99, charge).is_err(), "more than there is");
        let (mut whole, charge) = arrived.complete(3).unwrap();
        assert_eq!(charge.unwrap().amount() as u64, STEP);
        assert!(whole.file.set_len(0).is_err(), "its length is sealed");
        assert!(whole.keep(&[20, 50]).is_err(), "one that has not come");
        whole.keep(&[10]).unwrap();
        whole.put(30, &chunk(5)).unwrap();
        whole.put(40, &chunk(6)).unwrap();
        assert!(whole.put(50, &chunk(6)[1..]).is_err());
        let mut byte = [0];
        let found = whole.rows().iter().map(|row| {
            whole.file.read_exact_at(&mut byte, row.offset + CHUNK_BYTES - 1).unwrap();
            (row.address, byte[0])
        });
        assert_eq!(found.collect::<Vec<_>>(), [(20, 4), (10, 1), (30, 5), (40, 6)]);
    }

    #[test]
    fn no_more_chunks_come_than_were_announced() {
        let mut whole = Arrived::new().unwrap().complete(1).unwrap().0;
        whole.put(1, &chunk(1)).unwrap();
        assert!(whole.put(2, &chunk(1)).is_err());
        assert!(Arrived::new().unwrap().complete(u64::MAX).is_err());
    }
}
