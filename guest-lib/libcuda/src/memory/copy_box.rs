// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies of pitched rectangles and boxes in linear memory. Rows of pageable memory cross packed.

use virtio_cuda_client::protocol::{Box3, DevicePtr, Extent, StreamId};
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::In;
use crate::memory::copy::{Place, Timing};

/// `CU_MEMORYTYPE_*`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

/// One end of `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct End2D {
    x_bytes: usize,
    y: usize,
    memory_type: u32,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Memcpy2D {
    src: End2D,
    dst: End2D,
    width: usize,
    height: usize,
}
const _: () = assert!(size_of::<Memcpy2D>() == 128);

/// One end of `CUDA_MEMCPY3D` or `CUDA_MEMCPY3D_PEER`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct End3D {
    x_bytes: usize,
    y: usize,
    z: usize,
    lod: usize,
    memory_type: u32,
    host: u64,
    device: u64,
    array: u64,
    /// Of the peer variant: its context, which shares the device's address space.
    reserved_or_context: u64,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Memcpy3D {
    src: End3D,
    dst: End3D,
    width: usize,
    height: usize,
    depth: usize,
}
const _: () = assert!(size_of::<Memcpy3D>() == 200);

impl From<End2D> for End3D {
    fn from(end: End2D) -> Self {
        Self {
            x_bytes: end.x_bytes,
            y: end.y,
            z: 0,
            lod: 0,
            memory_type: end.memory_type,
            host: end.host,
            device: end.device,
            array: end.array,
            reserved_or_context: 0,
            pitch: end.pitch,
            height: 0,
        }
    }
}

/// One end, understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    place: Place,
    extent: Extent64,
}

/// Where the box begins in its memory, and the strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent64 {
    offset: u64,
    pitch: u64,
    height: u64,
}

impl Extent64 {
    /// From the base to a row of the box; checked once for the last row by [`End::new`].
    fn row(&self, y: u64, z: u64) -> u64 {
        self.offset + (z * self.height + y) * self.pitch
    }

    fn on_wire(&self) -> Extent {
        Extent { offset: self.offset, pitch: self.pitch, height: self.height }
    }
}

impl End {
    /// Checks an end against the size of the copy.
    fn new(api: Api, end: &End3D, size: Box3) -> Result<Self, CudaError> {
        let (x, y, z) = (end.x_bytes as u64, end.y as u64, end.z as u64);
        let width = x.checked_add(size.width).ok_or(CudaError::INVALID_VALUE)?;
        let rows = y.checked_add(size.height).ok_or(CudaError::INVALID_VALUE)?;
        // A pitch or height of 0 stands for the least that fits.
        let pitch = if end.pitch == 0 { width } else { end.pitch as u64 };
        let height = if end.height == 0 { rows } else { end.height as u64 };
        if pitch < width || height < rows {
            return Err(CudaError::INVALID_VALUE);
        }
        let slices = z.checked_add(size.depth - 1);
        let last = slices.and_then(|slices| slices.checked_mul(height)?.checked_add(rows));
        let bytes = last.and_then(|rows| rows.checked_mul(pitch)).ok_or(CudaError::INVALID_VALUE)?;
        let offset = (z * height + y) * pitch + x;
        // From the first to the last byte of the box.
        let span = bytes - (pitch - width) - offset;
        let place = match end.memory_type {
            HOST => api.host_place(checked(end.host, offset)?, span),
            DEVICE => api.device_place(checked(end.device, offset)?),
            UNIFIED => api.unified_place(checked(end.device, offset)?),
            ARRAY => return Err(CudaError::NOT_SUPPORTED),
            _ => return Err(CudaError::INVALID_VALUE),
        };
        // The place already names the first byte of the box.
        Ok(Self { place, extent: Extent64 { offset: 0, pitch, height } })
    }

    fn device(&self) -> Result<DevicePtr, CudaError> {
        self.place.device().map(DevicePtr).ok_or(CudaError::INVALID_VALUE)
    }
}

fn checked(base: u64, offset: u64) -> Result<u64, CudaError> {
    base.checked_add(offset).ok_or(CudaError::INVALID_VALUE)
}

/// A part of a box whose packed bytes fit one request: `size.height` rows from row `y` of slice `z` on, or
/// whole slices.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    y: u64,
    z: u64,
    size: Box3,
}

/// Splits a box into parts of at most `limit` bytes. A row longer than that makes none: the caller copies
/// such rows one by one.
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

