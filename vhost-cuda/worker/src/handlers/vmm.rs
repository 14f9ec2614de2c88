// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual memory management. Allocations and addresses belong to no context here.

use vhost_cuda_common::statistics;
use virtio_cuda_protocol::cuda::{AllocationId, AllocationProperties, DevicePtr, Location};

use crate::call::CallContext;
use crate::call::lifecycle::Destroy;
use crate::gpu::{CuResult, RawLocation, Ref};
use crate::home::Home;
use crate::memory::allocations::Origin;
use crate::memory::pools;
use crate::words::granted;

/// Reserves addresses.
pub fn cuMemAddressReserve(
    cx: &mut CallContext<'_>,
    bytesize: u64,
    alignment: u64,
    addr: DevicePtr,
    flags: u64,
) -> CuResult<(DevicePtr,)> {
    let mut reservations = cx.session.reservations();
    reservations.check_room()?;
    let (dptr,) = cx.gpu().cuMemAddressReserve(bytesize as usize, alignment as usize, addr.0, flags)?;
    reservations.reserve(dptr, bytesize);
    Ok((DevicePtr(dptr),))
}

/// Frees reserved addresses.
pub fn cuMemAddressFree(cx: &mut CallContext<'_>, dptr: DevicePtr, bytesize: u64) -> CuResult<()> {
    let mut reservations = cx.session.reservations();
    reservations.check_unused(dptr.0, bytesize)?;
    // SAFETY: it is a reservation of this session, with nothing mapped there.
    unsafe { cx.gpu().cuMemAddressFree(dptr.0, bytesize as usize) }?;
    reservations.free(dptr.0);
    Ok(())
}

/// Allocates memory without an address.
pub fn cuMemCreate(
    cx: &mut CallContext<'_>,
    handle: AllocationId,
    bytesize: u64,
    wanted: AllocationProperties,
    flags: u64,
) -> CuResult<()> {
    let Ref(raw) = cx.resolve(wanted)?;
    let mut reservations = cx.session.reservations();
    reservations.check_new(handle.0)?;
    pools::charge(cx.session, |allocations| allocations.charge(bytesize))?;
    let properties = if flags == 0 { reservations.made_as(&raw) } else { raw };
    // SAFETY: the properties live across the call.
    let made = unsafe { cx.gpu().cuMemCreate(bytesize as usize, &properties, flags) };
    let (made,) = made.inspect_err(|_| {
        cx.session.allocations().discharge(bytesize);
        cx.thread.short_of = Some(raw.location.id);
    })?;
    reservations.insert(handle.0, made, bytesize, wanted.location);
    if flags == 0 {
        reservations.asked_for(handle.0, raw);
        statistics::add_movable_devices(cx.session.placed.device_bit(raw.location.id));
    }
    Ok(())
}

/// Returns the properties of an allocation, which may differ from the requested ones.
pub fn cuMemGetAllocationPropertiesFromHandle(
    cx: &mut CallContext<'_>,
    handle: AllocationId,
) -> CuResult<(AllocationProperties,)> {
    // The lock is held across the call, as in all calls on an allocation: no other thread may release it meanwhile.
    let reservations = cx.session.reservations();
    let allocation = reservations.held(handle.0)?;
    let (mut actual,) = cx.gpu().cuMemGetAllocationPropertiesFromHandle(allocation.raw)?;
    if let Some(asked) = allocation.properties {
        // The driver knows none of memory that has come from another worker, and more than the program asked for of other memory.
        actual.handle_types = asked.handle_types;
    }
    Ok((actual.on_wire(allocation.location),))
}

/// Maps an allocation. No device can access it until `cuMemSetAccess`.
pub fn cuMemMap(
    cx: &mut CallContext<'_>,
    dptr: DevicePtr,
    bytesize: u64,
    offset: u64,
    handle: AllocationId,
    flags: u64,
) -> CuResult<(Location,)> {
    let mut reservations = cx.session.reservations();
    let allocation = reservations.check_map(dptr.0, bytesize, offset, handle.0)?;
    let raw = allocation.raw;
    // SAFETY: the addresses are reserved by this session and free.
    unsafe { cx.gpu().cuMemMap(dptr.0, bytesize as usize, offset as usize, raw, flags) }?;
    reservations.map(dptr.0, bytesize, handle.0);
    Ok((allocation.location,))
}

