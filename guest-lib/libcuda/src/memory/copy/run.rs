// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies of contiguous memory. Pageable memory crosses as bulk data; memory that the GPU reaches (device
//! memory, pinned memory) is copied by the GPU itself.

use virtio_cuda_client::lane::INLINE_BYTES;
use virtio_cuda_client::protocol::{Box3, ContextId, DevicePtr, StreamId};
use virtio_cuda_client::transport::{Itinerary, UserMemory};
use virtio_cuda_client::{Call, CudaError, calls};

use crate::api::PER_THREAD;
use crate::entry::{Api, DefaultStream};
use crate::graph::copy_params::EndPlace;
use crate::memory::copy::pieces::each_piece;
use crate::memory::copy::timing::Timing;
use crate::memory::moving::Uses;
use crate::memory::place::Place;
use crate::memory::table::routes::Route;

/// Pinned memory up to this size is copied to the device like pageable memory by calls that wait: they need not
/// wait for the device then.
const SMALL_BYTES: usize = 16 << 10;

impl Api {
    /// Waits for the default stream, where a copy of host memory has to come after the GPU's work.
    pub fn wait_for_stream(&self, stream: StreamId) -> Result<(), CudaError> {
        calls::cuStreamSynchronize(&mut self.in_context()?, stream)
    }

    /// Copies `bytes` bytes.
    pub fn copy(&self, dst: Place, src: Place, bytes: usize, timing: Timing) -> Result<(), CudaError> {
        self.context()?;
        if bytes == 0 {
            return Ok(());
        }
        dst.check(bytes as u64)?;
        src.check(bytes as u64)?;
        if let (Timing::Stream(stream), true) = (timing, dst.device().and(src.device()).is_none())
            && self.captures(stream)
        {
            let size = Box3 { width: bytes as u64, height: 1, depth: 1 };
            return self.capture_copy(EndPlace::row(dst, size), EndPlace::row(src, size), size, stream);
        }
        let uses = [dst, src].map(|place| (place.device().unwrap_or(0), bytes as u64));
        let _sent = self.before_work(Uses::Memory(uses))?;
        self.copy_at_once(dst, src, bytes, timing)?;
        let moves = || dst.device().is_some_and(|device| self.driver.memory.moving.at(device).is_some());
        if dst.host().is_some() || moves() {
            self.work_queued()
        } else {
            self.device_work_queued()
        }
        match timing {
            Timing::Wait => {
                self.synchronized();
                Ok(())
            }
            Timing::Stream(stream) => self.end_asynchronous(stream),
        }
    }

    /// Copies, where managed memory is where it is to be.
    pub fn copy_at_once(
        &self,
        dst: Place,
        src: Place,
        bytes: usize,
        timing: Timing,
    ) -> Result<(), CudaError> {
        let context = self.context()?;
        let small = timing == Timing::Wait && bytes <= SMALL_BYTES;
        match (dst, src) {
            (Place::Pageable(dst), Place::Device(_)) => self.copy_to_host(dst, src, bytes, timing)?,
            (Place::Device(_), Place::Pageable(src)) => self.copy_to_device(dst, src, bytes, timing)?,
            (Place::Device(_), Place::Pinned { host, .. }) if small => {
                self.check_pinned(src, bytes as u64)?;
                self.copy_to_device(dst, host, bytes, timing)?
            }
            _ => match (dst.device(), src.device()) {
                (Some(dst_device), Some(src_device)) => {
                    let both_device = dst.host().is_none() && src.host().is_none();
                    if both_device && timing == Timing::Wait && self.default_stream == DefaultStream::Legacy {
                        let mut call = self.driver.session.call().context(context);
                        if self.may_post(0)
                            && self.owns(dst_device, bytes as u64)
                            && self.owns(src_device, bytes as u64)
                        {
                            call = call.posted();
                        }
                        calls::cuMemcpyDtoD_v2(
                            &mut call,
                            DevicePtr(dst_device),
                            DevicePtr(src_device),
                            bytes as u64,
                        )?;
                    } else {
                        self.by_gpu(dst, src, bytes as u64, timing)?;
                    }
                }
                _ => self.by_program(dst, src, bytes, timing)?,
            },
        }
        Ok(())
    }

    /// From pageable memory. Returns once the source may be reused.
    fn copy_to_device(&self, dst: Place, src: u64, bytes: usize, timing: Timing) -> Result<(), CudaError> {
        let dst = dst.device().ok_or(CudaError::INVALID_VALUE)?;
        let (context, stream) = (self.context()?, self.stream_of(timing));
        let src = UserMemory { address: src as usize, bytes };
        if let Some(entry) = self.cached(src, timing)?
            && self.by_cache(&entry, src, dst, true, self.queue_of(timing))?
        {
            return Ok(());
        }
        if self.by_staging(src, dst, true, timing, self.queue_of(timing))? {
            return Ok(());
        }
        let itinerary = self.itinerary(src, stream)?;
        let post = bytes <= INLINE_BYTES && self.may_post_to(dst, bytes as u64, timing);
        let copy_piece = |offset, length| {
            let memory = UserMemory { address: src.address + offset, bytes: length };
            let at = DevicePtr(dst + offset as u64);
            self.with_room(|| {
                let call = self.call_for_piece(itinerary, context);
                // SAFETY: a piece of the source, which the program promises to be readable until the copy returns.
                let mut call = unsafe { call.input_at(memory) };
                if post {
                    call = call.posted();
                }
                if timing == Timing::Wait {
                    call = call.immediate();
                }
                match stream {
                    None => calls::cuMemcpyHtoD_v2(&mut call, at),
                    Some(stream) => calls::cuMemcpyHtoDAsync_v2(&mut call, at, stream),
                }
            })
        };
        let routes = &self.driver.memory.routes;
        routes.measured(Route::Pages, bytes, || each_piece(bytes, itinerary, copy_piece))
    }

