// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Allocation of device memory at a chosen address (`cuMemAddressReserve`, `cuMemCreate`, `cuMemMap`; CUDA driver API,
//! virtual memory management), and of pages of the program at the same address. All addresses are reserved once
//! together: NVIDIA's driver 580 does not place a reservation of less than 32 MiB at the requested address.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cuda_abi::CUmemLocation;
use virtio_cuda_client::protocol::{AllocationId, AllocationProperties, DevicePtr, Location, WINDOW_BYTES};
use virtio_cuda_client::{Call, CudaError, calls};

use crate::driver::Driver;
use crate::entry::Api;
use crate::handles::{Kind, new_handle};
use crate::memory::moving::attend;
use crate::state::devices::LOCATION_DEVICE;
use crate::state::memory::window::MovingWindow;
use crate::state::moving::blocks::{Blocks, Twins};
use crate::state::moving::pages::Pages;
use crate::state::moving::{Attachment, Home, Means, Moving, State};

/// The granularity of device memory, a multiple of the page size and the block size.
const GRANULARITY: u64 = 2 << 20;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const TYPE_PINNED: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: u32 = 3;

/// Steps of an allocation that are reverted if a later one fails.
struct Undo<'a>(Vec<Box<dyn FnOnce() + 'a>>);

impl<'a> Undo<'a> {
    fn push(&mut self, step: impl FnOnce() + 'a) {
        self.0.push(Box::new(step));
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        self.0.drain(..).rev().for_each(|step| step());
    }
}

/// Reserves the window for the GPU.
///
/// Errors: the worker's, and `CUDA_ERROR_NOT_SUPPORTED` if the addresses are in use in the worker.
pub(super) fn reserve(api: Api) -> Result<(), CudaError> {
    let start = DevicePtr(MovingWindow::START);
    let at = calls::cuMemAddressReserve(&mut api.call(), WINDOW_BYTES, GRANULARITY, start, 0)?;
    if at == start {
        return Ok(());
    }
    calls::cuMemAddressFree(&mut api.call(), at, WINDOW_BYTES)?;
    Err(CudaError::NOT_SUPPORTED)
}

impl Api {
    /// Allocates managed memory that moves. `None`: the allocation failed, and host memory must be used instead.
    pub fn allocate_moving(self, bytes: u64) -> Option<Arc<Moving>> {
        let movings = &self.driver.memory.moving;
        let means = movings.means.get_or_init(|| attend::start(self.driver)).as_ref()?;
        let made = self.internal().place(bytes, means);
        made.inspect_err(|error| log::debug!("{bytes} bytes of managed memory stay in host memory: {error}"))
            .ok()
    }

    fn place(self, bytes: u64, means: &'static Means) -> Result<Arc<Moving>, CudaError> {
        let bytes = bytes.checked_next_multiple_of(GRANULARITY).ok_or(CudaError::OUT_OF_MEMORY)?;
        let context = self.context()?.0;
        let movings = &self.driver.memory.moving;
        let session = self.driver.session;
        let mut undo = Undo(Vec::new());

        let address = movings.window.take(bytes)?;
        undo.push(move || movings.window.give_back(address, bytes));
        let allocation = self.map_device_memory(address, bytes, context)?;
        // The reverted steps have just succeeded, so only a lost session can refuse this.
        undo.push(move || {
            let _ = calls::cuMemUnmap(&mut Call::internal(session), DevicePtr(address), bytes);
            let _ = calls::cuMemRelease(&mut Call::internal(session), allocation);
        });
        let no_memory = |error| {
            log::debug!("Pages at {address:#x}: {error}");
            CudaError::OUT_OF_MEMORY
        };
        let offset = address - MovingWindow::START;
        let pages = Pages::new(&means.store, address, offset, bytes).map_err(no_memory)?;
        means.faults.watch(address..address + bytes).map_err(no_memory)?;
        undo.0.clear();
        let state = State {
            blocks: Blocks::new(bytes),
            twins: Twins::new(),
            attachment: Attachment::Global,
            home: Home::Device(allocation),
            pages: Some(pages),
        };
        let moving = Moving { address, bytes, context, rests: AtomicBool::new(false), state: state.into() };
        let moving = Arc::new(moving);
        movings.add(moving.clone());
        Ok(moving)
    }

