// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams.

use virtio_cuda_protocol::cuda::{EventId, MEMORY_OPERATION_BYTES, MemoryOperation, Reader, StreamId};

use super::graph::{bulk, take};
use crate::worker::call::CallContext;
use crate::worker::gpu::{AttributeValue, CuResult, CudaError};

/// `CU_LAUNCH_ATTRIBUTE_*` whose values have handles in them.
const PROGRAMMATIC_EVENT: i32 = 7;
const LAUNCH_COMPLETION_EVENT: i32 = 12;
pub const DEVICE_UPDATABLE_KERNEL_NODE: i32 = 13;
/// `CU_STREAM_MEM_OP_*`: bytes that an operation reaches; the two that reach none have no address.
const WAIT_VALUE_32: u32 = 1;
const WRITE_VALUE_32: u32 = 2;
const FLUSH_REMOTE_WRITES: u32 = 3;
const WAIT_VALUE_64: u32 = 4;
const WRITE_VALUE_64: u32 = 5;
const BARRIER: u32 = 6;
/// Most operations in one call: CUDA's own limit.
const MAX_OPERATIONS: usize = 256;

/// An attribute of the guest's, with the driver's handles in it.
pub fn attribute_for_driver(
    cx: &CallContext<'_>,
    attribute: i32,
    mut value: AttributeValue,
) -> CuResult<AttributeValue> {
    match attribute {
        PROGRAMMATIC_EVENT | LAUNCH_COMPLETION_EVENT => {
            let event: EventId = take(&mut Reader::new(&value))?;
            let raw = cx.resolve(event)? as u64;
            value[..8].copy_from_slice(&raw.to_ne_bytes());
            Ok(value)
        }
        // Behind the flag is room for what the driver answers; it wants NULL there.
        DEVICE_UPDATABLE_KERNEL_NODE if value[8..16] != [0; 8] => Err(CudaError::INVALID_VALUE),
        _ => Ok(value),
    }
}

/// An attribute of the driver's without its handles. That of a node that device code changes is a number for the device.
pub fn attribute_for_guest(attribute: i32, mut value: AttributeValue) -> AttributeValue {
    if let PROGRAMMATIC_EVENT | LAUNCH_COMPLETION_EVENT = attribute {
        value = [0; 64];
    }
    value
}

/// Sets an attribute.
pub fn cuStreamSetAttribute(
    cx: &mut CallContext<'_>,
    stream: StreamId,
    attribute: i32,
    value: AttributeValue,
) -> CuResult<()> {
    let value = attribute_for_driver(cx, attribute, value)?;
    cx.gpu().set_stream_attribute(cx.resolve(stream)?, attribute, &value)
}

/// An attribute.
pub fn cuStreamGetAttribute(
    cx: &mut CallContext<'_>,
    stream: StreamId,
    attribute: i32,
) -> CuResult<(AttributeValue,)> {
    let value = cx.gpu().stream_attribute(cx.resolve(stream)?, attribute)?;
    Ok((attribute_for_guest(attribute, value),))
}

/// Takes operations on single values whose addresses belong to the session.
pub fn memory_operations(cx: &CallContext<'_>, bytes: &[u8]) -> CuResult<Vec<MemoryOperation>> {
    let count = bytes.len() / MEMORY_OPERATION_BYTES;
    if count > MAX_OPERATIONS {
        return Err(CudaError::INVALID_VALUE);
    }
    let mut reader = Reader::new(bytes);
    let mut operations = Vec::with_capacity(count);
    for _ in 0..count {
        let one: MemoryOperation = take(&mut reader)?;
        match one.operation {
            WAIT_VALUE_32 | WRITE_VALUE_32 => cx.session.check(one.address.0, 4)?,
            WAIT_VALUE_64 | WRITE_VALUE_64 => cx.session.check(one.address.0, 8)?,
            FLUSH_REMOTE_WRITES | BARRIER => {}
            _ => return Err(CudaError::INVALID_VALUE),
        }
        operations.push(one);
    }
    Ok(operations)
}

/// Waits for and writes single values in stream order.
pub fn cuStreamBatchMemOp_v2(cx: &mut CallContext<'_>, stream: StreamId, flags: u32) -> CuResult<()> {
    let stream = cx.resolve(stream)?;
    let operations = memory_operations(cx, &bulk(cx)?)?;
    // SAFETY: the addresses have been checked.
    unsafe { cx.gpu().memory_operations(stream, &operations, flags) }
}
