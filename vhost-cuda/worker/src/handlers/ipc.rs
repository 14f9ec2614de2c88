// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sharing between processes of a guest. libcuda's own handles go to the daemon's exchange and never to a guest.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vhost_cuda_common::exchange::{ALLOCATION, EVENT, HANDLE_BYTES, MEMORY, Offer, Token};
use virtio_cuda_protocol::cuda::{AllocationId, DevicePtr, EventId, Location};

use crate::call::CallContext;
use crate::gpu::{CuResult, CudaError, HANDLE_TYPE_FILE, LOCATION_DEVICE, RawIpcHandle};
use crate::home::Home;
use crate::memory::allocations::Origin;
use crate::memory::placed::opened::Placement;
use crate::memory::pools;
use crate::memory::quota;
use crate::words::{EMULATED, EMULATED_DESCRIPTOR, handle_with};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

/// Returns the file of a handle of the emulator, or `None` for a handle of NVIDIA's driver.
fn file_behind(handle: &[u8; HANDLE_BYTES]) -> CuResult<Option<File>> {
    let descriptor = handle[EMULATED_DESCRIPTOR..].first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
    let Some(descriptor) = descriptor.filter(|_| handle.starts_with(EMULATED)) else { return Ok(None) };
    if descriptor < 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    // SAFETY: the emulator, in this process, has just reported that it has this file open, and keeps it open as long
    // as it is offered.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
    Ok(Some(file.try_clone_to_owned().map_err(|_| CudaError::OUT_OF_MEMORY)?.into()))
}

/// Offers the whole allocation that contains an address.
pub fn cuIpcGetMemHandle(cx: &mut CallContext<'_>, dptr: DevicePtr) -> CuResult<(Token,)> {
    let range = *cx.session.allocations().find(dptr.0).ok_or(CudaError::INVALID_VALUE)?;
    if range.origin != Origin::Allocated {
        return Err(CudaError::INVALID_VALUE);
    }
    let (handle, file) = match cx.session.placed.export(cx.gpu(), range.base) {
        Some(exported) => {
            let (file, bytes, offset) = exported?;
            (Placement::new(bytes, offset).to_handle(), Some(file))
        }
        None => {
            let (handle,) = cx.gpu().cuIpcGetMemHandle(range.base)?;
            (handle.reserved, file_behind(&handle.reserved)?.map(Arc::new))
        }
    };
    let offer = Offer { what: MEMORY, device: 0, bytes: range.bytes, handle };
    Ok((cx.session.sharing.offer_named(range.base, range.context, offer, file.as_deref())?,))
}

/// Opens memory of another process. It is charged to this session too, because its owner may end first.
pub fn cuIpcOpenMemHandle_v2(
    cx: &mut CallContext<'_>,
    token: Token,
    flags: u32,
) -> CuResult<(DevicePtr, u64)> {
    let home = cx.owner()?;
    if flags & !LAZY_ENABLE_PEER_ACCESS != 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    let (offer, file) = cx.session.sharing.look_up(token, MEMORY)?;
    let placement = Placement::of(&offer.handle, offer.bytes)?;
    if placement.is_some() && cx.session.sharing.is_own(&token) {
        // As the driver does.
        return Err(CudaError::INVALID_CONTEXT);
    }
    let charged = quota::opened(offer.bytes);
    pools::charge(cx.session, |allocations| allocations.charge(charged))?;
    let _changes = cx.session.sharing.changes();
    let opened = match (placement, file) {
        (Some(placement), Some(file)) => {
            let opened = cx.session.placed.open(cx.gpu(), token, (placement, offer.bytes), file, home);
            opened.map(|dptr| (dptr,))
        }
        (Some(_), None) => Err(CudaError::INVALID_VALUE),
        (None, file) => {
            let handle = RawIpcHandle { reserved: handle_with(offer.handle, file.as_ref()) };
            cx.gpu().cuIpcOpenMemHandle_v2(handle, flags)
        }
    };
    let dptr = entered(cx, opened, offer.bytes, charged, home)?;
    cx.session.sharing.open(dptr, cx.home());
    Ok((DevicePtr(dptr), offer.bytes))
}

