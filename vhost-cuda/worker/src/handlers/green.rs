// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resources of devices, and green contexts, which own a part of them.

use virtio_cuda_protocol::cuda::{ContextId, DeviceOrdinal, ResourceDescId};

use crate::call::CallContext;
use crate::contexts::Context;
use crate::gpu::{CUcontext, CUdevResourceDesc, CUgreenCtx, CuResult, CudaError, RawDevResource};
use crate::objects::Object;
use crate::objects::lifecycle::Destroy;
use crate::words::contents::encode;
use crate::words::{GreenContext, MAX_GROUPS};

/// Splits the multiprocessors of a resource into groups.
pub fn cuDevSmResourceSplitByCount(
    cx: &mut CallContext<'_>,
    input: u64,
    groups: u32,
    flags: u32,
    min_count: u32,
) -> CuResult<(u32,)> {
    let input = cx.session.resources.get(input)?;
    let room = groups.min(MAX_GROUPS);
    let mut parts = vec![RawDevResource::ZERO; room as usize];
    let (mut rest, mut made) = (RawDevResource::ZERO, room);
    let result = if room == 0 { std::ptr::null_mut() } else { parts.as_mut_ptr() };
    // SAFETY: there is room for as many parts as said; the other pointers are to locals.
    unsafe {
        cx.gpu().cuDevSmResourceSplitByCount(
            result,
            &raw mut made,
            &raw const input,
            &raw mut rest,
            flags,
            min_count,
        )
    }?;
    if room > 0 {
        let mut answer = Vec::new();
        for part in parts.into_iter().take(made as usize).chain([rest]) {
            answer.extend_from_slice(&encode(&cx.session.resources.name(part))?);
        }
        cx.bulk_out.put(&answer)?;
    }
    Ok((made,))
}

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
