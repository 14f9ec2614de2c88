// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events.

use virtio_cuda_protocol::cuda::EventId;

use crate::call::CallContext;
use crate::gpu::{CuResult, CudaError};
use crate::suspend::times;

/// Returns the milliseconds between two events.
pub fn cuEventElapsedTime_v2(cx: &mut CallContext<'_>, start: EventId, end: EventId) -> CuResult<(f32,)> {
    let (first, second) = (cx.resolve(start)?, cx.resolve(end)?);
    match cx.gpu().cuEventElapsedTime_v2(first, second) {
        // The records may have ended in a deep suspension.
        Err(CudaError::INVALID_HANDLE) => times::between(cx.session, start.0, end.0).map(|time| (time,)),
        result => result,
    }
}
