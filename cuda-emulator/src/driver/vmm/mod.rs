// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual memory management: physical memory (one memory file each), reserved addresses, and mappings between them.

mod api;
pub(super) mod spare;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cuda_abi::{CUmemAllocationProp, CUmemLocation};

use super::device::{self, CUdevice, CUdeviceptr, Device};
use super::handle::{Handle, Registry};
use super::memory::place::{Place, blank};
use super::pool::home::{self, Home};
use super::result::{CUresult, CuResult};
use crate::memory::RangeKind;

/// Physical memory's handle.
pub type CUmemGenericAllocationHandle = Handle<Physical>;

pub(super) use super::memory::place::GRANULARITY;

/// For fewer bytes, NVIDIA's driver 580 ignores the address that the program requests.
const MIN_PLACED_BYTES: u64 = 32 << 20;
/// CU_MEM_CREATE_USAGE_TILE_POOL
const TILE_POOL: u16 = 1;

static PHYSICAL: Registry<Physical> = Registry::new();
static RESERVED: Mutex<BTreeMap<u64, Reservation>> = Mutex::new(BTreeMap::new());

impl crate::driver::handle::Object for Physical {
    const KIND: Option<crate::driver::handle::Kind> = None;
}

/// The memory that allocation properties request.
pub(super) trait AllocationProperties {
    /// Returns the known properties of imported memory.
    fn imported(ordinal: CUdevice) -> CUmemAllocationProp;
    /// Returns whether it is memory for tiles of arrays, which has no addresses.
    fn is_tile_pool(&self) -> bool;
    /// Returns whether it is host memory.
    fn is_host(&self) -> bool;
    /// Returns the device of the memory. Host memory counts as that of the first device in calls with a device.
    fn device(&self) -> CuResult<&'static Device>;
}

impl AllocationProperties for CUmemAllocationProp {
    fn imported(ordinal: CUdevice) -> CUmemAllocationProp {
        CUmemAllocationProp {
            kind: 1,
            handle_types: 1,
            location: CUmemLocation { kind: 1, id: ordinal },
            win32_metadata: 0,
            compression: 0,
            gpu_direct_rdma: 0,
            usage: 0,
            reserved: [0; 4],
        }
    }

    fn is_tile_pool(&self) -> bool {
        self.usage & TILE_POOL != 0
    }

    fn is_host(&self) -> bool {
        home::is_host(self.location)
    }

