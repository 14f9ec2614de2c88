// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cuMemcpy* and cuMemset*.

use std::ffi::c_void;
use std::sync::Arc;

use cuda_abi::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CopyEnd2D, CopyEnd3D};

use super::submit::{copy_async, copy_between, copy_now, fill};
use super::{Fill, Given, Pattern, Side, Transfer};
use crate::driver::array::{self, CUarray};
use crate::driver::context::{self, CUcontext, Context};
use crate::driver::device::CUdeviceptr;
use crate::driver::ffi::In;
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::CUstream;

/// CU_MEMORYTYPE_ARRAY
pub(crate) const ARRAY: u32 = 3;

/// Returns the meaning of the address that a CUmemorytype selects, and that address.
fn given(memory_type: u32, host: u64, device: u64) -> CuResult<(Given, u64)> {
    match memory_type {
        1 => Ok((Given::Host, host)),
        2 => Ok((Given::Device, device)),
        4 => Ok((Given::Unified, device)),
        // CU_MEMORYTYPE_ARRAY is handled elsewhere.
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// One end of a copy, which becomes a side of a transfer.
trait End {
    /// Returns the side, with rows of `width` bytes and slices of `rows` rows.
    fn side(&self, width: usize, rows: usize) -> CuResult<Side>;
}

impl End for CopyEnd2D {
    fn side(&self, width: usize, _rows: usize) -> CuResult<Side> {
        if self.memory_type == ARRAY {
            let array = array::find_not_null(CUarray::new(self.array as usize))?;
            return Side::in_array(Arc::clone(&array.array), [self.x as u64, self.y as u64, 0]);
        }
        let (given, base) = given(self.memory_type, self.host, self.device)?;
        let pitch = if self.pitch == 0 { width.saturating_add(self.x) } else { self.pitch };
        let offset = self.y.checked_mul(pitch).and_then(|rows| rows.checked_add(self.x));
        side_at(base, offset, given, pitch, 0)
    }
}

impl End for CopyEnd3D {
    fn side(&self, width: usize, rows: usize) -> CuResult<Side> {
        if self.lod != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if self.memory_type == ARRAY {
            let array = array::find_not_null(CUarray::new(self.array as usize))?;
            let at = [self.x, self.y, self.z].map(|offset| offset as u64);
            return Side::in_array(Arc::clone(&array.array), at);
        }
        let (given, base) = given(self.memory_type, self.host, self.device)?;
        let pitch = if self.pitch == 0 { width.saturating_add(self.x) } else { self.pitch };
        let height = if self.height == 0 { rows.saturating_add(self.y) } else { self.height };
        // A single slice has no distance to a next one. More slices of such a size end beyond all memory.
        let slice = pitch.saturating_mul(height);
        let row = self.y.checked_mul(pitch).and_then(|rows| rows.checked_add(self.x));
        let offset = self.z.checked_mul(slice).zip(row).and_then(|(slices, row)| slices.checked_add(row));
        side_at(base, offset, given, pitch, slice)
    }
}

fn side_at(base: u64, offset: Option<usize>, given: Given, pitch: usize, slice: usize) -> CuResult<Side> {
    let address = offset.and_then(|offset| base.checked_add(offset as u64));
    Side::new(address.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?, given, pitch as u64, slice as u64)
}

/// One end of a copy of bytes side by side: its address, and the memory that the caller says it is in.
struct Linear {
    address: u64,
    given: Given,
}

impl Linear {
    fn device(address: CUdeviceptr) -> Self {
        Self { address, given: Given::Device }
    }

    fn host<T>(address: *const T) -> Self {
        Self { address: address as u64, given: Given::Host }
    }

    fn unified(address: CUdeviceptr) -> Self {
        Self { address, given: Given::Unified }
    }
}

fn linear(to: Linear, from: Linear, bytes: usize) -> CuResult<Option<Transfer>> {
    let context = context::current()?;
    linear_between(to, from, bytes, [&context; 2])
}

/// The same between memory of two contexts.
fn linear_between(
    to: Linear,
    from: Linear,
    bytes: usize,
    contexts: [&Context; 2],
) -> CuResult<Option<Transfer>> {
    context::current()?;
    if bytes == 0 {
        return Ok(None);
    }
    let (to, from) = (Side::linear(to.address, to.given)?, Side::linear(from.address, from.given)?);
    Transfer::new(to, from, [bytes as u64, 1, 1])?.map(|copy| copy.reached_by(contexts)).transpose()
}

fn flat(copy: In<CUDA_MEMCPY2D>) -> CuResult<Option<Transfer>> {
    let context = context::current()?;
    let copy = copy.get()?;
    if copy.width == 0 || copy.height == 0 {
        return Ok(None);
    }
    let extent = [copy.width as u64, copy.height as u64, 1];
    let (to, from) = (copy.dst.side(copy.width, copy.height)?, copy.src.side(copy.width, copy.height)?);
    Transfer::new(to, from, extent)?.map(|copy| copy.reached_by([&context; 2])).transpose()
}

/// Checks a copy between boxes. Returns `None` when there is nothing to copy.
pub(crate) fn boxed(copy: &CUDA_MEMCPY3D) -> CuResult<Option<Transfer>> {
    let context = context::current()?;
    boxed_between(copy, [&context; 2])
}

/// The same between memory of two contexts.
fn boxed_between(copy: &CUDA_MEMCPY3D, contexts: [&Context; 2]) -> CuResult<Option<Transfer>> {
    context::current()?;
    if copy.width == 0 || copy.height == 0 || copy.depth == 0 {
        return Ok(None);
    }
    let extent = [copy.width as u64, copy.height as u64, copy.depth as u64];
    let (to, from) = (copy.dst.side(copy.width, copy.height)?, copy.src.side(copy.width, copy.height)?);
    Transfer::new(to, from, extent)?.map(|copy| copy.reached_by(contexts)).transpose()
}

fn memcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> CuResult<()> {
    copy_now(linear(Linear::unified(to), Linear::unified(from), bytes)?)
}

fn memcpy_async(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CuResult<()> {
    copy_async(linear(Linear::unified(to), Linear::unified(from), bytes)?, stream)
}

fn memcpy_htod(to: CUdeviceptr, from: *const c_void, bytes: usize) -> CuResult<()> {
    copy_now(linear(Linear::device(to), Linear::host(from), bytes)?)
}

fn memcpy_htod_async(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) -> CuResult<()> {
    copy_async(linear(Linear::device(to), Linear::host(from), bytes)?, stream)
}

fn memcpy_dtoh(to: *mut c_void, from: CUdeviceptr, bytes: usize) -> CuResult<()> {
    copy_now(linear(Linear::host(to), Linear::device(from), bytes)?)
}

fn memcpy_dtoh_async(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CuResult<()> {
    copy_async(linear(Linear::host(to), Linear::device(from), bytes)?, stream)
}

fn memcpy_dtod(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> CuResult<()> {
    copy_now(linear(Linear::device(to), Linear::device(from), bytes)?)
}

fn memcpy_dtod_async(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CuResult<()> {
    copy_async(linear(Linear::device(to), Linear::device(from), bytes)?, stream)
}

fn memcpy_peer(
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
) -> CuResult<()> {
    let contexts = [context::usable(to_context)?, context::usable(from_context)?];
    let reached = [&*contexts[0], &*contexts[1]];
    copy_between(linear_between(Linear::device(to), Linear::device(from), bytes, reached)?, &contexts)
}

fn memcpy_peer_async(
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> CuResult<()> {
    let contexts = [context::usable(to_context)?, context::usable(from_context)?];
    let reached = [&*contexts[0], &*contexts[1]];
    copy_async(linear_between(Linear::unified(to), Linear::unified(from), bytes, reached)?, stream)
}

fn memcpy_2d(copy: In<CUDA_MEMCPY2D>) -> CuResult<()> {
    copy_now(flat(copy)?)
}

fn memcpy_2d_async(copy: In<CUDA_MEMCPY2D>, stream: CUstream) -> CuResult<()> {
    copy_async(flat(copy)?, stream)
}

fn memcpy_3d(copy: In<CUDA_MEMCPY3D>) -> CuResult<()> {
    copy_now(boxed(&copy.get()?)?)
}

fn memcpy_3d_async(copy: In<CUDA_MEMCPY3D>, stream: CUstream) -> CuResult<()> {
    copy_async(boxed(&copy.get()?)?, stream)
}

fn peers(copy: &CUDA_MEMCPY3D) -> CuResult<[Arc<Context>; 2]> {
    let [to, from] = [copy.dst.context, copy.src.context].map(|context| CUcontext::new(context as usize));
    Ok([context::usable(to)?, context::usable(from)?])
}

fn memcpy_3d_peer(copy: In<CUDA_MEMCPY3D>) -> CuResult<()> {
    let copy = copy.get()?;
    let contexts = peers(&copy)?;
    copy_between(boxed_between(&copy, [&contexts[0], &contexts[1]])?, &contexts)
}

fn memcpy_3d_peer_async(copy: In<CUDA_MEMCPY3D>, stream: CUstream) -> CuResult<()> {
    let copy = copy.get()?;
    let contexts = peers(&copy)?;
    copy_async(boxed_between(&copy, [&contexts[0], &contexts[1]])?, stream)
}

fn memset_d8(to: CUdeviceptr, value: u8, count: usize) -> CuResult<()> {
    fill(Fill { to, pitch: 0, pattern: Pattern::new(value.into(), 1), extent: [count as u64, 1] }, None)
}

fn memset_d16(to: CUdeviceptr, value: u16, count: usize) -> CuResult<()> {
    fill(Fill { to, pitch: 0, pattern: Pattern::new(value.into(), 2), extent: [count as u64, 1] }, None)
}

fn memset_d32(to: CUdeviceptr, value: u32, count: usize) -> CuResult<()> {
    fill(Fill { to, pitch: 0, pattern: Pattern::new(value, 4), extent: [count as u64, 1] }, None)
}

fn memset_d8_async(to: CUdeviceptr, value: u8, count: usize, stream: CUstream) -> CuResult<()> {
    fill(
        Fill { to, pitch: 0, pattern: Pattern::new(value.into(), 1), extent: [count as u64, 1] },
        Some(stream),
    )
}

fn memset_d16_async(to: CUdeviceptr, value: u16, count: usize, stream: CUstream) -> CuResult<()> {
    fill(
        Fill { to, pitch: 0, pattern: Pattern::new(value.into(), 2), extent: [count as u64, 1] },
        Some(stream),
    )
}

fn memset_d32_async(to: CUdeviceptr, value: u32, count: usize, stream: CUstream) -> CuResult<()> {
    fill(Fill { to, pitch: 0, pattern: Pattern::new(value, 4), extent: [count as u64, 1] }, Some(stream))
}

fn memset_2d_d8(to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize) -> CuResult<()> {
    fill(
        Fill {
            to,
            pitch: pitch as u64,
            pattern: Pattern::new(value.into(), 1),
            extent: [width as u64, height as u64],
        },
        None,
    )
}

fn memset_2d_d16(to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize) -> CuResult<()> {
    fill(
        Fill {
            to,
            pitch: pitch as u64,
            pattern: Pattern::new(value.into(), 2),
            extent: [width as u64, height as u64],
        },
        None,
    )
}

fn memset_2d_d32(to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize) -> CuResult<()> {
    fill(
        Fill {
            to,
            pitch: pitch as u64,
            pattern: Pattern::new(value, 4),
            extent: [width as u64, height as u64],
        },
        None,
    )
}

fn memset_2d_d8_async(
    to: CUdeviceptr,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CuResult<()> {
    fill(
        Fill {
            to,
            pitch: pitch as u64,
            pattern: Pattern::new(value.into(), 1),
            extent: [width as u64, height as u64],
        },
        Some(stream),
    )
}

fn memset_2d_d16_async(
    to: CUdeviceptr,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CuResult<()> {
    fill(
        Fill {
            to,
            pitch: pitch as u64,
            pattern: Pattern::new(value.into(), 2),
            extent: [width as u64, height as u64],
        },
        Some(stream),
    )
}

fn memset_2d_d32_async(
    to: CUdeviceptr,
    pitch: usize,
    value: u32,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CuResult<()> {
    fill(
        Fill {
            to,
            pitch: pitch as u64,
            pattern: Pattern::new(value, 4),
            extent: [width as u64, height as u64],
        },
        Some(stream),
    )
}

crate::driver::ffi::entries! { after_init
    cuMemcpy + cuMemcpy_ptds => memcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize);
    cuMemcpyAsync + cuMemcpyAsync_ptsz => memcpy_async(
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyHtoD_v2 + cuMemcpyHtoD_v2_ptds => memcpy_htod(to: CUdeviceptr, from: *const c_void, bytes: usize);
    cuMemcpyHtoDAsync_v2 + cuMemcpyHtoDAsync_v2_ptsz => memcpy_htod_async(
        to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    cuMemcpyDtoH_v2 + cuMemcpyDtoH_v2_ptds => memcpy_dtoh(to: *mut c_void, from: CUdeviceptr, bytes: usize);
    cuMemcpyDtoHAsync_v2 + cuMemcpyDtoHAsync_v2_ptsz => memcpy_dtoh_async(
        to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyDtoD_v2 + cuMemcpyDtoD_v2_ptds => memcpy_dtod(to: CUdeviceptr, from: CUdeviceptr, bytes: usize);
    cuMemcpyDtoDAsync_v2 + cuMemcpyDtoDAsync_v2_ptsz => memcpy_dtod_async(
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyPeer + cuMemcpyPeer_ptds => memcpy_peer(
        to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize);
    cuMemcpyPeerAsync + cuMemcpyPeerAsync_ptsz => memcpy_peer_async(
        to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize,
        stream: CUstream);
    cuMemcpy2D_v2 + cuMemcpy2D_v2_ptds => memcpy_2d(copy: In<CUDA_MEMCPY2D>);
    cuMemcpy2DUnaligned_v2 + cuMemcpy2DUnaligned_v2_ptds => memcpy_2d(copy: In<CUDA_MEMCPY2D>);
    cuMemcpy2DAsync_v2 + cuMemcpy2DAsync_v2_ptsz => memcpy_2d_async(copy: In<CUDA_MEMCPY2D>, stream: CUstream);
    cuMemcpy3D_v2 + cuMemcpy3D_v2_ptds => memcpy_3d(copy: In<CUDA_MEMCPY3D>);
    cuMemcpy3DAsync_v2 + cuMemcpy3DAsync_v2_ptsz => memcpy_3d_async(copy: In<CUDA_MEMCPY3D>, stream: CUstream);
    cuMemcpy3DPeer + cuMemcpy3DPeer_ptds => memcpy_3d_peer(copy: In<CUDA_MEMCPY3D>);
    cuMemcpy3DPeerAsync + cuMemcpy3DPeerAsync_ptsz => memcpy_3d_peer_async(copy: In<CUDA_MEMCPY3D>, stream: CUstream);
    cuMemsetD8_v2 + cuMemsetD8_v2_ptds => memset_d8(to: CUdeviceptr, value: u8, count: usize);
    cuMemsetD16_v2 + cuMemsetD16_v2_ptds => memset_d16(to: CUdeviceptr, value: u16, count: usize);
    cuMemsetD32_v2 + cuMemsetD32_v2_ptds => memset_d32(to: CUdeviceptr, value: u32, count: usize);
    cuMemsetD8Async + cuMemsetD8Async_ptsz => memset_d8_async(
        to: CUdeviceptr, value: u8, count: usize, stream: CUstream);
    cuMemsetD16Async + cuMemsetD16Async_ptsz => memset_d16_async(
        to: CUdeviceptr, value: u16, count: usize, stream: CUstream);
    cuMemsetD32Async + cuMemsetD32Async_ptsz => memset_d32_async(
        to: CUdeviceptr, value: u32, count: usize, stream: CUstream);
    cuMemsetD2D8_v2 + cuMemsetD2D8_v2_ptds => memset_2d_d8(
        to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD2D16_v2 + cuMemsetD2D16_v2_ptds => memset_2d_d16(
        to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize);
    cuMemsetD2D32_v2 + cuMemsetD2D32_v2_ptds => memset_2d_d32(
        to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize);
    cuMemsetD2D8Async + cuMemsetD2D8Async_ptsz => memset_2d_d8_async(
        to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream);
    cuMemsetD2D16Async + cuMemsetD2D16Async_ptsz => memset_2d_d16_async(
        to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream);
    cuMemsetD2D32Async + cuMemsetD2D32Async_ptsz => memset_2d_d32_async(
        to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream);
}
