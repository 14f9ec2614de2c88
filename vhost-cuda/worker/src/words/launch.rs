// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words for launches. The driver validates their shape.

use std::borrow::Cow;

use virtio_cuda_protocol::cuda::{
    LAUNCH_ATTRIBUTE_BYTES, LAUNCH_COOPERATIVE, LAUNCH_PRIORITY, LaunchAttribute, LaunchShape, Reader,
};

use crate::call::CallContext;
use crate::gpu::{AttributeValue, CuResult, CudaError, Launch, NoFunction};
use crate::words::contents::take;
use crate::words::values::attribute_for_driver;

/// The maximum number of attributes of a launch. There are about 20 kinds.
const MAX_ATTRIBUTES: u32 = 64;

/// The maximum bytes of kernel parameters on any GPU (32,764 since Volta; 4,096 before).
pub const MAX_PARAM_BYTES: u64 = 32_764;

/// A null function: the driver calls none of the program's functions.
pub fn no_function(_cx: &CallContext<'_>) -> CuResult<NoFunction> {
    Ok(NoFunction)
}

/// Returns the value of attribute `id` of a launch, stream or node, with the driver's handles in it.
pub fn attribute_value(cx: &CallContext<'_>, id: i32, value: AttributeValue) -> CuResult<AttributeValue> {
    attribute_for_driver(cx, id, value)
}

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED: i32 = 8;

/// An attribute of a function, to be set. All attributes except the maximum dynamic shared memory, which the driver
/// checks at each launch, change prepared launches.
pub fn function_attribute(cx: &CallContext<'_>, attribute: i32) -> CuResult<i32> {
    if attribute != MAX_DYNAMIC_SHARED {
        cx.session.preparing.changed();
    }
    Ok(attribute)
}

/// A launch without attributes; its bulk input is the parameter block.
pub fn launch<'c>(cx: &CallContext<'c>, shape: LaunchShape) -> CuResult<Launch<'c>> {
    if has_unknown_flags(&shape) || cx.bulk_in.bytes() > MAX_PARAM_BYTES {
        return Err(CudaError::INVALID_VALUE);
    }
    Ok(Launch { shape, more: Vec::new(), params: cx.bulk_in.contents()?.into_bytes() })
}

fn has_unknown_flags(shape: &LaunchShape) -> bool {
    shape.flags & !(LAUNCH_COOPERATIVE | LAUNCH_PRIORITY) != 0
}

/// A launch with `attributes` attributes: the bulk input is those, then the parameter block.
pub fn launch_with<'c>(cx: &CallContext<'c>, shape: LaunchShape, attributes: u32) -> CuResult<Launch<'c>> {
    let most = MAX_PARAM_BYTES + u64::from(MAX_ATTRIBUTES) * LAUNCH_ATTRIBUTE_BYTES as u64;
    if has_unknown_flags(&shape) || attributes > MAX_ATTRIBUTES || cx.bulk_in.bytes() > most {
        return Err(CudaError::INVALID_VALUE);
    }
    let bytes = cx.bulk_in.contents()?.into_bytes();
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
    let params = bytes.len() - reader.rest().len()..;
    if reader.rest().len() as u64 > MAX_PARAM_BYTES {
        return Err(CudaError::INVALID_VALUE);
    }
    let params = match bytes {
        Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[params]),
        Cow::Owned(bytes) => Cow::Owned(bytes[params].to_vec()),
    };
    Ok(Launch { shape, more, params })
}
