// SPDX-License-Identifier: Apache-2.0 OR MIT

//! 2D and 3D copies between memory and arrays. Rows of pageable memory are sent packed.

use cuda_abi::{CUDA_MEMCPY3D, CopyEnd3D};
use virtio_cuda_client::protocol::{
    ArrayId, ArrayOrigin, Box3, COPY_ARRAY, COPY_BULK, CopyEnd, DevicePtr, StreamId, array_bounds,
};
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::memory::boxes::layout::{ARRAY, MemoryEnd, Part, for_each_row};
use crate::memory::copy::between;
use crate::memory::copy::plan::Timing;
use crate::memory::nodes::copy::NodeEnd;
use crate::memory::place::Place;
use crate::state::moving::Uses;
use crate::trace;

/// The end for packed rows that are sent with the call.
const BULK: CopyEnd =
    CopyEnd { kind: COPY_BULK, address: DevicePtr(0), x: 0, y: 0, z: 0, pitch: 0, height: 0 };

/// A box in an array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrayEnd {
    /// The array.
    pub array: ArrayId,
    /// The start of the box.
    pub origin: ArrayOrigin,
}

impl ArrayEnd {
    /// Returns the array from a row of the box on, in its form on the wire.
    fn on_wire(&self, y: u64, z: u64) -> CopyEnd {
        let ArrayOrigin { x, y: first_row, z: first_slice } = self.origin;
        let (kind, address) = (COPY_ARRAY, DevicePtr(self.array.0));
        CopyEnd { kind, address, x, y: first_row + y, z: first_slice + z, pitch: 0, height: 0 }
    }
}

/// One validated end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// In memory.
    Memory(MemoryEnd),
    /// In an array.
    Array(ArrayEnd),
}

impl End {
    fn new(api: Api, end: &CopyEnd3D, size: Box3) -> Result<Self, CudaError> {
        if end.memory_type != ARRAY {
            return Ok(Self::Memory(MemoryEnd::new(api, end, size)?));
        }
        let origin = ArrayOrigin { x: end.x as u64, y: end.y as u64, z: end.z as u64 };
        if end.array == 0 || end.lod != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        // Checked before anything is read for a box that does not fit. The device checks it again.
        let array = api.driver.arrays.get(end.array)?.descriptor;
        let fits =
            |from: u64, length: u64, bound: u64| from.checked_add(length).is_some_and(|end| end <= bound);
        // The device checks formats with other layouts. Here it is sufficient that sums do not overflow.
        let [row, rows, slices] = array_bounds(&array).unwrap_or([u64::MAX; 3]);
        if !fits(origin.x, size.width, row)
            || !fits(origin.y, size.height, rows)
            || !fits(origin.z, size.depth, slices)
        {
            return Err(CudaError::INVALID_VALUE);
        }
        Ok(Self::Array(ArrayEnd { array: ArrayId(end.array), origin }))
    }

    fn is_pageable(&self) -> bool {
        matches!(self, Self::Memory(end) if end.place.is_pageable())
    }

    fn in_graph(&self) -> NodeEnd {
        match self {
            Self::Memory(end) => NodeEnd::memory(end.place, end.extent.pitch, end.extent.height),
            Self::Array(ArrayEnd { array, origin }) => NodeEnd {
                place: Place::Device(0),
                array: Some(array.0),
                x: origin.x,
                y: origin.y,
                z: origin.z,
                pitch: 0,
                height: 0,
            },
        }
    }
}

/// A validated copy.
pub struct BoxCopy {
    dst: End,
    src: End,
    size: Box3,
}

impl BoxCopy {
    /// Validates a copy. Returns `None` if there is nothing to do.
    pub fn new(api: Api, copy: &CUDA_MEMCPY3D) -> Result<Option<Self>, CudaError> {
        let size = Box3 { width: copy.width as u64, height: copy.height as u64, depth: copy.depth as u64 };
        if size.width == 0 || size.height == 0 || size.depth == 0 {
            return Ok(None);
        }
        let (src, dst) = (End::new(api, &copy.src, size)?, End::new(api, &copy.dst, size)?);
        for end in [src, dst] {
            if let End::Memory(end) = end {
                end.place.check(size.width)?;
            }
        }
        Ok(Some(Self { dst, src, size }))
    }

