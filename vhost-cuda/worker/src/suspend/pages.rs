// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host memory for contents, which may be there before it is needed.
//!
//! The kernel clears each page when it is written for the first time, and that takes longer than the copy from the device. So a
//! thread lets the kernel do it ahead of need, for as much memory as the daemon says ([`Pages::keep`]): the *pool*. It also
//! registers the pool with the driver, so that the device copies straight to where contents stay. Contents for which the pool is too
//! small go to *spare* rooms, whose pages the kernel provides while they are written, and takes back with the contents.
//!
//! All of it is private memory of this process, which serves one session from its beginning to its end. No other process can see
//! what a page held before, and the kernel takes all pages back when the process ends, however it ends.
//!
//! Contents that another process is to get move to a file of the daemon's. These come to it, or from it, without a copy.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use log::debug;
use parking_lot::{Condvar, Mutex};
use vhost_cuda_common::statistics;

use super::lent::file_of;
use super::room::{Area, BLOCK, CHUNK, CHUNK_BYTES, ROOMS, Room, empty, fill};

/// The maximum number of blocks that are mapped ahead of need at a time.
const AHEAD: usize = 128;
/// The pause after a step has failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Registers blocks with the driver.
pub trait Registrar: Send {
    /// Registers memory of this process. Returns false if that has failed.
    ///
    /// # Safety
    ///
    /// The memory must stay mapped until it is unregistered.
    unsafe fn register(&self, address: usize, bytes: usize) -> bool;
    /// Ends the registration of the memory at `address`. Returns false if there may still be one.
    fn unregister(&self, address: usize) -> bool;
}

/// A block of the pool, whose pages are there.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The number of its rooms that are taken.
    used: usize,
    is_registered: bool,
}

/// An area in a file that another process has, too.
#[derive(Debug)]
struct Lent {
    area: Area,
    /// The number of its rooms that are taken.
    used: usize,
}

/// All host memory for contents of a session.
#[derive(Debug, Default)]
pub struct Pages {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    areas: Vec<Area>,
    /// The pool, by addresses.
    blocks: BTreeMap<usize, Block>,
    /// The rooms of the pool that nobody uses.
    ready: BTreeSet<usize>,
    /// Blocks without pages.
    unfilled: Vec<usize>,
    spare_areas: Vec<Area>,
    /// Spare rooms that nobody uses.
    spare: Vec<usize>,
    /// The number of spare rooms that are taken.
    spare_used: usize,
    /// Areas of files, by the addresses of their first rooms. The other process may need what this one has given up, so all pages stay
    /// until no room is taken.
    lent: BTreeMap<usize, Lent>,
    /// The numbers of blocks and of spare rooms whose pages change: they are in none of the lists.
    changing: usize,
    spare_changing: usize,
    /// The number of rooms with pages that there are to be, spare ones included.
    wanted: usize,
    has_thread: bool,
}

/// A step of the thread that provides the pool.
enum Step {
    Fill(usize),
    Empty(usize, Block),
    Map(usize),
    Wait,
}

impl State {
    fn next(&mut self) -> Step {
        let lent: usize = self.lent.values().map(|lent| lent.used).sum();
        let there = self.blocks.len() * ROOMS + self.spare_used + lent;
        let missing = self.wanted.saturating_sub(there) / ROOMS;
        if missing > 0 {
            return self.unfilled.pop().map_or(Step::Map(missing), |block| {
                self.changing += 1;
                Step::Fill(block)
            });
        }
        if !self.is_too_large() {
            return Step::Wait;
        }
        let free = self.blocks.iter().rev().find(|(_, block)| block.used == 0);
        let Some((&address, &block)) = free else { return Step::Wait };
        self.blocks.remove(&address);
        for room in rooms_of(address) {
            self.ready.remove(&room);
        }
        self.changing += 1;
        Step::Empty(address, block)
    }

