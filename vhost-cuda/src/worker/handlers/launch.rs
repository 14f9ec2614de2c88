// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Launches of kernels.

use virtio_cuda_protocol::cuda::{FunctionId, LaunchShape, StreamId};

use crate::worker::call::CallContext;
use crate::worker::gpu::CuResult;
use crate::worker::run::prepared::Request;
use crate::worker::words;

/// Launches a function or kernel without attributes beyond those of the shape.
pub fn cuLaunchKernel(
    cx: &mut CallContext<'_>,
    function: FunctionId,
    stream: StreamId,
    shape: LaunchShape,
) -> CuResult<()> {
    let code = cx.session.objects.functions.get(function.0)?;
    let raw = cx.held().keep(code.clone());
    let handle = cx.resolve(stream)?;
    let launch = cx.resolve(words::launch(shape))?;
    let (gpu, session) = (cx.gpu(), cx.session);
    if cx.may_prepare(&shape)
        && let Some((prepared, context)) = cx.thread.prepared()
    {
        let request = Request { code: &code, stream: (stream, handle), launch: &launch };
        if prepared.launch(gpu, &session.preparing, context, &request) {
            return Ok(());
        }
    }
    gpu.launch(raw, handle, launch)
}
