// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Advice on managed memory, and the targets of prefetches, which programs can query. What they do is in [`managed`] and
//! [`moving`].
//!
//! [`managed`]: crate::memory::managed
//! [`moving`]: crate::memory::moving

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::state::memory::window::PAGE_BYTES;
use cuda_abi::CUmemLocation;

/// The advice for a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Set if it is mostly read.
    pub read_mostly: bool,
    /// The preferred location.
    pub preferred: Option<CUmemLocation>,
    /// Devices that access it.
    pub accessed_by: BTreeSet<i32>,
    /// The target of the last prefetch.
    pub prefetched: Option<CUmemLocation>,
}

/// The advice by the first address of a range of pages, with its end. Ranges do not overlap.
#[derive(Debug, Default)]
pub struct Advice(Mutex<BTreeMap<u64, (u64, Page)>>);

type Stretches = BTreeMap<u64, (u64, Page)>;

/// Returns the pages that contain `bytes` bytes from `start` on, which the caller has validated.
fn pages(start: u64, bytes: u64) -> (u64, u64) {
    let end = (start + bytes).next_multiple_of(PAGE_BYTES);
    (start / PAGE_BYTES * PAGE_BYTES, end)
}

/// Splits a range that contains `at`, so that one begins there.
fn cut(stretches: &mut Stretches, at: u64) {
    if let Some((_, (end, page))) = stretches.range_mut(..at).next_back()
        && *end > at
    {
        let rest = (*end, page.clone());
        *end = at;
        stretches.insert(at, rest);
    }
}

impl Advice {
    fn lock(&self) -> MutexGuard<'_, Stretches> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the advice on newly allocated memory.
    pub fn forget(&self, start: u64, bytes: u64) {
        let (start, end) = pages(start, bytes);
        let mut stretches = self.lock();
        cut(&mut stretches, start);
        cut(&mut stretches, end);
        stretches.retain(|&first, _| first < start || first >= end);
    }

    /// Changes the advice on all pages of a range.
    pub fn say(&self, start: u64, bytes: u64, change: impl Fn(&mut Page)) {
        let (start, end) = pages(start, bytes);
        let mut stretches = self.lock();
        cut(&mut stretches, start);
        cut(&mut stretches, end);
        let mut at = start;
        while at < end {
            if let Some((stop, page)) = stretches.get_mut(&at) {
                change(page);
                at = *stop;
                continue;
            }
            let stop = stretches.range(at..end).next().map_or(end, |(&next, _)| next);
            let mut page = Page::default();
            change(&mut page);
            stretches.insert(at, (stop, page));
            at = stop;
        }
        // Adjacent ranges with equal advice are merged, so that the table does not grow without limit.
        let mut merged: Option<u64> = None;
        let keys: Vec<u64> = stretches.range(..=end).map(|(&first, _)| first).collect();
        for first in keys {
            let joined = merged.and_then(|before| {
                let (stop, page) = stretches.get(&first)?.clone();
                let (end, other) = stretches.get_mut(&before)?;
                (*end == first && *other == page).then(|| *end = stop)
            });
            if joined.is_some() {
                stretches.remove(&first);
            } else {
                merged = Some(first);
            }
        }
    }

    /// Returns the advice for the pages of a range: one element per range with different advice.
    pub fn said(&self, start: u64, bytes: u64) -> Vec<Page> {
        let (start, end) = pages(start, bytes);
        let stretches = self.lock();
        let before = stretches.range(..start).next_back().filter(|(_, (stop, _))| *stop > start);
        let mut found = Vec::new();
        let mut at = start;
        for (&first, (stop, page)) in before.into_iter().chain(stretches.range(start..end)) {
            if first > at {
                found.push(Page::default());
            }
            found.push(page.clone());
            at = *stop;
        }
        if at < end {
            found.push(Page::default());
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x10_0000;

    #[test]
    fn advice_holds_for_its_pages_only() {
        let advice = Advice::default();
        let read_mostly = |from: u64, pages: u64| {
            advice
                .said(START + from * PAGE_BYTES, pages * PAGE_BYTES)
                .iter()
                .map(|page| page.read_mostly)
                .collect::<Vec<_>>()
        };
        advice.say(START + PAGE_BYTES + 5, 2 * PAGE_BYTES - 10, |page| page.read_mostly = true);
        assert_eq!(read_mostly(0, 4), [false, true, false]);
        assert_eq!(read_mostly(1, 2), [true]);
        advice.say(START + 2 * PAGE_BYTES, 1, |page| page.read_mostly = false);
        assert_eq!(read_mostly(1, 2), [true, false]);
        advice.forget(START, 4 * PAGE_BYTES);
        assert_eq!(read_mostly(0, 4), [false]);
    }

    #[test]
    fn neighbours_become_one() {
        let advice = Advice::default();
        for page in 0..1000 {
            advice.say(START + page * PAGE_BYTES, PAGE_BYTES, |page| page.read_mostly = true);
        }
        assert_eq!(advice.lock().len(), 1);
        assert_eq!(advice.said(START, 1000 * PAGE_BYTES).len(), 1);
    }
}
