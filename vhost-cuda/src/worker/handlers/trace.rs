// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measurements for profilers; [`crate::worker::trace`] does the work.

use zerocopy::IntoBytes;

use crate::worker::call::CallContext;
use crate::worker::gpu::CuResult;
use crate::worker::trace::WORK_BYTES;

/// Most pieces of work in one answer: a guest may have room for more than the worker should copy at a time.
const MOST: u64 = 1 << 14;

/// Begins to measure.
pub fn trace_start(cx: &mut CallContext<'_>) -> CuResult<()> {
    cx.session.trace.start()
}

/// No longer measures.
pub fn trace_stop(cx: &mut CallContext<'_>) -> CuResult<()> {
    cx.session.trace.stop()
}

/// The clock of measurements.
pub fn trace_clock(cx: &mut CallContext<'_>) -> CuResult<(u64,)> {
    Ok((cx.session.trace.clock()?,))
}

/// Hands out what was measured.
pub fn trace_read(cx: &mut CallContext<'_>) -> CuResult<(u64, u64, u64)> {
    let room = (cx.bulk_out.room() / WORK_BYTES as u64).min(MOST) as usize;
    let read = cx.session.trace.read(room)?;
    let bytes = read.work.as_bytes();
    cx.bulk_out.put(bytes)?;
    Ok((bytes.len() as u64, read.left as u64, read.dropped))
}

/// Hands out the name of a kernel.
pub fn trace_name(cx: &mut CallContext<'_>, name: u32) -> CuResult<(u64,)> {
    let mut text = cx.session.trace.name(name)?;
    text.truncate(usize::try_from(cx.bulk_out.room()).unwrap_or(usize::MAX));
    cx.bulk_out.put(&text)?;
    Ok((text.len() as u64,))
}
