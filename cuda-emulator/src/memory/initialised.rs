// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records the bytes of device memory that have been written, for `CUDA_EMULATOR_CHECK=init`. An access by the host
//! counts as a write, even if it only reads: a miss is better than a false alarm.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Bytes that one entry covers.
const PAGE: u64 = 4096;
const WORDS: usize = PAGE as usize / 64;

/// A page of which some bytes, or all (`None`), have been written.
type Page = Option<Box<[u64; WORDS]>>;

#[derive(Debug, Default)]
pub(super) struct Initialised {
    pages: Mutex<HashMap<u64, Page>>,
}

impl Initialised {
    /// Counts `bytes` bytes from `start` on as written.
    pub(super) fn add(&self, start: u64, bytes: u64) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let end = start.saturating_add(bytes);
        let mut at = start;
        while at < end {
            let (page, next) = (at / PAGE, (at / PAGE + 1) * PAGE);
            if at.is_multiple_of(PAGE) && next <= end {
                pages.insert(page, None);
            } else if let Some(bits) = pages.entry(page).or_insert_with(|| Some(Box::new([0; WORDS]))) {
                for byte in at % PAGE..next.min(end) - page * PAGE {
                    bits[byte as usize / 64] |= 1 << (byte % 64);
                }
            }
            at = next;
        }
    }

    /// The first of `bytes` bytes from `start` on that has not been written.
    pub(super) fn first_missing(&self, start: u64, bytes: u64) -> Option<u64> {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        (start..start.saturating_add(bytes)).find(|at| match pages.get(&(at / PAGE)) {
            None => true,
            Some(None) => false,
            Some(Some(bits)) => {
                let byte = (at % PAGE) as usize;
                bits[byte / 64] & 1 << (byte % 64) == 0
            }
        })
    }

    /// Forgets a freed range.
    pub(super) fn remove(&self, start: u64, bytes: u64) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let end = start.saturating_add(bytes);
        // Allocations are guarded and aligned, but small ones may share a page.
        pages.retain(|page, _| page * PAGE + PAGE <= start || page * PAGE >= end || page * PAGE < start);
        let first = start / PAGE;
        if let Some(Some(bits)) = pages.get_mut(&first) {
            for byte in start % PAGE..(end - first * PAGE).min(PAGE) {
                bits[byte as usize / 64] &= !(1 << (byte % 64));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_apart() {
        let memory = Initialised::default();
        memory.add(4090, 10_000);
        assert_eq!(memory.first_missing(4090, 10_000), None);
        assert_eq!(memory.first_missing(4089, 10), Some(4089));
        assert_eq!(memory.first_missing(14_000, 200), Some(14_090));
        memory.remove(4090, 10_000);
        assert_eq!(memory.first_missing(8192, 4), Some(8192));
    }
}