/// Enters memory of another process that the driver has opened; `charged` bytes are charged for it. Returns its address.
fn entered(
    cx: &CallContext<'_>,
    opened: CuResult<(u64,)>,
    bytes: u64,
    charged: u64,
    home: Home,
) -> CuResult<u64> {
    let mut allocations = cx.session.allocations();
    let (dptr,) = opened.inspect_err(|_| allocations.discharge(charged))?;
    match allocations.find(dptr) {
        // Opened before: the driver returns the same address.
        Some(_) => allocations.discharge(charged),
        None => allocations.insert(dptr, bytes, Origin::Opened, home),
    }
    Ok(dptr)
}

/// Closes memory of another process. It is removed from the session's memory first, so that no copy begins there.
pub fn cuIpcCloseMemHandle(cx: &mut CallContext<'_>, dptr: DevicePtr) -> CuResult<(u32,)> {
    let _changes = cx.session.sharing.changes();
    let last = cx.session.sharing.close(dptr.0)?;
    if last {
        cx.session.allocations().remove(dptr.0);
    }
    let is_placed = cx.session.placed.lock().has(dptr.0);
    match is_placed {
        true if last => cx.session.placed.free(cx.gpu(), dptr.0).unwrap_or(Err(CudaError::INVALID_VALUE))?,
        true => {}
        // SAFETY: the address is memory that this session has opened, and not closed as often.
        false => unsafe { cx.gpu().cuIpcCloseMemHandle(dptr.0) }?,
    }
    Ok((last.into(),))
}

/// Offers an event.
pub fn cuIpcGetEventHandle(cx: &mut CallContext<'_>, event: EventId) -> CuResult<(Token,)> {
    let (handle,) = cx.gpu().cuIpcGetEventHandle(cx.resolve(event)?)?;
    let handle = handle.reserved;
    let file = file_behind(&handle)?;
    let offer = Offer { what: EVENT, device: 0, bytes: 0, handle };
    if cx.session.suspension.makes_again.load(Ordering::Relaxed)
        && let Some(token) = cx.session.sharing.event_is_back(event.0, offer, file.as_ref())?
    {
        return Ok((token,));
    }
    Ok((cx.session.sharing.offer_named(event.0, cx.home(), offer, file.as_ref())?,))
}

/// Offers an allocation as a file.
pub fn cuMemExportToShareableHandle(cx: &mut CallContext<'_>, handle: AllocationId) -> CuResult<(Token,)> {
    let mut reservations = cx.session.reservations();
    let allocation = reservations.held(handle.0)?;
    if allocation.properties.is_some_and(|asked| asked.handle_types & HANDLE_TYPE_FILE == 0) {
        // The worker's own file is not the program's.
        return Err(CudaError::INVALID_VALUE);
    }
    if let Some(token) = reservations.offered_as(handle.0) {
        return Ok((token,));
    }
    let file = match reservations.file(handle.0) {
        Some(file) => file,
        None => Arc::new(cx.gpu().memory_file(allocation.raw)?),
    };
    let device = allocation.location.id as u32;
    let offer = Offer { what: ALLOCATION, device, bytes: allocation.bytes, handle: [0; HANDLE_BYTES] };
    let token = cx.session.sharing.offer(offer, Some(&file))?;
    reservations.offer(handle.0, token);
    Ok((token,))
}

/// Opens an allocation of another process. It is charged to this session too, because its owner may end first.
pub fn cuMemImportFromShareableHandle(
    cx: &mut CallContext<'_>,
    handle: AllocationId,
    token: Token,
) -> CuResult<()> {
    let (offer, file) = cx.session.sharing.look_up(token, ALLOCATION)?;
    let file = file.ok_or(CudaError::INVALID_VALUE)?;
    let location = Location { kind: LOCATION_DEVICE, id: offer.device as i32 };
    let mut reservations = cx.session.reservations();
    reservations.check_new(handle.0)?;
    pools::charge(cx.session, |allocations| allocations.charge(offer.bytes))?;
    let shareable = std::ptr::without_provenance_mut(file.as_raw_fd() as usize);
    // SAFETY: for this kind of handle the pointer is a file descriptor, which is open across the call.
    let made = unsafe { cx.gpu().cuMemImportFromShareableHandle(shareable, HANDLE_TYPE_FILE as i32) };
    let (raw,) = made.inspect_err(|_| cx.session.allocations().discharge(offer.bytes))?;
    reservations.insert(handle.0, raw, offer.bytes, location);
    Ok(())
}
