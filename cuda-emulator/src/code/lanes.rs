// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lanes of a warp, and sets of them as bit masks.

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;
/// All lanes.
pub(crate) const FULL: u32 = u32::MAX;

/// The lanes of a mask, ascending.
#[inline(always)]
pub(crate) fn lanes_of(mask: u32) -> LaneIter {
    LaneIter(mask)
}

/// The iterator of [`lanes_of`].
pub(crate) struct LaneIter(u32);

impl Iterator for LaneIter {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let lane = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        // The mask tells the optimiser that no bounds checks on `[T; 32]` are needed.
        Some(lane & (LANES - 1))
    }
}
