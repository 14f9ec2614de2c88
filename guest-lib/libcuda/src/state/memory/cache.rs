// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Buffers that the cache ([`crate::memory::copy::cached`]) keeps, and candidates.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::state::memory::pinned::Attached;
use crate::state::memory::window::{PAGE_BYTES, round_up};

/// The number of copies after which a buffer is kept, because registering costs as much as dozens of copies.
pub const USES: i32 = 12;
/// The number doubles with each entry that was made in vain, at most this many times.
pub const MAX_VAIN: u32 = 2;
/// The maximum number of copies during which a buffer is ignored after it could not be kept or did not stay; grows each
/// time.
pub const MAX_PATIENCE: i32 = 256;
/// Maximum number of candidates.
pub const MAX_SEEN: usize = 64;

/// The buffers of a process.
#[derive(Debug, Default)]
pub struct Cache {
    pub state: Mutex<State>,
}

#[derive(Debug, Default)]
pub struct State {
    /// Kept buffers, the least recently used first.
    pub entries: VecDeque<Arc<Entry>>,
    /// Buffers that were copied.
    pub seen: VecDeque<Seen>,
    /// Set while a thread registers a buffer.
    pub busy: bool,
    /// The current value of [`USES`].
    pub uses: i32,
    /// Number of entries that were made in vain, minus those that were worth it.
    pub vain: u32,
}

/// A buffer that is not kept.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub pages: Pages,
    /// The number of copies. Negative: the number of further copies during which it is ignored.
    pub uses: i32,
    /// The number of copies during which it is ignored the next time.
    pub patience: i32,
}

/// Whole pages, from the first byte to the byte after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    pub start: u64,
    pub end: u64,
}

/// A buffer whose pages the device keeps until its last user is done.
#[derive(Debug)]
pub struct Entry {
    pub pages: Pages,
    pub window: u64,
    pub context: u64,
    pub attached: Attached,
    /// Number of copies that used it.
    pub copies: AtomicI32,
    /// [`Seen::patience`] of the buffer.
    pub patience: i32,
}

impl Pages {
    pub fn of(address: u64, bytes: usize) -> Option<Self> {
        let end = round_up(address.checked_add(bytes as u64)?).ok()?;
        Some(Self { start: address / PAGE_BYTES * PAGE_BYTES, end })
    }

    pub fn bytes(self) -> u64 {
        self.end - self.start
    }

    pub fn hold(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    pub fn touch(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

impl State {
    /// Counts a copy of `pages`. If they are worth keeping now, returns the patience for them.
    pub fn count(&mut self, pages: Pages) -> Option<i32> {
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

    /// Ignores `pages` for a while.
    pub fn shun(&mut self, pages: Pages, patience: i32) {
        self.remember(Seen { pages, uses: -patience, patience: (4 * patience).min(MAX_PATIENCE) });
    }

    pub fn remember(&mut self, new: Seen) {
        self.seen.retain(|seen| seen.pages != new.pages);
        if self.seen.len() >= MAX_SEEN {
            self.seen.pop_front();
        }
        self.seen.push_back(new);
    }

    /// Updates the statistics when an entry has proved useful, or when it is removed.
    pub fn learn(&mut self, entry: &Entry, removed: bool) {
        match (entry.copies.load(Ordering::Relaxed).cmp(&self.uses), removed) {
            (std::cmp::Ordering::Less, true) => self.vain = (self.vain + 1).min(MAX_VAIN),
            (std::cmp::Ordering::Equal, false) => self.vain = self.vain.saturating_sub(1),
            _ => {}
        }
    }

    /// Returns the entry that contains `pages`, which becomes the most recently used one.
    pub fn find(&mut self, pages: Pages) -> Option<Arc<Entry>> {
        let index = self.entries.iter().position(|entry| entry.pages.hold(pages))?;
        let entry = self.entries.remove(index)?;
        self.entries.push_back(entry.clone());
        Some(entry)
    }

    /// Removes entries that overlap `pages`, and as many others as needed for them to fit in `most` bytes.
    pub fn make_room(&mut self, pages: Pages, most: u64) -> Vec<Arc<Entry>> {
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
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes all entries. Returns whether there were any.
    pub fn clear(&self) -> bool {
        let removed = std::mem::take(&mut self.state().entries);
        !removed.is_empty()
    }

    /// Removes entries that were registered in a destroyed context.
    pub fn forget_context(&self, context: u64) {
        let mut state = self.state();
        let (removed, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut state.entries).into_iter().partition(|entry| entry.context == context);
        state.entries = kept;
        drop(state);
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(start: u64, count: u64) -> Pages {
        Pages { start: start * PAGE_BYTES, end: (start + count) * PAGE_BYTES }
    }

    fn entry(pages: Pages) -> Arc<Entry> {
        // Without a driver, dropping an entry unpins nothing.
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
        state.shun(pages(0, 300), MAX_PATIENCE);
        assert_eq!(first(count(&mut state, 500)), Some((MAX_PATIENCE + USES) as usize));
        assert_eq!(state.count(pages(0, 300)), Some(MAX_PATIENCE));
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
        assert_eq!(needed(&mut state, 2000), Some((USES << MAX_VAIN) + 1));
        entry.copies.store(USES, Ordering::Relaxed);
        state.learn(&entry, false);
        assert_eq!(needed(&mut state, 3000), Some((USES << (MAX_VAIN - 1)) + 1));
        entry.copies.store(USES + 1, Ordering::Relaxed);
        (0..5).for_each(|_| [true, false].iter().for_each(|&removed| state.learn(&entry, removed)));
        assert_eq!(needed(&mut state, 4000), Some((USES << (MAX_VAIN - 1)) + 1), "it was worth it, once");
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
