// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The range that each memory instruction touched last: most accesses of an instruction stay in one allocation.

use crate::memory::Memory;

/// A remembered range. Translated code reads it.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Known {
    pub(crate) base: u64,
    pub(crate) end: u64,
    pub(crate) generation: u64,
}

/// One remembered range for each memory instruction of the program.
#[derive(Debug)]
pub(crate) struct RangeCache {
    known: Vec<Known>,
}

impl RangeCache {
    pub(crate) fn new(slots: usize) -> RangeCache {
        RangeCache { known: vec![Known::default(); slots] }
    }

    /// The remembered ranges by slot; they stay where they are.
    pub(crate) fn as_ptr(&self) -> *const Known {
        self.known.as_ptr()
    }

    /// The range that the instruction with this slot touched last, as start and length; empty when there is none any more.
    #[inline(always)]
    pub(crate) fn known(&self, memory: &Memory, slot: u32) -> (u64, u64) {
        match self.known.get(slot as usize) {
            Some(known) if known.generation == memory.generation() => (known.base, known.end - known.base),
            _ => (0, 0),
        }
    }

    /// Returns whether the bytes from `low` to before `end` lie in one valid range.
    #[inline(always)]
    pub(crate) fn holds(&mut self, memory: &Memory, slot: u32, low: u64, end: u64) -> bool {
        match self.known.get(slot as usize) {
            Some(known)
                if low >= known.base
                    && end <= known.end
                    && low <= end
                    && known.generation == memory.generation() =>
            {
                true
            }
            _ => self.look_up(memory, slot, low, end),
        }
    }

    #[cold]
    fn look_up(&mut self, memory: &Memory, slot: u32, low: u64, end: u64) -> bool {
        // Before the look-up: a range that goes away in between is then looked up again.
        let generation = memory.generation();
        let Some(bytes) = end.checked_sub(low) else { return false };
        let Some(range) = memory.range_of(low).filter(|range| range.holds(low, bytes)) else {
            return false;
        };
        if let Some(known) = self.known.get_mut(slot as usize) {
            *known = Known { base: range.base, end: range.base + range.bytes, generation };
        }
        true
    }
}
