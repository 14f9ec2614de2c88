// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stack's own calls.

use std::sync::atomic::Ordering;

use log::debug;
use virtio_cuda_protocol::cuda::{CALL_TABLE_VERSION, agreed_version};

use crate::call::CallContext;
use crate::gpu::{CuResult, CudaError};
use crate::run::new_lane::NewLane;
use crate::run::order::Unawaited;

/// Returns the guest library's version if this side knows it; else this side's own, so that the library can send one that
/// both know, or report both. Until then every other call is refused.
pub fn session_hello(cx: &mut CallContext<'_>, call_table_version: u32) -> CuResult<(u32, i32, u32)> {
    let is_known = agreed_version(call_table_version) == Some(call_table_version);
    cx.session.refused.store(!is_known, Ordering::Relaxed);
    let answered = if is_known { call_table_version } else { CALL_TABLE_VERSION };
    cx.session.call_table.store(if is_known { answered } else { 0 }, Ordering::Relaxed);
    let (driver_version,) = cx.gpu().cuDriverGetVersion()?;
    Ok((answered, driver_version, cx.session.devices.len() as u32))
}

/// Ends the executor after this call.
pub fn session_thread_exit(cx: &mut CallContext<'_>) -> CuResult<()> {
    cx.thread.ended = true;
    cx.thread.make_current(cx.session, virtio_cuda_protocol::cuda::ContextId(0))
}

/// Makes the executor serve the lane after this call.
pub fn session_lane(cx: &mut CallContext<'_>, tag: u64, lane: u32, begins: u64) -> CuResult<()> {
    let area = cx.session.window().find(tag, true).ok_or(CudaError::INVALID_VALUE)?;
    let place = cx.session.order.take(lane, begins).ok_or(CudaError::INVALID_VALUE)?;
    let new = NewLane::set_up(&area, place).ok_or(CudaError::INVALID_VALUE)?;
    if let Some(limit) = &cx.session.time_limit {
        limit.add_lane(lane, new.memory.clone());
    }
    cx.thread.new_lane = Some(new);
    cx.thread.lane = Some(lane);
    Ok(())
}

/// Refused here, because it came through a lane. Otherwise the call is handled before it reaches an executor, which
/// may be busy.
pub fn session_wait(_: &mut CallContext<'_>, _reply: u64, _consumed: u64) -> CuResult<()> {
    Err(CudaError::INVALID_VALUE)
}

/// Waits for another lane.
pub fn session_order(cx: &mut CallContext<'_>, lane: u32, position: u64) -> CuResult<()> {
    // Work that this lane itself has posted is done, or cannot be done while this waits.
    if cx.thread.lane == Some(lane) {
        return Ok(());
    }
    cx.session.order.wait_for(lane, position).map_err(|error| {
        debug!("{error}");
        cx.thread.left = matches!(error, Unawaited::Left);
        CudaError::INVALID_VALUE
    })
}
