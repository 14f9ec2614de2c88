// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams.

use virtio_cuda_protocol::cuda::StreamId;

use crate::worker::call::CallContext;
use crate::worker::gpu::CuResult;
use crate::worker::objects::{Entry, Kind};

/// Creates a stream.
pub fn cuStreamCreateWithPriority(
    cx: &mut CallContext<'_>,
    stream: StreamId,
    flags: u32,
    priority: i32,
) -> CuResult<()> {
    let reserved = cx.session.objects.streams.reserve(stream.0)?;
    let (raw,) = cx.gpu().cuStreamCreateWithPriority(flags, priority)?;
    reserved.fill(Entry { raw: raw as usize, context: cx.context.0, owner: 0, kind: Kind::Plain });
    Ok(())
}

/// Destroys a stream. It is out of the table first, so that no other thread uses it meanwhile.
pub fn cuStreamDestroy_v2(cx: &mut CallContext<'_>, stream: StreamId) -> CuResult<()> {
    let entry = cx.session.objects.streams.remove(stream.0)?;
    cx.gpu().cuStreamDestroy_v2(entry.raw as _)
}

/// Flags of a stream.
pub fn cuStreamGetFlags(cx: &mut CallContext<'_>, stream: StreamId) -> CuResult<(u32,)> {
    cx.gpu().cuStreamGetFlags(cx.resolve(stream)?)
}

/// Priority of a stream.
pub fn cuStreamGetPriority(cx: &mut CallContext<'_>, stream: StreamId) -> CuResult<(i32,)> {
    cx.gpu().cuStreamGetPriority(cx.resolve(stream)?)
}

/// Number of a stream.
pub fn cuStreamGetId(cx: &mut CallContext<'_>, stream: StreamId) -> CuResult<(u64,)> {
    cx.gpu().cuStreamGetId(cx.resolve(stream)?)
}