    /// Allocates device memory of a context's device, and maps it at reserved addresses.
    ///
    /// Errors: those of `cuMemCreate`, `cuMemMap` and `cuMemSetAccess`.
    pub(super) fn map_device_memory(
        self,
        address: u64,
        bytes: u64,
        context: u64,
    ) -> Result<AllocationId, CudaError> {
        let session = self.driver.session;
        let at = DevicePtr(address);
        let mut undo = Undo(Vec::new());
        let home = self.driver.contexts.device_of(context)? as i32;
        let allocation = AllocationId(new_handle(Kind::Other));
        let location = self.location(home);
        let properties = AllocationProperties {
            kind: TYPE_PINNED,
            handle_types: 0,
            location,
            compression: 0,
            gpu_direct_rdma: 0,
            usage: 0,
        };
        calls::cuMemCreate(&mut self.call(), allocation, bytes, properties, 0)?;
        undo.push(move || _ = calls::cuMemRelease(&mut Call::internal(session), allocation));
        calls::cuMemMap(&mut self.call(), at, bytes, 0, allocation, 0)?;
        undo.push(move || _ = calls::cuMemUnmap(&mut Call::internal(session), at, bytes));
        // All devices can access managed memory.
        for device in 0..self.driver.devices.count() {
            calls::cuMemSetAccess(&mut self.call(), at, bytes, self.location(device), READ_WRITE)?;
        }
        undo.0.clear();
        Ok(allocation)
    }

    fn location(self, device: i32) -> Location {
        self.driver.devices.to_worker(CUmemLocation { kind: LOCATION_DEVICE, id: device })
    }
}

impl Driver {
    /// Frees managed memory that moves. The GPU's work on it must have ended.
    pub fn free_moving(&self, moving: &Moving) {
        let Moving { address, bytes, .. } = *moving;
        let movings = &self.memory.moving;
        movings.remove(moving);
        let mut state = moving.state();
        let home = std::mem::replace(&mut state.home, Home::Nowhere);
        if let Home::Host(pinned) = &home
            && let Err(error) = self.unregister(moving, pinned)
        {
            log::debug!("Freeing managed memory at {address:#x}: {error}");
        }
        // A touch that is being handled now ends like a later one: at an inaccessible address.
        let pages = state.pages.take();
        movings.shared.fetch_sub(std::mem::take(&mut state.twins).len(), Ordering::AcqRel);
        drop(state);
        if pages.is_none() {
            return;
        }
        drop(pages);
        if let Some(faults) = movings.faults() {
            let _ = faults.wake(address..address + bytes);
        }
        let freed = match home {
            Home::Device(allocation) => self.unmap_device_memory(moving, allocation),
            Home::Host(_) => Ok(()),
            Home::Nowhere => Err(CudaError::INVALID_VALUE),
        };
        match freed {
            Ok(()) => movings.window.give_back(address, bytes),
            // The session is lost or the context broken. The addresses stay reserved.
            Err(error) => log::debug!("Freeing managed memory at {address:#x}: {error}"),
        }
    }

    /// Reverts [`Api::map_device_memory`]. The GPU's work on the memory must have ended.
    pub(super) fn unmap_device_memory(
        &self,
        moving: &Moving,
        allocation: AllocationId,
    ) -> Result<(), CudaError> {
        calls::cuMemUnmap(&mut Call::internal(self.session), DevicePtr(moving.address), moving.bytes)?;
        calls::cuMemRelease(&mut Call::internal(self.session), allocation)
    }
}
