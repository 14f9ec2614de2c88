// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Pinned host memory: allocated in the address window, or registered at the program's address.

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::ContextId;
use virtio_cuda_client::transport::UserMemory;

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, Out};
use crate::memory::attach::{attach, attach_pages};
use crate::memory::place::HIGHEST_ADDRESS;
use crate::state::memory::pinned::Attached;
use crate::state::memory::ranges::{HostKind, HostRange};
use crate::state::memory::slabs::{MAX_BYTES, Pages, SLAB_BYTES};
use crate::state::memory::spares::{self, Spare};
use crate::state::memory::window::{PAGE_BYTES, round_up};

/// `CU_MEMHOSTALLOC_*` and `CU_MEMHOSTREGISTER_*`.
const PORTABLE: u32 = 1;
const DEVICEMAP: u32 = 2;
const WRITECOMBINED: u32 = 4;
const IO_MEMORY: u32 = 4;
const READ_ONLY: u32 = 8;

/// Allocates managed memory. It moves to the GPU and back if it is long enough and moving is possible.
pub fn allocate_managed(api: Api, bytes: usize, flags: u32) -> Result<u64, CudaError> {
    if bytes == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    let context = api.context()?.0;
    api.take_back_freed();
    let (memory, length) = (&api.driver.memory, bytes as u64);
    let moving = if memory.moving.wants(length) { api.allocate_moving(length) } else { None };
    let start = match &moving {
        Some(moving) => moving.address,
        None if length <= MAX_BYTES => memory.slabs.take(context, length, || {
            let (pages, attached) = attach_pages(api, ContextId(context), SLAB_BYTES, true)?;
            Ok(Pages { memory: pages, pinned: attached.pinned, context })
        })?,
        None => return allocate(api, bytes, HostKind::Managed, flags),
    };
    log::debug!("Managed memory of {bytes} bytes at {start:#x}");
    // Each address is used once, so the ranges cannot overlap.
    memory.ranges.add_host(HostRange {
        start,
        bytes: length,
        device_address: start,
        kind: HostKind::Managed,
        flags,
        context,
        device: api.driver.contexts.device_of(context)?,
        id: memory.ranges.next_id(),
        pages: UserMemory::NONE,
        window: start,
        pinned: Vec::new(),
        owner: 0,
        pool: None,
        moving,
    });
    Ok(start)
}

/// Allocates pages in the window.
pub fn allocate(api: Api, bytes: usize, kind: HostKind, flags: u32) -> Result<u64, CudaError> {
    if bytes == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    let context = api.context()?.0;
    let device = api.driver.contexts.device_of(context)?;
    let memory = &api.driver.memory;
    // Managed memory has one address for program and GPU. Pinned memory may have two, and may come from the spare
    // memory.
    let one_address = kind == HostKind::Managed;
    let spare = if kind == HostKind::Allocated { take_spare(api, context, bytes as u64) } else { None };
    let (pages, attached) = match spare {
        Some(ready) => ready,
        None => attach_pages(api, ContextId(context), bytes as u64, one_address)?,
    };
    let address = pages.address as u64;
    log::debug!("Host memory of {bytes} bytes at {address:#x}");
    let range = HostRange {
        start: address,
        bytes: bytes as u64,
        device_address: attached.device_address,
        kind,
        flags,
        context,
        device,
        id: memory.ranges.next_id(),
        pages,
        window: address,
        pinned: attached.pinned,
        owner: 0,
        pool: None,
        moving: None,
    };
    // Each address of the window is used once, so the ranges cannot overlap.
    memory.ranges.add_host(range);
    Ok(address)
}

/// Takes spare pinned memory, unless the call may have to fail: while a stream captures, or in a broken context.
fn take_spare(api: Api, context: u64, bytes: u64) -> Option<(UserMemory, Attached)> {
    if bytes > spares::MAX_BYTES || !api.may_post(0) || api.is_broken() {
        return None;
    }
    let spare = api.driver.memory.spares.take(context, round_up(bytes).ok()?)?;
    Some((spare.pages, Attached { device_address: spare.device_address, pinned: spare.pinned }))
}

