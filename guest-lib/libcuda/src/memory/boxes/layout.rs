// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The layout of a box in memory, and its division into parts that each fit one request.

use cuda_abi::CopyEnd3D;
use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::{Box3, COPY_DEVICE, CopyEnd, DevicePtr};
use virtio_cuda_client::transport::UserMemory;

use crate::entry::Api;
use crate::memory::place::Place;

/// `CU_MEMORYTYPE_*`.
pub const HOST: u32 = 1;
/// Device memory.
pub const DEVICE: u32 = 2;
/// An array.
pub const ARRAY: u32 = 3;
/// The address determines the kind of memory.
pub const UNIFIED: u32 = 4;

/// A box in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryEnd {
    /// Address of the first byte.
    pub place: Place,
    /// The strides.
    pub extent: Extent64,
}

/// The start of the box in its memory, and the strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent64 {
    /// Bytes from the place to the first byte of the box.
    pub offset: u64,
    /// Bytes from row to row.
    pub pitch: u64,
    /// Rows from slice to slice.
    pub height: u64,
}

impl Extent64 {
    /// Returns the offset of a row of the box. [`MemoryEnd::new`] has checked that the last row does not overflow.
    pub fn row(&self, y: u64, z: u64) -> u64 {
        self.offset + (z * self.height + y) * self.pitch
    }
}

impl MemoryEnd {
    /// Checks an end against the size of the copy.
    pub fn new(api: Api, end: &CopyEnd3D, size: Box3) -> Result<Self, CudaError> {
        let (x, y, z) = (end.x as u64, end.y as u64, end.z as u64);
        let width = x.checked_add(size.width).ok_or(CudaError::INVALID_VALUE)?;
        let rows = y.checked_add(size.height).ok_or(CudaError::INVALID_VALUE)?;
        // A pitch or height of 0 stands for the smallest that fits.
        let pitch = if end.pitch == 0 { width } else { end.pitch as u64 };
        let height = if end.height == 0 { rows } else { end.height as u64 };
        if pitch < width || height < rows {
            return Err(CudaError::INVALID_VALUE);
        }
        let slices = z.checked_add(size.depth - 1);
        let last = slices.and_then(|slices| slices.checked_mul(height)?.checked_add(rows));
        let bytes = last.and_then(|rows| rows.checked_mul(pitch)).ok_or(CudaError::INVALID_VALUE)?;
        let offset = (z * height + y) * pitch + x;
        // Bytes from the first to the last byte of the box.
        let span = bytes - (pitch - width) - offset;
        let place = match end.memory_type {
            HOST => api.host_place(checked(end.host, offset)?, span),
            DEVICE => api.device_place(checked(end.device, offset)?),
            UNIFIED => api.unified_place(checked(end.device, offset)?),
            _ => return Err(CudaError::INVALID_VALUE),
        };
        // The place already refers to the first byte of the box.
        Ok(Self { place, extent: Extent64 { offset: 0, pitch, height } })
    }

    /// Returns the memory from a row of the box on, in its form on the wire.
    pub fn on_wire(&self, y: u64, z: u64) -> Result<CopyEnd, CudaError> {
        let address = self.place.device().map(DevicePtr).ok_or(CudaError::INVALID_VALUE)?;
        let Extent64 { pitch, height, .. } = self.extent;
        Ok(CopyEnd { kind: COPY_DEVICE, address, x: self.extent.row(y, z), y: 0, z: 0, pitch, height })
    }

    /// Returns the memory of a part, if its rows are contiguous.
    fn packed_in_place(&self, base: u64, size: Box3, part: &Part) -> Option<UserMemory> {
        let rows_adjoin = self.extent.pitch == size.width;
        let slices_adjoin = part.size.depth == 1 || self.extent.height == size.height;
        (rows_adjoin && slices_adjoin).then(|| UserMemory {
            address: (base + self.extent.row(part.y, part.z)) as usize,
            bytes: part.bytes() as usize,
        })
    }

