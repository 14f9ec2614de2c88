// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Caches the range of each memory instruction's last access: most accesses of an instruction stay in one allocation.

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

    /// Returns the range of the last access of the instruction with this slot, as start and length; empty when it no
    /// longer exists.
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
        // Before the look-up, so that a range that is removed in between is looked up again.
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
