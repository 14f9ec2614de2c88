// SPDX-License-Identifier: GPL-2.0-only

//! Page arithmetic: the pages that a buffer touches, and runs of adjacent ones.

use crate::transport::{
    MemEntry,
    PAGE_BYTES, //
};
use kernel::prelude::*;

/// Maximum number of pages of a [`Run`]: its bytes must fit into [`MemEntry::bytes`].
const MAX_RUN_PAGES: u32 = (u32::MAX as u64 / PAGE_BYTES) as u32;

/// The pages that a buffer touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    /// Address of the first page.
    pub(crate) first_page: u64,
    /// Offset of the buffer in the first page.
    pub(crate) offset: u32,
    /// Bytes of the buffer, at least 1.
    pub(crate) bytes: u64,
    /// Number of pages.
    pub(crate) pages: u64,
}

impl Span {
    /// Returns the span of `bytes` bytes at `addr`; `None` if it is empty or exceeds the address space.
    pub(crate) fn new(addr: u64, bytes: u64) -> Option<Self> {
        let last = addr.checked_add(bytes.checked_sub(1)?)?;
        let first_page = addr - addr % PAGE_BYTES;
        Some(Self {
            first_page,
            offset: (addr % PAGE_BYTES) as u32,
            bytes,
            pages: (last - first_page) / PAGE_BYTES + 1,
        })
    }

    /// Returns whether the buffer begins and ends at page boundaries.
    pub(crate) fn is_page_aligned(&self) -> bool {
        self.offset == 0 && self.bytes % PAGE_BYTES == 0
    }
}

/// Consecutive page frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// Number of the first frame.
    pub(crate) pfn: u64,
    /// Number of frames, at least 1.
    pub(crate) pages: u32,
}

impl Run {
    /// Adds a frame if it is the next one.
    fn extend(&mut self, pfn: u64) -> bool {
        let next = self.pages < MAX_RUN_PAGES && self.pfn + u64::from(self.pages) == pfn;
        if next {
            self.pages += 1;
        }
        next
    }

    fn bytes(&self) -> u32 {
        self.pages * PAGE_BYTES as u32
    }
}

/// Appends a frame to a list of runs.
pub(crate) fn push_frame(runs: &mut KVVec<Run>, pfn: u64) -> Result {
    if let Some(last) = runs.last_mut() {
        if last.extend(pfn) {
            return Ok(());
        }
    }
    runs.push(Run { pfn, pages: 1 }, GFP_KERNEL)?;
    Ok(())
}

/// Returns the entries of a buffer of `bytes` bytes that begins `offset` bytes into its first run.
pub(crate) fn entries(
    runs: &[Run],
    offset: u32,
    bytes: u64,
) -> impl Iterator<Item = MemEntry> + '_ {
    let mut offset = offset;
    let mut left = bytes;
    runs.iter().map_while(move |run| {
        let here = left.min(u64::from(run.bytes() - offset));
        if here == 0 {
            return None;
        }
        let entry = MemEntry {
            addr: run.pfn * PAGE_BYTES + u64::from(offset),
            bytes: here as u32,
            reserved: 0,
        };
        offset = 0;
        left -= here;
        Some(entry)
    })
}

#[kunit_tests(virtio_cuda_span)]
mod tests {
    use super::*;

    fn pages(addr: u64, bytes: u64) -> Option<u64> {
        Span::new(addr, bytes).map(|span| span.pages)
    }

    #[test]
    fn spans_count_the_pages_touched() {
        assert_eq!(pages(0, 1), Some(1));
        assert_eq!(pages(0, 4096), Some(1));
        assert_eq!(pages(4095, 2), Some(2));
        assert_eq!(pages(1, 4096), Some(2));
        assert_eq!(pages(8192, 1 << 30), Some(1 << 18));
    }

    #[test]
    fn spans_refuse_what_has_no_pages() {
        assert_eq!(pages(4096, 0), None);
        assert_eq!(pages(u64::MAX, 2), None);
        assert_eq!(pages(4096, u64::MAX), None);
        assert_eq!(pages(u64::MAX, 1), Some(1));
    }

    #[test]
    fn alignment_needs_both_ends() {
        assert!(Span::new(4096, 8192).is_some_and(|s| s.is_page_aligned()));
        assert!(!Span::new(4097, 8191).is_some_and(|s| s.is_page_aligned()));
        assert!(!Span::new(4096, 100).is_some_and(|s| s.is_page_aligned()));
    }

    #[test]
    fn frames_in_a_row_are_merged() -> Result {
        let mut runs = KVVec::new();
        for pfn in [7, 8, 9, 20, 19, 21] {
            push_frame(&mut runs, pfn)?;
        }
        let expected = [(7, 3), (20, 1), (19, 1), (21, 1)];
        assert!(runs.iter().map(|r| (r.pfn, r.pages)).eq(expected));
        Ok(())
    }

    #[test]
    fn a_run_ends_before_its_bytes_overflow() {
        let mut run = Run {
            pfn: 1,
            pages: MAX_RUN_PAGES - 1,
        };
        assert!(run.extend(u64::from(MAX_RUN_PAGES)));
        assert!(!run.extend(u64::from(MAX_RUN_PAGES) + 1));
        assert_eq!(run.bytes(), u32::MAX - 4095);
    }

    #[test]
    fn entries_cut_both_ends() {
        let runs = [Run { pfn: 2, pages: 2 }, Run { pfn: 9, pages: 1 }];
        let list = |offset, bytes| entries(&runs, offset, bytes).map(|e| (e.addr, e.bytes));
        assert!(list(100, 8092 + 10).eq([(8292, 8092), (36864, 10)]));
        assert!(list(0, 12288).eq([(8192, 8192), (36864, 4096)]));
        assert!(list(4000, 5).eq([(12192, 5)]));
    }
}