    fn device(&self) -> CuResult<&'static Device> {
        if self.kind != home::PINNED {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if self.is_host() {
            Home::new(self.kind, self.location)?;
            // NVIDIA's driver lets processes share memory of NUMA nodes.
            if self.handle_types != 0 {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            return device::device(0);
        }
        if self.location.kind != home::DEVICE {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // None, or file descriptors.
        if self.handle_types > 1 {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        device::device(self.location.id)
    }
}

/// Physical memory.
pub struct Physical {
    handle: CUmemGenericAllocationHandle,
    pub(super) file: OwnedFd,
    bytes: u64,
    pub(super) prop: CUmemAllocationProp,
    device: &'static Device,
    /// The number of times that cuMemRelease must be called.
    references: Mutex<u64>,
    /// The mapping by which arrays access it.
    tiles: OnceLock<Place>,
}

impl Physical {
    /// Returns its size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the address at which arrays access it, if it is a tile pool.
    pub(super) fn tiles(&self) -> CuResult<u64> {
        if !self.prop.is_tile_pool() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if let Some(tiles) = self.tiles.get() {
            return Ok(tiles.address());
        }
        let new = Place::new(&self.file, self.bytes)?;
        // Another thread may have been faster: then the new mapping is released.
        Ok(self.tiles.get_or_init(|| new).address())
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        if !self.prop.is_host() {
            self.device.memory.discharge(self.bytes);
        }
    }
}

/// Reserved addresses.
///
/// # Invariants
/// `[base, base + bytes)` is a mapping that only this value uses until it is removed from the table.
struct Reservation {
    bytes: u64,
    /// The mappings by address. They never overlap.
    maps: BTreeMap<u64, Map>,
    /// The ranges that were published to each device, by kind. Those of host memory are last.
    published: BTreeMap<CUdevice, [Vec<(u64, u64)>; 2]>,
}

struct Map {
    bytes: u64,
    physical: Arc<Physical>,
    /// CUmemAccess_flags by location.
    access: BTreeMap<Reader, u32>,
}

/// A location that may be given access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reader {
    /// A device.
    Device(CUdevice),
    /// The CPU. The NUMA nodes of the host are one location here.
    Host,
}

fn reserved() -> MutexGuard<'static, BTreeMap<u64, Reservation>> {
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the reservation that contains all of a range.
fn around(table: &mut BTreeMap<u64, Reservation>, ptr: u64, bytes: u64) -> CuResult<&mut Reservation> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let (base, found) = table.range_mut(..=ptr).next_back().ok_or(invalid)?;
    let inside = bytes > 0 && ptr.checked_add(bytes).is_some_and(|end| end <= base + found.bytes);
    if inside { Ok(found) } else { Err(invalid) }
}

fn check_size(bytes: u64) -> CuResult<()> {
    if bytes > 0 && bytes.is_multiple_of(GRANULARITY) && bytes <= 1 << 46 {
        Ok(())
    } else {
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    }
}

/// cuMemCreate
pub(super) fn create(bytes: u64, prop: CUmemAllocationProp) -> CuResult<CUmemGenericAllocationHandle> {
    check_size(bytes)?;
    if prop.is_tile_pool() && (prop.handle_types != 0 || prop.compression != 0) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let device = prop.device()?;
    // SAFETY: a name that ends with NUL; the result is checked.
    let file = unsafe { libc::memfd_create(c"cuda-emulator".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(CUresult::CUDA_ERROR_OPERATING_SYSTEM);
    }
    // SAFETY: a new descriptor, which nobody else owns.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    // SAFETY: only changes the new file's length.
    if unsafe { libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t) } != 0 {
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    }
    keep(file, bytes, prop, device)
}

fn keep(
    file: OwnedFd,
    bytes: u64,
    prop: CUmemAllocationProp,
    device: &'static Device,
) -> CuResult<CUmemGenericAllocationHandle> {
    if !prop.is_host() {
        device.memory.charge(bytes).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    }
    let handle = Handle::unique();
    let physical =
        Physical { handle, file, bytes, prop, device, references: Mutex::new(1), tiles: OnceLock::new() };
    PHYSICAL.insert(handle, Arc::new(physical));
    Ok(handle)
}

/// Returns the memory file of a descriptor, and its bytes. The caller keeps the descriptor.
pub(super) fn exported_file(descriptor: i32) -> CuResult<(OwnedFd, u64)> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    // SAFETY: duplicating checks the descriptor.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(invalid);
    }
    // SAFETY: a new descriptor, which nobody else owns.
    let file = unsafe { OwnedFd::from_raw_fd(copy) };
    // Only a memory file, whose length no other code here changes.
    // SAFETY: asks for the seals of a file; anything but a memory file refuses.
    if unsafe { libc::fcntl(copy, libc::F_GET_SEALS) } < 0 {
        return Err(invalid);
    }
    let bytes =
        std::fs::File::from(file.try_clone().map_err(|_| invalid)?).metadata().map_err(|_| invalid)?.len();
    check_size(bytes)?;
    Ok((file, bytes))
}

/// cuMemImportFromShareableHandle: imports memory that another process, or this one, has exported as a file
/// descriptor.
pub(super) fn import(descriptor: i32) -> CuResult<CUmemGenericAllocationHandle> {
    let (file, bytes) = exported_file(descriptor)?;
    let device = device::current_or_first()?;
    keep(file, bytes, CUmemAllocationProp::imported(device.ordinal), device)
}

/// Returns the physical memory of a handle.
pub(super) fn find(handle: CUmemGenericAllocationHandle) -> CuResult<Arc<Physical>> {
    PHYSICAL.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// cuMemRelease: mappings keep the memory.
pub(super) fn release(handle: CUmemGenericAllocationHandle) -> CuResult<()> {
    let physical = find(handle)?;
    let mut references = physical.references.lock().unwrap_or_else(PoisonError::into_inner);
    *references -= 1;
    if *references == 0 {
        PHYSICAL.remove(handle);
    }
    Ok(())
}

/// cuMemRetainAllocationHandle: returns the handle of the memory that is mapped at an address.
pub(super) fn retain(ptr: CUdeviceptr) -> CuResult<CUmemGenericAllocationHandle> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let mut table = reserved();
    let reservation = around(&mut table, ptr, 1)?;
    let (base, map) = reservation.maps.range(..=ptr).next_back().ok_or(invalid)?;
    if ptr - base >= map.bytes {
        return Err(invalid);
    }
    let physical = &map.physical;
    *physical.references.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    PHYSICAL.insert(physical.handle, Arc::clone(physical));
    Ok(physical.handle)
}

