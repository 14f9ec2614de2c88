// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values that streams use: attributes, and operations on memory.

use virtio_cuda_protocol::cuda::{EventId, MEMORY_OPERATION_BYTES, MemoryOperation, Reader};

use crate::call::CallContext;
use crate::gpu::{AttributeValue, CuResult, CudaError, EVENT_ATTRIBUTES, is_documented};
use crate::words::contents::take;

/// `CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE`, whose value contains a handle.
const DEVICE_UPDATABLE_KERNEL_NODE: i32 = 13;
/// `CU_STREAM_MEM_OP_*`, with the bytes that an operation accesses. The two that access none have no address.
const WAIT_VALUE_32: u32 = 1;
const WRITE_VALUE_32: u32 = 2;
const FLUSH_REMOTE_WRITES: u32 = 3;
const WAIT_VALUE_64: u32 = 4;
const WRITE_VALUE_64: u32 = 5;
const BARRIER: u32 = 6;
/// The maximum number of operations in one call: CUDA's own limit.
const MAX_OPERATIONS: usize = 256;

/// Converts an attribute of the guest to one with the driver's handles.
///
/// Errors: `CUDA_ERROR_INVALID_VALUE`, also for an attribute that is not documented: the driver may take its value for an
/// address.
pub fn attribute_for_driver(
    cx: &CallContext<'_>,
    attribute: i32,
    mut value: AttributeValue,
) -> CuResult<AttributeValue> {
    match attribute {
        _ if EVENT_ATTRIBUTES.contains(&attribute) => {
            let event: EventId = take(&mut Reader::new(&value))?;
            let raw = cx.resolve(event)? as u64;
            value[..8].copy_from_slice(&raw.to_ne_bytes());
            Ok(value)
        }
        // The flag is followed by room for the driver's result, which must be NULL in the input.
        DEVICE_UPDATABLE_KERNEL_NODE if value[8..16] != [0; 8] => Err(CudaError::INVALID_VALUE),
        _ if is_documented(attribute) => Ok(value),
        _ => Err(CudaError::INVALID_VALUE),
    }
}

/// Parses operations on single values at addresses that belong to the session.
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
            WAIT_VALUE_32 => cx.session.check(one.address.0, 4)?,
            WAIT_VALUE_64 => cx.session.check(one.address.0, 8)?,
            WRITE_VALUE_32 => cx.session.check_written(one.address.0, 4)?,
            WRITE_VALUE_64 => cx.session.check_written(one.address.0, 8)?,
            FLUSH_REMOTE_WRITES | BARRIER => {}
            _ => return Err(CudaError::INVALID_VALUE),
        }
        operations.push(one);
    }
    Ok(operations)
}