/// One copy, understood.
struct BoxCopy {
    dst: End,
    src: End,
    size: Box3,
}

impl BoxCopy {
    fn new(api: Api, copy: &Memcpy3D) -> Result<Option<Self>, CudaError> {
        let size = Box3 { width: copy.width as u64, height: copy.height as u64, depth: copy.depth as u64 };
        if size.width == 0 || size.height == 0 || size.depth == 0 {
            return Ok(None);
        }
        let (src, dst) = (End::new(api, &copy.src, size)?, End::new(api, &copy.dst, size)?);
        Ok(Some(Self { dst, src, size }))
    }

    fn run(&self, api: Api, timing: Timing) -> Result<(), CudaError> {
        api.context()?;
        if self.size.height == 1 && self.size.depth == 1 {
            return api.copy(self.dst.place, self.src.place, self.size.width as usize, timing);
        }
        let stream = match timing {
            Timing::Wait => api.default_stream(),
            Timing::Stream(stream) => stream,
        };
        api.before_work()?;
        match (self.dst.place, self.src.place) {
            (Place::Pageable(to), Place::Device(_)) => self.to_host(api, to, stream)?,
            (Place::Device(_), Place::Pageable(from)) => self.to_device(api, from, stream)?,
            (dst, src) => match (dst.device(), src.device()) {
                (Some(_), Some(_)) => {
                    self.by_gpu(api, stream)?;
                    if timing == Timing::Wait {
                        api.wait_for_stream(stream)?;
                    }
                }
                _ => self.by_program(api, stream)?,
            },
        }
        api.work_queued();
        if timing == Timing::Wait {
            api.synchronized();
        }
        Ok(())
    }

    fn by_gpu(&self, api: Api, stream: StreamId) -> Result<(), CudaError> {
        calls::memcpy_box_dtod(
            &mut api.in_context()?,
            self.dst.device()?,
            self.dst.extent.on_wire(),
            self.src.device()?,
            self.src.extent.on_wire(),
            self.size,
            stream,
        )
    }

    /// From pageable rows: packed, unless they lie packed already.
    fn to_device(&self, api: Api, from: u64, stream: StreamId) -> Result<(), CudaError> {
        let limit = api.driver.session.limits().copy_bytes as u64;
        if self.size.width > limit {
            return self.row_by_row(api, stream);
        }
        let mut packed = Vec::new();
        for part in parts(self.size, limit) {
            let memory = match self.packed_in_place(&self.src, from, &part) {
                Some(memory) => memory,
                None => {
                    packed.clear();
                    for_each_row(&part, |y, z| {
                        let at = from + self.src.extent.row(y, z);
                        // SAFETY: the program promises that the box is its memory; it is only read.
                        let row =
                            unsafe { std::slice::from_raw_parts(at as *const u8, self.size.width as usize) };
                        packed.extend_from_slice(row);
                    });
                    UserMemory::of(&packed)
                }
            };
            let extent = Extent { offset: self.dst.extent.row(part.y, part.z), ..self.dst.extent.on_wire() };
            let mut call = api.in_context()?.input(memory);
            calls::memcpy_box_htod(&mut call, self.dst.device()?, extent, part.size, stream)?;
        }
        Ok(())
    }

