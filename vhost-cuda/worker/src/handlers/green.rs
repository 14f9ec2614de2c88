// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Green contexts, which own a part of a device.

use virtio_cuda_protocol::cuda::{ContextId, DeviceOrdinal, ResourceDescId};

use crate::call::CallContext;
use crate::call::lifecycle::Destroy;
use crate::gpu::{CUcontext, CUdevResourceDesc, CUgreenCtx, CuResult, CudaError};
use crate::objects::Object;
use crate::objects::contexts::Context;
use crate::words::GreenContext;

/// Creates a green context.
pub fn cuGreenCtxCreate(
    cx: &mut CallContext<'_>,
    context: ContextId,
    description: ResourceDescId,
    device: DeviceOrdinal,
    flags: u32,
) -> CuResult<()> {
    let device = cx.resolve(device)?;
    let description: CUdevResourceDesc =
        cx.keep(&cx.session.objects.descriptions, description.0).map_err(|_| CudaError::INVALID_VALUE)?;
    let mut contexts = cx.session.contexts.lock();
    contexts.check_new(context)?;
    let primary = *contexts.primary(device);
    if primary.retains == 0 {
        return Err(CudaError::INVALID_CONTEXT);
    }
    let home = contexts.get(ContextId(primary.name))?.object.clone();
    let (green,) = cx.gpu().cuGreenCtxCreate(description, device, flags)?;
    let (raw,) = cx.gpu().cuCtxFromGreenCtx(green).inspect_err(|_| {
        let _ = cx.gpu().cuGreenCtxDestroy(green);
    })?;
    let (session, addresses) = (cx.session, (raw as usize, green as usize));
    let made = Object::new(raw).part_of(home).ends_by(move |_| {
        let (raw, green) = (addresses.0 as CUcontext, addresses.1 as CUgreenCtx);
        // The context may be current in this thread. The thread looks its context up again before the next call.
        let outcome = match session.gpu.cuCtxGetCurrent() {
            Ok((current,)) if current == raw => session.gpu.cuCtxSetCurrent(std::ptr::null_mut()),
            _ => Ok(()),
        };
        let outcome = outcome.and_then(|()| session.gpu.cuGreenCtxDestroy(green));
        session.contexts.ended(context.0);
        outcome
    });
    contexts.insert(context, Context::green(made, device, primary.name));
    Ok(())
}

impl Destroy for GreenContext {
    /// Destroys a green context.
    fn destroy(self, cx: &mut CallContext<'_>) -> CuResult<()> {
        let mut contexts = cx.session.contexts.lock();
        if !contexts.get(self.0)?.is_green() {
            return Err(CudaError::INVALID_CONTEXT);
        }
        let destroyed = contexts.close(self.0)?;
        cx.session.contexts.changed();
        drop(contexts);
        Object::destroy(destroyed)
    }
}
