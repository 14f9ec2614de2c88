// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies of contiguous bytes of an array row, and batches of 3D copies.

use cuda_abi::{CUDA_MEMCPY3D, CUDA_MEMCPY3D_BATCH_OP, CUmemcpy3DOperand, CopyEnd3D};
use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::element_bytes;

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, In, Out};
use crate::memory::boxes::copy::BoxCopy;
use crate::memory::boxes::layout::{ARRAY, DEVICE, HOST, UNIFIED};
use crate::memory::copy::batch::{SourceOrder, Sources, check_batch};
use crate::memory::copy::plan::Timing;

/// An end without a memory type.
const END: CopyEnd3D = CopyEnd3D::ZERO;

fn array(array: u64, x: usize) -> CopyEnd3D {
    CopyEnd3D { memory_type: ARRAY, array, x, ..END }
}

fn host(at: HostPtr) -> CopyEnd3D {
    CopyEnd3D { memory_type: HOST, host: at.address() as u64, ..END }
}

fn device(at: u64) -> CopyEnd3D {
    CopyEnd3D { memory_type: DEVICE, device: at, ..END }
}

fn copy(
    api: Api,
    dst: CopyEnd3D,
    src: CopyEnd3D,
    bytes: usize,
    stream: Option<u64>,
) -> Result<(), CudaError> {
    let is_null = |end: &CopyEnd3D| end.memory_type == ARRAY && end.array == 0;
    if is_null(&dst) || is_null(&src) {
        return Err(CudaError::INVALID_VALUE);
    }
    let timing = stream.map_or(Ok(Timing::Wait), |stream| api.stream(stream).map(Timing::Stream))?;
    match BoxCopy::new(api, &CUDA_MEMCPY3D { src, dst, width: bytes, height: 1, depth: 1 })? {
        Some(copy) => copy.run(api, timing),
        None => api.context().map(|_| ()),
    }
}

/// `CU_MEMCPY_OPERAND_TYPE_*`.
const OPERAND_POINTER: u32 = 1;
const OPERAND_ARRAY: u32 = 2;

/// Returns the bytes per element of an operand, if it is an array.
fn operand_element(operand: &CUmemcpy3DOperand, api: Api) -> Result<Option<u64>, CudaError> {
    if operand.kind != OPERAND_ARRAY {
        return Ok(None);
    }
    let descriptor = api.driver.arrays.get(operand.words[0])?.descriptor;
    Ok(element_bytes(descriptor.format, descriptor.channels))
}

/// Converts an operand to an end of a copy.
fn operand_end(operand: &CUmemcpy3DOperand, element: u64) -> Result<CopyEnd3D, CudaError> {
    let bytes = |elements: u64| {
        let bytes = elements.checked_mul(element).ok_or(CudaError::INVALID_VALUE)?;
        Ok(bytes as usize)
    };
    let [first, second, third, fourth] = operand.words;
    match operand.kind {
        OPERAND_POINTER => {
            let (pitch, height) = (bytes(second)?, third as usize);
            Ok(CopyEnd3D { memory_type: UNIFIED, device: first, pitch, height, ..END })
        }
        OPERAND_ARRAY => {
            let (x, y, z) = (bytes(second)?, third as usize, fourth as usize);
            Ok(CopyEnd3D { memory_type: ARRAY, array: first, x, y, z, ..END })
        }
        _ => Err(CudaError::INVALID_VALUE),
    }
}