/// Frees memory of [`allocate`] and [`allocate_managed`]. It is reused only after the GPU's work on it.
pub fn free(api: Api, address: u64, kind: HostKind) -> Result<(), CudaError> {
    if api.driver.memory.ranges.host(address).is_none_or(|range| range.start != address || range.kind != kind)
    {
        return Err(CudaError::INVALID_VALUE);
    }
    let is_unused = api.wait_unless_idle()?;
    let range = api.driver.memory.ranges.take_host(address, kind).ok_or(CudaError::INVALID_VALUE)?;
    if range.pinned.is_empty() {
        api.take_back(range, is_unused);
        return Ok(());
    }
    if kind != HostKind::Allocated || !is_unused {
        api.driver.detach(&range);
        return Ok(());
    }
    let HostRange { pages, device_address, context, .. } = *range;
    let spare = Spare { pages, device_address, pinned: range.pinned.clone(), context };
    for removed in api.driver.memory.spares.keep(spare) {
        api.driver.detach_pages(removed.pages, &removed.pinned);
    }
    Ok(())
}

/// Maximum bytes of a registration; more than any process has.
const MAX_REGISTERED: usize = 1 << 47;

/// Registers memory of the program in place.
fn register(api: Api, start: HostPtr, bytes: usize, flags: u32) -> Result<(), CudaError> {
    if start.address() == 0 || bytes == 0 || flags & !(PORTABLE | DEVICEMAP | IO_MEMORY | READ_ONLY) != 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    if bytes > MAX_REGISTERED && start.address().checked_add(bytes).is_some() {
        return Err(CudaError::NOT_SUPPORTED);
    }
    let is_of_a_device = flags & IO_MEMORY != 0;
    let read_only = flags & READ_ONLY != 0;
    let flags = flags & (PORTABLE | DEVICEMAP | READ_ONLY) | DEVICEMAP;
    let context = api.context()?.0;
    let device = api.driver.contexts.device_of(context)?;
    let memory = &api.driver.memory;
    let first = start.address() as u64;
    if first > HIGHEST_ADDRESS {
        return Err(CudaError::NOT_SUPPORTED);
    }
    let end = first.checked_add(bytes as u64).ok_or(CudaError::INVALID_VALUE)?;
    let page_start = first / PAGE_BYTES * PAGE_BYTES;
    let page_bytes = round_up(end)? - page_start;
    let pages = UserMemory { address: page_start as usize, bytes: page_bytes as usize };
    if let Some(range) = memory.ranges.host(first).or_else(|| memory.ranges.host(end - 1)) {
        let registered = range.kind == HostKind::Registered;
        let already = CudaError::HOST_MEMORY_ALREADY_REGISTERED;
        return Err(if registered { already } else { CudaError::INVALID_VALUE });
    }
    if end > HIGHEST_ADDRESS {
        return Err(CudaError::NOT_SUPPORTED);
    }
    // A process of the guest has no memory of other devices.
    if is_of_a_device {
        return Err(CudaError::INVALID_VALUE);
    }
    let window = memory.window.take(page_bytes)?;
    let transport = api.driver.session.transport();
    let adopted = transport.adopt(pages, read_only).map_err(|error| {
        log::debug!("Registering {bytes} bytes at {first:#x}: {error}");
        error.result()
    });
    let attached =
        adopted.and_then(|()| attach(api, pages, window, flags).inspect_err(|_| transport.release(pages)));
    let attached = attached.inspect_err(|_| memory.window.give_back(window, page_bytes))?;
    let range = HostRange {
        start: first,
        bytes: bytes as u64,
        device_address: attached.device_address + (first - page_start),
        kind: HostKind::Registered,
        flags,
        context,
        device,
        id: memory.ranges.next_id(),
        pages,
        window,
        pinned: attached.pinned,
        owner: 0,
        pool: None,
        moving: None,
    };
    log::debug!("Registered {bytes} bytes at {first:#x}, on the GPU at {:#x}", range.device_address);
    if memory.ranges.add_host(range) { Ok(()) } else { Err(CudaError::HOST_MEMORY_ALREADY_REGISTERED) }
}

