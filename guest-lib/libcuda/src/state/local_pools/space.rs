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
    end: u64,
    stream: StreamKey,
    /// The number of the free, of the last one for several.
    number: u64,
    /// Reports when the stream has reached the free. Later marks of a stream have larger numbers. `None`: the free is the stream's
    /// own until a mark comes behind it.
    mark: Option<(u64, Arc<M>)>,
}

/// The addresses of a pool. `M` reports when a stream has reached a free.
///
/// # Invariants
///
/// The bytes of each `PendingFree` lie in one chunk and are not free there. Those of different ones do not overlap.
#[derive(Debug)]
pub struct Space<M> {
    /// The chunks by first address.
    chunks: BTreeMap<u64, RangeAllocator<u64>>,
    /// By first address.
    pending: BTreeMap<u64, PendingFree<M>>,
    /// The number of the last mark.
    marks: u64,
}

impl<M> Default for Space<M> {
    fn default() -> Self {
        Self { chunks: BTreeMap::new(), pending: BTreeMap::new(), marks: 0 }
    }
}

impl<M> Space<M> {
    /// Takes `bytes` bytes, a multiple of [`UNIT`], for work of `stream`: from memory that the stream has freed itself,
    /// or from free memory.
    pub fn take(&mut self, bytes: u64, stream: StreamKey) -> Option<u64> {
        let own = self.pending.iter().filter(|(_, free)| free.stream == stream);
        let fits = own.filter(|(start, free)| bytes <= free.end - **start);
        if let Some(start) = fits.min_by_key(|(start, free)| free.end - **start).map(|(&start, _)| start) {
            return self.cut(start, bytes);
        }
        self.chunks.values_mut().find_map(|chunk| chunk.allocate_range(bytes).ok()).map(|place| place.start)
    }

    /// Takes the first bytes of a pending free.
    fn cut(&mut self, start: u64, bytes: u64) -> Option<u64> {
        let free = self.pending.remove(&start)?;
        if start + bytes < free.end {
            self.pending.insert(start + bytes, free);
        }
        Some(start)
    }

    /// Frees memory of [`Self::take`]. The stream may reuse it at once, others once the stream has reached `mark`, or one that
    /// [`Self::mark`] brings. It becomes one piece with what the stream has freed beside it, which others get no earlier then.
    pub fn free_later(
        &mut self,
        place: Range<u64>,
        stream: StreamKey,
        mut number: u64,
        mark: Option<Arc<M>>,
    ) {
        let Range { mut start, mut end } = place;
        if !self.chunks.contains_key(&start)
            && let Some((&before, free)) = self.pending.range(..start).next_back()
            && free.end == start
            && free.stream == stream
        {
            number = number.max(free.number);
            self.pending.remove(&before);
            start = before;
        }
        if !self.chunks.contains_key(&end)
            && self.pending.get(&end).is_some_and(|free| free.stream == stream)
            && let Some(after) = self.pending.remove(&end)
        {
            number = number.max(after.number);
            end = after.end;
        }
        let mark = mark.map(|mark| (self.next_mark(), mark));
        self.pending.insert(start, PendingFree { end, stream, number, mark });
    }

    fn next_mark(&mut self) -> u64 {
        self.marks += 1;
        self.marks
    }

    /// The streams with frees behind which no mark is.
    pub fn unmarked(&self) -> Vec<StreamKey> {
        let mut streams = Vec::new();
        for free in self.pending.values().filter(|free| free.mark.is_none()) {
            if !streams.contains(&free.stream) {
                streams.push(free.stream);
            }
        }
        streams
    }

