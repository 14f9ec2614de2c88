// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of the device and of the guest process, and plain copies.

use std::sync::atomic::Ordering;

use vhost_cuda_common::exchange::{MEMORY, POINTER, Shortage};
use virtio_cuda_protocol::cuda::{ContextId, DevicePtr, MAX_READ_EARLY_BYTES, StreamId};
use virtio_cuda_protocol::transport::PAGE_BYTES;

use crate::call::CallContext;
use crate::copy::{Copies, Stream};
use crate::gpu::{
    CUstream, CuResult, CudaError, HOST_PORTABLE_MAPPED, HOST_READ_ONLY, STREAM_LEGACY, STREAM_PER_THREAD,
};
use crate::handlers::external::free_buffer;
use crate::handlers::graph::capture::captures;
use crate::handlers::module::variable::located;
use crate::handlers::peer::{between, copy_in_stream};
use crate::home::Home;
use crate::memory::allocations::Origin;
use crate::memory::pools;
use crate::memory::quota;
use crate::memory::window::{Area, Registration, Window};
use crate::objects::graphs::Lease;

/// The `CU_MEMHOSTREGISTER_*` bits that the guest may pass: PORTABLE and DEVICEMAP (both always on), and READ_ONLY.
/// IOMEMORY is excluded, because the guest has no device memory to register.
const REGISTER_FLAGS: u32 = HOST_PORTABLE_MAPPED | HOST_READ_ONLY;
/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`: nothing known, host memory, device memory.
const TYPE_UNKNOWN: u32 = 0;
const TYPE_HOST: u32 = 1;
const TYPE_DEVICE: u32 = 2;

/// Charges `charged` bytes and allocates `bytes` bytes.
pub(super) fn allocate(
    cx: &CallContext<'_>,
    bytes: u64,
    charged: u64,
    origin: Origin,
    driver: impl FnOnce(usize) -> CuResult<u64>,
) -> CuResult<u64> {
    let home = cx.owner()?;
    pools::charge(cx.session, |allocations| allocations.charge(charged))?;
    let made = usize::try_from(bytes).map_err(|_| CudaError::OUT_OF_MEMORY).and_then(driver);
    let mut allocations = cx.session.allocations();
    match made {
        Ok(dptr) => {
            allocations.insert(dptr, bytes, origin, home);
            Ok(dptr)
        }
        Err(error) => {
            allocations.discharge(charged);
            Err(error)
        }
    }
}

/// Allocates in stream order from one of the driver's pools.
pub(super) fn allocate_async(
    cx: &CallContext<'_>,
    bytes: u64,
    pool: usize,
    driver: impl FnOnce(usize) -> CuResult<u64>,
) -> CuResult<DevicePtr> {
    let dptr = allocate(cx, bytes, quota::in_pool(bytes), Origin::AllocatedAsync(pool), driver)?;
    pools::grown(cx.session, pool);
    Ok(DevicePtr(dptr))
}

/// Allocates in stream order for the graph into which the stream captures.
pub(super) fn allocate_in_graph(
    cx: &CallContext<'_>,
    bytes: u64,
    stream: CUstream,
    driver: impl FnOnce(usize) -> CuResult<u64>,
) -> CuResult<DevicePtr> {
    let dptr = allocate(cx, bytes, quota::rounded(bytes), Origin::GraphNode, driver)?;
    let graph = cx.session.graphs.name_graph(cx.gpu().capture_info(stream)?.graph, None);
    cx.session.graphs.add_lease(graph, Lease::new(dptr));
    Ok(DevicePtr(dptr))
}

/// Allocates memory whose size only the driver knows, such as padded rows. `driver` returns address and size. `asked`
/// bytes are charged to the quota before the call, and the difference after it.
fn allocate_blocks(
    cx: &CallContext<'_>,
    asked: u64,
    driver: impl FnOnce() -> CuResult<(u64, u64)>,
) -> CuResult<u64> {
    let (home, ahead) = (cx.owner()?, quota::alone(asked));
    pools::charge(cx.session, |allocations| allocations.charge(ahead))?;
    let (dptr, bytes) = driver().inspect_err(|_| cx.session.allocations().discharge(ahead))?;
    let entered = cx.session.allocations().enter(dptr, bytes, ahead, home);
    entered.inspect_err(|_| {
        // The guest does not have its address yet.
        let _ = free(cx, dptr);
    })?;
    Ok(dptr)
}

/// Allocates device memory.
pub fn cuMemAlloc_v2(cx: &mut CallContext<'_>, bytesize: u64) -> CuResult<(DevicePtr,)> {
    let bytes = usize::try_from(bytesize).map_err(|_| CudaError::OUT_OF_MEMORY)?;
    let home = cx.owner()?;
    let made = || Ok((cx.session.placed.allocate(cx.gpu(), bytes, home)?, bytesize));
    Ok((DevicePtr(allocate_blocks(cx, bytesize, made)?),))
}

/// The maximum number of allocations that one call makes.
const MAX_AT_ONCE: u64 = 64;

/// Makes several allocations of the same size.
pub fn memory_alloc_many(cx: &mut CallContext<'_>, bytesize: u64) -> CuResult<(u32,)> {
    let most = (cx.bulk_out.room() / size_of::<u64>() as u64).min(MAX_AT_ONCE);
    let mut addresses = Vec::new();
    for index in 0..most {
        match cuMemAlloc_v2(cx, bytesize) {
            Ok((address,)) => addresses.extend_from_slice(&address.0.to_le_bytes()),
            Err(error) if index == 0 => return Err(error),
            Err(_) => break,
        }
    }
    cx.bulk_out.put(&addresses)?;
    Ok(((addresses.len() / size_of::<u64>()) as u32,))
}

/// Frees memory, or leaves it with the guest library for reuse.
pub fn memory_free_or_keep(cx: &mut CallContext<'_>, dptr: DevicePtr) -> CuResult<(u32,)> {
    let range = cx.session.allocations().find(dptr.0).map(|range| (range.base, range.origin, range.context));
    let ours = range == Some((dptr.0, Origin::Allocated, cx.context.0));
    if !ours || !cx.session.fast {
        cuMemFree_v2(cx, dptr)?;
        return Ok((0,));
    }
    Ok((1,))
}

/// Allocates in stream order.
pub fn cuMemAllocAsync(cx: &mut CallContext<'_>, bytesize: u64, stream: StreamId) -> CuResult<(DevicePtr,)> {
    let stream = cx.resolve(stream)?;
    let made = |bytes| Ok(cx.gpu().cuMemAllocAsync(bytes, stream)?.0);
    if captures(cx, stream) {
        return Ok((allocate_in_graph(cx, bytesize, stream, made)?,));
    }
    let pool = pools::current(cx.session, cx.owner()?.device)?;
    Ok((allocate_async(cx, bytesize, pool, made)?,))
}

/// Allocates padded rows. The quota counts the requested bytes until the driver reports the allocated size.
pub fn cuMemAllocPitch_v2(
    cx: &mut CallContext<'_>,
    width: u64,
    height: u64,
    element_bytes: u32,
) -> CuResult<(DevicePtr, u64)> {
    let asked = width.checked_mul(height).ok_or(CudaError::OUT_OF_MEMORY)?;
    let (home, mut pitch) = (cx.owner()?, 0);
    let dptr = allocate_blocks(cx, asked, || {
        let (address, distance) = cx.session.placed.allocate_rows(
            cx.gpu(),
            [width as usize, height as usize],
            element_bytes,
            home,
        )?;
        pitch = distance;
        Ok((address, pitch.saturating_mul(height)))
    })?;
    Ok((DevicePtr(dptr), pitch))
}

/// Frees memory of `cuMemAlloc` in the driver. It must be an allocation of this session that no other call frees.
fn free(cx: &CallContext<'_>, dptr: u64) -> CuResult<()> {
    // SAFETY: an allocation of the driver's that this call alone frees.
    cx.session.placed.free(cx.gpu(), dptr).unwrap_or_else(|| unsafe { cx.gpu().cuMemFree_v2(dptr) })
}

/// Frees device memory.
pub fn cuMemFree_v2(cx: &mut CallContext<'_>, dptr: DevicePtr) -> CuResult<()> {
    if dptr.0 == 0 {
        return Ok(());
    }
    let free = || free(cx, dptr.0);
    let mut allocations = cx.session.allocations();
    let range = allocations.allocated_at(dptr.0)?;
    if range.origin == Origin::External {
        drop(allocations);
        return free_buffer(cx, &range, free);
    }
    let range = allocations.end(dptr.0)?;
    drop(allocations);
    end_offers(cx, dptr);
    free().inspect_err(|_| cx.session.allocations().not_freed(&range))?;
    pools::freed(cx.session, &range, None);
    Ok(())
}

/// Frees in stream order.
pub fn cuMemFreeAsync(cx: &mut CallContext<'_>, dptr: DevicePtr, stream: StreamId) -> CuResult<()> {
    let stream = cx.resolve(stream)?;
    let mut allocations = cx.session.allocations();
    if allocations.allocated_at(dptr.0)?.origin == Origin::External {
        return Err(CudaError::NOT_SUPPORTED);
    }
    let range = allocations.end(dptr.0)?;
    drop(allocations);
    end_offers(cx, dptr);
    let placed = cx.session.placed.free_in_order(cx.gpu(), dptr.0, stream);
    // SAFETY: the address is an allocation of this session.
    let freed = placed.unwrap_or_else(|| unsafe { cx.gpu().cuMemFreeAsync(dptr.0, stream) });
    cx.session.freed_in_order.store(true, Ordering::Relaxed);
    freed.inspect_err(|_| cx.session.allocations().not_freed(&range))?;
    pools::freed(cx.session, &range, Some(stream));
    Ok(())
}

/// Withdraws the memory at `dptr` from other processes. Must be called before it is freed, because another allocation
/// may get its address right after.
fn end_offers(cx: &CallContext<'_>, dptr: DevicePtr) {
    cx.session.sharing.end(MEMORY, dptr.0);
    cx.session.sharing.end(POINTER, dptr.0);
}

/// Returns the memory that this session may use: its quota, or the memory of the device.
///
/// Programs ask this before they allocate, so sessions that are ending do not count.
pub fn cuMemGetInfo_v2(cx: &mut CallContext<'_>) -> CuResult<(u64, u64)> {
    cx.session.sharing.settle(Shortage::None);
    cx.session.placed.end_freed(cx.gpu());
    let (free, total) = cx.gpu().cuMemGetInfo_v2()?;
    let (free, total) = (free as u64, total as u64);
    if cx.session.is_limited() {
        pools::refresh(cx.session);
    }
    Ok(match cx.session.allocations().quota.memory() {
        Some((limit, rest)) => (free.min(rest), total.min(limit)),
        None => (free, total),
    })
}

/// Returns the allocation that contains an address.
pub fn cuMemGetAddressRange_v2(cx: &mut CallContext<'_>, dptr: DevicePtr) -> CuResult<(DevicePtr, u64)> {
    let allocations = cx.session.allocations();
    let range = allocations.find(dptr.0).ok_or(CudaError::INVALID_VALUE)?;
    Ok((DevicePtr(range.base), range.bytes))
}

/// Returns the attributes of an address.
pub fn cuPointerGetAttributes(
    cx: &mut CallContext<'_>,
    ptr: DevicePtr,
) -> CuResult<(u32, DevicePtr, u64, ContextId, i32, u64)> {
    let allocations = cx.session.allocations();
    let Some(range) = allocations.find(ptr.0) else {
        return Ok((TYPE_UNKNOWN, DevicePtr(0), 0, ContextId(0), -1, 0));
    };
    let kind = if range.origin.is_window() { TYPE_HOST } else { TYPE_DEVICE };
    Ok((kind, DevicePtr(range.base), range.bytes, ContextId(range.context), range.device, range.serial))
}

/// Maps the request's pages into the address window and registers them.
pub fn cuMemHostRegister_v2(
    cx: &mut CallContext<'_>,
    address: u64,
    bytesize: u64,
    flags: u32,
) -> CuResult<(DevicePtr,)> {
    let home = cx.owner()?;
    check_register_flags(flags)?;
    let mut window = cx.session.window();
    let area = map_kept(cx, &mut window, address, bytesize)?;
    let range = Pinned { base: area.base, bytes: area.bytes, used: bytesize };
    let registered = register(cx, &mut window, range, flags, home);
    registered.inspect_err(|_| window.unmap(area.base))
}

/// Maps the request's pages into the address window.
pub fn window_map(cx: &mut CallContext<'_>, address: u64, bytesize: u64) -> CuResult<(u64,)> {
    let mut window = cx.session.window();
    Ok((map_kept(cx, &mut window, address, bytesize)?.base,))
}

/// Registers the areas that [`window_map`] has mapped next to each other.
pub fn window_register(
    cx: &mut CallContext<'_>,
    base: u64,
    bytesize: u64,
    flags: u32,
) -> CuResult<(DevicePtr,)> {
    let home = cx.owner()?;
    check_register_flags(flags)?;
    let mut window = cx.session.window();
    window.check_unregistered(base, bytesize)?;
    register(cx, &mut window, Pinned { base, bytes: bytesize, used: bytesize }, flags, home)
}

fn check_register_flags(flags: u32) -> CuResult<()> {
    if flags & !REGISTER_FLAGS == 0 { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
}

fn map_kept(cx: &mut CallContext<'_>, window: &mut Window, address: u64, bytesize: u64) -> CuResult<Area> {
    let kept = cx.kept.take().ok_or(CudaError::INVALID_VALUE)?;
    let whole = bytesize.checked_next_multiple_of(PAGE_BYTES).ok_or(CudaError::INVALID_VALUE)?;
    if bytesize == 0 || whole != kept.pages.bytes() {
        return Err(CudaError::INVALID_VALUE);
    }
    let mut pieces = kept.pages.file_pieces()?;
    pieces.iter_mut().for_each(|piece| piece.writable = kept.writable);
    window.map(&pieces, address, kept.tag, false)
}

/// A range of adjacent areas, of which the program uses the first `used` bytes.
struct Pinned {
    base: u64,
    bytes: u64,
    used: u64,
}

/// Registers a range, of which nothing is registered. The GPU must not write pages
/// that the guest's process may not write, whatever `flags` that process has passed.
fn register(
    cx: &CallContext<'_>,
    window: &mut Window,
    range: Pinned,
    flags: u32,
    home: Home,
) -> CuResult<(DevicePtr,)> {
    let Pinned { base, bytes, used } = range;
    let address = base as *mut std::ffi::c_void;
    let read_only = flags & HOST_READ_ONLY != 0 || !window.is_writable(base, bytes);
    let (flags, origin) = match read_only {
        true => (HOST_PORTABLE_MAPPED | HOST_READ_ONLY, Origin::ReadOnlyWindow),
        false => (HOST_PORTABLE_MAPPED, Origin::HostWindow),
    };
    // SAFETY: the areas are mapped, and stay so until they are unregistered (`control::unpin`) or their context ends.
    let (dptr,) = unsafe {
        cx.gpu().cuMemHostRegister_v2(address, bytes as usize, flags)?;
        cx.gpu().cuMemHostGetDevicePointer_v2(address, 0).inspect_err(|_| {
            let _ = cx.gpu().cuMemHostUnregister(address);
        })
    }?;
    window.set_registered(Registration { base, bytes, context: cx.home(), dptr });
    cx.session.allocations().insert(dptr, used, origin, home);
    Ok((DevicePtr(dptr),))
}

/// Copies the bulk input to `dst`, in the order of `stream`. With `waits`, that is a default stream, and the copy counts as
/// done when this returns.
pub fn upload(cx: &CallContext<'_>, dst: DevicePtr, stream: StreamId, waits: bool) -> CuResult<()> {
    let raw: CUstream = cx.resolve(stream)?;
    if waits && raw.addr() > STREAM_PER_THREAD.addr() {
        return Err(CudaError::INVALID_VALUE);
    }
    let bytes = cx.bulk_in.bytes();
    if bytes == 0 {
        return Ok(());
    }
    let dst = located(cx, dst, raw)?;
    cx.check_copied(dst.0, bytes, true)?;
    copies(cx, raw).send(dst.0, &cx.bulk_in, waits)
}

/// Copies `src` to the bulk output, in the order of `stream`. Returns when the bytes have arrived.
pub fn download(cx: &mut CallContext<'_>, src: DevicePtr, stream: CUstream) -> CuResult<()> {
    let bytes = cx.bulk_out.room();
    if bytes == 0 {
        return Ok(());
    }
    let src = located(cx, src, stream)?;
    cx.check_copied(src.0, bytes, false)?;
    let (copies, epoch) = (copies(cx, stream), cx.session.contexts.epoch());
    let signal = if cx.may_signal(bytes) { Some((&mut cx.thread.signal, epoch)) } else { None };
    copies.fetch(src.0, &mut cx.bulk_out, signal)
}

/// The copies of a call in a stream.
fn copies(cx: &CallContext<'_>, stream: CUstream) -> Copies<'static> {
    let dma = Stream { gpu: cx.gpu(), stream };
    Copies { engine: &cx.session.copies, context: cx.home(), dma }
}

/// Waits for a stream.
pub fn cuStreamSynchronize(cx: &mut CallContext<'_>, stream: StreamId) -> CuResult<()> {
    let stream = cx.resolve(stream)?;
    if cx.session.freed_in_order.swap(false, Ordering::Relaxed) {
        let waited = cx.gpu().cuStreamSynchronize(stream);
        cx.session.placed.end_freed(cx.gpu());
        return waited;
    }
    if !cx.may_signal_queued() {
        return cx.gpu().cuStreamSynchronize(stream);
    }
    cx.wait_by_signal(stream)
}

/// Copies between any two ranges of the session in stream order, and waits for the copy. Adjacent windows count as
/// one range.
pub fn memcpy_wait(
    cx: &mut CallContext<'_>,
    dst: DevicePtr,
    src: DevicePtr,
    bytes: u64,
    stream: StreamId,
) -> CuResult<()> {
    let stream = cx.resolve(stream)?;
    if bytes == 0 {
        return cx.gpu().cuStreamSynchronize(stream);
    }
    let (dst, src) = (located(cx, dst, stream)?, located(cx, src, stream)?);
    let held = cx.session.hold([dst.0, src.0], bytes)?;
    let ends = between(cx, dst, src, stream)?;
    let is_default = stream.is_null() || stream == STREAM_LEGACY;
    // Where the copy is asynchronous, the driver could read the source too early.
    if is_default && bytes <= MAX_READ_EARLY_BYTES && held.is_window(src.0) {
        cx.gpu().cuStreamSynchronize(stream)?;
    }
    let signals = cx.may_signal(bytes);
    let mut done = 0;
    let copied = loop {
        let (dst, src) = (dst.0 + done, src.0 + done);
        let piece = held.piece([dst, src], bytes - done);
        // SAFETY: both ranges belong to the session, and stay until the stream was waited for.
        let started = unsafe {
            if piece == bytes && is_default && !signals && ends.is_none() {
                // One driver call instead of two. It waits where host memory is involved.
                return cx.gpu().cuMemcpy(dst, src, piece as usize);
            }
            copy_in_stream(cx, dst, src, piece as usize, ends, stream)
        };
        done += piece;
        if started.is_err() || done == bytes {
            break started;
        }
    };
    // Also waits after an error, because copies of earlier pieces may still run.
    let waited = if copied.is_ok() && signals {
        cx.wait_by_signal(stream)
    } else {
        cx.gpu().cuStreamSynchronize(stream)
    };
    copied.and(waited)
}
