// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Host memory of `cuMemCreate`: pages of a file of this process, which it maps at reserved addresses. While a device
//! has access to a mapping, its pages are pinned and registered like those of `cuMemHostAlloc`, so they count as pinned
//! memory.

use std::sync::atomic::Ordering;

use cuda_abi::{CUmemAccessDesc, CUmemAllocationProp};
use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::ContextId;
use virtio_cuda_client::transport::UserMemory;

use crate::driver::Driver;
use crate::entry::Api;
use crate::handles::{Kind, new_handle};
use crate::memory::attach::{attach_window, has_room};
use crate::state::local_pools::table::Home;
use crate::state::memory::ranges::{HostKind, HostRange};
use crate::state::moving::pages::{Store, close, open};
use crate::state::parked::Parked;
use crate::state::reservations::{Attachment, Bound, GRANULARITY, HostAllocation, HostMap, Reader, State};
use crate::vmm::{parked, places};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const TYPE_PINNED: u32 = 1;
/// `CU_MEM_CREATE_USAGE_TILE_POOL`.
const TILE_POOL: u16 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_*`: none, read, read and write.
const ACCESS_FLAGS: [u32; 3] = [0, 1, 3];

/// Allocates host memory.
///
/// Errors: `CUDA_ERROR_NOT_SUPPORTED` for memory that can be exported to other processes.
pub fn create(api: Api, bytes: u64, properties: CUmemAllocationProp, flags: u64) -> Result<u64, CudaError> {
    let known = properties.kind == TYPE_PINNED && properties.usage & TILE_POOL == 0 && flags == 0;
    if !known || bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
        return Err(CudaError::INVALID_VALUE);
    }
    // Checks the NUMA node.
    Home::of(&api.driver.devices, properties.kind, properties.location)?;
    if properties.handle_types != 0 {
        return Err(CudaError::NOT_SUPPORTED);
    }
    if bytes > api.driver.session.limits().kept_bytes || !has_room(bytes) {
        return Err(CudaError::OUT_OF_MEMORY);
    }
    if let Some(handle) = parked::allocate(api, bytes, properties) {
        return Ok(handle);
    }
    let no_memory = |error| {
        log::debug!("{bytes} bytes of host memory: {error}");
        CudaError::OUT_OF_MEMORY
    };
    let store = Store::new(bytes).map_err(no_memory)?;
    // All pages are allocated now: a program that touches more memory than exists later gets no error, but is killed.
    store.populate(bytes).map_err(no_memory)?;
    let handle = new_handle(Kind::Other);
    api.driver.vmm.insert(HostAllocation { handle, store, bytes, properties });
    Ok(handle)
}

/// Maps host memory at reserved addresses. It is inaccessible at first.
///
/// Errors: `CUDA_ERROR_NOT_SUPPORTED` for an offset or too many bytes, for which NVIDIA's driver returns the same. Also
/// for addresses that this library has not chosen, or in a reservation with device memory.
pub fn map(
    api: Api,
    address: u64,
    bytes: u64,
    offset: u64,
    handle: u64,
    flags: u64,
) -> Result<(), CudaError> {
    let mut state = api.driver.vmm.lock();
    let allocation = state.held(handle).ok_or(CudaError::INVALID_VALUE)?;
    let end = address.checked_add(bytes).filter(|_| bytes > 0).ok_or(CudaError::INVALID_VALUE)?;
    if offset != 0 || bytes > allocation.bytes || !bytes.is_multiple_of(GRANULARITY) {
        return Err(CudaError::NOT_SUPPORTED);
    }
    let Some((base, reserved)) = state.around(address) else {
        let by_driver = api.driver.memory.claims.owns(address, bytes);
        return Err(if by_driver { CudaError::NOT_SUPPORTED } else { CudaError::INVALID_VALUE });
    };
    let inside = address.is_multiple_of(GRANULARITY) && end <= base + reserved.bytes;
    if !inside || flags != 0 || state.is_mapped(address..end) {
        return Err(CudaError::INVALID_VALUE);
    }
    places::bind(api, &mut state, base, Bound::Host)?;
    let attached = match state.parked.take(base) {
        Some(parked) if address == base && parked.is_all_of(&allocation, bytes) => parked.map.attached,
        other => {
            other.into_iter().for_each(|parked| parked::end(api, parked));
            allocation.store.map_closed(address, bytes).map_err(|error| {
                log::debug!("{bytes} bytes of host memory at {address:#x}: {error}");
                CudaError::OUT_OF_MEMORY
            })?;
            None
        }
    };
    state.maps.insert(address, HostMap { bytes, allocation, access: Default::default(), attached });
    Ok(())
}

/// Sets the access of locations to a mapping. Read access includes write access.
pub fn set_access(
    api: Api,
    state: &mut State,
    base: u64,
    access: &[CUmemAccessDesc],
) -> Result<(), CudaError> {
    if access.iter().any(|one| !ACCESS_FLAGS.contains(&one.flags)) {
        return Err(CudaError::INVALID_VALUE);
    }
    let map = state.maps.get_mut(&base).ok_or(CudaError::INVALID_VALUE)?;
    let before = map.access.clone();
    map.access.extend(access.iter().map(|one| (Reader::at(one.location), one.flags)));
    let mut done = apply(api, base, map);
    // `Api::with_room` finds the tables locked.
    if done == Err(CudaError::OUT_OF_MEMORY) && api.driver.unpin_parked(&mut state.parked) {
        let map = state.maps.get_mut(&base).ok_or(CudaError::INVALID_VALUE)?;
        done = apply(api, base, map);
    }
    if done.is_err()
        && let Some(map) = state.maps.get_mut(&base)
    {
        map.access = before;
    }
    done
}

/// Gives the processors and the devices the access that a mapping specifies.
fn apply(api: Api, base: u64, map: &mut HostMap) -> Result<(), CudaError> {
    let pages = parked::pages_of(base, map);
    // Pinning, and copies by the processor, need writable pages.
    let is_open = map.access.values().any(|&flags| flags != 0);
    if is_open {
        open(pages).map_err(|_| CudaError::OUT_OF_MEMORY)?;
    }
    match (map.is_for_devices(), &mut map.attached) {
        (true, None) => attach(api, pages, map)?,
        (true, Some(attachment)) => {
            if attachment.context == 0 {
                // Its context was destroyed, and there was no other one for it.
                reattach(api, reaching(api), pages, attachment)?;
            }
            if api.driver.memory.ranges.host(base).is_none() {
                add_range(api, pages, map);
            }
        }
        (false, Some(_)) => {
            // If it does not wait, the driver waits when the pages are unregistered by detaching.
            let _waited = api.wait_for_work()?;
            parked::detach(api.driver, pages, map);
        }
        _ => {}
    }
    if !is_open && let Err(error) = close(pages) {
        log::debug!("Memory at {base:#x} stays accessible: {error}");
    }
    Ok(())
}

/// Returns the context in which host memory is registered for the GPU: the current one, else any other one; 0 if the
/// process has none.
fn reaching(api: Api) -> u64 {
    match api.current() {
        0 => api.driver.contexts.any().unwrap_or(0),
        context => context,
    }
}

/// Makes a mapping accessible to the GPU. Without any context, that is deferred until the next one exists.
fn attach(api: Api, pages: UserMemory, map: &mut HostMap) -> Result<(), CudaError> {
    let transport = api.driver.session.transport();
    transport.adopt(pages, false).map_err(|error| {
        log::debug!("Host memory at {:#x}: {error}", pages.address);
        error.result()
    })?;
    let context = reaching(api);
    let mut attachment = Attachment { pinned: Vec::new(), context: 0 };
    let attached = reattach(api, context, pages, &mut attachment);
    attached.inspect_err(|_| transport.release(pages))?;
    if context == 0 {
        api.driver.vmm.orphaned.store(true, Ordering::Release);
    }
    add_range(api, pages, map);
    map.attached = Some(attachment);
    Ok(())
}

/// Adds a mapping to the memory that the GPU can access.
fn add_range(api: Api, pages: UserMemory, map: &HostMap) {
    let device = map.access.iter().find_map(|(reader, &flags)| match reader {
        Reader::Device(device) if flags != 0 => Some(*device as u32),
        _ => None,
    });
    let (ranges, start) = (&api.driver.memory.ranges, pages.address as u64);
    // Mappings do not overlap, and nothing else uses addresses of the window.
    ranges.add_host(HostRange {
        start,
        bytes: map.bytes,
        device_address: start,
        kind: HostKind::Mapped,
        flags: 0,
        // The mapping belongs to no context.
        context: 0,
        device: device.unwrap_or(0),
        id: ranges.next_id(),
        pages,
        window: start,
        pinned: Vec::new(),
        owner: 0,
        pool: None,
        moving: None,
    });
}

/// Makes pages accessible to the GPU through a context, if there is one.
fn reattach(api: Api, context: u64, pages: UserMemory, attachment: &mut Attachment) -> Result<(), CudaError> {
    if context == 0 {
        return Ok(());
    }
    let attached = api.with_capture_relaxed(|| attach_window(api, ContextId(context), pages))?;
    if attached.device_address != pages.address as u64 {
        log::error!("Host memory has another address in the worker");
        api.driver.unpin(&attached.pinned);
        return Err(CudaError::OUT_OF_MEMORY);
    }
    *attachment = Attachment { pinned: attached.pinned, context };
    Ok(())
}

/// Unmaps host memory, after the GPU's work on it.
pub fn unmap(api: Api, state: &mut State, bases: &[u64]) -> Result<(), CudaError> {
    // If it does not wait, detaching does (see `apply`).
    let is_unused = api.wait_unless_idle()? && api.current() != 0;
    for &base in bases {
        let Some(map) = state.maps.remove(&base) else { continue };
        let ended = if is_unused {
            parked::keep(api, state, base, map)
        } else {
            vec![Parked { base, map, freed: None }]
        };
        ended.into_iter().for_each(|parked| parked::end(api, parked));
    }
    Ok(())
}

impl Driver {
    /// Handles a destroyed context: memory that the GPU accessed through it must be attached again.
    pub fn orphan_host_maps(&self, context: u64) {
        if !self.vmm.any_host() {
            return;
        }
        let State { maps, parked, .. } = &mut *self.vmm.lock();
        for map in maps.values_mut().chain(parked.maps()) {
            if let Some(attachment) = map.attached.as_mut().filter(|attached| attached.context == context) {
                self.unpin(&std::mem::take(&mut attachment.pinned));
                attachment.context = 0;
                self.vmm.orphaned.store(true, Ordering::Release);
            }
        }
    }
}

impl Api {
    /// Must be called when a context exists: makes host memory of this library accessible to the GPU through it, if the
    /// GPU accessed it through destroyed contexts.
    pub fn adopt_host_memory(self, context: u64) {
        self.driver.local_pools.adopt_orphans(self, context);
        let orphaned = &self.driver.vmm.orphaned;
        if !orphaned.load(Ordering::Acquire) || !orphaned.swap(false, Ordering::AcqRel) {
            return;
        }
        for (&base, map) in &mut self.driver.vmm.lock().maps {
            let pages = UserMemory { address: base as usize, bytes: map.bytes as usize };
            if let Some(attachment) = map.attached.as_mut().filter(|attached| attached.context == 0)
                && let Err(error) = reattach(self.internal(), context, pages, attachment)
            {
                log::warn!("The GPU does not reach host memory at {base:#x} any more: {error}");
                // The next context, or the program's next cuMemSetAccess, tries again.
                orphaned.store(true, Ordering::Release);
            }
        }
    }
}
