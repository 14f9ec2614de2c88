// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Launches.

use virtio_cuda_protocol::cuda::{FunctionId, LAUNCH_COOPERATIVE, LAUNCH_PRIORITY, LaunchShape, StreamId};

use crate::worker::call::CallContext;
use crate::worker::gpu::{CuResult, CudaError};

/// Most bytes of kernel parameters that any GPU takes (32,764 since Volta; 4,096 before).
const MAX_PARAM_BYTES: u64 = 32_764;

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
    let mut params = cx.bulk_in.contents().into_owned();
    cx.gpu().launch(function, stream, &shape, &mut params)
}