    /// Returns whether a copy of bytes that travel with the call may be posted. One that waits first waits for the stream,
    /// which a program can only tell by memory that it shares with the GPU.
    fn may_post_to(&self, device: u64, bytes: u64, timing: Timing) -> bool {
        let ordered = match timing {
            Timing::Stream(stream) => self.may_post(stream.0),
            Timing::Wait => {
                let memory = &self.driver.memory;
                self.may_post(0) && (memory.visible.is_none() || !memory.ranges.any_host())
            }
        };
        ordered && self.owns(device, bytes)
    }

    /// To pageable memory. Returns once the bytes are there.
    fn copy_to_host(&self, dst: u64, src: Place, bytes: usize, timing: Timing) -> Result<(), CudaError> {
        let src = src.device().ok_or(CudaError::INVALID_VALUE)?;
        let (context, stream) = (self.context()?, self.stream_of(timing));
        let dst = UserMemory { address: dst as usize, bytes };
        if let Some(entry) = self.cached(dst, timing)?
            && self.by_cache(&entry, dst, src, false, self.queue_of(timing))?
        {
            return Ok(());
        }
        if self.by_staging(dst, src, false, timing, self.queue_of(timing))? {
            return Ok(());
        }
        let itinerary = self.itinerary(dst, stream)?;
        let copy_piece = |offset, length| {
            let memory = UserMemory { address: dst.address + offset, bytes: length };
            let at = DevicePtr(src + offset as u64);
            self.with_room(|| {
                let call = self.call_for_piece(itinerary, context);
                // SAFETY: a piece of the target, which the program promises to be writable until the copy returns.
                let mut call = unsafe { call.output_at(memory) };
                match stream {
                    None => calls::cuMemcpyDtoH_v2(&mut call, at),
                    Some(stream) => calls::cuMemcpyDtoHAsync_v2(&mut call, at, stream),
                }
            })
        };
        let routes = &self.driver.memory.routes;
        routes.measured(Route::Pages, bytes, || each_piece(bytes, itinerary, copy_piece))
    }

    /// The stream in which a copy happens.
    fn queue_of(&self, timing: Timing) -> StreamId {
        match timing {
            Timing::Wait => self.default_stream(),
            Timing::Stream(stream) => stream,
        }
    }

    fn itinerary(&self, memory: UserMemory, stream: Option<StreamId>) -> Result<Itinerary, CudaError> {
        let itinerary = self.driver.session.transport().itinerary(memory);
        // This thread's own stream is no other thread's.
        if memory.bytes <= itinerary.piece_bytes || stream == Some(StreamId(PER_THREAD)) {
            return Ok(Itinerary { at_once: 1, ..itinerary });
        }
        // The pieces come after all that was called before, whichever thread sends them.
        self.driver.session.order_copy(self.context()?, stream.unwrap_or_default())?;
        Ok(itinerary)
    }

    fn call_for_piece(&self, itinerary: Itinerary, context: ContextId) -> Call<'static> {
        let call = self.driver.session.call().context(context);
        // Threads that live for one copy are not worth a lane.
        if itinerary.at_once > 1 { call.direct() } else { call }
    }

    /// Between memory that the GPU reaches.
    fn by_gpu(&self, dst: Place, src: Place, bytes: u64, timing: Timing) -> Result<(), CudaError> {
        let stream = self.queue_of(timing);
        let (Some(dst_device), Some(src_device)) = (dst.device(), src.device()) else {
            return Err(CudaError::INVALID_VALUE);
        };
        let mut call = self.in_context()?;
        if timing == Timing::Wait && (dst.host().is_some() || src.host().is_some()) {
            return calls::memcpy_wait(
                &mut call,
                DevicePtr(dst_device),
                DevicePtr(src_device),
                bytes,
                stream,
            );
        }
        // What fails of it is told by the call that waits.
        if self.may_post(stream.0) && self.owns(dst_device, bytes) && self.owns(src_device, bytes) {
            call = call.posted();
        }
        calls::cuMemcpyAsync(&mut call, DevicePtr(dst_device), DevicePtr(src_device), bytes, stream)?;
        if timing == Timing::Wait { self.wait_for_stream(stream) } else { Ok(()) }
    }

    /// Between host memory, one end of it pageable: the program's own CPU does it, after the stream's work if
    /// that could touch the pinned end.
    fn by_program(&self, dst: Place, src: Place, bytes: usize, timing: Timing) -> Result<(), CudaError> {
        let (Some(dst_host), Some(src_host)) = (dst.host(), src.host()) else {
            return Err(CudaError::INVALID_VALUE);
        };
        self.check_pinned(dst, bytes as u64)?;
        self.check_pinned(src, bytes as u64)?;
        match timing {
            Timing::Stream(stream) => self.wait_for_stream(stream)?,
            Timing::Wait if dst.device().or(src.device()).is_some() => {
                self.wait_for_stream(self.default_stream())?;
            }
            Timing::Wait => {}
        }
        // SAFETY: the program promises that both are its memory, of that length, or they lie in allocations of this library,
        // by the checks above; they may overlap.
        unsafe { std::ptr::copy(src_host as *const u8, dst_host as *mut u8, bytes) };
        Ok(())
    }

    /// The stream to name in a row; none for the rows that mean the legacy default stream.
    fn stream_of(&self, timing: Timing) -> Option<StreamId> {
        match (timing, self.default_stream) {
            (Timing::Stream(stream), _) => Some(stream),
            (Timing::Wait, DefaultStream::PerThread) => Some(self.default_stream()),
            (Timing::Wait, DefaultStream::Legacy) => None,
        }
    }
}
