// SPDX-License-Identifier: Apache-2.0 OR MIT
//! External memory. It always refers to an allocation that a process of the guest has offered: the graphics APIs for
//! which CUDA provides external memory do not exist in a guest.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use vhost_cuda_common::exchange::{ALLOCATION, POOL, TOKEN_BYTES};
use virtio_cuda_protocol::cuda::{
    ArrayDescriptor, ContextId, DevicePtr, ExternalMemoryId, MAX_MIPMAP_LEVELS, MipmappedArrayId,
};

use crate::call::CallContext;
use crate::call::lifecycle::Destroy;
use crate::gpu::{CuResult, CudaError, Driver, RawArray, RawExternal, RawExternalArray, RawExternalBuffer};
use crate::handlers::array::counted;
use crate::home::Home;
use crate::memory::allocations::{Origin, Range};
use crate::memory::formats::Shape;
use crate::memory::pools;
use crate::objects::Parent;

/// Refuses a range that does not lie completely inside. NVIDIA's driver never gets such a range.
fn check(all: u64, offset: u64, bytes: u64) -> CuResult<()> {
    let inside = offset.checked_add(bytes).is_some_and(|end| end <= all);
    if inside && bytes > 0 { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
}

/// Imports an allocation. It is charged to this session too, because its owner may end first; an allocation that the
/// session itself created is not charged twice.
pub fn cuImportExternalMemory(
    cx: &mut CallContext<'_>,
    memory: ExternalMemoryId,
    token: [u8; TOKEN_BYTES],
    bytes: u64,
) -> CuResult<()> {
    let home = cx.owner()?;
    if bytes == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    let sharing = &cx.session.sharing;
    let found = sharing.look_up(token, ALLOCATION);
    // NVIDIA's driver distinguishes a pool from an unknown handle.
    let is_pool = || sharing.look_up(token, POOL).is_ok();
    let (offer, file) = found.map_err(|error| if is_pool() { CudaError::NOT_SUPPORTED } else { error })?;
    let file = file.ok_or(CudaError::INVALID_VALUE)?;
    let mut reservations = cx.session.reservations();
    reservations.externals.check_new(memory.0)?;
    let charge = reservations.charge_of(&token, offer.bytes);
    pools::charge(cx.session, |allocations| allocations.charge(charge))?;
    // The driver closes the descriptor, unless a capture forbids the call.
    let descriptor = file.into_raw_fd();
    // SAFETY: the description lives across the call, and names a descriptor that is open.
    let made = unsafe { cx.gpu().cuImportExternalMemory(&RawExternal::of_file(descriptor, bytes)) };
    let (raw,) = made.inspect_err(|&error| {
        cx.session.allocations().discharge(charge);
        if error == CudaError::CAPTURE_UNSUPPORTED {
            // SAFETY: it is still this function's.
            drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    })?;
    reservations.import(memory.0, raw, token, offer.bytes, home);
    Ok(())
}

/// Keeps the context that memory was imported in, which may be another than the current one; returns it.
fn keep_context(cx: &CallContext<'_>, memory: ExternalMemoryId) -> CuResult<Parent> {
    let (_, _, Home { context: name, .. }) = cx.session.reservations().externals.get(memory.0)?;
    let object = cx.session.contexts.lock().find(ContextId(name))?;
    let object = object.ok_or(CudaError::CONTEXT_IS_DESTROYED)?;
    cx.held().keep::<u8>(object.clone());
    Ok(Parent { name, object })
}

/// Maps a part of external memory.
pub fn cuExternalMemoryGetMappedBuffer(
    cx: &mut CallContext<'_>,
    memory: ExternalMemoryId,
    offset: u64,
    bytes: u64,
) -> CuResult<(DevicePtr,)> {
    // The lock is held until the mapping is recorded. As soon as the driver returns the address, another thread can
    // free it and get it again for another allocation.
    keep_context(cx, memory)?;
    let mut reservations = cx.session.reservations();
    let (raw, all, home) = reservations.externals.get(memory.0)?;
    check(all, offset, bytes)?;
    reservations.externals.check_room()?;
    let part = RawExternalBuffer { offset, bytes, ..RawExternalBuffer::ZERO };
    // SAFETY: the description lives across the call, and the part lies in the memory.
    let (dptr,) = unsafe { cx.gpu().cuExternalMemoryGetMappedBuffer(raw, &part) }?;
    cx.session.allocations().insert(dptr, bytes, Origin::External, home);
    reservations.externals.map_buffer(memory.0, dptr);
    Ok((DevicePtr(dptr),))
}

/// Frees a mapping of external memory.
pub(super) fn free_buffer(
    cx: &CallContext<'_>,
    range: &Range,
    free: impl FnOnce() -> CuResult<()>,
) -> CuResult<()> {
    let mut reservations = cx.session.reservations();
    if cx.session.allocations().allocated_at(range.base)?.serial != range.serial {
        // Another thread was faster, and the program does not mean the mapping that is there now.
        return Err(CudaError::INVALID_VALUE);
    }
    free()?;
    cx.session.allocations().remove(range.base);
    let unused = reservations.externals.unmap_buffer(range.base);
    let free = reservations.free_external(unused);
    cx.session.allocations().discharge(free);
    Ok(())
}

/// Maps a part of external memory as a mipmapped array.
pub fn cuExternalMemoryGetMappedMipmappedArray(
    cx: &mut CallContext<'_>,
    memory: ExternalMemoryId,
    offset: u64,
    descriptor: ArrayDescriptor,
    levels: u32,
    mipmap: MipmappedArrayId,
) -> CuResult<()> {
    if !(1..=MAX_MIPMAP_LEVELS).contains(&levels) {
        // For zero levels NVIDIA's driver writes beyond its allocation.
        return Err(CudaError::INVALID_VALUE);
    }
    let array = RawArray::from(&descriptor);
    let home = keep_context(cx, memory)?;
    let mut reservations = cx.session.reservations();
    let (raw, all, _) = reservations.externals.get(memory.0)?;
    check(all, offset, Shape::of(&array)?.bytes()?)?;
    reservations.externals.check_room()?;
    let reserved = cx.session.objects.mipmaps.reserve(mipmap.0)?;
    let part = RawExternalArray { offset, array, levels, ..RawExternalArray::ZERO };
    // SAFETY: the description lives across the call.
    let (made,) = unsafe { cx.gpu().cuExternalMemoryGetMappedMipmappedArray(raw, &part) }?;
    reservations.externals.map_array(memory.0, mipmap.0);
    let table = &cx.session.objects.mipmaps;
    cx.fill(reserved, counted(cx, Some(home), mipmap.0, table, made, Driver::cuMipmappedArrayDestroy))
}

impl Destroy for ExternalMemoryId {
    /// Forgets external memory. Its mappings stay.
    fn destroy(self, cx: &mut CallContext<'_>) -> CuResult<()> {
        keep_context(cx, self)?;
        let mut reservations = cx.session.reservations();
        let (raw, ..) = reservations.externals.get(self.0)?;
        cx.gpu().cuDestroyExternalMemory(raw)?;
        let unused = reservations.externals.destroy(self.0);
        let free = reservations.free_external(unused);
        cx.session.allocations().discharge(free);
        Ok(())
    }
}
