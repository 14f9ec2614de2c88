// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access of one device to the memory of another, and copies between them.

use virtio_cuda_protocol::cuda::{ContextId, DevicePtr, StreamId};

use crate::call::CallContext;
use crate::gpu::{CUcontext, CUstream, CuResult, CudaError, with_capture_relaxed};
use crate::handlers::graph::capture::captures;
use crate::handlers::module::variable::located;
use crate::memory::allocations::Origin;

/// Lets the current context reach memory of `peer`.
pub fn cuCtxEnablePeerAccess(cx: &mut CallContext<'_>, peer: ContextId, flags: u32) -> CuResult<()> {
    let (reader, owner) = (cx.owner()?, cx.session.contexts.owner(peer)?);
    let (gpu, raw) = (cx.gpu(), cx.resolve(peer)?);
    let undo = || {
        let _ = gpu.cuCtxDisablePeerAccess(raw);
    };
    cx.session.placed.enable(gpu, reader, owner.context, || gpu.cuCtxEnablePeerAccess(raw, flags), undo)
}

/// Ends that access, after the current context's work, which may use it.
pub fn cuCtxDisablePeerAccess(cx: &mut CallContext<'_>, peer: ContextId) -> CuResult<()> {
    let (reader, owner) = (cx.owner()?, cx.session.contexts.owner(peer)?);
    let (gpu, raw) = (cx.gpu(), cx.resolve(peer)?);
    if cx.session.placed.has_peers() {
        // An error of that work is the next call's, too.
        let _ = with_capture_relaxed(gpu, || gpu.cuCtxSynchronize());
    }
    cx.session.placed.disable(gpu, reader.context, owner.context, || gpu.cuCtxDisablePeerAccess(raw))
}

/// Returns the contexts of both ends of a copy if it is one that the driver must make as `cuMemcpyPeer`, because an end is placed on
/// another device than the current context. The driver needs no access then, and takes pinned host memory, too. Where a stream
/// captures, the current context's device gets access instead.
///
/// Errors: `CUDA_ERROR_INVALID_CONTEXT`, and the driver's.
pub fn between(
    cx: &CallContext<'_>,
    dst: DevicePtr,
    src: DevicePtr,
    stream: CUstream,
) -> CuResult<Option<[CUcontext; 2]>> {
    if !cx.session.placed.has_peers() {
        return Ok(None);
    }
    let elsewhere = [cx.elsewhere(dst.0)?, cx.elsewhere(src.0)?];
    let Some(one) = elsewhere.into_iter().flatten().next() else { return Ok(None) };
    if captures(cx, stream) {
        let device = cx.owner()?.device;
        for range in elsewhere.into_iter().flatten() {
            cx.session.placed.lend(cx.gpu(), range.base, device)?;
        }
        return Ok(None);
    }
    let allocations = cx.session.allocations();
    // Host memory counts as the other end's.
    let context_of = |end: DevicePtr| match allocations.find(end.0) {
        Some(range) if !range.origin.is_window() => ContextId(range.context),
        _ => ContextId(one.context),
    };
    let [to, from] = [dst, src].map(context_of);
    drop(allocations);
    Ok(Some([cx.resolve(to)?, cx.resolve(from)?]))
}

/// Copies in stream order. `ends` are those of [`between`].
///
/// # Safety
///
/// Both ranges must be the session's until the copy has ended.
pub unsafe fn copy_in_stream(
    cx: &CallContext<'_>,
    dst: u64,
    src: u64,
    bytes: usize,
    ends: Option<[CUcontext; 2]>,
    stream: CUstream,
) -> CuResult<()> {
    // SAFETY: the caller's promise.
    unsafe {
        match ends {
            Some([to, from]) => cx.gpu().cuMemcpyPeerAsync(dst, to, src, from, bytes, stream),
            None => cx.gpu().cuMemcpyAsync(dst, src, bytes, stream),
        }
    }
}

/// Checks both ends of a copy. Returns its length, `None` for an empty one, for which the driver is not called.
fn checked(cx: &CallContext<'_>, dst: DevicePtr, src: DevicePtr, bytes: u64) -> CuResult<Option<usize>> {
    if bytes == 0 {
        return Ok(None);
    }
    cx.session.check_written(dst.0, bytes)?;
    cx.session.check(src.0, bytes)?;
    usize::try_from(bytes).map(Some).map_err(|_| CudaError::INVALID_VALUE)
}

/// Copies between any two addresses that the device can reach, in stream order.
pub fn cuMemcpyAsync(
    cx: &mut CallContext<'_>,
    dst: DevicePtr,
    src: DevicePtr,
    bytes: u64,
    stream: StreamId,
) -> CuResult<()> {
    let stream = cx.resolve(stream)?;
    let (dst, src) = (located(cx, dst, stream)?, located(cx, src, stream)?);
    let Some(bytes) = checked(cx, dst, src, bytes)? else { return Ok(()) };
    let ends = between(cx, dst, src, stream)?;
    // SAFETY: both ranges were checked to be the session's.
    unsafe { copy_in_stream(cx, dst.0, src.0, bytes, ends, stream) }
}

/// Copies inside the device, or between two of them after all earlier work of both.
pub fn cuMemcpyDtoD_v2(cx: &mut CallContext<'_>, dst: DevicePtr, src: DevicePtr, bytes: u64) -> CuResult<()> {
    let (dst, src) = (located(cx, dst, std::ptr::null_mut())?, located(cx, src, std::ptr::null_mut())?);
    let Some(bytes) = checked(cx, dst, src, bytes)? else { return Ok(()) };
    // SAFETY: both ranges were checked to be the session's.
    unsafe {
        match between(cx, dst, src, std::ptr::null_mut())? {
            Some([to, from]) => cx.gpu().cuMemcpyPeer(dst.0, to, src.0, from, bytes),
            None => cx.gpu().cuMemcpyDtoD_v2(dst.0, src.0, bytes),
        }
    }
}

/// Copies between device memory of two contexts, for which the driver needs no access of one to the other.
pub fn cuMemcpyPeer(
    cx: &mut CallContext<'_>,
    dst: DevicePtr,
    dst_context: ContextId,
    src: DevicePtr,
    src_context: ContextId,
    bytes: u64,
) -> CuResult<()> {
    let Some(bytes) = checked(cx, dst, src, bytes)? else { return Ok(()) };
    let (to, from) = (context_at(cx, dst, dst_context)?, context_at(cx, src, src_context)?);
    let (to, from) = (cx.resolve(to)?, cx.resolve(from)?);
    // SAFETY: both ranges were checked to be the session's.
    unsafe { cx.gpu().cuMemcpyPeer(dst.0, to, src.0, from, bytes) }
}

/// Returns the context that the driver needs for memory at an end of a copy: that of the program, unless placed memory belongs to a context
/// of another device. The driver's own memory may be named with any context.
///
/// Errors: `CUDA_ERROR_INVALID_CONTEXT`.
fn context_at(cx: &CallContext<'_>, end: DevicePtr, named: ContextId) -> CuResult<ContextId> {
    let device = cx.session.contexts.owner(named)?.device;
    let range = cx.session.allocations().find(end.0).copied();
    let other = range.filter(|range| range.origin == Origin::Allocated && range.device != device);
    Ok(other.map_or(named, |range| ContextId(range.context)))
}
