// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Ordinary buffers that are copied again and again: the device keeps their pages, registered with the GPU, and
//! later copies go at the link's full speed. The transport tells when the program has unmapped or replaced such
//! pages; then the copy goes the ordinary way.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use virtio_cuda_client::protocol::{DevicePtr, StreamId};
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{CudaError, calls};

use crate::driver::Driver;
use crate::entry::Api;
use crate::memory::attach::{Attached, attach_tracked};
use crate::memory::timing::Timing;
use crate::memory::window::{PAGE_BYTES, round_up};

/// Copies before a buffer is kept, instead of [`USES`]; 0 turns the cache off.
const CACHE_VARIABLE: &str = "VIRTIO_CUDA_CACHE";
/// Shorter copies gain nothing.
const MIN_BYTES: usize = 1 << 20;
/// A copy from the cache waits for its stream. Up to this size a copy in stream order does not, natively.
const MIN_STREAM_BYTES: usize = 8 << 20;
/// Registering costs as much as dozens of copies: a buffer has to have been copied so often before …
const USES: i32 = 12;
/// … twice as often each time that an entry was made in vain, up to so many times …
const MOST_VAIN: u32 = 2;
/// … and, after it could not be kept or did not stay, twice that again; each time more often, up to this.
const MOST_PATIENCE: i32 = 256;
/// Buffers that are remembered.
const MAX_SEEN: usize = 64;

/// The buffers of a process.
#[derive(Debug, Default)]
pub struct Cache {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The kept ones, the least recently used first.
    entries: VecDeque<Arc<Entry>>,
    /// Those that were copied.
    seen: VecDeque<Seen>,
    /// A thread is at registering.
    busy: bool,
    /// See [`USES`].
    uses: i32,
    /// Entries that were made in vain, less those that were worth it.
    vain: u32,
}

/// A buffer that is not kept.
#[derive(Clone, Copy, Debug)]
struct Seen {
    pages: Pages,
    /// How often it was copied (negative: to be left alone so often).
    uses: i32,
    /// How often it is to be left alone the next time.
    patience: i32,
}

/// Whole pages, from the first byte to the one behind the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pages {
    start: u64,
    end: u64,
}

/// A buffer whose pages the device keeps until the last user is done.
#[derive(Debug)]
pub struct Entry {
    pages: Pages,
    window: u64,
    context: u64,
    attached: Attached,
    /// Copies that used it.
    copies: AtomicI32,
    /// [`Seen::patience`] of the buffer.
    patience: i32,
}

impl Pages {
    fn of(address: u64, bytes: usize) -> Option<Self> {
        let end = round_up(address.checked_add(bytes as u64)?).ok()?;
        Some(Self { start: address / PAGE_BYTES * PAGE_BYTES, end })
    }

    fn bytes(self) -> u64 {
        self.end - self.start
    }

    fn hold(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    fn touch(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(driver) = Driver::get() {
            driver.unpin(&self.attached.pinned);
            driver.memory.window.give_back(self.window, self.pages.bytes());
        }
    }
}

impl Entry {
    fn is_fresh(&self, api: Api) -> bool {
        let transport = api.driver.session.transport();
        self.attached.pinned.iter().all(|piece| transport.is_fresh(piece.tag))
    }
}

impl State {
    /// Counts one more copy of `pages`. If they are worth keeping now: the patience to have with them.
    fn count(&mut self, pages: Pages) -> Option<i32> {
        match self.seen.iter_mut().find(|seen| seen.pages == pages) {
            Some(seen) => {
                seen.uses += 1;
                (seen.uses > self.uses << self.vain).then_some(seen.patience)
            }
            None => {
                self.remember(Seen { pages, uses: 1, patience: 2 * self.uses });
                None
            }
        }
    }

    /// Leaves `pages` alone for a while.
    fn shun(&mut self, pages: Pages, patience: i32) {
        self.remember(Seen { pages, uses: -patience, patience: (4 * patience).min(MOST_PATIENCE) });
    }

    fn remember(&mut self, new: Seen) {
        self.seen.retain(|seen| seen.pages != new.pages);
        if self.seen.len() >= MAX_SEEN {
            self.seen.pop_front();
        }
        self.seen.push_back(new);
    }

    /// Learns from an entry that has been of use, or is of none any more.
    fn learn(&mut self, entry: &Entry, gone: bool) {
        match (entry.copies.load(Ordering::Relaxed).cmp(&self.uses), gone) {
            (std::cmp::Ordering::Less, true) => self.vain = (self.vain + 1).min(MOST_VAIN),
            (std::cmp::Ordering::Equal, false) => self.vain = self.vain.saturating_sub(1),
            _ => {}
        }
    }

    /// The entry that holds `pages`, which becomes the most recently used one.
    fn find(&mut self, pages: Pages) -> Option<Arc<Entry>> {
        let index = self.entries.iter().position(|entry| entry.pages.hold(pages))?;
        let entry = self.entries.remove(index)?;
        self.entries.push_back(entry.clone());
        Some(entry)
    }

