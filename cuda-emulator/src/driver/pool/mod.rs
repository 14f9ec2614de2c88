// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory pools: accounts of stream-ordered allocations. Memory itself always comes from the device, that of the host, too:
//! the host reaches all of it.

pub(super) mod home;
pub(super) mod shared;

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cuda_abi::{CUmemAccessDesc, CUmemLocation, CUmemPoolProps};

use super::capture;
use super::context::{self, Context};
use super::device::{self, CUdevice, CUdeviceptr, device};
use super::external;
use super::ffi::{In, Out};
use super::graph;
use super::handle::{Handle, Registry};
use super::result::{CUresult, CuResult};
use super::stream::{self, CUstream, Stream};
use home::{DEVICE as LOCATION_DEVICE, Home, PINNED};
use shared::{PointerData, SharedPool};

/// A pool's handle.
pub type CUmemoryPool = Handle<Pool>;

const RELEASE_THRESHOLD: u32 = 4;
const RESERVED_CURRENT: u32 = 5;
const RESERVED_HIGH: u32 = 6;
const USED_CURRENT: u32 = 7;
const USED_HIGH: u32 = 8;
/// Pools of the host grow by multiples of this, and so are their greatest sizes.
const CHUNK: u64 = 32 << 20;
/// No process has more memory.
const MAX_BYTES: u64 = 1 << 46;
/// CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
const BY_FILE: u32 = 1;
/// CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE
const READ: u32 = 1;
const READ_WRITE: u32 = 3;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// Made by cuMemPoolCreate, and the default ones once they were asked for.
static POOLS: Registry<Pool> = Registry::new();

/// A memory pool.
pub struct Pool {
    handle: CUmemoryPool,
    pub(super) home: Home,
    /// Most bytes at once.
    most: u64,
    used: AtomicU64,
    high: AtomicU64,
    threshold: AtomicU64,
    /// The three reuse policies: kept, without effect.
    policies: [AtomicU32; 3],
    default: bool,
    /// Where its memory comes from when it can be shared; else from the device.
    pub(super) shared: Option<SharedPool>,
    /// Devices besides its own that reach its memory.
    peers: Mutex<BTreeSet<CUdevice>>,
    /// Whether the host has access, as far as calls tell.
    host: AtomicBool,
}

/// The memory that pool properties ask for.
pub(super) trait PoolProperties {
    /// Memory of a device, without more.
    fn of_device(ordinal: CUdevice) -> CUmemPoolProps;
    /// Whether other processes are to share the memory.
    fn is_shareable(&self) -> bool;
    /// What memory they ask for.
    fn home(&self) -> CuResult<Home>;
    /// The device that they name.
    fn device_ordinal(&self) -> CuResult<CUdevice>;
    /// A pool of the host, or of managed memory.
    fn of_host(&self, home: Home) -> CuResult<Pool>;
}

impl PoolProperties for CUmemPoolProps {
    fn of_device(ordinal: CUdevice) -> CUmemPoolProps {
        CUmemPoolProps {
            kind: PINNED,
            handle_types: 0,
            location: CUmemLocation { kind: LOCATION_DEVICE, id: ordinal },
            win32_security: 0,
            max_bytes: 0,
            usage: 0,
            reserved: [0; 54],
        }
    }

    fn is_shareable(&self) -> bool {
        self.handle_types != 0
    }

    fn home(&self) -> CuResult<Home> {
        Home::new(self.kind, self.location)
    }

    fn device_ordinal(&self) -> CuResult<CUdevice> {
        let home = self.home().map_err(|_| INVALID)?;
        if home.place != LOCATION_DEVICE || self.handle_types & !BY_FILE != 0 {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        Ok(home.id)
    }

    fn of_host(&self, home: Home) -> CuResult<Pool> {
        let most = (self.max_bytes as u64).checked_next_multiple_of(CHUNK);
        let limited = home.is_managed() && (self.max_bytes != 0 || self.usage != 0);
        if limited || self.is_shareable() && !home.is_of_node() {
            return Err(INVALID);
        }
        if self.is_shareable() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let most = match most {
            None | Some(0) => u64::MAX,
            Some(MAX_BYTES..) => return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY),
            Some(most) => most,
        };
        Ok(Pool { default: false, most, ..Pool::new(home) })
    }
}

