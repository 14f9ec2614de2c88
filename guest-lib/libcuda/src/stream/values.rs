// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Attributes of streams, and waits for and writes of single values in memory.

use cuda_abi::{CUDA_BATCH_MEM_OP_NODE_PARAMS, CUstreamBatchMemOpParams};
use virtio_cuda_client::protocol::{BatchMemOpNode, DevicePtr, MemoryOperation, Reader, StreamId};
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{In, Out};
use crate::state::moving::Uses;
use crate::wire::{put, take};

/// `CU_STREAM_MEM_OP_*`.
const WAIT_VALUE_32: u32 = 1;
const WRITE_VALUE_32: u32 = 2;
const FLUSH_REMOTE_WRITES: u32 = 3;
const WAIT_VALUE_64: u32 = 4;
const WRITE_VALUE_64: u32 = 5;
const BARRIER: u32 = 6;
/// `CU_LAUNCH_ATTRIBUTE_IGNORE`, `_PROGRAMMATIC_EVENT` and `_LAUNCH_COMPLETION_EVENT`: invalid for every stream, with
/// any event.
const NOT_OF_STREAMS: [i32; 3] = [0, 7, 12];
/// Maximum number of operations per call.
const MAX_OPERATIONS: u32 = 256;

fn on_wire(one: &CUstreamBatchMemOpParams, api: Api) -> Result<MemoryOperation, CudaError> {
    let value = match one.operation {
        WAIT_VALUE_32 | WRITE_VALUE_32 => one.value & u64::from(u32::MAX),
        WAIT_VALUE_64 | WRITE_VALUE_64 => one.value,
        FLUSH_REMOTE_WRITES | BARRIER => {
            return Ok(MemoryOperation {
                operation: one.operation,
                flags: one.short_flags,
                ..Default::default()
            });
        }
        _ => return Err(CudaError::INVALID_VALUE),
    };
    let address = api.device_place(one.address).device().ok_or(CudaError::INVALID_VALUE)?;
    // NVIDIA's driver refuses memory of pools.
    if api.driver.local_pools.contain(address) {
        return Err(CudaError::INVALID_VALUE);
    }
    let (operation, flags) = (one.operation, one.flags);
    Ok(MemoryOperation { operation, flags, address: DevicePtr(address), value })
}

fn of_wire(api: Api, one: MemoryOperation) -> CUstreamBatchMemOpParams {
    let has_address = !matches!(one.operation, FLUSH_REMOTE_WRITES | BARRIER);
    let short_flags = if has_address { 0 } else { one.flags };
    let address = api.program_address(one.address.0);
    let flags = if has_address { one.flags } else { 0 };
    CUstreamBatchMemOpParams {
        operation: one.operation,
        short_flags,
        address,
        value: one.value,
        flags,
        ..CUstreamBatchMemOpParams::ZERO
    }
}

/// Appends the encoded parameters of a node.
///
/// Errors: `CUDA_ERROR_INVALID_VALUE`. A node may have no operations, as on an H200.
pub fn put_node(
    api: Api,
    params: &CUDA_BATCH_MEM_OP_NODE_PARAMS,
    bytes: &mut Vec<u8>,
) -> Result<(), CudaError> {
    // SAFETY: the program promises an array of `count` operations.
    let operations = unsafe { In::<CUstreamBatchMemOpParams>::at_address(params.operations) };
    if operations.is_null() || params.count > MAX_OPERATIONS {
        return Err(CudaError::INVALID_VALUE);
    }
    if params.context != 0 && api.driver.contexts.device_of(params.context).is_err() {
        return Err(CudaError::CONTEXT_IS_DESTROYED);
    }
    put(&BatchMemOpNode { flags: params.flags }, bytes)?;
    for index in 0..params.count as usize {
        put(&on_wire(&operations.at(index)?, api)?, bytes)?;
    }
    Ok(())
}

/// Returns the parameters of a node. Their array is valid until they change.
pub fn params_of_node(
    api: Api,
    node: u64,
    head: &BatchMemOpNode,
    rest: &[u8],
) -> Result<CUDA_BATCH_MEM_OP_NODE_PARAMS, CudaError> {
    let mut reader = Reader::new(rest);
    let mut operations = Vec::new();
    while !reader.rest().is_empty() {
        operations.push(of_wire(api, take(&mut reader)?));
    }
    let count = u32::try_from(operations.len()).map_err(|_| CudaError::UNKNOWN)?;
    Ok(CUDA_BATCH_MEM_OP_NODE_PARAMS {
        context: crate::state::contexts::current(),
        count,
        // `kept` holds them until the node's parameters change.
        operations: api.driver.kept.operations(node, operations),
        flags: head.flags,
        ..CUDA_BATCH_MEM_OP_NODE_PARAMS::ZERO
    })
}

fn run(api: Api, stream: u64, operations: &[CUstreamBatchMemOpParams], flags: u32) -> Result<(), CudaError> {
    let mut bytes = Vec::new();
    for operation in operations {
        put(&on_wire(operation, api)?, &mut bytes)?;
    }
    let _sent = api.before_work(Uses::Anything, api.stream(stream)?)?;
    let mut call = api.in_context_of(stream)?.input(&bytes);
    calls::cuStreamBatchMemOp_v2(&mut call, api.stream(stream)?, flags)?;
    api.work_queued();
    Ok(())
}