/// Removes the mappings in reserved addresses, if there are any.
pub fn cuMemUnmap(cx: &mut CallContext<'_>, dptr: DevicePtr, bytesize: u64) -> CuResult<()> {
    let mut reservations = cx.session.reservations();
    let bases = reservations.inside(dptr.0, bytesize)?;
    // Removed from the session's memory first, so that no copy of another thread begins there.
    let mut allocations = cx.session.allocations();
    for &base in &bases {
        allocations.remove(base);
    }
    drop(allocations);
    // SAFETY: these are addresses that this session has reserved, and they contain whole mappings of this session.
    let unmapped = unsafe { cx.gpu().cuMemUnmap(dptr.0, bytesize as usize) };
    for base in bases {
        match unmapped {
            Ok(()) => {
                let free = reservations.unmap(base);
                cx.session.allocations().discharge(free);
            }
            Err(_) => enter(cx, &mut reservations, base),
        }
    }
    unmapped
}

/// Adds a mapping to the session's memory, if at least one device may access it.
fn enter(cx: &CallContext<'_>, reservations: &mut crate::memory::reservations::Reservations, base: u64) {
    if let Some(mapping) = reservations.mapping(base)
        && let Some(access) = mapping.access.first()
    {
        let device = access.location.id;
        cx.session.allocations().insert(base, mapping.bytes, Origin::Mapped, Home { context: 0, device });
    }
}

/// Sets the access of a device to mappings.
pub fn cuMemSetAccess(
    cx: &mut CallContext<'_>,
    dptr: DevicePtr,
    bytesize: u64,
    place: Location,
    flags: u32,
) -> CuResult<()> {
    let Ref(access) = granted(cx, place, flags)?;
    let mut reservations = cx.session.reservations();
    let bases = reservations.whole(dptr.0, bytesize)?;
    // SAFETY: these are mappings of this session; there is one description, which lives across the call.
    unsafe { cx.gpu().cuMemSetAccess(dptr.0, bytesize as usize, &access, 1) }?;
    for base in bases {
        if let Some(mapping) = reservations.mapping(base) {
            mapping.access.retain(|other| other.location.id != access.location.id);
            if flags != 0 {
                mapping.access.push(access);
            }
            if mapping.access.is_empty() {
                cx.session.allocations().remove(base);
                continue;
            }
        }
        enter(cx, &mut reservations, base);
    }
    Ok(())
}

/// Returns the access of a device to the memory at an address.
pub fn cuMemGetAccess(cx: &mut CallContext<'_>, place: Location, dptr: DevicePtr) -> CuResult<(u64,)> {
    let location: RawLocation = cx.resolve(place)?;
    let reservations = cx.session.reservations();
    // The driver also answers for memory of other kinds.
    if cx.session.allocations().find(dptr.0).is_none() {
        reservations.at(dptr.0)?;
    }
    // SAFETY: the location lives across the call.
    unsafe { cx.gpu().cuMemGetAccess(&location, dptr.0) }
}

/// Takes another reference to the allocation at an address.
pub fn cuMemRetainAllocationHandle(cx: &mut CallContext<'_>, dptr: DevicePtr) -> CuResult<(AllocationId,)> {
    let mut reservations = cx.session.reservations();
    let (_, name) = reservations.at(dptr.0)?;
    // SAFETY: the address lies in a mapping of this session; the driver only looks it up.
    let (raw,) = unsafe { cx.gpu().cuMemRetainAllocationHandle(dptr.0 as *mut _) }?;
    reservations.hold(name, raw);
    Ok((AllocationId(name),))
}

/// Adds addresses to the window.
pub fn window_claim(cx: &mut CallContext<'_>, base: u64, bytesize: u64) -> CuResult<()> {
    // Locked across the claim, so that the driver neither reserves nor maps any of the addresses meanwhile.
    let mut reservations = cx.session.reservations();
    if !reservations.overlaps(base, bytesize) {
        return cx.session.window().claim(base, bytesize);
    }
    reservations.check_lend(base, bytesize)?;
    // SAFETY: it was just checked that they are reserved and nothing is mapped there. It stays so: lent addresses can be
    // neither mapped nor freed.
    unsafe { cx.session.window().borrow(base, bytesize) }?;
    reservations.lend(base, bytesize);
    Ok(())
}

/// Undoes [`window_claim`].
pub fn window_yield(cx: &mut CallContext<'_>, base: u64, bytesize: u64) -> CuResult<()> {
    let mut reservations = cx.session.reservations();
    cx.session.window().unclaim(base, bytesize)?;
    reservations.take_back(base);
    Ok(())
}

impl Destroy for AllocationId {
    /// Releases a reference.
    fn destroy(self, cx: &mut CallContext<'_>) -> CuResult<()> {
        let mut reservations = cx.session.reservations();
        let allocation = reservations.held(self.0)?;
        cx.gpu().cuMemRelease(allocation.raw)?;
        let free = reservations.release(self.0);
        cx.session.allocations().discharge(free);
        Ok(())
    }
}
