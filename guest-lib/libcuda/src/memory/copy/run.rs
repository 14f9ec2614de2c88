// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies of contiguous memory. Pageable memory crosses as bulk data; memory that the GPU reaches (device
//! memory, pinned memory) is copied by the GPU itself.

use virtio_cuda_client::lane::INLINE_BYTES;
use virtio_cuda_client::protocol::{Box3, ContextId, DevicePtr, StreamId};
use virtio_cuda_client::transport::{Itinerary, UserMemory};
use virtio_cuda_client::{Call, CudaError, calls};

use crate::api::PER_THREAD;
use crate::entry::{Api, DefaultStream};
use crate::entry_points;
use crate::ffi::HostPtr;
use crate::graph::copy_params::EndPlace;
use crate::memory::copy::pieces::each_piece;
use crate::memory::copy::timing::Timing;
use crate::memory::moving::Uses;
use crate::memory::table::ranges::HostKind;
use crate::memory::table::routes::Route;

/// Pinned memory up to this size is copied to the device like pageable memory by calls that wait: they need not
/// wait for the device then.
const SMALL_BYTES: usize = 16 << 10;

/// No program has memory below; Linux keeps it free so that null pointers, also with an offset, are noticed.
const LOWEST_ADDRESS: u64 = 64 << 10;
/// The end of a program's addresses.
pub const HIGHEST_ADDRESS: u64 = 1 << 47;

/// The place of one end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Device memory.
    Device(u64),
    /// Host memory that the GPU reaches at another or the same address.
    Pinned {
        /// The program's address.
        host: u64,
        /// The GPU's address.
        device: u64,
    },
    /// Other host memory.
    Pageable(u64),
}

impl Place {
    /// The program's address, of host memory.
    pub fn host(self) -> Option<u64> {
        match self {
            Self::Device(_) => None,
            Self::Pinned { host, .. } | Self::Pageable(host) => Some(host),
        }
    }

    /// The GPU's address, of memory that it reaches.
    pub fn device(self) -> Option<u64> {
        match self {
            Self::Device(device) | Self::Pinned { device, .. } => Some(device),
            Self::Pageable(_) => None,
        }
    }

    /// Refuses what cannot be memory, before the program's own CPU would look at it.
    pub fn check(self, bytes: u64) -> Result<(), CudaError> {
        let (first, lowest) = match self {
            Self::Device(device) => (device, 1),
            Self::Pinned { host, .. } | Self::Pageable(host) => (host, LOWEST_ADDRESS),
        };
        let end = first.checked_add(bytes);
        if first >= lowest && end.is_some_and(|end| end <= HIGHEST_ADDRESS) {
            Ok(())
        } else {
            Err(CudaError::INVALID_VALUE)
        }
    }
}

impl Api {
    /// Host memory by an address that the program passes as such.
    pub fn host_place(&self, address: u64, bytes: u64) -> Place {
        match self.driver.memory.ranges.host_of(address, bytes) {
            Some(range) if range.moving.is_some() => Place::Device(address),
            Some(range) if range.kind != HostKind::ManagedVariable => {
                Place::Pinned { host: address, device: range.device_address_of(address) }
            }
            _ => self.ordinary_place(address),
        }
    }

    /// What no range of host memory holds: device memory where the address can be no other, whatever the program
    /// calls it (NVIDIA's driver goes by the address, too), else pageable memory.
    fn ordinary_place(&self, address: u64) -> Place {
        if self.driver.memory.claims.owns(address, 1) {
            Place::Device(address)
        } else {
            Place::Pageable(address)
        }
    }

    /// Device memory by an address that the program passes as such: the GPU's, or the program's address of
    /// memory that both reach.
    pub fn device_place(&self, address: u64) -> Place {
        match self.driver.memory.ranges.host(address) {
            Some(range) if range.kind == HostKind::ManagedVariable || range.moving.is_some() => {
                Place::Device(range.device_address_of(address))
            }
            Some(range) => Place::Pinned { host: address, device: range.device_address_of(address) },
            None => match self.driver.memory.ranges.alias(address) {
                Some(range) if range.kind != HostKind::ManagedVariable => {
                    Place::Pinned { host: range.start + (address - range.device_address), device: address }
                }
                _ => Place::Device(address),
            },
        }
    }

    /// As [`Self::device_place`], where a call says that the memory is a device's: of a pool of the host it is not.
    fn place_of_device(&self, address: u64) -> Place {
        match self.device_place(address) {
            Place::Pinned { host, .. } if self.driver.memory.is_of_host_pool(host) => Place::Device(0),
            place => place,
        }
    }