    fn is_too_large(&self) -> bool {
        self.blocks.len() * ROOMS > self.wanted
    }

    /// Adds a block with pages of which no room is taken.
    fn add(&mut self, address: usize, is_registered: bool) {
        self.blocks.insert(address, Block { used: 0, is_registered });
        self.ready.extend(rooms_of(address));
    }

    /// Takes the first room of the pool that nobody uses.
    fn take_ready(&mut self) -> Option<Room> {
        let address = self.ready.pop_first()?;
        let block = self.blocks.get_mut(&(address / BLOCK * BLOCK))?;
        block.used += 1;
        // SAFETY: a room of a block, which lies in one of `areas`.
        Some(unsafe { Room::at(address, block.is_registered) })
    }

    /// Gives a room back if it is one of a file. Returns what is left of an area that no room needs any more.
    fn give_lent(&mut self, room: Room) -> Option<Option<Area>> {
        let (&first, lent) = self.lent.range_mut(..=room.address()).next_back()?;
        if (room.address() - first) as u64 >= lent.area.room_bytes() {
            return None;
        }
        lent.used -= 1;
        let is_over = lent.used == 0;
        Some(is_over.then(|| self.lent.remove(&first)).flatten().map(|lent| lent.area))
    }

    /// Publishes how much is ready, and gives addresses back that no room needs any more.
    fn tidy(&mut self) {
        statistics::set_ready_memory(self.ready.len() as u64 * CHUNK_BYTES);
        if self.blocks.is_empty() && self.changing == 0 && self.wanted == 0 {
            self.unfilled.clear();
            self.areas.clear();
        }
        if self.spare_used + self.spare_changing == 0 {
            self.spare.clear();
            self.spare_areas.clear();
        }
    }
}

fn rooms_of(block: usize) -> impl Iterator<Item = usize> {
    (block..block + BLOCK).step_by(CHUNK)
}

impl Pages {
    /// Takes rooms: those of the pool first, and one after the other where that is possible. Their contents are undefined.
    ///
    /// Errors: the process gets no addresses. None is taken then.
    pub fn take(&self, count: usize) -> io::Result<Vec<Room>> {
        let mut rooms = Vec::new();
        rooms.try_reserve_exact(count).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut state = self.state.lock();
        let spare = count.saturating_sub(state.ready.len());
        let missing = spare.saturating_sub(state.spare.len());
        if missing > 0 {
            let area = Area::new(missing, CHUNK)?;
            state.spare.extend(area.parts(CHUNK));
            state.spare_areas.push(area);
        }
        while rooms.len() < count - spare
            && let Some(room) = state.take_ready()
        {
            rooms.push(room);
        }
        let first = state.spare.len() - spare;
        // SAFETY: rooms of one of `spare_areas`.
        rooms.extend(state.spare.drain(first..).rev().map(|address| unsafe { Room::at(address, false) }));
        state.spare_used += spare;
        state.tidy();
        Ok(rooms)
    }

    /// Takes the rooms at these places of files ([`file_of`]), whose contents are what the files have there.
    ///
    /// Errors: `InvalidInput` for a place that is not that of a room, or that is there twice.
    pub fn take_of(&self, areas: Vec<Area>, places: &[u64]) -> io::Result<Vec<Room>> {
        let mut lent: Vec<Lent> = areas.into_iter().map(|area| Lent { area, used: 0 }).collect();
        let (count, mut taken, mut rooms) = (lent.len(), BTreeSet::new(), Vec::with_capacity(places.len()));
        for &place in places {
            let (index, offset) = file_of(place, count);
            let of_file = lent.get_mut(index).filter(|lent| offset < lent.area.room_bytes());
            let of_file = of_file.filter(|_| place.is_multiple_of(CHUNK_BYTES) && taken.insert(place));
            let Lent { area, used } = of_file.ok_or(io::ErrorKind::InvalidInput)?;
            *used += 1;
            // SAFETY: a room of what is one of `lent` next, and stays mapped while any is taken.
            rooms.push(unsafe { Room::of(area, area.first_room() + offset as usize) });
        }
        let used = lent.into_iter().filter(|lent| lent.used > 0);
        self.state.lock().lent.extend(used.map(|lent| (lent.area.first_room(), lent)));
        Ok(rooms)
    }