/// cuMemAddressReserve
pub(super) fn reserve(bytes: u64, alignment: u64, hint: u64) -> CuResult<CUdeviceptr> {
    check_size(bytes)?;
    if alignment != 0 && !alignment.is_power_of_two() || alignment > 1 << 40 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let alignment = alignment.max(GRANULARITY);
    let hint = if bytes < MIN_PLACED_BYTES { 0 } else { hint };
    let base = spare::reserve(bytes, alignment, hint)?;
    reserved().insert(base, Reservation { bytes, maps: BTreeMap::new(), published: BTreeMap::new() });
    Ok(base)
}

/// cuMemAddressFree
pub(super) fn free(ptr: CUdeviceptr, bytes: u64) -> CuResult<()> {
    let mut table = reserved();
    let found = table.get(&ptr).filter(|found| found.bytes == bytes && found.maps.is_empty());
    found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    table.remove(&ptr);
    // SAFETY: the reservation's own mapping (invariant), which nothing is mapped into any more.
    unsafe { spare::give_back(ptr, bytes) };
    Ok(())
}

/// cuMemMap
pub(super) fn map(
    ptr: CUdeviceptr,
    bytes: u64,
    offset: u64,
    handle: CUmemGenericAllocationHandle,
) -> CuResult<()> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let physical = find(handle)?;
    if physical.prop.is_tile_pool() {
        return Err(invalid);
    }
    around(&mut reserved(), ptr, 1)?;
    // As in NVIDIA's driver, the offset must be 0.
    if bytes > 0 && (!bytes.is_multiple_of(GRANULARITY) || offset != 0 || bytes > physical.bytes) {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    check_size(bytes)?;
    if !ptr.is_multiple_of(GRANULARITY) {
        return Err(invalid);
    }
    let mut table = reserved();
    let reservation = around(&mut table, ptr, bytes)?;
    let before = reservation.maps.range(..ptr + bytes).next_back();
    if before.is_some_and(|(base, map)| base + map.bytes > ptr) {
        return Err(invalid);
    }
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the place is a part of a reservation (invariant) where nothing is mapped: nobody uses it.
    let place = unsafe {
        let file = physical.file.as_raw_fd();
        libc::mmap(ptr as *mut c_void, bytes as usize, protection, flags, file, offset as libc::off_t)
    };
    if place == libc::MAP_FAILED {
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    }
    reservation.maps.insert(ptr, Map { bytes, physical, access: BTreeMap::new() });
    Ok(())
}

impl Reservation {
    /// Returns the addresses of the maps that cover a range exactly.
    fn covering(&self, ptr: u64, bytes: u64) -> CuResult<Vec<u64>> {
        let mut found = Vec::new();
        let mut next = ptr;
        for (base, map) in self.maps.range(ptr..ptr + bytes) {
            if *base != next {
                break;
            }
            next = base + map.bytes;
            found.push(*base);
        }
        if next == ptr + bytes { Ok(found) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
    }

    /// Returns the addresses of the maps in a range. No map may lie only partly inside.
    fn inside(&self, ptr: u64, bytes: u64) -> CuResult<Vec<u64>> {
        let end = ptr + bytes;
        let before = self.maps.range(..ptr).next_back().is_some_and(|(base, map)| base + map.bytes > ptr);
        let behind = self.maps.range(ptr..end).next_back().is_some_and(|(base, map)| base + map.bytes > end);
        if before || behind || !ptr.is_multiple_of(GRANULARITY) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(self.maps.range(ptr..end).map(|(base, _)| *base).collect())
    }

    /// Publishes the accessible ranges to the devices. Adjacent maps become one range, because copies cross their
    /// borders.
    fn publish(&mut self) {
        for device in device::all() {
            let mut ranges: [Vec<(u64, u64)>; 2] = Default::default();
            for (base, map) in &self.maps {
                if map.access.get(&Reader::Device(device.ordinal)).is_none_or(|flags| *flags == 0) {
                    continue;
                }
                let ranges = &mut ranges[usize::from(map.physical.prop.is_host())];
                match ranges.last_mut() {
                    Some((start, length)) if *start + *length == *base => *length += map.bytes,
                    _ => ranges.push((*base, map.bytes)),
                }
            }
            let old = self.published.insert(device.ordinal, ranges.clone()).unwrap_or_default();
            let kinds = [RangeKind::Mapped, RangeKind::HostMapped];
            for ((old, new), kind) in old.into_iter().zip(ranges).zip(kinds) {
                let old: Vec<_> = old.into_iter().map(|(base, _)| base).collect();
                if !device.memory.replace_host_ranges(&old, &new, kind) {
                    log::error!("reserved addresses overlap other memory");
                }
            }
        }
    }
}

/// cuMemUnmap of whole maps, and of unmapped addresses, which are no longer used.
pub(super) fn unmap(ptr: CUdeviceptr, bytes: u64) -> CuResult<()> {
    check_size(bytes)?;
    let mut table = reserved();
    let pieces = pieces(&mut table, ptr, bytes, Reservation::inside)?;
    let mut removed = Vec::new();
    for (base, maps) in pieces {
        let Some(reservation) = table.get_mut(&base) else { continue };
        for base in maps {
            removed.extend(reservation.maps.remove_entry(&base));
        }
        reservation.publish();
    }
    for (base, map) in &removed {
        // Replaced by plain memory: an access that was checked just before must not end the process.
        // SAFETY: a part of a reservation (invariant) that no device may use any more.
        unsafe { blank(*base, map.bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED) };
    }
    Ok(())
}

/// Splits a range at the borders of reservations, which must cover it without a gap. Returns the base of each reservation, and the
/// addresses that `of` returns for the part of the range in it.
///
/// Errors: `CUDA_ERROR_INVALID_VALUE` if a part is not reserved; those of `of`.
fn pieces(
    table: &mut BTreeMap<u64, Reservation>,
    ptr: u64,
    bytes: u64,
    of: impl Fn(&Reservation, u64, u64) -> CuResult<Vec<u64>>,
) -> CuResult<Vec<(u64, Vec<u64>)>> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let end = ptr.checked_add(bytes).filter(|_| bytes > 0).ok_or(invalid)?;
    let mut found = Vec::new();
    let mut at = ptr;
    while at < end {
        let (base, reservation) = table.range(..=at).next_back().ok_or(invalid)?;
        let next = end.min(base + reservation.bytes);
        if next <= at {
            return Err(invalid);
        }
        found.push((*base, of(reservation, at, next - at)?));
        at = next;
    }
    Ok(found)
}

