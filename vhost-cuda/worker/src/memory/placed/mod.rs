// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of `cuMemAlloc` at addresses that the worker has reserved, so that it can be given back and brought back while programs
//! keep their pointers ([`crate::suspend`]).
//!
//! The driver's virtual memory management makes it: reserve, create, map, set access. Allocations above [`quota`]'s limit for
//! shared blocks are a *region* of their own; smaller ones share regions of [`BLOCK`] bytes, per context. All regions lie in one
//! reservation, which is at the same address in each worker ([`START`]): a session that goes to another one keeps its addresses.
//!
//! Each allocation also has a *shadow*: one byte of the driver's own `cuMemAlloc`, which is freed first. So its errors, its rules
//! for streams that capture, and its wait for the device's work are the driver's. Where placing fails, for whatever reason, the
//! driver allocates the memory itself; then it cannot move.
//!
//! Where the session sees several devices, each region is accessible to its own device, and to those that [`peers`] names, or that the
//! guest library names for memory of its pools.

pub mod left;
pub mod opened;
mod peers;
mod slab;

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::sync::Arc;
use vhost_cuda_common::exchange::Token;
#[cfg(doc)]
use vhost_cuda_common::link::MoveTerms;
use vhost_cuda_common::statistics;
use virtio_cuda_protocol::cuda::{RESERVATIONS_BASE, WINDOW_BYTES};

use self::peers::Peers;
use self::slab::Slab;
use super::quota::{self, BLOCK};
use crate::gpu::{
    ACCESS_READ_WRITE, ALLOCATION_PINNED, CUcontext, CUevent, CUstream, CuResult, CudaError, Driver,
    EVENT_DISABLE_TIMING, HANDLE_TYPE_FILE, LOCATION_DEVICE, RawAccess, RawAllocation, RawLocation,
    while_current, with_capture_relaxed,
};
use crate::home::Home;
use crate::memory::parts::{Mapping, Memory, Part};

/// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED` and
/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED`.
const NEEDED: [i32; 2] = [102, 103];
/// `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED`.
const GPU_DIRECT_RDMA: i32 = 110;
/// The maximum number of regions of a session. Limits the driver's tables; later allocations are the driver's own.
const MAX_REGIONS: usize = 1 << 15;
/// The maximum number of regions where each takes a descriptor and a mapping of this process, as with the emulator.
const MAX_REGIONS_EMULATED: usize = 192;

/// The address of the reservation for regions, behind those that the guest library chooses, so that nothing else is there.
pub const START: u64 = RESERVATIONS_BASE + WINDOW_BYTES;
/// Its size in bytes for each device of the session.
const BYTES_PER_DEVICE: u64 = 1 << 40;

/// A region: one piece of physical memory at reserved addresses.
#[derive(Debug)]
pub struct Region {
    /// The memory.
    pub part: Part,
    context: u64,
    /// Devices that keep access to it because of a copy ([`Placed::lend`]).
    lent: Vec<i32>,
    /// Other devices that have access to it, whichever contexts are peers ([`Placed::set_readers`]). `None`: those of the peers.
    chosen: Option<Vec<i32>>,
    /// For a region of small allocations.
    slab: Option<Slab>,
    /// The part of other processes in it.
    pub others: Others,
}

/// The part of other processes in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// They have none.
    None,
    /// They may have it mapped.
    Offered,
    /// It is another process's, which has offered it under this token.
    Opened(Token),
}

/// An allocation, and its shadow.
#[derive(Clone, Copy, Debug)]
struct Allocation {
    region: u64,
    shadow: u64,
    context: u64,
}

/// Memory that ends when an event has completed.
#[derive(Debug)]
struct Later {
    address: u64,
    event: usize,
}

/// All placed memory of a session.
#[derive(Debug, Default)]
pub struct State {
    regions: BTreeMap<u64, Region>,
    /// The addresses of regions, by their distances from [`Placed::start`].
    addresses: Slab,
    /// Regions of small allocations: context, longest free range in bytes, and first address.
    slabs: BTreeSet<(u64, u64, u64)>,
    allocations: HashMap<u64, Allocation>,
    later: Vec<Later>,
    /// Access of contexts to memory of others.
    peers: Peers,
    /// Contexts that have an anchor: a byte of the driver's own memory that lives as long as they do. Without it the driver
    /// would make and drop a block for each shadow of an otherwise empty context, which takes 30 us.
    anchored: HashSet<u64>,
}

impl Region {
    /// Returns whether another process has a part in it.
    pub fn is_shared(&self) -> bool {
        self.others != Others::None
    }
}

/// Placed memory of a session.
#[derive(Debug, Default)]
pub struct Placed {
    /// The maximum number of regions: 0 if memory is not placed.
    limit: usize,
    emulated: bool,
    /// The first address of the reservation for regions.
    start: u64,
    /// The driver's numbers of the session's devices.
    devices: Vec<i32>,
    /// Held while access of contexts to memory of others changes, in the driver and here.
    changes: Mutex<()>,
    /// True if the network cards of the host can reach placed memory, as they can the driver's own.
    is_open_to_peers: bool,
    state: Mutex<State>,
}

impl Placed {
    /// Places memory if all of the session's devices support that, and can access each other's: a copy between two that cannot would
    /// need the driver's own memory.
    pub fn new(gpu: &Driver, devices: u32, emulated: bool) -> Self {
        let all: Vec<i32> = (0..devices as i32)
            .filter_map(|ordinal| gpu.cuDeviceGet(ordinal).ok())
            .map(|(device,)| device)
            .collect();
        let supports =
            |number, device| matches!(gpu.cuDeviceGetAttribute(number, device), Ok((value,)) if value > 0);
        let supported_by_all = |number| all.iter().all(|&device| supports(number, device));
        let reaches = |&from: &i32| {
            let peers = all.iter().filter(|&&to| to != from);
            peers
                .map(|&to| gpu.cuDeviceCanAccessPeer(from, to))
                .all(|can| matches!(can, Ok((can,)) if can != 0))
        };
        let limit = if emulated { MAX_REGIONS_EMULATED } else { MAX_REGIONS };
        let is_possible = all.len() == devices as usize
            && NEEDED.into_iter().all(supported_by_all)
            && all.iter().all(reaches);
        let is_open_to_peers = is_possible && supported_by_all(GPU_DIRECT_RDMA);
        let bytes = BYTES_PER_DEVICE * all.len() as u64;
        // Where the driver places it elsewhere, sessions stay with their workers.
        let reserved = is_possible.then(|| gpu.cuMemAddressReserve(bytes as usize, BLOCK as usize, START, 0));
        let start = match reserved {
            Some(Ok((start,))) => Some(start),
            Some(Err(error)) => {
                log::warn!("device memory cannot be suspended: {bytes} bytes of addresses: {error}");
                None
            }
            None => None,
        };
        let addresses = Slab::new(bytes, BLOCK);
        Self {
            limit: if start.is_some() { limit } else { 0 },
            emulated,
            start: start.unwrap_or(0),
            devices: all,
            is_open_to_peers,
            state: Mutex::new(State { addresses, ..State::default() }),
            ..Self::default()
        }
    }

    /// Returns whether all devices of the session support files of their memory.
    pub fn has_files(&self) -> bool {
        self.limit > 0
    }

    /// Returns the bytes of the reservation for regions.
    fn bytes(&self) -> u64 {
        BYTES_PER_DEVICE * self.devices.len() as u64
    }

    /// Returns the bit of a device of the driver's in [`MoveTerms::devices`]; 0 for an unknown one.
    pub fn device_bit(&self, device: i32) -> u64 {
        let number = self.devices.iter().position(|known| *known == device);
        number.and_then(|number| 1_u64.checked_shl(number.try_into().ok()?)).unwrap_or(0)
    }

    /// Takes the driver's first block for shadows, as a part of the context: a program that compares `cuMemGetInfo` before and after an
    /// allocation finds the allocation's own size. It lives as long as the context. Without it programs find 2 MiB less.
    pub fn warm_up(&self, gpu: &Driver, context: CUcontext) {
        if self.limit > 0 {
            let _ = while_current(gpu, context, || gpu.cuMemAlloc_v2(1).map(drop));
        }
    }

    /// Locks all of it, also across moves.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Allocates `bytes` bytes as `cuMemAlloc` does.
    ///
    /// Errors: the driver's.
    pub fn allocate(&self, gpu: &Driver, bytes: usize, home: Home) -> CuResult<u64> {
        if self.limit == 0 || bytes == 0 {
            return gpu.cuMemAlloc_v2(bytes).map(|(address,)| address);
        }
        self.end_freed(gpu);
        self.anchor(gpu, home.context);
        let (shadow,) = gpu.cuMemAlloc_v2(1)?;
        match self.place(gpu, bytes as u64, shadow, home) {
            Ok(address) => Ok(address),
            Err(_) => {
                let address = gpu.cuMemAlloc_v2(bytes);
                // SAFETY: allocated above, and nobody else has its address.
                let _ = unsafe { gpu.cuMemFree_v2(shadow) };
                address.map(|(address,)| address)
            }
        }
    }

    /// Allocates `height` rows of `width` bytes as `cuMemAllocPitch` does. Returns the address, and the distance of two rows in bytes. The
    /// shadow is a row of one byte: its distance is the unit of all others.
    ///
    /// Errors: the driver's.
    pub fn allocate_rows(
        &self,
        gpu: &Driver,
        [width, height]: [usize; 2],
        element: u32,
        home: Home,
    ) -> CuResult<(u64, u64)> {
        let by_driver =
            || gpu.cuMemAllocPitch_v2(width, height, element).map(|(address, pitch)| (address, pitch as u64));
        if self.limit == 0 || width == 0 || height == 0 {
            return by_driver();
        }
        self.end_freed(gpu);
        self.anchor(gpu, home.context);
        let (shadow, unit) = gpu.cuMemAllocPitch_v2(1, 1, element)?;
        let pitch = width.checked_next_multiple_of(unit.max(1)).map_or(u64::MAX, |pitch| pitch as u64);
        let bytes = pitch.checked_mul(height as u64).ok_or(CudaError::OUT_OF_MEMORY);
        let placed = bytes.and_then(|bytes| self.place(gpu, bytes, shadow, home));
        placed.map(|address| (address, pitch)).or_else(|_| {
            let made = by_driver();
            // SAFETY: allocated above, and nobody else has its address.
            let _ = unsafe { gpu.cuMemFree_v2(shadow) };
            made
        })
    }

    /// Makes the context's anchor unless it has one. Without one, all is only slower. The emulator has no blocks.
    fn anchor(&self, gpu: &Driver, context: u64) {
        if !self.emulated && self.lock().anchored.insert(context) && gpu.cuMemAlloc_v2(1).is_err() {
            self.lock().anchored.remove(&context);
        }
    }

    fn place(&self, gpu: &Driver, bytes: u64, shadow: u64, home: Home) -> CuResult<u64> {
        let context = home.context;
        let enter = |state: &mut State, address, region| {
            state.allocations.insert(address, Allocation { region, shadow, context });
            address
        };
        let alone = quota::alone(bytes);
        let is_small = alone == 0;
        let mut state = self.lock();
        if is_small && let Some((region, address)) = state.take(bytes, context) {
            return Ok(enter(&mut state, address, region));
        }
        if state.regions.len() >= self.limit {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        let readers = state.peers.readers(home);
        let bytes_of_region = if is_small { BLOCK } else { alone };
        let offset = state.addresses.take(bytes_of_region).ok_or(CudaError::OUT_OF_MEMORY)?;
        drop(state);
        let base = self.start + offset;
        let properties =
            RawAllocation { gpu_direct_rdma: self.is_open_to_peers.into(), ..properties(home.device) };
        let part = make(gpu, base, bytes_of_region, properties, &readers).inspect_err(|_| {
            self.lock().addresses.give(offset);
        })?;
        statistics::add_movable_devices(self.device_bit(home.device));
        let slab = is_small.then(|| Slab::new(BLOCK, slab::UNIT));
        let mut region = Region { part, context, lent: Vec::new(), chosen: None, slab, others: Others::None };
        let mut state = self.lock();
        // Another thread may have made a region meanwhile. One of the two would stay empty.
        if is_small && let Some((other, address)) = state.take(bytes, context) {
            let address = enter(&mut state, address, other);
            drop(state);
            self.end_region(gpu, region);
            return Ok(address);
        }
        // It may have changed meanwhile.
        if let Err(error) = state.peers.apply(gpu, home, &mut region) {
            drop(state);
            self.end_region(gpu, region);
            return Err(error);
        }
        state.regions.insert(base, region);
        if !is_small {
            return Ok(enter(&mut state, base, base));
        }
        state.slabs.insert((context, BLOCK, base));
        let found = state.take(bytes, context);
        let (region, address) = found.ok_or(CudaError::OUT_OF_MEMORY)?;
        Ok(enter(&mut state, address, region))
    }

    /// Frees the memory at `address` as `cuMemFree` does. Returns `None` for memory that is not placed.
    pub fn free(&self, gpu: &Driver, address: u64) -> Option<CuResult<()>> {
        let shadow = self.lock().allocations.get(&address)?.shadow;
        // SAFETY: an allocation of this session, which is freed once: the caller ends a range once (`Allocations::end`).
        let freed = unsafe { gpu.cuMemFree_v2(shadow) };
        if freed.is_ok() {
            self.end(gpu, address);
            self.end_freed(gpu);
        }
        Some(freed)
    }

    /// Frees the memory at `address` in the order of `stream`, as `cuMemFreeAsync` does. Returns `None` for memory that is not
    /// placed.
    pub fn free_in_order(&self, gpu: &Driver, address: u64, stream: CUstream) -> Option<CuResult<()>> {
        let shadow = self.lock().allocations.get(&address)?.shadow;
        // SAFETY: as in `free`.
        let freed = unsafe { gpu.cuMemFreeAsync(shadow, stream) };
        if freed.is_err() {
            return Some(freed);
        }
        let behind = gpu.cuEventCreate(EVENT_DISABLE_TIMING).and_then(|(event,)| {
            let recorded = gpu.cuEventRecordWithFlags(event, stream, 0);
            recorded.map(|()| event as usize).inspect_err(|_| {
                let _ = gpu.cuEventDestroy_v2(event);
            })
        });
        // Without an event it ends with its context.
        if let Ok(event) = behind {
            self.lock().later.push(Later { address, event });
        }
        self.end_freed(gpu);
        Some(freed)
    }

    /// Ends memory that was freed in the order of a stream which has come to that point.
    pub fn end_freed(&self, gpu: &Driver) {
        let mut state = self.lock();
        if state.later.is_empty() {
            return;
        }
        let is_over =
            |later: &mut Later| gpu.cuEventQuery(later.event as CUevent) != Err(CudaError::NOT_READY);
        let over: Vec<_> = with_capture_relaxed(gpu, || state.later.extract_if(.., is_over).collect());
        drop(state);
        for Later { address, event } in over {
            let _ = gpu.cuEventDestroy_v2(event as CUevent);
            self.end(gpu, address);
        }
    }

    /// Ends memory whose shadow was freed.
    fn end(&self, gpu: &Driver, address: u64) {
        let mut state = self.lock();
        let Some(Allocation { region: base, .. }) = state.allocations.remove(&address) else { return };
        let Some(region) = state.regions.get_mut(&base) else { return };
        if let Some(slab) = &mut region.slab {
            let (context, before) = (region.context, slab.longest());
            slab.give(address - base);
            let (after, is_empty) = (slab.longest(), slab.is_empty());
            state.slabs.remove(&(context, before, base));
            if !is_empty {
                state.slabs.insert((context, after, base));
                return;
            }
        }
        let region = state.regions.remove(&base);
        drop(state);
        region.into_iter().for_each(|region| self.end_region(gpu, region));
    }

    /// Gives back memory and addresses. Addresses of memory that the driver does not unmap are not used again.
    fn end_region(&self, gpu: &Driver, mut region: Region) {
        // SAFETY: the driver has freed the shadow after all work that was there before, or destroyed the context.
        if unsafe { region.part.give_back(gpu) }.is_err() {
            return;
        }
        let (address, bytes) = (region.part.address(), region.part.bytes);
        if self.limit > 0 {
            self.lock().addresses.give(address - self.start);
        } else {
            // SAFETY: `open` has reserved just these addresses, and nothing is mapped there any more.
            let _ = unsafe { gpu.cuMemAddressFree(address, bytes as usize) };
        }
    }

    /// Ends the memory of a context that the driver has destroyed. The shadows have ended with it.
    pub fn forget_context(&self, gpu: &Driver, context: u64) {
        let mut state = self.lock();
        let ended: Vec<_> = state.regions.extract_if(.., |_, region| region.context == context).collect();
        state.allocations.retain(|_, allocation| allocation.context != context);
        state.slabs.retain(|&(of, ..)| of != context);
        state.anchored.remove(&context);
        let State { allocations, later, .. } = &mut *state;
        // The events have ended with the context, too.
        later.retain(|later| allocations.contains_key(&later.address));
        state.forget_peers(gpu, context);
        drop(state);
        ended.into_iter().for_each(|(_, region)| self.end_region(gpu, region));
    }

    /// Returns the physical memory that holds the allocation at `address`, for another process: a file of it, its size in bytes, and
    /// the position of the allocation in it. From now on it leaves the card no more. `None` for memory that is not placed.
    ///
    /// Errors: the driver's.
    pub fn export(&self, memory: &impl Memory, address: u64) -> Option<CuResult<(Arc<File>, u64, u64)>> {
        let mut state = self.lock();
        let base = state.allocations.get(&address)?.region;
        let region = state.regions.get_mut(&base)?;
        region.part.handle()?;
        region.others = Others::Offered;
        Some(region.part.export(memory).map(|file| (file, region.part.bytes, address - base)))
    }
}

impl State {
    /// Returns whether all memory is in the store, and none is another process's or about to end.
    pub fn is_away(&self) -> bool {
        self.later.is_empty() && self.regions.values().all(|region| !region.part.exists())
    }

    /// Returns whether there is an allocation at `address`.
    pub fn has(&self, address: u64) -> bool {
        self.allocations.contains_key(&address)
    }

    /// Returns the contexts that have allocations.
    pub fn contexts(&self) -> BTreeSet<u64> {
        self.allocations.values().map(|allocation| allocation.context).collect()
    }

    /// Makes the shadows of a context again, which have ended with it. It is current.
    ///
    /// Errors: the driver's.
    pub fn renew_shadows(&mut self, gpu: &Driver, context: u64) -> CuResult<()> {
        self.anchored.remove(&context);
        let of_it = self.allocations.values_mut().filter(|allocation| allocation.context == context);
        for allocation in of_it {
            (allocation.shadow,) = gpu.cuMemAlloc_v2(1)?;
        }
        Ok(())
    }

    /// Takes `bytes` bytes in the region of small allocations whose longest free range is the shortest that suffices. Returns
    /// the region's first address, and the allocation's.
    fn take(&mut self, bytes: u64, context: u64) -> Option<(u64, u64)> {
        let enough = (context, bytes.max(1).next_multiple_of(slab::UNIT), 0);
        let &key = self.slabs.range(enough..=(context, u64::MAX, u64::MAX)).next()?;
        let (_, _, base) = key;
        let slab = self.regions.get_mut(&base)?.slab.as_mut()?;
        let offset = slab.take(bytes)?;
        let longest = slab.longest();
        self.slabs.remove(&key);
        self.slabs.insert((context, longest, base));
        Some((base, base + offset))
    }

    /// The memory that may move, and all that files keep on the card.
    pub fn movable(&mut self) -> impl Iterator<Item = &mut Part> {
        self.movable_if(false)
    }

    /// As [`Self::movable`]. With `on_card` all memory: that in which other processes have a part may leave this process, but not the card.
    pub fn movable_if(&mut self, on_card: bool) -> impl Iterator<Item = &mut Part> {
        let moves =
            move |region: &&mut Region| on_card || !region.is_shared() || region.part.held().is_some();
        self.regions.values_mut().filter(moves).map(|region| &mut region.part)
    }

    /// Returns whether files keep all memory in which other processes have a part.
    pub fn is_kept(&self) -> bool {
        self.regions.values().all(|region| !region.is_shared() || region.part.held().is_some())
    }

    /// Returns whether memory is on the card in which other processes have a part.
    pub fn shares(&self) -> bool {
        self.regions.values().any(|region| region.is_shared() && region.part.exists())
    }
}

/// Returns the properties of placed memory: as `cuMemAlloc` makes it, and such that another process can get it.
fn properties(device: i32) -> RawAllocation {
    RawAllocation {
        kind: ALLOCATION_PINNED,
        handle_types: HANDLE_TYPE_FILE,
        location: RawLocation { kind: LOCATION_DEVICE, id: device },
        win32_metadata: 0,
        compression: 0,
        gpu_direct_rdma: 0,
        usage: 0,
        reserved: [0; 4],
    }
}

/// Returns the access of these devices.
fn access_of(devices: &[i32]) -> Vec<RawAccess> {
    let location = |&id: &i32| RawLocation { kind: LOCATION_DEVICE, id };
    devices.iter().map(|id| RawAccess { location: location(id), flags: ACCESS_READ_WRITE }).collect()
}

/// Makes physical memory at `address`, to which these devices have access. The addresses are reserved, and the caller's.
fn make(
    gpu: &Driver,
    address: u64,
    bytes: u64,
    properties: RawAllocation,
    readers: &[i32],
) -> CuResult<Part> {
    let handle = gpu.create(bytes, &properties)?;
    map(gpu, address, bytes, handle, readers)
        .map(|mapping| Part::new(Some(handle), bytes, properties, vec![mapping]))
        .inspect_err(|_| {
            let _ = gpu.cuMemRelease(handle);
        })
}

/// Maps physical memory at newly reserved addresses, with access of these devices. Nothing is reserved after an error.
pub fn map_at_reserved(gpu: &Driver, bytes: u64, handle: u64, devices: &[i32]) -> CuResult<Mapping> {
    let (address,) = gpu.cuMemAddressReserve(bytes as usize, BLOCK as usize, 0, 0)?;
    map(gpu, address, bytes, handle, devices).inspect_err(|_| {
        // SAFETY: reserved above; nothing is mapped there.
        let _ = unsafe { gpu.cuMemAddressFree(address, bytes as usize) };
    })
}

/// Maps physical memory at `address`, with access of these devices. The addresses are reserved, and the caller's.
fn map(gpu: &Driver, address: u64, bytes: u64, handle: u64, devices: &[i32]) -> CuResult<Mapping> {
    let mapping = Mapping::new(address, bytes, access_of(devices));
    // SAFETY: both callers have reserved the addresses, and have given them to nobody else.
    let mapped = unsafe {
        gpu.map(address, bytes, handle).and_then(|()| {
            gpu.allow(address, bytes, &mapping.access).inspect_err(|_| {
                let _ = gpu.unmap(address, bytes);
            })
        })
    };
    mapped.map(|()| mapping)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::gpu::null;
    use crate::memory::window::IN_USE;

    const HOME: Home = Home { context: 9, device: 0 };
    const FAILURE: u32 = 999;

    fn is_empty(placed: &Placed) -> bool {
        let state = placed.lock();
        state.regions.is_empty() && state.allocations.is_empty() && state.slabs.is_empty()
    }

    #[test]
    fn small_allocations_share_a_region_of_their_context() {
        let _null = IN_USE.lock();
        null::reset();
        let gpu = Driver::null();
        let placed = Placed::new(&gpu, 1, false);
        let allocate = |bytes, home| placed.allocate(&gpu, bytes, home).unwrap();
        let (one, other) = (allocate(1, HOME), allocate(1 << 20, HOME));
        let foreign = allocate(1, Home { context: 10, ..HOME });
        let large = allocate((1 << 20) + 1, HOME);
        assert_eq!(other, one + slab::UNIT);
        assert!([foreign, large].iter().all(|address| address.abs_diff(one) >= BLOCK));
        assert_eq!(placed.lock().regions.len(), 3);
        let (_, bytes, offset) = placed.export(&gpu, other).unwrap().unwrap();
        assert_eq!((bytes, offset), (BLOCK, slab::UNIT));
        assert_eq!(placed.lock().movable().count(), 2, "what another process may have stays");
        assert_eq!(placed.free(&gpu, one), Some(Ok(())));
        assert_eq!(placed.free(&gpu, one), None);
        placed.forget_context(&gpu, 10);
        assert_eq!(placed.lock().regions.len(), 2);
        for address in [other, large] {
            assert_eq!(placed.free(&gpu, address), Some(Ok(())));
        }
        assert!(is_empty(&placed) && placed.lock().addresses.is_empty());
    }

    /// Regions of small allocations are found by their free room, however many are full.
    #[test]
    fn freed_room_is_found_again() {
        let _null = IN_USE.lock();
        null::reset();
        let gpu = Driver::null();
        let placed = Placed::new(&gpu, 1, false);
        let allocate = |bytes| placed.allocate(&gpu, bytes, HOME).unwrap();
        let all: Vec<_> = (0..8).map(|_| allocate(1 << 20)).collect();
        assert_eq!(placed.lock().regions.len(), 4);
        assert_eq!(placed.free(&gpu, all[5]), Some(Ok(())));
        assert_eq!(allocate(3), all[5]);
        assert_eq!(allocate((1 << 20) - 512), all[5] + 512, "the rest of it");
        allocate(1);
        assert_eq!(placed.lock().regions.len(), 5, "all four are full");
        assert_eq!(placed.lock().slabs.len(), 5);
    }

    #[test]
    fn threads_that_find_no_room_at_once_share_one_region() {
        let _null = IN_USE.lock();
        null::reset();
        let gpu = Driver::null();
        let placed = Placed::new(&gpu, 1, false);
        let together = Barrier::new(2);
        for _ in 0..200 {
            let all = thread::scope(|scope| {
                let allocate = || {
                    together.wait();
                    placed.allocate(&gpu, 1, HOME).unwrap()
                };
                let other = scope.spawn(allocate);
                [allocate(), other.join().unwrap()]
            });
            assert_eq!(placed.lock().regions.len(), 1);
            for address in all {
                assert_eq!(placed.free(&gpu, address), Some(Ok(())));
            }
        }
        assert!(is_empty(&placed));
    }

    #[test]
    fn a_context_has_one_anchor() {
        let _null = IN_USE.lock();
        null::reset();
        let gpu = Driver::null();
        let placed = Placed::new(&gpu, 1, false);
        for _ in 0..3 {
            placed.allocate(&gpu, 1, HOME).unwrap();
        }
        assert_eq!(placed.lock().anchored.len(), 1);
        placed.forget_context(&gpu, HOME.context);
        assert!(placed.lock().anchored.is_empty() && is_empty(&placed));
        let emulated = Placed::new(&gpu, 1, true);
        emulated.allocate(&gpu, 1, HOME).unwrap();
        assert!(emulated.lock().anchored.is_empty());
    }

    /// Each call of the driver fails in turn. Memory is then the driver's own, or none, and nothing stays in the tables.
    #[test]
    fn every_call_may_fail() {
        let _null = IN_USE.lock();
        let gpu = Driver::null();
        for (bytes, frees_in_order) in [(1, false), (3 << 20, false), (1, true)] {
            for fails in 1..20 {
                null::reset();
                let placed = Placed::new(&gpu, 1, false);
                null::script(0, fails, FAILURE);
                let made = placed.allocate(&gpu, bytes, HOME);
                let free = |address| match frees_in_order {
                    true => placed.free_in_order(&gpu, address, std::ptr::null_mut()),
                    false => placed.free(&gpu, address),
                };
                if let Ok(address) = made
                    && let Some(Err(error)) = free(address)
                {
                    assert_eq!(error, CudaError(FAILURE as i32));
                    assert_eq!(free(address), Some(Ok(())), "{fails}: it was there still");
                }
                null::script(0, 0, 0);
                placed.end_freed(&gpu);
                if frees_in_order {
                    // Without an event it lives as long as its context.
                    placed.forget_context(&gpu, HOME.context);
                }
                assert!(is_empty(&placed), "{bytes} {fails}");
            }
        }
    }
}
