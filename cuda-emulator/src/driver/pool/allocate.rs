// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stream-ordered allocations and frees.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::{CUmemoryPool, INVALID, Pool, find, home};
use crate::driver::context::Context;
use crate::driver::device::{self, CUdeviceptr, Device};
use crate::driver::external::buffers;
use crate::driver::ffi::Out;
use crate::driver::handle::Handle;
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::{CUstream, Stream};
use crate::driver::{capture, graph};

/// The time without the end of any work after which an allocation fails. Work may wait for the very thread that
/// allocates: by a value in memory, a host function, or a kernel that reads the host's memory.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the device whose memory a pool has: not always that of the stream. Memory of the host is counted for the stream's.
fn device_of(context: &Context, pool: &Pool) -> CuResult<&'static Device> {
    if pool.home.is_of_device() { device::device(pool.home.id) } else { Ok(context.device) }
}

fn allocate_from(
    context: &Context,
    stream: &Stream,
    pool: &Arc<Pool>,
    bytes: usize,
) -> CuResult<CUdeviceptr> {
    if bytes == 0 {
        return Ok(0);
    }
    let bytes = bytes as u64;
    // Host pools have a maximum size, and a free takes effect at once, so there is nothing to wait for.
    if !pool.has_room(bytes) {
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    }
    let device = device_of(context, pool)?;
    // Memory of the host, and that of another device, outlives contexts.
    let is_here = pool.home.is_of_device() && device.ordinal == context.device.ordinal;
    let owner = if is_here { context.handle } else { Handle::NULL };
    // Allocated now: work that uses the memory follows this call in the stream, and freed memory is reusable only
    // when the stream has reached the free.
    let allocate = || match pool.shared {
        Some(_) => device.allocate_shared(owner, bytes, pool),
        None => device.allocate(owner, bytes, pool.home.range_kind(), Some(Arc::clone(pool))),
    };
    match allocate() {
        Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => allocate_later(context, stream, allocate),
        result => result,
    }
}

/// Retries whenever earlier work has ended, because it may contain frees: of this stream first, then of others.
fn allocate_later(
    context: &Context,
    stream: &Stream,
    allocate: impl Fn() -> CuResult<CUdeviceptr>,
) -> CuResult<CUdeviceptr> {
    let mut latest = Instant::now() + PATIENCE;
    for end in [stream.queue.end()].into_iter().chain(context.ends()) {
        loop {
            let ended = end.ended();
            match allocate() {
                Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => {}
                result => return result,
            }
            if !end.wait_past(ended, latest) {
                break;
            }
            latest = Instant::now() + PATIENCE;
        }
    }
    Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
}

/// In a capturing stream: creates an allocation node, whose address is known at once.
fn capture_allocation(
    device: &'static Device,
    stream: &Stream,
    bytes: usize,
) -> CuResult<Option<CUdeviceptr>> {
    let mut address = 0;
    let added = bytes > 0
        && capture::add(stream, || {
            let (work, ptr) = graph::capture_allocation(device, bytes)?;
            address = ptr;
            Ok(work)
        })?;
    Ok(added.then_some(address))
}

fn mem_alloc_async(out: Out<CUdeviceptr>, bytes: usize, stream: CUstream) -> CuResult<()> {
    out.check()?;
    let (context, stream) = capture::place_work(stream)?;
    if let Some(ptr) = capture_allocation(context.device, &stream, bytes)? {
        out.set_if_wanted(ptr);
        return Ok(());
    }
    let pool = Arc::clone(&context.device.current_pool.lock().unwrap_or_else(PoisonError::into_inner));
    out.set_if_wanted(allocate_from(&context, &stream, &pool, bytes)?);
    Ok(())
}

fn mem_alloc_from_pool_async(
    out: Out<CUdeviceptr>,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CuResult<()> {
    out.check()?;
    let (context, stream) = capture::place_work(stream)?;
    let pool = find(pool)?;
    if capture::captures(&stream) {
        pool.home.check_captured()?;
    } else if !pool.home.is_of_device() {
        capture::check_safe()?;
    }
    if let Some(ptr) = capture_allocation(device_of(&context, &pool)?, &stream, bytes)? {
        out.set_if_wanted(ptr);
        return Ok(());
    }
    out.set_if_wanted(allocate_from(&context, &stream, &pool, bytes)?);
    Ok(())
}

fn mem_free_async(ptr: CUdeviceptr, stream: CUstream) -> CuResult<()> {
    let (context, stream) = capture::place_work(stream)?;
    if ptr == 0 {
        return Ok(());
    }
    if buffers::contains(ptr) {
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
        // Later allocations of the stream may already reuse its memory, and the program no longer owns it.
        pool.remove(range.bytes);
    }
    context.submit(&stream, Vec::new(), move |_, _| device.release(ptr, &owner));
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuMemAllocAsync + cuMemAllocAsync_ptsz => mem_alloc_async(
        out: Out<CUdeviceptr>, bytes: usize, stream: CUstream);
    cuMemAllocFromPoolAsync + cuMemAllocFromPoolAsync_ptsz => mem_alloc_from_pool_async(
        out: Out<CUdeviceptr>, bytes: usize, pool: CUmemoryPool, stream: CUstream);
    cuMemFreeAsync + cuMemFreeAsync_ptsz => mem_free_async(ptr: CUdeviceptr, stream: CUstream);
}