fn one(api: Api, stream: u64, operation: u32, address: u64, value: u64, flags: u32) -> Result<(), CudaError> {
    // The kind of memory does not matter in a batch, to which this is converted.
    if matches!(operation, WRITE_VALUE_32 | WRITE_VALUE_64) && api.driver.memory.is_managed(address) {
        return Err(CudaError::INVALID_VALUE);
    }
    let operation =
        CUstreamBatchMemOpParams { operation, address, value, flags, ..CUstreamBatchMemOpParams::ZERO };
    run(api, stream, &[operation], 0)
}

fn batch(
    api: Api,
    stream: u64,
    count: u32,
    operations: In<CUstreamBatchMemOpParams>,
    flags: u32,
) -> Result<(), CudaError> {
    if count > MAX_OPERATIONS {
        return Err(CudaError::INVALID_VALUE);
    }
    let all = (0..count as usize).map(|index| operations.at(index)).collect::<Result<Vec<_>, _>>()?;
    run(api, stream, &all, flags)
}

entry_points! {
    /// The first version, which is only available after a driver module parameter has enabled it.
    call cuStreamWaitValue32 / cuStreamWaitValue32_ptsz (_api, _stream: u64, _addr: u64, _value: u32, _flags: u32) {
        Err(CudaError::NOT_SUPPORTED)
    }
    /// Waits for one value in stream order.
    call cuStreamWaitValue32_v2 / cuStreamWaitValue32_v2_ptsz (api, stream: u64, addr: u64, value: u32, flags: u32) {
        one(api, stream, WAIT_VALUE_32, addr, u64::from(value), flags)
    }
    /// The first version, which is only available after a driver module parameter has enabled it.
    call cuStreamWaitValue64 / cuStreamWaitValue64_ptsz (_api, _stream: u64, _addr: u64, _value: u64, _flags: u32) {
        Err(CudaError::NOT_SUPPORTED)
    }
    /// Waits for one value in stream order.
    call cuStreamWaitValue64_v2 / cuStreamWaitValue64_v2_ptsz (api, stream: u64, addr: u64, value: u64, flags: u32) {
        one(api, stream, WAIT_VALUE_64, addr, value, flags)
    }
    /// The first version, which is only available after a driver module parameter has enabled it.
    call cuStreamWriteValue32 / cuStreamWriteValue32_ptsz (_api, _stream: u64, _addr: u64, _value: u32, _flags: u32) {
        Err(CudaError::NOT_SUPPORTED)
    }
    /// Writes one value in stream order.
    call cuStreamWriteValue32_v2 / cuStreamWriteValue32_v2_ptsz (api, stream: u64, addr: u64, value: u32, flags: u32) {
        one(api, stream, WRITE_VALUE_32, addr, u64::from(value), flags)
    }
    /// The first version, which is only available after a driver module parameter has enabled it.
    call cuStreamWriteValue64 / cuStreamWriteValue64_ptsz (_api, _stream: u64, _addr: u64, _value: u64, _flags: u32) {
        Err(CudaError::NOT_SUPPORTED)
    }
    /// Writes one value in stream order.
    call cuStreamWriteValue64_v2 / cuStreamWriteValue64_v2_ptsz (api, stream: u64, addr: u64, value: u64, flags: u32) {
        one(api, stream, WRITE_VALUE_64, addr, value, flags)
    }
    /// The first version, which is only available after a driver module parameter has enabled it.
    call cuStreamBatchMemOp / cuStreamBatchMemOp_ptsz (_api, _stream: u64, _count: u32, _operations: In<CUstreamBatchMemOpParams>, _flags: u32) {
        Err(CudaError::NOT_SUPPORTED)
    }

    /// Waits for and writes values in stream order.
    call cuStreamBatchMemOp_v2 / cuStreamBatchMemOp_v2_ptsz (api, stream: u64, count: u32, paramArray: In<CUstreamBatchMemOpParams>, flags: u32) {
        batch(api, stream, count, paramArray, flags)
    }

    /// Returns an attribute of a stream.
    call cuStreamGetAttribute / cuStreamGetAttribute_ptsz (api, hStream: u64, attr: i32, value_out: Out<[u8; 64]>) {
        value_out.check()?;
        value_out.set(calls::cuStreamGetAttribute(&mut api.in_context_of(hStream)?, api.stream(hStream)?, attr)?)
    }

    /// Sets an attribute of a stream.
    call cuStreamSetAttribute / cuStreamSetAttribute_ptsz (api, hStream: u64, attr: i32, value: In<[u8; 64]>) {
        let value = value.get()?;
        if NOT_OF_STREAMS.contains(&attr) {
            return Err(CudaError::INVALID_VALUE);
        }
        calls::cuStreamSetAttribute(&mut api.in_context_of(hStream)?, api.stream(hStream)?, attr, value)
    }

    /// Copies all attributes of a stream.
    call cuStreamCopyAttributes / cuStreamCopyAttributes_ptsz (api, dst: u64, src: u64) {
        let (to, from): (StreamId, StreamId) = (api.stream(dst)?, api.stream(src)?);
        calls::cuStreamCopyAttributes(&mut api.in_context_of(dst)?, to, from)
    }
}
