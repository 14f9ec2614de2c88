// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Surfaces: arrays that kernels read and write without filtering.

use std::sync::Arc;

use super::array::{Array, Dimension};

/// A surface object.
#[derive(Debug)]
pub struct Surface {
    array: Arc<Array>,
}

impl Surface {
    /// A surface on an array.
    pub fn new(array: Arc<Array>) -> Surface {
        Surface { array }
    }

    /// Returns its array: extent, format and dimension for `suq`.
    pub fn array(&self) -> &Arc<Array> {
        &self.array
    }

    /// Copies bytes out. `x` counts bytes, `y` rows, `z` slices, layers or faces (0 where the dimension has none); false,
    /// and no change, when not all of them are inside.
    pub fn read(&self, [x, y, z]: [i32; 3], bytes: &mut [u8]) -> bool {
        let Some(from) = self.place([x, y, z], bytes.len()) else { return false };
        // SAFETY: `place` found all bytes inside the array, which this surface keeps. Other threads may write them: then the
        // value is undefined, as on the device.
        unsafe { std::ptr::copy(from.cast_const(), bytes.as_mut_ptr(), bytes.len()) };
        true
    }

    /// Copies bytes in; see [`Self::read`].
    pub fn write(&self, [x, y, z]: [i32; 3], bytes: &[u8]) -> bool {
        let Some(to) = self.place([x, y, z], bytes.len()) else { return false };
        // SAFETY: `place` found all bytes inside the array, which this surface keeps. Other threads may use them:
        // then the value is undefined, as on the device.
        unsafe { std::ptr::copy(bytes.as_ptr(), to, bytes.len()) };
        true
    }

    /// The place next to `at` that is inside (mode `.clamp`), for an access of `bytes` bytes.
    pub fn clamp(&self, at: [i32; 3], bytes: usize) -> [i32; 3] {
        let extent = self.array.level.extent;
        let [row, ..] = self.array.bounds();
        let last = row.saturating_sub(bytes as u64).min(i32::MAX as u64) as i32;
        let end = |size: u32| size.saturating_sub(1).min(i32::MAX as u32) as i32;
        [at[0].clamp(0, last), at[1].clamp(0, end(extent.height)), at[2].clamp(0, end(extent.depth))]
    }

    /// The address of `bytes` bytes at a place, if they are inside: for atomic operations (`sured`). Good as long as this
    /// surface is held.
    pub fn place(&self, [x, y, z]: [i32; 3], bytes: usize) -> Option<*mut u8> {
        let (x, bytes) = (u64::try_from(x).ok()?, u32::try_from(bytes).ok()?);
        let y = if self.has_rows() { u32::try_from(y).ok()? } else { 0 };
        self.array.place(x, y, u32::try_from(z).ok()?, bytes)
    }

    fn has_rows(&self) -> bool {
        !matches!(self.array.dimension, Dimension::D1 | Dimension::D1Layered)
    }
}