    /// Gives a room back that was taken. In the pool its pages stay.
    pub fn give(&self, room: Room) {
        let mut state = self.state.lock();
        if let Some(over) = state.give_lent(room) {
            // Unmapping takes long.
            drop(state);
            return drop(over);
        }
        let block = state.blocks.get_mut(&(room.address() / BLOCK * BLOCK));
        let is_of_pool = block.is_some();
        if let Some(block) = block {
            block.used -= 1;
            state.ready.insert(room.address());
        } else {
            state.spare_used -= 1;
            state.spare_changing += 1;
            drop(state);
            // SAFETY: a spare room that nobody uses any more.
            unsafe { empty(room.address(), CHUNK) };
            state = self.state.lock();
            state.spare_changing -= 1;
            state.spare.push(room.address());
        }
        state.tidy();
        if state.is_too_large() || state.wanted > 0 && !is_of_pool {
            self.changed.notify_all();
        }
    }

    /// Keeps `bytes` of memory for contents, those that are there included, from now on: a thread provides what is missing, or gives
    /// back what is too much.
    pub fn keep(self: &Arc<Self>, bytes: u64, registrar: impl Registrar + 'static) {
        let mut state = self.state.lock();
        state.wanted = usize::try_from(bytes / CHUNK_BYTES).unwrap_or(usize::MAX);
        if !state.has_thread && state.wanted > 0 {
            let pages = self.clone();
            let provide = move || pages.provide(&registrar);
            let started = thread::Builder::new().name("suspend-pages".into()).spawn(provide);
            // Without it there are just no pages ahead of need.
            state.has_thread = started.inspect_err(|error| debug!("no thread for pages: {error}")).is_ok();
        }
        state.tidy();
        self.changed.notify_all();
    }

    /// Provides the pool until the process ends.
    fn provide(&self, registrar: &impl Registrar) {
        loop {
            let mut state = self.state.lock();
            let step = state.next();
            let is_done = match step {
                Step::Wait => {
                    self.changed.wait(&mut state);
                    continue;
                }
                Step::Map(missing) => Area::new(missing.min(AHEAD), BLOCK)
                    .map(|area| {
                        state.unfilled.extend(area.parts(BLOCK));
                        state.areas.push(area);
                    })
                    .is_ok(),
                Step::Fill(block) => {
                    drop(state);
                    // SAFETY: a block of `areas` that is in none of the lists, so nobody uses it. It stays mapped as long as it is in one of
                    // them or changes (`State::tidy`).
                    let (is_there, is_registered) = unsafe {
                        let is_there = fill(block, BLOCK);
                        (is_there, is_there && registrar.register(block, BLOCK))
                    };
                    state = self.state.lock();
                    state.changing -= 1;
                    if is_there {
                        state.add(block, is_registered)
                    } else {
                        state.unfilled.push(block)
                    }
                    is_there
                }
                Step::Empty(block, Block { is_registered, .. }) => {
                    drop(state);
                    let is_over = !is_registered || registrar.unregister(block);
                    if is_over {
                        // SAFETY: as above.
                        unsafe { empty(block, BLOCK) };
                    }
                    state = self.state.lock();
                    state.changing -= 1;
                    // The device could still copy to the old pages of one that may be registered.
                    if is_over {
                        state.unfilled.push(block)
                    } else {
                        state.add(block, true)
                    }
                    is_over
                }
            };
            state.tidy();
            if !is_done {
                self.changed.wait_for(&mut state, PAUSE);
            }
        }
    }
}

#[cfg(test)]
#[path = "pages_test.rs"]
mod tests;