    /// Returns the place of the source; arrays are device memory.
    pub fn source(&self) -> Place {
        match self.src {
            End::Memory(end) => end.place,
            End::Array(_) => Place::Device(0),
        }
    }

    /// Runs the copy.
    pub fn run(&self, api: Api, timing: Timing) -> Result<(), CudaError> {
        api.context()?;
        if let (End::Memory(dst), End::Memory(src), 1, 1) =
            (self.dst, self.src, self.size.height, self.size.depth)
        {
            return api.copy(dst.place, src.place, self.size.width as usize, timing);
        }
        trace::copies_pageable(self.src.is_pageable(), self.dst.is_pageable());
        let stream = api.stream_of(timing);
        if !timing.waits() && (self.dst.is_pageable() || self.src.is_pageable()) && api.captures(stream) {
            return api.capture_copy(self.dst.in_graph(), self.src.in_graph(), self.size, stream);
        }
        if let Timing::Between(contexts) = timing {
            between::wait(api, contexts)?;
        }
        let _sent = api.before_work(Uses::Anything, stream)?;
        if let End::Memory(src) = self.src {
            let bytes = self.size.width.saturating_mul(self.size.height).saturating_mul(self.size.depth);
            api.wait_for_source(src.place, bytes, timing)?;
        }
        let by_gpu = match (self.dst, self.src) {
            (End::Memory(dst), End::Memory(src)) => {
                MemoryCopy { dst, src, size: self.size }.run(api, stream)?
            }
            (End::Array(dst), End::Memory(src)) => self.memory_to_array(api, dst, src, stream)?,
            (End::Memory(dst), End::Array(src)) => self.array_to_memory(api, dst, src, stream)?,
            (End::Array(dst), End::Array(src)) => {
                let call = &mut api.in_context()?;
                calls::memcpy_box(call, dst.on_wire(0, 0), src.on_wire(0, 0), self.size, stream)?;
                true
            }
        };
        if by_gpu && timing.waits() {
            api.wait_for_stream(stream)?;
        }
        api.work_queued();
        if timing.waits() { api.end_synchronous(by_gpu) } else { api.end_asynchronous(stream) }
    }

    /// Returns whether the GPU copies by itself, in stream order.
    fn memory_to_array(
        &self,
        api: Api,
        dst: ArrayEnd,
        src: MemoryEnd,
        stream: StreamId,
    ) -> Result<bool, CudaError> {
        if let Place::Pageable(address) = src.place {
            let limit = api.driver.session.limits().copy_bytes as u64;
            src.pack(address, self.size, limit, |memory, part| {
                // SAFETY: `pack` passes rows of the program's, which it promises, or a buffer that outlives the call.
                let mut call = unsafe { api.in_context()?.input_at(memory) };
                calls::memcpy_box(&mut call, dst.on_wire(part.y, part.z), BULK, part.size, stream)
            })?;
            return Ok(false);
        }
        let call = &mut api.in_context()?;
        calls::memcpy_box(call, dst.on_wire(0, 0), src.on_wire(0, 0)?, self.size, stream)?;
        Ok(true)
    }

    /// Returns whether the GPU copies by itself, in stream order.
    fn array_to_memory(
        &self,
        api: Api,
        dst: MemoryEnd,
        src: ArrayEnd,
        stream: StreamId,
    ) -> Result<bool, CudaError> {
        if let Place::Pageable(address) = dst.place {
            let limit = api.driver.session.limits().copy_bytes as u64;
            dst.unpack(address, self.size, limit, |memory, part| {
                // SAFETY: `unpack` passes rows of the program's, which it promises, or a buffer that outlives the call.
                let mut call = unsafe { api.in_context()?.output_at(memory) };
                calls::memcpy_box(&mut call, BULK, src.on_wire(part.y, part.z), part.size, stream)
            })?;
            return Ok(false);
        }
        let call = &mut api.in_context()?;
        calls::memcpy_box(call, dst.on_wire(0, 0)?, src.on_wire(0, 0), self.size, stream)?;
        Ok(true)
    }
}

