// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events.

use virtio_cuda_protocol::cuda::EventId;

use crate::exchange::EVENT;
use crate::worker::call::CallContext;
use crate::worker::gpu::{CuResult, CudaError, Driver};
use crate::worker::objects::Object;

/// Creates an event.
pub fn cuEventCreate(cx: &mut CallContext<'_>, event: EventId, flags: u32) -> CuResult<()> {
    let reserved = cx.session.objects.events.reserve(event.0)?;
    let (raw,) = cx.gpu().cuEventCreate(flags)?;
    cx.fill(reserved, cx.made(raw, Driver::cuEventDestroy_v2))
}

/// Destroys an event.
pub fn cuEventDestroy_v2(cx: &mut CallContext<'_>, event: EventId) -> CuResult<()> {
    let object = cx.session.objects.events.remove(event.0)?;
    cx.session.sharing.end(EVENT, event.0);
    Object::destroy(object)
}

/// Time between two events. Drivers before 12.8 have the older entry point only.
pub fn cuEventElapsedTime_v2(cx: &mut CallContext<'_>, start: EventId, end: EventId) -> CuResult<(f32,)> {
    let (start, end) = (cx.resolve(start)?, cx.resolve(end)?);
    match cx.gpu().cuEventElapsedTime_v2(start, end) {
        Err(CudaError::NOT_SUPPORTED) => cx.gpu().cuEventElapsedTime(start, end),
        result => result,
    }
}
