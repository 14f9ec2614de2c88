// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sizes of arrays, from their descriptions.

use virtio_cuda_protocol::cuda::{ArrayOrigin, Box3, array_bounds};

use crate::gpu::{CuResult, CudaError, RawArray};

/// All `CUDA_ARRAY3D_*` bits.
const FLAGS: u32 = 0x1ff;
/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`: the memory is mapped later.
pub const WITHOUT_MEMORY: u32 = 0x40 | 0x80;

/// Planar and packed formats of video, and the maximum bytes of their texels.
const VIDEO: std::ops::RangeInclusive<u32> = 0x9f..=0xb5;
const VIDEO_BYTES: u64 = 8;

/// Rows in bytes, rows and slices of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    row_bytes: u64,
    rows: u64,
    slices: u64,
}

impl Shape {
    /// Returns the shape of an array; compressed formats are counted in blocks.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for an unknown format or flags, and for sizes beyond any memory.
    pub fn of(array: &RawArray) -> CuResult<Self> {
        let bounds = array_bounds(&(*array).into()).filter(|_| array.flags & !FLAGS == 0);
        let [row_bytes, rows, slices] = bounds.ok_or(CudaError::INVALID_VALUE)?;
        let shape = Self { row_bytes, rows, slices };
        shape.bytes().map(|_| shape)
    }

    /// Bytes of all elements.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` if they are more than 2^64.
    pub fn bytes(&self) -> CuResult<u64> {
        let bytes = self.row_bytes.checked_mul(self.rows).and_then(|bytes| bytes.checked_mul(self.slices));
        bytes.ok_or(CudaError::INVALID_VALUE)
    }

    /// Returns the bytes that making the array takes: 0 if its memory is mapped later, which counts where it is made. For
    /// video formats, returns the maximum that it could be.
    ///
    /// Errors: as [`Self::of`].
    pub fn bytes_at_once(array: &RawArray) -> CuResult<u64> {
        let bytes = if VIDEO.contains(&array.format) {
            let sides = [array.width, array.height.max(1), array.depth.max(1)];
            let bytes = sides.iter().try_fold(VIDEO_BYTES, |bytes, &side| bytes.checked_mul(side as u64));
            bytes.ok_or(CudaError::INVALID_VALUE)?
        } else {
            Self::of(array)?.bytes()?
        };
        Ok(if array.flags & WITHOUT_MEMORY != 0 { 0 } else { bytes })
    }

    /// Returns bytes per row, rows and slices.
    pub fn sides(&self) -> [usize; 3] {
        [self.row_bytes, self.rows, self.slices].map(|side| side as usize)
    }

    /// Checks that a box lies in the array.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn check(&self, origin: &ArrayOrigin, size: &Box3) -> CuResult<()> {
        let inside =
            |start: u64, length: u64, all: u64| start.checked_add(length).is_some_and(|end| end <= all);
        let fits = inside(origin.x, size.width, self.row_bytes)
            && inside(origin.y, size.height, self.rows)
            && inside(origin.z, size.depth, self.slices);
        if fits { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_outside_an_array_are_refused() {
        let array = RawArray { width: 8, height: 4, depth: 0, format: 0x20, channels: 1, flags: 0 };
        let shape = Shape::of(&array).unwrap();
        assert_eq!(shape.bytes(), Ok(128));
        let check = |[x, y, z]: [u64; 3], [width, height, depth]: [u64; 3]| {
            shape.check(&ArrayOrigin { x, y, z }, &Box3 { width, height, depth }).is_ok()
        };
        assert!(check([0, 0, 0], [32, 4, 1]) && check([28, 3, 0], [4, 1, 1]));
        assert!(
            !check([4, 0, 0], [32, 1, 1]) && !check([0, 1, 0], [4, 4, 1]) && !check([0, 0, 1], [4, 1, 1])
        );
        assert!(!check([u64::MAX, 0, 0], [2, 1, 1]));
        let huge = RawArray { width: usize::MAX / 2, ..array };
        assert_eq!(Shape::of(&huge), Err(CudaError::INVALID_VALUE));
        assert_eq!(Shape::bytes_at_once(&array), Ok(128));
        assert_eq!(Shape::bytes_at_once(&RawArray { flags: 0x40, ..array }), Ok(0));
        assert_eq!(Shape::bytes_at_once(&RawArray { format: 0xb0, ..array }), Ok(256));
        assert_eq!(Shape::of(&RawArray { flags: 0x200, ..array }), Err(CudaError::INVALID_VALUE));
        assert_eq!(Shape::of(&RawArray { format: 0, ..array }), Err(CudaError::INVALID_VALUE));
    }
}
