// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Launches of kernels.

use virtio_cuda_protocol::cuda::{FunctionId, LaunchShape, StreamId};

use crate::call::CallContext;
use crate::gpu::CuResult;
use crate::run::prepared::{Request, Stream};
use crate::words;

/// Launches a function or kernel that has no attributes beyond those of the shape.
pub fn cuLaunchKernel(
    cx: &mut CallContext<'_>,
    function: FunctionId,
    stream: StreamId,
    shape: LaunchShape,
) -> CuResult<()> {
    let (gpu, session) = (cx.gpu(), cx.session);
    let functions = &session.objects.functions;
    let raw = cx.held().named(functions, function.0)?.raw();
    let handle = cx.resolve(stream)?;
    let launch = words::launch(cx, shape)?;
    if cx.may_prepare(&shape)
        && let (held, prepared, Some(context)) = cx.thread.for_launch()
    {
        let code = held.named(functions, function.0)?;
        let named = held.named(&session.objects.streams, stream.0).ok();
        let stream = Stream { name: stream, object: named.as_deref(), raw: handle };
        let request = Request { code: &code, function: raw, stream, launch };
        return prepared.launch(gpu, &session.preparing, context, request);
    }
    gpu.launch(raw, handle, launch)
}