    /// Takes out what is in the way of `pages` and as much as has to go for them to fit `most` bytes.
    fn make_room(&mut self, pages: Pages, most: u64) -> Vec<Arc<Entry>> {
        let (mut out, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.entries).into_iter().partition(|entry| entry.pages.touch(pages));
        self.entries = kept;
        let mut sum: u64 = self.entries.iter().map(|entry| entry.pages.bytes()).sum();
        while sum + pages.bytes() > most
            && let Some(oldest) = self.entries.pop_front()
        {
            sum -= oldest.pages.bytes();
            out.push_back(oldest);
        }
        out.into()
    }
}

impl Cache {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets all go; whether there was anything.
    pub fn clear(&self) -> bool {
        let gone = std::mem::take(&mut self.state().entries);
        !gone.is_empty()
    }

    /// Forgets what was registered in a context that is gone.
    pub fn forget_context(&self, context: u64) {
        let mut state = self.state();
        let (gone, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut state.entries).into_iter().partition(|entry| entry.context == context);
        state.entries = kept;
        drop(state);
        drop(gone);
    }

    /// The entry that a copy of `bytes` bytes at `address` can use.
    fn look_up(&self, api: Api, address: u64, bytes: usize, most: u64) -> Option<Arc<Entry>> {
        let pages = Pages::of(address, bytes)?;
        let mut state = self.state();
        state.uses = uses();
        if let Some(entry) = state.find(pages) {
            if entry.is_fresh(api) {
                entry.copies.fetch_add(1, Ordering::Relaxed);
                state.learn(&entry, false);
                return Some(entry);
            }
            state.learn(&entry, true);
            log::debug!("The pages at {address:#x} are others now");
            state.entries.pop_back();
            state.shun(entry.pages, entry.patience);
            // Unpinned without the lock.
            drop(state);
            return None;
        }
        if pages.bytes() > most {
            return None;
        }
        let patience = state.count(pages)?;
        if state.busy {
            return None;
        }
        let evicted = state.make_room(pages, most);
        state.busy = true;
        drop(state);
        drop(evicted);
        let made = register(api, pages, patience);
        let mut state = self.state();
        state.busy = false;
        match made {
            Ok(entry) => {
                log::debug!("{} bytes at {address:#x} are kept", pages.bytes());
                let entry = Arc::new(entry);
                state.entries.push_back(entry.clone());
                state.seen.retain(|seen| seen.pages != pages);
                Some(entry)
            }
            Err(error) => {
                log::debug!("{} bytes at {address:#x} are not kept: {error}", pages.bytes());
                state.shun(pages, patience);
                None
            }
        }
    }
}

fn register(api: Api, pages: Pages, patience: i32) -> Result<Entry, CudaError> {
    let context = api.context()?.0;
    let memory = UserMemory { address: pages.start as usize, bytes: pages.bytes() as usize };
    let window = api.driver.memory.window.take(pages.bytes())?;
    match attach_tracked(api, memory, window) {
        Ok(attached) => Ok(Entry { pages, window, context, attached, copies: AtomicI32::new(0), patience }),
        Err(error) => {
            api.driver.memory.window.give_back(window, pages.bytes());
            Err(error)
        }
    }
}

/// Copies before a buffer is kept.
fn uses() -> i32 {
    static USES_WANTED: OnceLock<i32> = OnceLock::new();
    *USES_WANTED.get_or_init(|| {
        let wanted = std::env::var(CACHE_VARIABLE).ok().and_then(|value| value.parse().ok());
        wanted.unwrap_or(USES).clamp(0, MOST_PATIENCE)
    })
}

/// Most bytes that are kept; 0 for no cache.
fn limit(api: Api) -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(|| if uses() == 0 { 0 } else { api.driver.session.transport().cache_bytes() })
}

impl Api {
    /// Does what needs pinned pages: if there is no room for them, once more without the cache.
    pub fn with_room<T>(&self, body: impl Fn() -> Result<T, CudaError>) -> Result<T, CudaError> {
        match body() {
            Err(CudaError::OUT_OF_MEMORY) if self.driver.memory.cache.clear() => body(),
            outcome => outcome,
        }
    }

    /// The cache's entry for a copy of ordinary memory, if it is to be used.
    ///
    /// Errors: that of an earlier call which nobody has been told of.
    pub fn cached(&self, memory: UserMemory, timing: Timing) -> Result<Option<Arc<Entry>>, CudaError> {
        let least = if timing == Timing::Wait { MIN_BYTES } else { MIN_STREAM_BYTES };
        if memory.bytes < least {
            return Ok(None);
        }
        let most = limit(*self);
        if most == 0 || !self.driver.session.transport().can_track(memory) {
            return Ok(None);
        }
        // Errors of what follows here are not the program's business.
        self.driver.session.order()?;
        Ok(self.driver.memory.cache.look_up(*self, memory.address as u64, memory.bytes, most))
    }

