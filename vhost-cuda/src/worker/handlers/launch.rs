// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Launches.

use virtio_cuda_protocol::cuda::{
    FunctionId, LAUNCH_ATTRIBUTE_BYTES, LAUNCH_COOPERATIVE, LAUNCH_PRIORITY, LaunchAttribute, LaunchShape,
    Reader, StreamId,
};

use super::graph::take;
use super::stream::{DEVICE_UPDATABLE_KERNEL_NODE, attribute_for_driver};
use crate::worker::call::CallContext;
use crate::worker::gpu::{AttributeValue, CuResult, CudaError};

/// Most attributes of a launch: there are about 20 kinds.
const MAX_ATTRIBUTES: u32 = 64;

/// Most bytes of kernel parameters that any GPU takes (32,764 since Volta; 4,096 before).
pub const MAX_PARAM_BYTES: u64 = 32_764;

/// Launches a kernel. What is wrong with its shape, the driver knows best.
pub fn cuLaunchKernel(
    cx: &mut CallContext<'_>,
    function: FunctionId,
    stream: StreamId,
    shape: LaunchShape,
) -> CuResult<()> {
    let (function, stream) = (cx.resolve(function)?, cx.resolve(stream)?);
    if shape.flags & !(LAUNCH_COOPERATIVE | LAUNCH_PRIORITY) != 0 || cx.bulk_in.bytes() > MAX_PARAM_BYTES {
        return Err(CudaError::INVALID_VALUE);
    }
    let mut params = cx.bulk_in.contents()?.into_owned().0;
    cx.gpu().launch(function, stream, &shape, &mut [], &mut params)
}

/// Launches a kernel with attributes.
pub fn cuLaunchKernelEx(
    cx: &mut CallContext<'_>,
    function: FunctionId,
    stream: StreamId,
    shape: LaunchShape,
    attributes: u32,
) -> CuResult<()> {
    let (function, stream) = (cx.resolve(function)?, cx.resolve(stream)?);
    let (mut more, mut params) = with_attributes(cx, &shape, attributes)?;
    cx.gpu().launch(function, stream, &shape, &mut more, &mut params)
}

/// Launches a kernel into a capture, as a node that device code can change.
pub fn launch_updatable(
    cx: &mut CallContext<'_>,
    function: FunctionId,
    stream: StreamId,
    shape: LaunchShape,
    attributes: u32,
) -> CuResult<(u64,)> {
    let (function, stream) = (cx.resolve(function)?, cx.resolve(stream)?);
    let (mut more, mut params) = with_attributes(cx, &shape, attributes)?;
    cx.gpu().launch(function, stream, &shape, &mut more, &mut params)?;
    let node = more.iter().find(|(id, _)| *id as i32 == DEVICE_UPDATABLE_KERNEL_NODE);
    let node = node.and_then(|(_, value)| value.get(8..16)?.try_into().ok());
    Ok((node.map_or(0, u64::from_ne_bytes),))
}

/// Takes attributes of a launch, and what follows them.
pub fn with_attributes(
    cx: &CallContext<'_>,
    shape: &LaunchShape,
    attributes: u32,
) -> CuResult<(Vec<(u32, AttributeValue)>, Vec<u8>)> {
    let most = MAX_PARAM_BYTES + u64::from(MAX_ATTRIBUTES) * LAUNCH_ATTRIBUTE_BYTES as u64;
    if shape.flags & !(LAUNCH_COOPERATIVE | LAUNCH_PRIORITY) != 0
        || attributes > MAX_ATTRIBUTES
        || cx.bulk_in.bytes() > most
    {
        return Err(CudaError::INVALID_VALUE);
    }
    let bytes = cx.bulk_in.contents()?.into_owned().0;
    let mut reader = Reader::new(&bytes);
    let mut more = Vec::new();
    for _ in 0..attributes {
        let attribute: LaunchAttribute = take(&mut reader)?;
        let mut value = [0; 64];
        for (place, word) in value.chunks_exact_mut(4).zip(attribute.value) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        more.push((attribute.id, attribute_for_driver(cx, attribute.id as i32, value)?));
    }
    let params = reader.rest().to_vec();
    if params.len() as u64 > MAX_PARAM_BYTES {
        return Err(CudaError::INVALID_VALUE);
    }
    Ok((more, params))
}
