// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies of contiguous bytes of a row of an array, and batches of boxes.

use cuda_abi::{CUDA_MEMCPY3D, CUDA_MEMCPY3D_BATCH_OP, CUmemcpy3DOperand, CopyEnd3D};
use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::element_bytes;

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, In, Out};
use crate::memory::boxes::copy::BoxCopy;
use crate::memory::boxes::layout::{ARRAY, DEVICE, HOST, UNIFIED};
use crate::memory::copy::batch::{check_batch, check_hints};
use crate::memory::copy::plan::Timing;

/// Nothing yet.
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
    let timing = stream.map_or(Timing::Wait, |stream| Timing::Stream(api.stream(stream)));
    match BoxCopy::new(api, &CUDA_MEMCPY3D { src, dst, width: bytes, height: 1, depth: 1 })? {
        Some(copy) => copy.run(api, timing),
        None => api.context().map(|_| ()),
    }
}

/// `CU_MEMCPY_OPERAND_TYPE_*`.
const OPERAND_POINTER: u32 = 1;
const OPERAND_ARRAY: u32 = 2;

/// Bytes per element of an operand that is an array.
fn operand_element(operand: &CUmemcpy3DOperand, api: Api) -> Result<Option<u64>, CudaError> {
    if operand.kind != OPERAND_ARRAY {
        return Ok(None);
    }
    let descriptor = api.driver.arrays.get(operand.words[0])?.descriptor;
    Ok(element_bytes(descriptor.format, descriptor.channels))
}

/// The end of a copy that an operand describes.
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

/// Copies boxes one after the other, which a batch may do; answers which one failed, or `usize::MAX` for the
/// whole.
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
    let timing = Timing::Stream(api.stream(stream));
    for index in 0..count {
        let one = || {
            let op = ops.at(index)?;
            check_hints(op.access_order, op.flags)?;
            let element = match (operand_element(&op.src, api)?, operand_element(&op.dst, api)?) {
                (Some(src), Some(dst)) if src != dst => return Err(CudaError::INVALID_VALUE),
                (src, dst) => src.or(dst).unwrap_or(1),
            };
            let [width, height, depth] = op.extent;
            let width = (width as u64).checked_mul(element).ok_or(CudaError::INVALID_VALUE)? as usize;
            let (src, dst) = (operand_end(&op.src, element)?, operand_end(&op.dst, element)?);
            match BoxCopy::new(api, &CUDA_MEMCPY3D { src, dst, width, height, depth })? {
                Some(copy) => copy.run(api, timing),
                // An empty box is an error here.
                None => Err(CudaError::INVALID_VALUE),
            }
        };
        one().map_err(|error| (index, error))?;
    }
    Ok(())
}

entry_points! {
    /// Device to array.
    call cuMemcpyDtoA_v2 / cuMemcpyDtoA_v2_ptds (api, dstArray: u64, dstOffset: usize, srcDevice: u64, ByteCount: usize) {
        copy(api, array(dstArray, dstOffset), device(srcDevice), ByteCount, None)
    }

    /// Array to device.
    call cuMemcpyAtoD_v2 / cuMemcpyAtoD_v2_ptds (api, dstDevice: u64, srcArray: u64, srcOffset: usize, ByteCount: usize) {
        copy(api, device(dstDevice), array(srcArray, srcOffset), ByteCount, None)
    }

    /// Host to array.
    call cuMemcpyHtoA_v2 / cuMemcpyHtoA_v2_ptds (api, dstArray: u64, dstOffset: usize, srcHost: HostPtr, ByteCount: usize) {
        copy(api, array(dstArray, dstOffset), host(srcHost), ByteCount, None)
    }

    /// Array to host.
    call cuMemcpyAtoH_v2 / cuMemcpyAtoH_v2_ptds (api, dstHost: HostPtr, srcArray: u64, srcOffset: usize, ByteCount: usize) {
        copy(api, host(dstHost), array(srcArray, srcOffset), ByteCount, None)
    }

    /// Array to array.
    call cuMemcpyAtoA_v2 / cuMemcpyAtoA_v2_ptds (api, dstArray: u64, dstOffset: usize, srcArray: u64, srcOffset: usize, ByteCount: usize) {
        copy(api, array(dstArray, dstOffset), array(srcArray, srcOffset), ByteCount, None)
    }

    /// Host to array in stream order.
    call cuMemcpyHtoAAsync_v2 / cuMemcpyHtoAAsync_v2_ptsz (api, dstArray: u64, dstOffset: usize, srcHost: HostPtr, ByteCount: usize, hStream: u64) {
        copy(api, array(dstArray, dstOffset), host(srcHost), ByteCount, Some(hStream))
    }

    /// Array to host in stream order.
    call cuMemcpyAtoHAsync_v2 / cuMemcpyAtoHAsync_v2_ptsz (api, dstHost: HostPtr, srcArray: u64, srcOffset: usize, ByteCount: usize, hStream: u64) {
        copy(api, host(dstHost), array(srcArray, srcOffset), ByteCount, Some(hStream))
    }

    /// Many boxes in stream order, as CUDA 12.8 had them: the index of a bad one is told.
    call cuMemcpy3DBatchAsync / cuMemcpy3DBatchAsync_ptsz (api, numOps: usize, opList: In<CUDA_MEMCPY3D_BATCH_OP>, failIdx: Out<usize>, flags: u64, hStream: u64) {
        batch(api, numOps, opList, flags, hStream).map_err(|(index, error)| {
            failIdx.set_if_wanted(index);
            error
        })
    }

    /// Many boxes in stream order.
    call cuMemcpy3DBatchAsync_v2 / cuMemcpy3DBatchAsync_v2_ptsz (api, numOps: usize, opList: In<CUDA_MEMCPY3D_BATCH_OP>, flags: u64, hStream: u64) {
        batch(api, numOps, opList, flags, hStream).map_err(|(_, error)| error)
    }
}