    /// Copies between device memory and a buffer of the cache, and waits for it: until then the buffer is the
    /// program's only in name. False: the driver has taken the pages back meanwhile (the kernel moved them, or
    /// another thread changed the mapping), so that the copy has to go the ordinary way.
    pub fn by_cache(
        &self,
        entry: &Entry,
        memory: UserMemory,
        (device, to_device): (u64, bool),
        stream: StreamId,
    ) -> Result<bool, CudaError> {
        let host = entry.attached.device_address + (memory.address as u64 - entry.pages.start);
        let (to, from) = if to_device { (device, host) } else { (host, device) };
        let mut call = self.in_context()?;
        match calls::memcpy_wait(&mut call, DevicePtr(to), DevicePtr(from), memory.bytes as u64, stream) {
            Err(CudaError::INVALID_VALUE) if !entry.is_fresh(*self) => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(start: u64, count: u64) -> Pages {
        Pages { start: start * PAGE_BYTES, end: (start + count) * PAGE_BYTES }
    }

    fn entry(pages: Pages) -> Arc<Entry> {
        // Without a driver, nothing is unpinned at the end.
        let attached = Attached { device_address: 0, pinned: Vec::new() };
        let (copies, patience) = (AtomicI32::new(0), 2 * USES);
        Arc::new(Entry { pages, window: 0, context: 1, attached, copies, patience })
    }

    fn state() -> State {
        State { uses: USES, ..State::default() }
    }

    #[test]
    fn buffers_have_to_come_again() {
        let mut state = state();
        let count = |state: &mut State, times| -> Vec<bool> {
            (0..times).map(|_| state.count(pages(0, 300)).is_some()).collect()
        };
        let first = |flags: Vec<bool>| flags.iter().position(|&worth| worth);
        assert_eq!(first(count(&mut state, 20)), Some(USES as usize));
        assert_eq!(state.count(pages(0, 301)), None, "another one");
        state.shun(pages(0, 300), 2 * USES);
        assert_eq!(first(count(&mut state, 50)), Some(((2 * USES) + USES) as usize));
        assert_eq!(state.count(pages(0, 300)), Some(4 * (2 * USES)), "more patience the next time");
        state.shun(pages(0, 300), MOST_PATIENCE);
        assert_eq!(first(count(&mut state, 500)), Some((MOST_PATIENCE + USES) as usize));
        assert_eq!(state.count(pages(0, 300)), Some(MOST_PATIENCE));
        (0..MAX_SEEN as u64).for_each(|index| assert!(state.count(pages(1000 * index + 1, 300)).is_none()));
        assert_eq!(state.seen.len(), MAX_SEEN);
        assert!(state.count(pages(0, 300)).is_none(), "forgotten");
    }

    #[test]
    fn entries_made_in_vain_make_the_next_ones_rarer() {
        let mut state = state();
        let entry = entry(pages(0, 300));
        let needed = |state: &mut State, at| (1..).find(|_| state.count(pages(at, 300)).is_some());
        assert_eq!(needed(&mut state, 1000), Some(USES + 1));
        (0..5).for_each(|_| state.learn(&entry, true));
        assert_eq!(needed(&mut state, 2000), Some((USES << MOST_VAIN) + 1));
        entry.copies.store(USES, Ordering::Relaxed);
        state.learn(&entry, false);
        assert_eq!(needed(&mut state, 3000), Some((USES << (MOST_VAIN - 1)) + 1));
        entry.copies.store(USES + 1, Ordering::Relaxed);
        (0..5).for_each(|_| [true, false].iter().for_each(|&gone| state.learn(&entry, gone)));
        assert_eq!(needed(&mut state, 4000), Some((USES << (MOST_VAIN - 1)) + 1), "it was worth it, once");
    }

    #[test]
    fn the_least_recently_used_goes_first_and_what_is_in_the_way() {
        let entries = [pages(0, 10), pages(20, 10), pages(40, 10)].map(entry).into();
        let mut state = State { entries, ..state() };
        assert_eq!(state.find(pages(2, 3)).map(|entry| entry.pages), Some(pages(0, 10)));
        assert!(state.find(pages(25, 6)).is_none(), "reaches out of the entry");
        let starts = |entries: &[Arc<Entry>]| entries.iter().map(|entry| entry.pages).collect::<Vec<_>>();
        let out = state.make_room(pages(45, 10), 25 * PAGE_BYTES);
        assert_eq!(starts(&out), [pages(40, 10), pages(20, 10)]);
        assert_eq!(starts(state.entries.make_contiguous()), [pages(0, 10)]);
        assert_eq!(state.make_room(pages(100, 25), 25 * PAGE_BYTES).len(), 1);
    }

    #[test]
    fn pages_are_rounded_outwards() {
        assert_eq!(Pages::of(4097, 4096), Some(pages(1, 2)));
        assert_eq!(Pages::of(8192, 4096), Some(pages(2, 1)));
        assert_eq!(Pages::of(u64::MAX - 4096, 8192), None);
    }
}