    /// Passes the pageable rows at `src` part by part to a function, packed.
    pub fn pack(
        &self,
        src: u64,
        size: Box3,
        limit: u64,
        mut send: impl FnMut(UserMemory, &Part) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let mut packed = Vec::new();
        for part in parts(size, limit) {
            if let Some(memory) = self.packed_in_place(src, size, &part) {
                send(memory, &part)?;
                continue;
            }
            packed.clear();
            for_each_row(&part, |y, z| {
                let at = src + self.extent.row(y, z);
                let row = UserMemory { address: at as usize, bytes: size.width as usize };
                // SAFETY: the program promises that the box is its memory.
                unsafe { row.append_to(&mut packed) };
            });
            send(UserMemory::of(&packed), &part)?;
        }
        Ok(())
    }

    /// Makes a function provide packed parts, and stores them in the pageable rows at `dst`.
    pub fn unpack(
        &self,
        dst: u64,
        size: Box3,
        limit: u64,
        mut fetch: impl FnMut(UserMemory, &Part) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let mut packed = Vec::new();
        for part in parts(size, limit) {
            if let Some(memory) = self.packed_in_place(dst, size, &part) {
                fetch(memory, &part)?;
                continue;
            }
            packed.resize(part.bytes() as usize, 0);
            fetch(UserMemory::of_mut(&mut packed), &part)?;
            let mut rows = packed.chunks_exact(size.width as usize);
            for_each_row(&part, |y, z| {
                let Some(row) = rows.next() else { return };
                let at = dst + self.extent.row(y, z);
                // SAFETY: the program promises that the box is its memory; `packed` is another.
                unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), at as *mut u8, row.len()) };
            });
        }
        Ok(())
    }
}

fn checked(base: u64, offset: u64) -> Result<u64, CudaError> {
    base.checked_add(offset).ok_or(CudaError::INVALID_VALUE)
}

/// A part of a box whose packed bytes fit one request: `size.height` rows from row `y` of slice `z` on, or whole
/// slices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// First row.
    pub y: u64,
    /// First slice.
    pub z: u64,
    /// Size of the part.
    pub size: Box3,
}

impl Part {
    /// Returns the bytes of all rows.
    pub fn bytes(&self) -> u64 {
        self.size.width * self.size.height * self.size.depth
    }
}

/// Splits a box into parts of at most `limit` bytes. Returns none if a row exceeds the limit: the caller copies such
/// rows one by one.
fn parts(size: Box3, limit: u64) -> Vec<Part> {
    let slice_bytes = size.width.saturating_mul(size.height);
    if slice_bytes <= limit {
        let slices = (limit / slice_bytes.max(1)).clamp(1, size.depth);
        let part = |z: u64| Part { y: 0, z, size: Box3 { depth: slices.min(size.depth - z), ..size } };
        return (0..size.depth).step_by(slices as usize).map(part).collect();
    }
    let rows = (limit / size.width.max(1)).max(1).min(size.height);
    let in_slice = |z: u64| {
        (0..size.height).step_by(rows as usize).map(move |y| Part {
            y,
            z,
            size: Box3 { width: size.width, height: rows.min(size.height - y), depth: 1 },
        })
    };
    (0..size.depth).flat_map(in_slice).collect()
}

/// Calls `body` with each row and slice of a part.
pub fn for_each_row(part: &Part, mut body: impl FnMut(u64, u64)) {
    for z in part.z..part.z + part.size.depth {
        for y in part.y..part.y + part.size.height {
            body(y, z);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(width: u64, height: u64, depth: u64) -> Box3 {
        Box3 { width, height, depth }
    }

    #[test]
    fn small_box_is_one_part() {
        assert_eq!(parts(size(10, 3, 2), 60), [Part { y: 0, z: 0, size: size(10, 3, 2) }]);
    }

    #[test]
    fn slices_stay_whole_if_they_fit() {
        let expected = [Part { y: 0, z: 0, size: size(10, 3, 2) }, Part { y: 0, z: 2, size: size(10, 3, 1) }];
        assert_eq!(parts(size(10, 3, 3), 89), expected);
    }

    #[test]
    fn long_slices_are_split_by_rows() {
        let expected = [
            Part { y: 0, z: 0, size: size(10, 2, 1) },
            Part { y: 2, z: 0, size: size(10, 1, 1) },
            Part { y: 0, z: 1, size: size(10, 2, 1) },
            Part { y: 2, z: 1, size: size(10, 1, 1) },
        ];
        assert_eq!(parts(size(10, 3, 2), 25), expected);
    }
}