/// A copy between linear memory.
struct MemoryCopy {
    dst: MemoryEnd,
    src: MemoryEnd,
    size: Box3,
}

impl MemoryCopy {
    /// Returns whether the GPU copies by itself, in stream order.
    fn run(&self, api: Api, stream: StreamId) -> Result<bool, CudaError> {
        match (self.dst.place, self.src.place) {
            (Place::Pageable(dst), Place::Device(_)) => self.to_host(api, dst, stream)?,
            (Place::Device(_), Place::Pageable(src)) => return self.to_device(api, src, stream),
            (dst, src) if dst.device().is_some() && src.device().is_some() => {
                self.by_gpu(api, stream)?;
                return Ok(true);
            }
            _ => self.by_program(api, stream)?,
        }
        Ok(false)
    }

    fn by_gpu(&self, api: Api, stream: StreamId) -> Result<(), CudaError> {
        let (dst, src) = (self.dst.on_wire(0, 0)?, self.src.on_wire(0, 0)?);
        calls::memcpy_box(&mut api.in_context()?, dst, src, self.size, stream)
    }

    /// Sends pageable rows, which are packed first unless they are contiguous. Returns whether the GPU copies by itself.
    fn to_device(&self, api: Api, src: u64, stream: StreamId) -> Result<bool, CudaError> {
        let limit = api.driver.session.limits().copy_bytes as u64;
        if self.size.width > limit {
            return self.row_by_row(api, stream).map(|()| true);
        }
        self.src.pack(src, self.size, limit, |memory, part| {
            // SAFETY: `pack` passes rows of the program's, which it promises, or a buffer that outlives the call.
            let mut call = unsafe { api.in_context()?.input_at(memory) };
            calls::memcpy_box(&mut call, self.dst.on_wire(part.y, part.z)?, BULK, part.size, stream)
        })?;
        Ok(false)
    }

    /// Receives packed rows for pageable memory.
    fn to_host(&self, api: Api, dst: u64, stream: StreamId) -> Result<(), CudaError> {
        let limit = api.driver.session.limits().copy_bytes as u64;
        if self.size.width > limit {
            return self.row_by_row(api, stream);
        }
        self.dst.unpack(dst, self.size, limit, |memory, part| {
            // SAFETY: `unpack` passes rows of the program's, which it promises, or a buffer that outlives the call.
            let mut call = unsafe { api.in_context()?.output_at(memory) };
            calls::memcpy_box(&mut call, BULK, self.src.on_wire(part.y, part.z)?, part.size, stream)
        })
    }

    /// Copies rows that are too long for one request.
    fn row_by_row(&self, api: Api, stream: StreamId) -> Result<(), CudaError> {
        let at = |end: &MemoryEnd, y, z| end.place.at(end.extent.row(y, z));
        for z in 0..self.size.depth {
            for y in 0..self.size.height {
                let (dst, src) = (at(&self.dst, y, z), at(&self.src, y, z));
                api.copy(dst, src, self.size.width as usize, Timing::Stream(stream))?;
            }
        }
        Ok(())
    }

    /// Copies between host memory with the program's CPU, after the stream's work if an end is pinned.
    fn by_program(&self, api: Api, stream: StreamId) -> Result<(), CudaError> {
        let (Some(dst), Some(src)) = (self.dst.place.host(), self.src.place.host()) else {
            return Err(CudaError::INVALID_VALUE);
        };
        let last = (self.size.height.saturating_sub(1), self.size.depth.saturating_sub(1));
        for end in [&self.dst, &self.src] {
            api.check_pinned(end.place, end.extent.row(last.0, last.1).saturating_add(self.size.width))?;
        }
        if self.dst.place.device().or(self.src.place.device()).is_some() {
            api.wait_for_turn(stream)?;
        }
        for_each_row(&Part { y: 0, z: 0, size: self.size }, |y, z| {
            let (dst, src) = (dst + self.dst.extent.row(y, z), src + self.src.extent.row(y, z));
            // SAFETY: the program promises that both boxes are its memory; rows may overlap.
            unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, self.size.width as usize) };
        });
        Ok(())
    }
}