    /// To pageable rows.
    fn to_host(&self, api: Api, to: u64, stream: StreamId) -> Result<(), CudaError> {
        let limit = api.driver.session.limits().copy_bytes as u64;
        if self.size.width > limit {
            return self.row_by_row(api, stream);
        }
        let mut packed = Vec::new();
        for part in parts(self.size, limit) {
            let in_place = self.packed_in_place(&self.dst, to, &part);
            let memory = in_place.unwrap_or_else(|| {
                packed.resize((part.size.width * part.size.height * part.size.depth) as usize, 0);
                UserMemory::of_mut(&mut packed)
            });
            let extent = Extent { offset: self.src.extent.row(part.y, part.z), ..self.src.extent.on_wire() };
            let mut call = api.in_context()?.output(memory);
            calls::memcpy_box_dtoh(&mut call, self.src.device()?, extent, part.size, stream)?;
            if in_place.is_none() {
                let mut rows = packed.chunks_exact(self.size.width as usize);
                for_each_row(&part, |y, z| {
                    let Some(row) = rows.next() else { return };
                    let at = to + self.dst.extent.row(y, z);
                    // SAFETY: the program promises that the box is its memory; `packed` is another.
                    unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), at as *mut u8, row.len()) };
                });
            }
        }
        Ok(())
    }

    /// A part's memory, if its rows lie side by side.
    fn packed_in_place(&self, end: &End, base: u64, part: &Part) -> Option<UserMemory> {
        let rows_adjoin = end.extent.pitch == self.size.width;
        let slices_adjoin = part.size.depth == 1 || end.extent.height == self.size.height;
        (rows_adjoin && slices_adjoin).then(|| UserMemory {
            address: (base + end.extent.row(part.y, part.z)) as usize,
            bytes: (part.size.width * part.size.height * part.size.depth) as usize,
        })
    }

    /// Rows that are too long for one request.
    fn row_by_row(&self, api: Api, stream: StreamId) -> Result<(), CudaError> {
        let at = |end: &End, y, z| {
            let offset = end.extent.row(y, z);
            match end.place {
                Place::Device(base) => Place::Device(base + offset),
                Place::Pinned { host, device } => {
                    Place::Pinned { host: host + offset, device: device + offset }
                }
                Place::Pageable(base) => Place::Pageable(base + offset),
            }
        };
        for z in 0..self.size.depth {
            for y in 0..self.size.height {
                let (dst, src) = (at(&self.dst, y, z), at(&self.src, y, z));
                api.copy(dst, src, self.size.width as usize, Timing::Stream(stream))?;
            }
        }
        Ok(())
    }

    /// Between host memory: the program's own CPU does it, after the stream's work if an end is pinned.
    fn by_program(&self, api: Api, stream: StreamId) -> Result<(), CudaError> {
        let (Some(to), Some(from)) = (self.dst.place.host(), self.src.place.host()) else {
            return Err(CudaError::INVALID_VALUE);
        };
        if self.dst.place.device().or(self.src.place.device()).is_some() {
            api.wait_for_stream(stream)?;
        }
        for_each_row(&Part { y: 0, z: 0, size: self.size }, |y, z| {
            let (to, from) = (to + self.dst.extent.row(y, z), from + self.src.extent.row(y, z));
            // SAFETY: the program promises that both boxes are its memory; rows may overlap.
            unsafe { std::ptr::copy(from as *const u8, to as *mut u8, self.size.width as usize) };
        });
        Ok(())
    }
}

fn for_each_row(part: &Part, mut body: impl FnMut(u64, u64)) {
    for z in part.z..part.z + part.size.depth {
        for y in part.y..part.y + part.size.height {
            body(y, z);
        }
    }
}

fn copy_2d(api: Api, copy: In<Memcpy2D>, timing: Option<u64>) -> Result<(), CudaError> {
    let copy = copy.get()?;
    let (src, dst) = (copy.src.into(), copy.dst.into());
    run(api, Memcpy3D { src, dst, width: copy.width, height: copy.height, depth: 1 }, timing)
}

fn run(api: Api, copy: Memcpy3D, stream: Option<u64>) -> Result<(), CudaError> {
    let timing = stream.map_or(Timing::Wait, |stream| Timing::Stream(api.stream(stream)));
    match BoxCopy::new(api, &copy)? {
        Some(copy) => copy.run(api, timing),
        None => Ok(()),
    }
}

entry_points! {
    /// Copies a rectangle.
    call cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds (api, pCopy: In<Memcpy2D>) {
        copy_2d(api, pCopy, None)
    }

    /// Copies a rectangle of any pitch.
    call cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds (api, pCopy: In<Memcpy2D>) {
        copy_2d(api, pCopy, None)
    }

    /// Copies a rectangle in stream order.
    call cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz (api, pCopy: In<Memcpy2D>, hStream: u64) {
        copy_2d(api, pCopy, Some(hStream))
    }

    /// Copies a box.
    call cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds (api, pCopy: In<Memcpy3D>) {
        run(api, pCopy.get()?, None)
    }

    /// Copies a box in stream order.
    call cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz (api, pCopy: In<Memcpy3D>, hStream: u64) {
        run(api, pCopy.get()?, Some(hStream))
    }

    /// Copies a box between contexts.
    call cuMemcpy3DPeer / cuMemcpy3DPeer_ptds (api, pCopy: In<Memcpy3D>) {
        run(api, pCopy.get()?, None)
    }

    /// Copies a box between contexts in stream order.
    call cuMemcpy3DPeerAsync / cuMemcpy3DPeerAsync_ptsz (api, pCopy: In<Memcpy3D>, hStream: u64) {
        run(api, pCopy.get()?, Some(hStream))
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
