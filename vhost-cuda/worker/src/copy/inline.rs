// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Short copies, whose bytes are part of the call itself.

use super::super::gpu::{CUdeviceptr, CUstream, CuResult, Driver, STREAM_LEGACY, STREAM_PER_THREAD};
use super::dma::{Dma, Stream};
use super::engine::Engine;
use super::staging::{BUFFER_BYTES, Buffer, Share};
use crate::run::signal::Signal;

/// The minimum length in bytes for which a pinned buffer is faster. The driver puts shorter pageable bytes into its
/// own command queue.
const STAGED_BYTES: usize = 16 << 10;

/// Copies to the device in stream order, without waiting for the device.
pub fn send(
    engine: &Engine,
    gpu: &Driver,
    context: u64,
    stream: CUstream,
    dst: CUdeviceptr,
    bytes: &[u8],
) -> CuResult<()> {
    let dma = Stream { gpu, stream };
    if (STAGED_BYTES..=BUFFER_BYTES).contains(&bytes.len()) {
        let mut share = engine.staging.share(context, 1);
        if let Some(buffer) = share.take(&dma)? {
            return send_through(&mut share, &dma, dst, bytes, buffer);
        }
    }
    // SAFETY: the driver has taken pageable bytes when the call returns; the caller checked the range at `dst`.
    unsafe { dma.send(dst, bytes.as_ptr(), bytes.len()) }
}

/// Copies to the device in the order of a default stream, as `cuMemcpyHtoD` does: work of other streams, which do not wait for
/// the default stream, sees the bytes.
pub fn send_now(gpu: &Driver, stream: CUstream, dst: CUdeviceptr, bytes: &[u8]) -> CuResult<()> {
    // SAFETY: the driver has taken pageable bytes when a call returns; the caller checked the range at `dst`.
    unsafe {
        if stream != STREAM_PER_THREAD {
            return gpu.cuMemcpyHtoD_v2(dst, bytes.as_ptr().cast(), bytes.len());
        }
        gpu.cuMemcpyHtoDAsync_v2(dst, bytes.as_ptr().cast(), bytes.len(), stream)?;
    }
    gpu.cuStreamSynchronize(stream)
}

fn send_through(
    share: &mut Share<'_>,
    dma: &impl Dma,
    dst: CUdeviceptr,
    bytes: &[u8],
    mut buffer: Buffer,
) -> CuResult<()> {
    // SAFETY: the buffer is this copy's, and longer than `bytes`; the GPU may read it until the mark set below.
    let started = unsafe {
        buffer.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        dma.send(dst, buffer.as_ptr(), bytes.len())
    };
    match started.and_then(|()| buffer.mark(dma)) {
        Err(error) if started.is_ok() => {
            share.abandon(buffer);
            Err(error)
        }
        outcome => {
            share.give_back(buffer);
            outcome
        }
    }
}

/// Copies `room` bytes from the device to the end of `bytes`, in stream order. With `signal`, for that epoch of
/// contexts, the copy may be waited for by the signal.
pub fn fetch(
    mut share: Share<'_>,
    dma: Stream<'_>,
    src: CUdeviceptr,
    bytes: &mut Vec<u8>,
    room: usize,
    signal: Option<(&mut Signal, u64)>,
) -> CuResult<()> {
    let Stream { gpu, stream } = dma;
    if room <= BUFFER_BYTES
        && let Some(buffer) = share.take(&dma)?
    {
        // SAFETY: the buffer has that room, is this copy's, and is read after the wait; the caller checked `src`.
        let fetched = unsafe { fetch_to(gpu, stream, signal, buffer.as_ptr(), src, room) };
        if let Err(error) = fetched {
            share.abandon(buffer);
            return Err(error);
        }
        // SAFETY: the copy above is complete.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(buffer.as_ptr(), room) });
        share.give_back(buffer);
        return Ok(());
    }
    let before = bytes.len();
    bytes.resize(before + room, 0);
    // SAFETY: `bytes` has that room and stays until the copy is complete; the caller checked `src`.
    unsafe { fetch_to(gpu, stream, None, bytes[before..].as_mut_ptr(), src, room) }
}

/// Copies from the device and waits for the copy.
///
/// # Safety
///
/// `dst` must be valid for `room` bytes, and the range at `src` must belong to the session.
unsafe fn fetch_to(
    gpu: &Driver,
    stream: CUstream,
    signal: Option<(&mut Signal, u64)>,
    dst: *mut u8,
    src: CUdeviceptr,
    room: usize,
) -> CuResult<()> {
    // SAFETY: `# Safety` promises that `dst` is good for `room` bytes, and that the range at `src` is the session's.
    unsafe {
        if stream == STREAM_LEGACY && signal.is_none() {
            return gpu.cuMemcpyDtoH_v2(dst.cast(), src, room);
        }
        gpu.cuMemcpyDtoHAsync_v2(dst.cast(), src, room, stream)?;
    }
    match signal {
        Some((signal, epoch)) => signal.wait(gpu, epoch, stream),
        None => gpu.cuStreamSynchronize(stream),
    }
}