    /// Memory by an address of either kind: what it is follows from the address alone.
    pub fn unified_place(&self, address: u64) -> Place {
        let ranges = &self.driver.memory.ranges;
        let known = ranges.host(address).is_some() || ranges.alias(address).is_some();
        if known || ranges.device(address).is_some() {
            self.device_place(address)
        } else {
            self.ordinary_place(address)
        }
    }

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

    /// Refuses pinned memory that ends before `bytes` do. The program may have meant memory of the device: that its address is
    /// also that of pinned memory is what the worker said, who may lie.
    pub fn check_pinned(&self, place: Place, bytes: u64) -> Result<(), CudaError> {
        match place {
            Place::Pinned { host, .. } if self.driver.memory.ranges.host_of(host, bytes).is_none() => {
                Err(CudaError::INVALID_VALUE)
            }
            _ => Ok(()),
        }
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

/// Contexts of copies between two; none is the current one.
fn check_contexts(api: Api, contexts: [u64; 2]) -> Result<(), CudaError> {
    let known = |&context: &u64| api.driver.contexts.device_of(context).map(|_| ());
    contexts.iter().filter(|&&context| context != 0).try_for_each(known)
}

entry_points! {
    /// Copies between any two kinds of memory.
    call cuMemcpy / cuMemcpy_ptds (api, dst: u64, src: u64, ByteCount: usize) {
        api.copy(api.unified_place(dst), api.unified_place(src), ByteCount, Timing::Wait)
    }

    /// Copies between any two kinds of memory in stream order.
    call cuMemcpyAsync / cuMemcpyAsync_ptsz (api, dst: u64, src: u64, ByteCount: usize, hStream: u64) {
        api.copy(api.unified_place(dst), api.unified_place(src), ByteCount, Timing::Stream(api.stream(hStream)))
    }

    /// Host to device.
    call cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds (api, dstDevice: u64, srcHost: HostPtr, ByteCount: usize) {
        let src = api.host_place(srcHost.address() as u64, ByteCount as u64);
        api.copy(api.place_of_device(dstDevice), src, ByteCount, Timing::Wait)
    }

    /// Host to device in stream order.
    call cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz (api, dstDevice: u64, srcHost: HostPtr, ByteCount: usize, hStream: u64) {
        let src = api.host_place(srcHost.address() as u64, ByteCount as u64);
        api.copy(api.place_of_device(dstDevice), src, ByteCount, Timing::Stream(api.stream(hStream)))
    }

    /// Device to host.
    call cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds (api, dstHost: HostPtr, srcDevice: u64, ByteCount: usize) {
        let dst = api.host_place(dstHost.address() as u64, ByteCount as u64);
        api.copy(dst, api.place_of_device(srcDevice), ByteCount, Timing::Wait)
    }

    /// Device to host in stream order.
    call cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz (api, dstHost: HostPtr, srcDevice: u64, ByteCount: usize, hStream: u64) {
        let dst = api.host_place(dstHost.address() as u64, ByteCount as u64);
        api.copy(dst, api.place_of_device(srcDevice), ByteCount, Timing::Stream(api.stream(hStream)))
    }

    /// Inside the device.
    call cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds (api, dstDevice: u64, srcDevice: u64, ByteCount: usize) {
        api.copy(api.place_of_device(dstDevice), api.place_of_device(srcDevice), ByteCount, Timing::Wait)
    }

    /// Inside the device in stream order.
    call cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz (api, dstDevice: u64, srcDevice: u64, ByteCount: usize, hStream: u64) {
        let timing = Timing::Stream(api.stream(hStream));
        api.copy(api.place_of_device(dstDevice), api.place_of_device(srcDevice), ByteCount, timing)
    }

    /// Between contexts, which share the device's address space.
    call cuMemcpyPeer / cuMemcpyPeer_ptds (api, dstDevice: u64, dstContext: u64, srcDevice: u64, srcContext: u64, ByteCount: usize) {
        check_contexts(api, [dstContext, srcContext])?;
        api.copy(api.place_of_device(dstDevice), api.place_of_device(srcDevice), ByteCount, Timing::Wait)
    }

    /// Between contexts in stream order.
    call cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz (api, dstDevice: u64, dstContext: u64, srcDevice: u64, srcContext: u64, ByteCount: usize, hStream: u64) {
        check_contexts(api, [dstContext, srcContext])?;
        let timing = Timing::Stream(api.stream(hStream));
        api.copy(api.place_of_device(dstDevice), api.place_of_device(srcDevice), ByteCount, timing)
    }
}