    /// Notes a mark behind all frees of a stream.
    pub fn mark(&mut self, stream: StreamKey, mark: &Arc<M>) {
        let number = self.next_mark();
        for free in self.pending.values_mut().filter(|free| free.stream == stream && free.mark.is_none()) {
            free.mark = Some((number, mark.clone()));
        }
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

    /// Frees pending blocks in the order of each stream's marks, until `reached` returns false for one of them. Returns whether
    /// anything was freed.
    pub fn free_reached(&mut self, mut reached: impl FnMut(&M) -> bool) -> bool {
        let mut marks: BTreeMap<u64, (StreamKey, Arc<M>)> = BTreeMap::new();
        for free in self.pending.values() {
            if let Some((number, mark)) = &free.mark {
                marks.entry(*number).or_insert_with(|| (free.stream, mark.clone()));
            }
        }
        let mut waiting: Vec<StreamKey> = Vec::new();
        marks.retain(|_, (stream, mark)| {
            let is_reached = !waiting.contains(stream) && reached(mark);
            if !is_reached {
                waiting.push(*stream);
            }
            is_reached
        });
        let is_free = |_: &u64, free: &mut PendingFree<M>| {
            free.mark.as_ref().is_some_and(|(number, _)| marks.contains_key(number))
        };
        let places: Vec<_> =
            self.pending.extract_if(.., is_free).map(|(start, free)| start..free.end).collect();
        let any = !places.is_empty();
        places.into_iter().for_each(|place| self.free(place));
        any
    }

    /// Frees what is pending for streams, up to the free with a number, which have reached it.
    pub fn free_where(&mut self, is_reached: impl Fn(StreamKey, u64) -> bool) {
        let is_free = |_: &u64, free: &mut PendingFree<M>| is_reached(free.stream, free.number);
        for (start, free) in self.pending.extract_if(.., is_free).collect::<Vec<_>>() {
            self.free(start..free.end);
        }
    }

    /// Frees what is pending for streams of a context that has ended, with their marks, which `ended` gets.
    pub fn free_of(&mut self, context: u64, ended: impl Fn(&M)) {
        let is_of = |_: &u64, free: &mut PendingFree<M>| free.stream.context == context;
        for (start, free) in self.pending.extract_if(.., is_of).collect::<Vec<_>>() {
            if let Some((_, mark)) = &free.mark {
                ended(mark);
            }
            self.free(start..free.end);
        }
    }

    /// Takes `bytes` bytes that some stream has freed, once `hold_back` has made the stream that takes them wait for the mark.
    pub fn take_from_others(&mut self, bytes: u64, hold_back: impl FnOnce(&M) -> bool) -> Option<u64> {
        let fits = self.pending.iter().filter(|(start, free)| bytes <= free.end - **start);
        let marked = fits.filter_map(|(&start, free)| Some((start, free.end, &free.mark.as_ref()?.1)));
        let (start, _, mark) = marked.min_by_key(|(start, end, _)| end - start)?;
        if !hold_back(mark) {
            return None;
        }
        // The rest stays the other stream's.
        self.cut(start, bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(stream: u64) -> StreamKey {
        StreamKey { context: 1, stream, thread: None }
    }

    fn mark(number: u64) -> Option<Arc<u64>> {
        Some(Arc::new(number))
    }

    /// A space of 64 KiB.
    fn space() -> Space<u64> {
        let mut space = Space::default();
        space.add_chunk(0x10000..0x20000);
        space
    }

    #[test]
    fn a_stream_gets_back_what_it_freed_and_others_when_it_came_there() {
        let mut space = Space::default();
        assert_eq!(space.take(UNIT, stream(3)), None);
        space.add_chunk(0x10000..0x10000 + 4 * UNIT);
        let first = space.take(4 * UNIT, stream(3)).expect("all of it");
        space.free_later(first..first + 4 * UNIT, stream(3), 1, mark(1));
        assert_eq!(space.take(UNIT, stream(4)), None, "stream 3 may not be there yet");
        assert_eq!(space.take(UNIT, stream(3)), Some(first));
        assert!(!space.free_reached(|_| false));
        assert_eq!(space.take(UNIT, stream(4)), None);
        assert!(space.free_reached(|&mark| mark == 1) && !space.has_pending());
        assert_eq!(space.take(3 * UNIT, stream(4)), Some(first + UNIT));
    }

    #[test]
    fn frees_of_a_stream_are_looked_at_in_order() {
        let mut space = space();
        for number in [1, 2, 3] {
            let place = space.take(UNIT, stream(9)).expect("room");
            space.free_later(place..place + UNIT, stream(number % 2), number, mark(number));
        }
        let mut asked = Vec::new();
        assert!(space.free_reached(|&mark| {
            asked.push(mark);
            mark == 2
        }));
        assert_eq!(asked, [1, 2], "3 is of the stream of 1");
        assert_eq!(space.take_from_others(2 * UNIT, |_| true), None, "no piece is as long");
        assert_eq!(space.take_from_others(UNIT, |_| false), None);
        assert_eq!(space.take_from_others(UNIT, |&mark| mark == 1), Some(0x10000));
    }

    #[test]
    fn frees_without_a_mark_are_their_streams_until_one_comes_behind_them() {
        let mut space = space();
        let all = [3, 4, 3].map(|of| (space.take(UNIT, stream(9)).expect("room"), stream(of)));
        for (place, of) in all {
            space.free_later(place..place + UNIT, of, 1, None);
        }
        assert_eq!(space.unmarked(), [stream(3), stream(4)]);
        assert!(!space.free_reached(|_| true));
        assert_eq!(space.take_from_others(UNIT, |_| true), None);
        space.mark(stream(3), &Arc::new(7));
        assert_eq!(space.unmarked(), [stream(4)]);
        let mut asked = 0;
        assert!(space.free_reached(|&mark| {
            asked += 1;
            mark == 7
        }));
        assert_eq!(asked, 1, "both have one mark");
        assert_eq!(space.take(UNIT, stream(4)), Some(all[1].0));
        assert!(!space.has_pending());
    }

    #[test]
    fn pieces_of_a_stream_are_joined_inside_of_a_chunk() {
        let mut space = space();
        space.add_chunk(0x20000..0x30000);
        let half = 0x8000;
        let all = [(); 4].map(|()| space.take(half, stream(3)).expect("room"));
        assert_eq!(all, [0x10000, 0x18000, 0x20000, 0x28000]);
        for index in [0, 3, 1, 2] {
            space.free_later(all[index]..all[index] + half, stream(3), index as u64, mark(index as u64));
        }
        assert_eq!(space.take(4 * half, stream(3)), None, "they are of two chunks");
        assert_eq!(space.take(2 * half, stream(3)), Some(all[0]));
        // The part that was freed first waits for the last mark.
        assert!(!space.free_reached(|&mark| mark != 2));
        assert!(space.free_reached(|&mark| mark == 2));
        assert_eq!(space.remove_idle(), Some(0x20000));
    }

    #[test]
    fn a_wait_frees_what_was_freed_before_it() {
        let mut space = space();
        let all = [3, 4, 3].map(|of| (space.take(UNIT, stream(9)).expect("room"), stream(of)));
        for (number, (place, of)) in (1..).zip(all) {
            space.free_later(place..place + UNIT, of, number, None);
        }
        space.free_where(|of, number| of == stream(3) && number <= 2);
        assert_eq!(space.take(UNIT, stream(5)), Some(all[0].0));
        assert_eq!(space.unmarked(), [stream(4), stream(3)]);
        // A longer piece has the number of its last part.
        space.free_later(all[0].0..all[0].0 + UNIT, stream(4), 9, None);
        space.free_where(|of, number| of == stream(4) && number <= 8);
        assert_eq!(space.take(2 * UNIT, stream(4)), Some(all[0].0), "both parts wait");
    }

    #[test]
    fn chunks_go_when_nothing_is_in_them() {
        let mut space = space();
        space.add_chunk(0x30000..0x40000);
        let held = space.take(UNIT, stream(3)).expect("room");
        assert_eq!(space.remove_idle(), Some(0x30000));
        assert_eq!(space.remove_idle(), None);
        space.free_later(held..held + UNIT, stream(3), 1, None);
        assert_eq!(space.remove_idle(), None, "a stream may still use it");
        space.mark(stream(3), &Arc::new(1));
        assert!(space.free_reached(|_| true));
        assert_eq!(space.remove_idle(), Some(0x10000));
    }
}
