// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The free bytes of a pool: available at once, or available to a stream or after a mark.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::thread::ThreadId;

use range_alloc::RangeAllocator;

/// Allocations are aligned to this many bytes, and their length is a multiple of it.
pub const UNIT: u64 = 512;

/// A stream, distinguished from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamKey {
    /// Context of the stream.
    pub context: u64,
    /// Handle of the stream.
    pub stream: u64,
    /// The thread, for the per-thread default stream.
    pub thread: Option<ThreadId>,
}

/// Memory that was freed in the order of a stream.
#[derive(Debug)]
struct PendingFree<M> {
    place: Range<u64>,
    stream: StreamKey,
    /// Reports when the stream has reached the free.
    mark: Arc<M>,
}

/// The addresses of a pool. `M` reports when a stream has reached a free.
///
/// # Invariants
///
/// The bytes of each `PendingFree` lie in a chunk and are not free there.
#[derive(Debug)]
pub struct Space<M> {
    /// The chunks by first address.
    chunks: BTreeMap<u64, RangeAllocator<u64>>,
    /// Ordered by the time of the free.
    pending: Vec<PendingFree<M>>,
}

impl<M> Default for Space<M> {
    fn default() -> Self {
        Self { chunks: BTreeMap::new(), pending: Vec::new() }
    }
}

impl<M> Space<M> {
    /// Takes `bytes` bytes, a multiple of [`UNIT`], for work of `stream`: from memory that the stream has freed itself,
    /// or from free memory.
    pub fn take(&mut self, bytes: u64, stream: StreamKey) -> Option<u64> {
        let own = self.pending.iter().enumerate();
        let fits = own.filter(|(_, free)| free.stream == stream && bytes <= length(&free.place));
        if let Some((index, _)) = fits.min_by_key(|(_, free)| length(&free.place)) {
            let place = &mut self.pending[index].place;
            let start = place.start;
            place.start += bytes;
            if place.is_empty() {
                self.pending.remove(index);
            }
            return Some(start);
        }
        self.chunks.values_mut().find_map(|chunk| chunk.allocate_range(bytes).ok()).map(|place| place.start)
    }

    /// Frees memory of [`Self::take`]. The stream may reuse it at once, others once it has reached `mark`.
    pub fn free_later(&mut self, place: Range<u64>, stream: StreamKey, mark: Arc<M>) {
        self.pending.push(PendingFree { place, stream, mark });
    }

    /// Frees memory of [`Self::take`] that is no longer in use.
    pub fn free(&mut self, place: Range<u64>) {
        if let Some((_, chunk)) = self.chunks.range_mut(..=place.start).next_back() {
            chunk.free_range(place);
        }
    }

    /// Returns whether anything is pending.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Frees pending blocks in the order of each stream, until `reached` returns false for one of them. Returns whether
    /// anything was freed.
    pub fn free_reached(&mut self, mut reached: impl FnMut(&M) -> bool) -> bool {
        let mut waiting: Vec<StreamKey> = Vec::new();
        let (mut waiting_frees, mut any) = (Vec::new(), false);
        let mut last: Option<(Arc<M>, bool)> = None;
        for pending in std::mem::take(&mut self.pending) {
            // Parts of one allocation share their mark.
            let known =
                last.as_ref().filter(|(mark, _)| Arc::ptr_eq(mark, &pending.mark)).map(|(_, said)| *said);
            let free = !waiting.contains(&pending.stream) && known.unwrap_or_else(|| reached(&pending.mark));
            last = Some((pending.mark.clone(), free));
            if free {
                any = true;
                self.free(pending.place);
            } else {
                waiting.push(pending.stream);
                waiting_frees.push(pending);
            }
        }
        self.pending = waiting_frees;
        any
    }

    /// Takes `bytes` bytes that other streams have freed, once `hold_back` has made `stream` wait for one of them.
    pub fn take_from_others(
        &mut self,
        bytes: u64,
        stream: StreamKey,
        hold_back: impl FnOnce(&M) -> bool,
    ) -> Option<u64> {
        let fits = self.pending.iter_mut().filter(|free| bytes <= length(&free.place));
        let best = fits.min_by_key(|free| length(&free.place))?;
        if !hold_back(&best.mark) {
            return None;
        }
        best.stream = stream;
        self.take(bytes, stream)
    }

    /// Adds free memory.
    pub fn add_chunk(&mut self, chunk: Range<u64>) {
        self.chunks.insert(chunk.start, RangeAllocator::new(chunk));
    }

    /// Removes the last chunk that is free as a whole.
    pub fn remove_idle(&mut self) -> Option<u64> {
        let (&start, _) = self.chunks.iter().rev().find(|(_, chunk)| chunk.is_empty())?;
        self.chunks.remove(&start);
        Some(start)
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(stream: u64) -> StreamKey {
        StreamKey { context: 1, stream, thread: None }
    }

    #[test]
    fn a_stream_gets_back_what_it_freed_and_others_when_it_came_there() {
        let mut space = Space::default();
        assert_eq!(space.take(UNIT, stream(3)), None);
        space.add_chunk(0x10000..0x10000 + 4 * UNIT);
        let first = space.take(4 * UNIT, stream(3)).expect("all of it");
        space.free_later(first..first + 4 * UNIT, stream(3), Arc::new(1));
        assert_eq!(space.take(UNIT, stream(4)), None, "stream 3 may not be there yet");
        assert_eq!(space.take(UNIT, stream(3)), Some(first));
        assert!(!space.free_reached(|_| false));
        assert_eq!(space.take(UNIT, stream(4)), None);
        assert!(space.free_reached(|&mark| mark == 1) && !space.has_pending());
        assert_eq!(space.take(3 * UNIT, stream(4)), Some(first + UNIT));
    }

    #[test]
    fn frees_of_a_stream_are_looked_at_in_order() {
        let mut space = Space::default();
        space.add_chunk(0x10000..0x20000);
        for mark in [1, 2, 3] {
            let place = space.take(UNIT, stream(9)).expect("room");
            space.free_later(place..place + UNIT, stream(mark % 2), Arc::new(mark));
        }
        let mut asked = Vec::new();
        assert!(space.free_reached(|&mark| {
            asked.push(mark);
            mark == 2
        }));
        assert_eq!(asked, [1, 2], "3 is of the stream of 1");
        assert_eq!(space.take_from_others(2 * UNIT, stream(4), |_| true), None, "no piece is as long");
        assert_eq!(space.take_from_others(UNIT, stream(4), |_| false), None);
        assert_eq!(space.take_from_others(UNIT, stream(4), |&mark| mark == 1), Some(0x10000));
    }

    #[test]
    fn chunks_go_when_nothing_is_in_them() {
        let mut space = Space::default();
        space.add_chunk(0x10000..0x20000);
        space.add_chunk(0x30000..0x40000);
        let held = space.take(UNIT, stream(3)).expect("room");
        assert_eq!(space.remove_idle(), Some(0x30000));
        assert_eq!(space.remove_idle(), None);
        space.free_later(held..held + UNIT, stream(3), Arc::new(1));
        assert_eq!(space.remove_idle(), None, "a stream may still use it");
        assert!(space.free_reached(|_| true));
        assert_eq!(space.remove_idle(), Some(0x10000));
    }
}