/// Runs the copies one after the other, which CUDA permits for a batch. Errors: also the index of the failed copy, or
/// `usize::MAX` for the whole batch.
fn batch(
    api: Api,
    count: usize,
    ops: In<CUDA_MEMCPY3D_BATCH_OP>,
    flags: u64,
    stream: u64,
) -> Result<(), (usize, CudaError)> {
    let whole = |error| (usize::MAX, error);
    check_batch(stream, count).map_err(whole)?;
    if flags != 0 {
        return Err(whole(CudaError::INVALID_VALUE));
    }
    let stream = api.stream(stream).map_err(whole)?;
    let mut sources = Sources::new(api, stream);
    let mut copied = Ok(());
    for index in 0..count {
        let mut one = || {
            let op = ops.at(index)?;
            let order = SourceOrder::new(op.access_order, op.flags)?;
            let element = match (operand_element(&op.src, api)?, operand_element(&op.dst, api)?) {
                (Some(src), Some(dst)) if src != dst => return Err(CudaError::INVALID_VALUE),
                (src, dst) => src.or(dst).unwrap_or(1),
            };
            let [width, height, depth] = op.extent;
            let width = (width as u64).checked_mul(element).ok_or(CudaError::INVALID_VALUE)? as usize;
            let (src, dst) = (operand_end(&op.src, element)?, operand_end(&op.dst, element)?);
            match BoxCopy::new(api, &CUDA_MEMCPY3D { src, dst, width, height, depth })? {
                Some(copy) => {
                    sources.read(copy.source(), order)?;
                    copy.run(api, Timing::Stream(stream))
                }
                // An empty box is an error here.
                None => Err(CudaError::INVALID_VALUE),
            }
        };
        copied = one().map_err(|error| (index, error));
        if copied.is_err() {
            break;
        }
    }
    // Also after an error: the copies before it read their sources.
    let read = sources.end().map_err(whole);
    copied.and(read)
}

entry_points! {
    /// Copies from the device to an array.
    call cuMemcpyDtoA_v2 / cuMemcpyDtoA_v2_ptds (api, dstArray: u64, dstOffset: usize, srcDevice: u64, ByteCount: usize) {
        copy(api, array(dstArray, dstOffset), device(srcDevice), ByteCount, None)
    }

    /// Copies from an array to the device.
    call cuMemcpyAtoD_v2 / cuMemcpyAtoD_v2_ptds (api, dstDevice: u64, srcArray: u64, srcOffset: usize, ByteCount: usize) {
        copy(api, device(dstDevice), array(srcArray, srcOffset), ByteCount, None)
    }

    /// Copies from the host to an array.
    call cuMemcpyHtoA_v2 / cuMemcpyHtoA_v2_ptds (api, dstArray: u64, dstOffset: usize, srcHost: HostPtr, ByteCount: usize) {
        copy(api, array(dstArray, dstOffset), host(srcHost), ByteCount, None)
    }

    /// Copies from an array to the host.
    call cuMemcpyAtoH_v2 / cuMemcpyAtoH_v2_ptds (api, dstHost: HostPtr, srcArray: u64, srcOffset: usize, ByteCount: usize) {
        copy(api, host(dstHost), array(srcArray, srcOffset), ByteCount, None)
    }

    /// Copies from an array to an array.
    call cuMemcpyAtoA_v2 / cuMemcpyAtoA_v2_ptds (api, dstArray: u64, dstOffset: usize, srcArray: u64, srcOffset: usize, ByteCount: usize) {
        copy(api, array(dstArray, dstOffset), array(srcArray, srcOffset), ByteCount, None)
    }

    /// Copies from the host to an array in stream order.
    call cuMemcpyHtoAAsync_v2 / cuMemcpyHtoAAsync_v2_ptsz (api, dstArray: u64, dstOffset: usize, srcHost: HostPtr, ByteCount: usize, hStream: u64) {
        copy(api, array(dstArray, dstOffset), host(srcHost), ByteCount, Some(hStream))
    }

    /// Copies from an array to the host in stream order.
    call cuMemcpyAtoHAsync_v2 / cuMemcpyAtoHAsync_v2_ptsz (api, dstHost: HostPtr, srcArray: u64, srcOffset: usize, ByteCount: usize, hStream: u64) {
        copy(api, host(dstHost), array(srcArray, srcOffset), ByteCount, Some(hStream))
    }

    /// Runs many 3D copies in stream order. This version, of CUDA 12.8, returns the index of an invalid copy.
    call cuMemcpy3DBatchAsync / cuMemcpy3DBatchAsync_ptsz (api, numOps: usize, opList: In<CUDA_MEMCPY3D_BATCH_OP>, failIdx: Out<usize>, flags: u64, hStream: u64) {
        batch(api, numOps, opList, flags, hStream).map_err(|(index, error)| {
            failIdx.set_if_wanted(index);
            error
        })
    }

    /// Runs many 3D copies in stream order.
    call cuMemcpy3DBatchAsync_v2 / cuMemcpy3DBatchAsync_v2_ptsz (api, numOps: usize, opList: In<CUDA_MEMCPY3D_BATCH_OP>, flags: u64, hStream: u64) {
        batch(api, numOps, opList, flags, hStream).map_err(|(_, error)| error)
    }
}