fn unregister(api: Api, start: HostPtr) -> Result<(), CudaError> {
    let address = start.address() as u64;
    match api.driver.memory.ranges.host(address) {
        Some(range) if range.kind == HostKind::Registered && range.start == address => {}
        // CUDA's own memory, of the host or of a device.
        Some(_) => return Err(CudaError::INVALID_VALUE),
        _ if api.driver.memory.is_reserved(address) => return Err(CudaError::INVALID_VALUE),
        _ => return Err(CudaError::HOST_MEMORY_NOT_REGISTERED),
    }
    api.wait_for_work()?;
    let range = api.driver.memory.ranges.take_host(address, HostKind::Registered);
    api.driver.detach(&*range.ok_or(CudaError::HOST_MEMORY_NOT_REGISTERED)?);
    Ok(())
}

fn allocate_for(api: Api, pp: Out<u64>, bytes: usize, flags: u32) -> Result<(), CudaError> {
    pp.check()?;
    if bytes == 0 {
        return pp.set(0);
    }
    if flags & !(PORTABLE | DEVICEMAP | WRITECOMBINED) != 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    pp.set(allocate(api, bytes, HostKind::Allocated, flags)?)
}

entry_points! {
    /// Allocates pinned memory; the GPU may have it at the same address.
    call cuMemHostAlloc(api, pp: Out<u64>, bytesize: usize, Flags: u32) {
        allocate_for(api, pp, bytesize, Flags)
    }

    /// Allocates pinned memory.
    call cuMemAllocHost_v2(api, pp: Out<u64>, bytesize: usize) {
        allocate_for(api, pp, bytesize, 0)
    }

    /// Frees pinned memory.
    call cuMemFreeHost(api, p: HostPtr) {
        if p.address() == 0 {
            return Ok(());
        }
        free(api, p.address() as u64, HostKind::Allocated)
    }

    /// Makes memory of the program accessible to the GPU.
    call cuMemHostRegister_v2(api, p: HostPtr, bytesize: usize, Flags: u32) {
        register(api, p, bytesize, Flags)
    }

    /// Makes memory of the program accessible to the GPU.
    call cuMemHostRegister(api, p: HostPtr, bytesize: usize, Flags: u32) {
        register(api, p, bytesize, Flags)
    }

    /// Reverts a registration.
    call cuMemHostUnregister(api, p: HostPtr) {
        if p.address() == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        unregister(api, p)
    }

    /// Returns the address of pinned memory on the GPU.
    call cuMemHostGetDevicePointer_v2(api, pdptr: Out<u64>, p: HostPtr, Flags: u32) {
        if Flags != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let address = p.address() as u64;
        let range = api.driver.memory.ranges.host(address).ok_or(CudaError::INVALID_VALUE)?;
        if !matches!(range.kind, HostKind::Allocated | HostKind::Registered) {
            return Err(CudaError::INVALID_VALUE);
        }
        pdptr.set(range.device_address_of(address))
    }

    /// Returns the flags of pinned memory. All of it is mapped, and the flags say so.
    call cuMemHostGetFlags(api, pFlags: Out<u32>, p: HostPtr) {
        let range = api.driver.memory.ranges.host(p.address() as u64);
        let range = range.filter(|range| range.pool.is_none()).ok_or(CudaError::INVALID_VALUE)?;
        // NVIDIA's driver does not report PORTABLE if DEVICEMAP was not requested with it.
        let flags = if range.flags & DEVICEMAP == 0 { range.flags & !PORTABLE } else { range.flags };
        pFlags.set(flags | DEVICEMAP)
    }
}
