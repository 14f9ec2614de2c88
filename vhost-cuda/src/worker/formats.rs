// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sizes of arrays, from their descriptions.

use virtio_cuda_protocol::cuda::{ArrayOrigin, Box3, element_bytes};

use super::gpu::{CuResult, CudaError, RawArray};

/// `CUDA_ARRAY3D_*` bits that are served. Not sparse arrays, deferred mapping and video coding.
const FLAGS: u32 = 0x3f;

/// The others that there are: sparse, deferred mapping, video coding.
const OTHER_FLAGS: u32 = 0x1c0;
/// Block-compressed formats.
const COMPRESSED: std::ops::RangeInclusive<u32> = 0x91..=0x9e;

/// Rows in bytes, rows and slices of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    row_bytes: u64,
    rows: u64,
    slices: u64,
}

impl Shape {
    /// The shape of an array.
    ///
    /// Errors: `CUDA_ERROR_NOT_SUPPORTED` for formats and flags that are not served, `CUDA_ERROR_INVALID_VALUE`
    /// for no format and sizes that no memory has.
    pub fn of(array: &RawArray) -> CuResult<Self> {
        if array.flags & !(FLAGS | OTHER_FLAGS) != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let unknown = if COMPRESSED.contains(&array.format) {
            CudaError::NOT_SUPPORTED
        } else {
            CudaError::INVALID_VALUE
        };
        let element = element_bytes(array.format, array.channels).ok_or(unknown)?;
        if array.flags & OTHER_FLAGS != 0 {
            return Err(CudaError::NOT_SUPPORTED);
        }
        let row_bytes = (array.width as u64).checked_mul(element).ok_or(CudaError::INVALID_VALUE)?;
        let shape = Self { row_bytes, rows: array.height.max(1) as u64, slices: array.depth.max(1) as u64 };
        shape.bytes().map(|_| shape)
    }

    /// Bytes of all elements.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` if they are more than 2^64.
    pub fn bytes(&self) -> CuResult<u64> {
        let bytes = self.row_bytes.checked_mul(self.rows).and_then(|bytes| bytes.checked_mul(self.slices));
        bytes.ok_or(CudaError::INVALID_VALUE)
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
        assert_eq!(Shape::of(&RawArray { flags: 0x40, ..array }), Err(CudaError::NOT_SUPPORTED));
        assert_eq!(Shape::of(&RawArray { format: 0, ..array }), Err(CudaError::INVALID_VALUE));
    }
}