/// cuMemSetAccess: sets the access of each location to whole maps. Readable memory is also writable, and the CPU
/// always has both.
pub(super) fn set_access(ptr: CUdeviceptr, bytes: u64, access: &[(Reader, u32)]) -> CuResult<()> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let mut table = reserved();
    let pieces = pieces(&mut table, ptr, bytes, Reservation::covering)?;
    let by_host = access.iter().any(|(reader, flags)| *reader == Reader::Host && *flags != 0);
    for (base, maps) in &pieces {
        let of_device = |map: &u64| table[base].maps.get(map).is_some_and(|map| !map.physical.prop.is_host());
        if by_host && maps.iter().any(of_device) {
            return Err(invalid);
        }
    }
    for (base, maps) in pieces {
        let Some(reservation) = table.get_mut(&base) else { continue };
        for base in maps {
            if let Some(map) = reservation.maps.get_mut(&base) {
                map.access.extend(access.iter().copied());
            }
        }
        reservation.publish();
    }
    Ok(())
}

/// Returns whether an address is reserved. Unmapped addresses there are not memory of the program either.
pub(super) fn is_reserved(ptr: CUdeviceptr) -> bool {
    around(&mut reserved(), ptr, 1).is_ok()
}

/// Returns the first address and the bytes of the reservation around an address.
pub(super) fn reservation_of(ptr: CUdeviceptr) -> Option<(u64, u64)> {
    let table = reserved();
    let (&base, found) = table.range(..=ptr).next_back()?;
    (ptr - base < found.bytes).then_some((base, found.bytes))
}

/// Returns whether host memory is mapped at an address.
pub(super) fn is_host(ptr: CUdeviceptr) -> bool {
    let mut table = reserved();
    let Ok(reservation) = around(&mut table, ptr, 1) else { return false };
    let found = reservation.maps.range(..=ptr).next_back();
    found.is_some_and(|(base, map)| ptr - base < map.bytes && map.physical.prop.is_host())
}

/// cuMemGetAccess
pub(super) fn access(ptr: CUdeviceptr, reader: Reader) -> CuResult<u32> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let mut table = reserved();
    let reservation = around(&mut table, ptr, 1)?;
    let (base, map) = reservation.maps.range(..=ptr).next_back().ok_or(invalid)?;
    if ptr - base < map.bytes { Ok(map.access.get(&reader).copied().unwrap_or(0)) } else { Err(invalid) }
}

/// Returns the device whose memory is mapped at an address.
pub(super) fn device_of(ptr: CUdeviceptr) -> Option<&'static Device> {
    let mut table = reserved();
    let reservation = around(&mut table, ptr, 1).ok()?;
    let (base, map) = reservation.maps.range(..=ptr).next_back()?;
    (ptr - base < map.bytes).then_some(map.physical.device)
}
