// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measurements for profilers, which [`crate::trace`] implements, and recordings ([`crate::profile`]).

use vhost_cuda_common::gates::now;
use zerocopy::IntoBytes;

use crate::call::CallContext;
use crate::gpu::CuResult;
use crate::trace::WORK_BYTES;

/// The maximum number of pieces of work in one answer (480 KiB), because a guest may offer room for any number.
const MAX_PIECES: u64 = 1 << 12;

/// The maximum number of bytes of a recording in one answer.
const MAX_RECORDED: u64 = 256 << 10;

/// Begins to measure.
pub fn trace_start(cx: &mut CallContext<'_>) -> CuResult<()> {
    let (driver_version,) = cx.session.gpu.cuDriverGetVersion()?;
    cx.session.trace.start(driver_version)
}

/// Stops measuring.
pub fn trace_stop(cx: &mut CallContext<'_>) -> CuResult<()> {
    cx.session.trace.stop();
    Ok(())
}

/// Reads the clock of measurements.
pub fn trace_clock(cx: &mut CallContext<'_>) -> CuResult<(u64,)> {
    Ok((cx.session.trace.clock()?,))
}

/// Returns measured work.
pub fn trace_read(cx: &mut CallContext<'_>) -> CuResult<(u64, u64, u64)> {
    let room = (cx.bulk_out.room() / WORK_BYTES as u64).min(MAX_PIECES) as usize;
    let read = cx.session.trace.read(room)?;
    let bytes = read.work.as_bytes();
    cx.bulk_out.put(bytes)?;
    Ok((bytes.len() as u64, read.left as u64, read.dropped))
}

/// Returns the name of a kernel.
pub fn trace_name(cx: &mut CallContext<'_>, name: u32) -> CuResult<(u64,)> {
    let text = cx.session.trace.name(name)?;
    let room = usize::try_from(cx.bulk_out.room()).unwrap_or(usize::MAX);
    let text = &text[..text.len().min(room)];
    cx.bulk_out.put(text)?;
    Ok((text.len() as u64,))
}

/// Begins to record a process of the same user.
pub fn profile_start(cx: &mut CallContext<'_>, pid: u32) -> CuResult<()> {
    let session = cx.session;
    session.profile.relay.start(|| session.sharing.record(pid))
}

/// Returns bytes of the recording, and the time of its clock.
pub fn profile_read(cx: &mut CallContext<'_>) -> CuResult<(u64, u32, u64)> {
    let mut room = vec![0; cx.bulk_out.room().min(MAX_RECORDED) as usize];
    let (bytes, open) = cx.session.profile.relay.read(&mut room);
    cx.bulk_out.put(&room[..bytes])?;
    Ok((bytes as u64, open.into(), now()))
}

/// Ends the recording.
pub fn profile_stop(cx: &mut CallContext<'_>) -> CuResult<()> {
    cx.session.profile.relay.stop();
    Ok(())
}