impl Pool {
    /// The default pool of a home.
    pub(super) fn new(home: Home) -> Pool {
        Pool {
            handle: Handle::mint(),
            home,
            most: u64::MAX,
            used: AtomicU64::new(0),
            high: AtomicU64::new(0),
            threshold: AtomicU64::new(0),
            policies: [1, 1, 1].map(AtomicU32::new),
            default: true,
            shared: None,
            peers: Mutex::default(),
            host: AtomicBool::new(!home.is_of_device() && !home.is_managed()),
        }
    }

    /// Whether a device reaches its memory, as far as calls tell: of the host's it has to be given access.
    pub(super) fn is_reached_by(&self, ordinal: CUdevice) -> bool {
        let given = || self.peers.lock().unwrap_or_else(PoisonError::into_inner).contains(&ordinal);
        self.home.is_managed() || self.home == Home::of_device(ordinal) || given()
    }

    /// Counts an allocation.
    pub(super) fn add(&self, bytes: u64) {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.high.fetch_max(used, Ordering::Relaxed);
    }

    /// Counts a free.
    pub(super) fn remove(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The pool's handle, made known.
    pub(super) fn publish(self: &Arc<Self>) -> CUmemoryPool {
        POOLS.insert(self.handle, Arc::clone(self));
        self.handle
    }
}

fn find(handle: CUmemoryPool) -> CuResult<Arc<Pool>> {
    POOLS.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// The device of a call that names one.
fn home_of(ordinal: CUdevice) -> CuResult<Home> {
    device(ordinal).map(|device| Home::of_device(device.ordinal))
}

fn get_default_mem_pool(out: Out<CUmemoryPool>, ordinal: CUdevice) -> CuResult<()> {
    out.check()?;
    out.set(home::default_pool(home_of(ordinal)?)?.publish());
    Ok(())
}

fn get_mem_pool(out: Out<CUmemoryPool>, ordinal: CUdevice) -> CuResult<()> {
    out.check()?;
    out.set(home::current_pool(home_of(ordinal).map_err(|_| INVALID)?)?.publish());
    Ok(())
}

fn set_mem_pool(ordinal: CUdevice, handle: CUmemoryPool) -> CuResult<()> {
    let own = home_of(ordinal).map_err(|_| INVALID)?;
    let pool = find(handle)?;
    // Of managed memory, it becomes the one that the device's managed memory is from.
    let home = if pool.home.is_managed() { Home::managed_of_device(ordinal) } else { own };
    home::set_current_pool(home, pool)
}

fn get_default_pool_of(out: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: u32) -> CuResult<()> {
    out.check()?;
    out.set(home::default_pool(Home::of_pools(kind, location.get()?)?)?.publish());
    Ok(())
}

fn get_pool_of(out: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: u32) -> CuResult<()> {
    out.check()?;
    out.set(home::current_pool(Home::of_pools(kind, location.get()?)?)?.publish());
    Ok(())
}

fn set_pool_of(location: In<CUmemLocation>, kind: u32, pool: CUmemoryPool) -> CuResult<()> {
    home::set_current_pool(Home::of_pools(kind, location.get()?)?, find(pool)?)
}

fn pool_create(out: Out<CUmemoryPool>, props: In<CUmemPoolProps>) -> CuResult<()> {
    out.check()?;
    let props = props.get()?;
    let home = props.home()?;
    if !home.is_of_device() {
        capture::check_safe()?;
        out.set(Arc::new(props.of_host(home)?).publish());
        return Ok(());
    }
    let ordinal = props.device_ordinal()?;
    let shared = if props.is_shareable() { Some(SharedPool::new()?) } else { None };
    let pool = Pool { default: false, shared, ..Pool::new(Home::of_device(ordinal)) };
    out.set(Arc::new(pool).publish());
    Ok(())
}

fn pool_destroy(handle: CUmemoryPool) -> CuResult<()> {
    let pool = find(handle)?;
    if pool.default {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    POOLS.remove(handle);
    home::forget(&pool)
}

fn pool_trim_to(handle: CUmemoryPool, _keep: usize) -> CuResult<()> {
    // Freed memory is never kept.
    capture::check_safe()?;
    find(handle).map(|_| ())
}

fn pool_set_attribute(handle: CUmemoryPool, attribute: u32, value: *const c_void) -> CuResult<()> {
    let pool = find(handle)?;
    match attribute {
        1..=3 => {
            let value = In::from_raw(value.cast::<u32>()).get()?;
            pool.policies[attribute as usize - 1].store(value, Ordering::Relaxed);
        }
        RELEASE_THRESHOLD => {
            pool.threshold.store(In::from_raw(value.cast::<u64>()).get()?, Ordering::Relaxed);
        }
        RESERVED_HIGH | USED_HIGH => {
            // The high water marks can only be reset.
            if In::from_raw(value.cast::<u64>()).get()? != 0 {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            pool.high.store(pool.used.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

fn pool_get_attribute(handle: CUmemoryPool, attribute: u32, value: *mut c_void) -> CuResult<()> {
    let pool = find(handle)?;
    if value.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let wide = Out::from_raw(value.cast::<u64>());
    match attribute {
        1..=3 => Out::from_raw(value.cast::<u32>())
            .set(pool.policies[attribute as usize - 1].load(Ordering::Relaxed)),
        RELEASE_THRESHOLD => wide.set(pool.threshold.load(Ordering::Relaxed)),
        RESERVED_CURRENT | USED_CURRENT => wide.set(pool.used.load(Ordering::Relaxed)),
        RESERVED_HIGH | USED_HIGH => wide.set(pool.high.load(Ordering::Relaxed)),
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

fn pool_set_access(handle: CUmemoryPool, access: In<CUmemAccessDesc>, count: usize) -> CuResult<()> {
    let pool = find(handle)?;
    if !pool.home.is_of_device() && count == 0 {
        return Err(INVALID);
    }
    (0..count).try_for_each(|index| {
        let access = access.at(index)?;
        if pool.home.is_of_device() { set_peer_access(&pool, access) } else { set_access(&pool, access) }
    })
}

/// Access to memory of a device.
fn set_peer_access(pool: &Pool, access: CUmemAccessDesc) -> CuResult<()> {
    let own = device(pool.home.id)?;
    if access.location.kind == LOCATION_DEVICE && access.flags == READ {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    if access.location.kind != LOCATION_DEVICE || !matches!(access.flags, 0 | READ_WRITE) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let other = device(access.location.id)?;
    if other.ordinal == own.ordinal {
        // The device itself always has access.
        return if access.flags == 0 { Err(CUresult::CUDA_ERROR_INVALID_DEVICE) } else { Ok(()) };
    }
    let mut peers = pool.peers.lock().unwrap_or_else(PoisonError::into_inner);
    // All memory of the device becomes reachable, not the pool's alone.
    if access.flags == READ_WRITE && peers.insert(other.ordinal) {
        other.memory.add_peer(&own.memory);
    } else if access.flags == 0 && peers.remove(&other.ordinal) {
        context::wait_all_idle();
        other.memory.remove_peer(&own.memory);
    }
    Ok(())
}

/// Access to memory of the host, and to managed memory: kept, since all reach it.
fn set_access(pool: &Pool, access: CUmemAccessDesc) -> CuResult<()> {
    let CUmemAccessDesc { location, flags } = access;
    if flags == READ {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let of_device = location.kind == LOCATION_DEVICE;
    if of_device {
        device(location.id)?;
    }
    if !of_device && !home::is_host(location) || !matches!(flags, 0 | READ_WRITE) {
        return Err(INVALID);
    }
    if of_device {
        let mut peers = pool.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if flags == 0 {
            peers.remove(&location.id)
        } else {
            peers.insert(location.id)
        };
    } else if flags == 0 && !pool.home.is_managed() {
        // Memory of the host is the host's.
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    } else {
        pool.host.store(flags == READ_WRITE, Ordering::Relaxed);
    }
    Ok(())
}

fn pool_get_access(flags: Out<u32>, handle: CUmemoryPool, location: In<CUmemLocation>) -> CuResult<()> {
    flags.check()?;
    let pool = find(handle)?;
    let location = location.get()?;
    if home::is_host(location) {
        flags.set(if pool.host.load(Ordering::Relaxed) { READ_WRITE } else { 0 });
        return Ok(());
    }
    if location.kind != LOCATION_DEVICE {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let ordinal = device(location.id).map_err(|_| INVALID)?.ordinal;
    let given = pool.peers.lock().unwrap_or_else(PoisonError::into_inner).contains(&ordinal);
    flags.set(if given || pool.home == Home::of_device(ordinal) { READ_WRITE } else { 0 });
    Ok(())
}

fn allocate_from(context: &Context, pool: Arc<Pool>, bytes: usize) -> CuResult<CUdeviceptr> {
    if bytes == 0 {
        return Ok(0);
    }
    if pool.shared.is_some() {
        return context.device.allocate_shared(context.handle, bytes as u64, &pool);
    }
    let left = pool.most.saturating_sub(pool.used.load(Ordering::Relaxed));
    if bytes as u64 > left {
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    }
    // Memory of the host outlives contexts.
    let owner = if pool.home.is_of_device() { context.handle } else { Handle::NULL };
    // At once: work that uses it is behind this call in the stream, and freed memory is free only when the stream got there.
    context.device.allocate(owner, bytes as u64, pool.home.range_kind(), Some(pool))
}

/// In a capturing stream: an allocation node, whose address is known at once.
fn capture_allocation(context: &Context, stream: &Stream, bytes: usize) -> CuResult<Option<CUdeviceptr>> {
    let mut address = 0;
    let added = bytes > 0
        && capture::add(stream, || {
            let (work, ptr) = graph::capture_allocation(context.device, bytes)?;
            address = ptr;
            Ok(work)
        })?;
    Ok(added.then_some(address))
}

fn mem_alloc_async(out: Out<CUdeviceptr>, bytes: usize, stream: CUstream) -> CuResult<()> {
    out.check()?;
    let (context, stream) = stream::place_work(stream)?;
    if let Some(ptr) = capture_allocation(&context, &stream, bytes)? {
        out.set(ptr);
        return Ok(());
    }
    let pool = Arc::clone(&context.device.current_pool.lock().unwrap_or_else(PoisonError::into_inner));
    out.set(allocate_from(&context, pool, bytes)?);
    Ok(())
}

fn mem_alloc_from_pool_async(
    out: Out<CUdeviceptr>,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CuResult<()> {
    out.check()?;
    let (context, stream) = stream::place_work(stream)?;
    let pool = find(pool)?;
    if pool.home.is_of_device() && pool.home.id != context.device.ordinal {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if capture::captures(&stream) {
        pool.home.check_captured()?;
    } else if !pool.home.is_of_device() {
        capture::check_safe()?;
    }
    if let Some(ptr) = capture_allocation(&context, &stream, bytes)? {
        out.set(ptr);
        return Ok(());
    }
    out.set(allocate_from(&context, pool, bytes)?);
    Ok(())
}

fn mem_free_async(ptr: CUdeviceptr, stream: CUstream) -> CuResult<()> {
    let (context, stream) = stream::place_work(stream)?;
    if ptr == 0 {
        return Ok(());
    }
    if external::is_buffer(ptr) {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let host = home::pool_of(ptr).is_some_and(|pool| !pool.home.is_of_device());
    if host {
        // Graphs cannot free it.
        if capture::captures(&stream) {
            return Err(INVALID);
        }
        capture::check_safe()?;
    } else if capture::add(&stream, || graph::free_of(ptr))? {
        return Ok(());
    }
    if graph::free_outside(ptr) {
        return Ok(());
    }
    let found = device::all().iter().find_map(|device| Some((device, device.disown(ptr)?)));
    let (device, mut owner) = found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if host && let (Some(pool), Some(range)) = (owner.pool.take(), device.memory.range_of(ptr)) {
        // Later allocations of the stream may take its place already, and the program has it no more.
        pool.remove(range.bytes);
        home::set_freed(ptr, true);
    }
    context.submit(&stream, Vec::new(), move |_, _| {
        home::set_freed(ptr, false);
        device.release(ptr, &owner)
    });
    Ok(())
}

fn export_pool(out: Out<i32>, handle: CUmemoryPool, kind: u32, flags: u64) -> CuResult<()> {
    out.check()?;
    let pool = find(handle)?;
    let shared = pool.shared.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if kind != BY_FILE || flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    out.set(shared.export()?);
    Ok(())
}

/// The pool belongs to the current device: the file does not say to which.
fn import_pool(out: Out<CUmemoryPool>, file: *mut c_void, kind: u32, flags: u64) -> CuResult<()> {
    out.check()?;
    if kind != BY_FILE || flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let shared = Some(SharedPool::import(file as i32)?);
    let ordinal = device::current_or_first()?.ordinal;
    out.set(Arc::new(Pool { default: false, shared, ..Pool::new(Home::of_device(ordinal)) }).publish());
    Ok(())
}

fn export_pointer(out: Out<PointerData>, ptr: CUdeviceptr) -> CuResult<()> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    out.check()?;
    let pool = device::all().iter().find_map(|device| device.owner(ptr)).and_then(|owner| owner.pool);
    let pool = pool.ok_or(invalid)?;
    out.set(pool.shared.as_ref().ok_or(invalid)?.export_pointer(ptr)?);
    Ok(())
}

fn import_pointer(out: Out<CUdeviceptr>, handle: CUmemoryPool, data: In<PointerData>) -> CuResult<()> {
    out.check()?;
    let pool = find(handle)?;
    let context = context::current()?;
    out.set(device(pool.home.id)?.import_shared(context.handle, data.get()?, &pool)?);
    Ok(())
}

super::ffi::entries! { after_init
    cuMemGetDefaultMemPool => get_default_pool_of(
        out: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: u32);
    cuMemGetMemPool => get_pool_of(out: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: u32);
    cuMemSetMemPool => set_pool_of(location: In<CUmemLocation>, kind: u32, pool: CUmemoryPool);
    cuMemPoolExportToShareableHandle => export_pool(
        out: Out<i32>, pool: CUmemoryPool, kind: u32, flags: u64);
    cuMemPoolImportFromShareableHandle => import_pool(
        out: Out<CUmemoryPool>, file: *mut c_void, kind: u32, flags: u64);
    cuMemPoolExportPointer => export_pointer(out: Out<PointerData>, ptr: CUdeviceptr);
    cuMemPoolImportPointer => import_pointer(out: Out<CUdeviceptr>, pool: CUmemoryPool, data: In<PointerData>);
    cuDeviceGetDefaultMemPool => get_default_mem_pool(out: Out<CUmemoryPool>, device: CUdevice);
    cuDeviceGetMemPool => get_mem_pool(out: Out<CUmemoryPool>, device: CUdevice);
    cuDeviceSetMemPool => set_mem_pool(device: CUdevice, pool: CUmemoryPool);
    cuMemPoolCreate => pool_create(out: Out<CUmemoryPool>, props: In<CUmemPoolProps>);
    cuMemPoolDestroy => pool_destroy(pool: CUmemoryPool);
    cuMemPoolTrimTo => pool_trim_to(pool: CUmemoryPool, keep: usize);
    cuMemPoolSetAttribute => pool_set_attribute(pool: CUmemoryPool, attribute: u32, value: *const c_void);
    cuMemPoolGetAttribute => pool_get_attribute(pool: CUmemoryPool, attribute: u32, value: *mut c_void);
    cuMemPoolSetAccess => pool_set_access(pool: CUmemoryPool, access: In<CUmemAccessDesc>, count: usize);
    cuMemPoolGetAccess => pool_get_access(flags: Out<u32>, pool: CUmemoryPool, location: In<CUmemLocation>);
    cuMemAllocAsync + cuMemAllocAsync_ptsz => mem_alloc_async(
        out: Out<CUdeviceptr>, bytes: usize, stream: CUstream);
    cuMemAllocFromPoolAsync + cuMemAllocFromPoolAsync_ptsz => mem_alloc_from_pool_async(
        out: Out<CUdeviceptr>, bytes: usize, pool: CUmemoryPool, stream: CUstream);
    cuMemFreeAsync + cuMemFreeAsync_ptsz => mem_free_async(ptr: CUdeviceptr, stream: CUstream);
}
