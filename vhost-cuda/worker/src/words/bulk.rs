// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words for the contents of the bulk input.

use std::ffi::CString;

use virtio_cuda_protocol::cuda::Reader;

use crate::call::CallContext;
use crate::gpu::{CheckedOperations, CuResult, CudaError, Edges, Links, MAX_GROUPS, RawDevResource};
use crate::words::contents::{self, take};
use crate::words::values::memory_operations;

/// A name.
pub fn name(cx: &CallContext<'_>) -> CuResult<CString> {
    cx.bulk_in.name()
}

/// Edges of a graph.
pub fn edges(cx: &CallContext<'_>) -> CuResult<Edges> {
    contents::edges(cx)
}

/// Nodes at the other ends of edges.
pub fn links(cx: &CallContext<'_>) -> CuResult<Links> {
    contents::all_links(cx)
}

/// Operations on memory at addresses of the session.
pub fn operations(cx: &CallContext<'_>) -> CuResult<CheckedOperations> {
    let operations = memory_operations(cx, &contents::bulk(cx)?)?;
    // SAFETY: `memory_operations` has compared each address with the session's memory.
    Ok(unsafe { CheckedOperations::new(operations) })
}

/// Resources of a device, by their names.
pub fn resources(cx: &CallContext<'_>) -> CuResult<Vec<RawDevResource>> {
    let bytes = contents::bulk(cx)?;
    if bytes.is_empty() || bytes.len() > MAX_GROUPS as usize * size_of::<u64>() {
        return Err(CudaError::INVALID_VALUE);
    }
    let mut reader = Reader::new(&bytes);
    let mut resources = Vec::new();
    while !reader.rest().is_empty() {
        resources.push(cx.session.resources.get(take(&mut reader)?)?);
    }
    Ok(resources)
}
