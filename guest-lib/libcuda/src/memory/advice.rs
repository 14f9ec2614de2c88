// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Advice on managed memory and where it was prefetched to. Nothing migrates, but programs may ask what they said.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::table::window::PAGE_BYTES;
use cuda_abi::CUmemLocation;

/// The advice for a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// It is mostly read.
    pub read_mostly: bool,
    /// The preferred location.
    pub preferred: Option<CUmemLocation>,
    /// Devices that access it.
    pub accessed_by: BTreeSet<i32>,
    /// The target of the latest prefetch.
    pub prefetched: Option<CUmemLocation>,
}

/// The advice by first address of a stretch of pages, with its end. Stretches do not overlap.
#[derive(Debug, Default)]
pub struct Advice(Mutex<BTreeMap<u64, (u64, Page)>>);

type Stretches = BTreeMap<u64, (u64, Page)>;

/// The pages that `bytes` bytes from `start` on touch; the caller knows that they are memory.
fn pages(start: u64, bytes: u64) -> (u64, u64) {
    let end = (start + bytes).next_multiple_of(PAGE_BYTES);
    (start / PAGE_BYTES * PAGE_BYTES, end)
}

/// Makes a stretch begin at `at`, if one reaches over it.
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

    /// Forgets what was said about memory that is new now.
    pub fn forget(&self, start: u64, bytes: u64) {
        let (start, end) = pages(start, bytes);
        let mut stretches = self.lock();
        cut(&mut stretches, start);
        cut(&mut stretches, end);
        stretches.retain(|&first, _| first < start || first >= end);
    }

    /// Changes what is said about all pages of a range.
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
        // Neighbours about which the same was said become one, so that the table does not grow for ever.
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

    /// Returns the advice for the pages of a range: each different stretch once.
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
