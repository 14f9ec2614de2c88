// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stream capture, and values that streams wait for and write.

use std::ffi::{c_int, c_uint};
use std::ptr::{null, null_mut};

use cudarc::driver::sys::CUgraphEdgeData;
use virtio_cuda_protocol::cuda::{DevicePtr, MemoryOperation};

use super::super::raw::RawMemoryOperation;
use super::super::{CUcontext, CUgraph, CUgraphNode, CUstream, CuResult, Driver};
use super::{InGraph, Links};

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub const CAPTURE_RELAXED: c_int = 2;

/// Converts operations to the driver's form.
pub(super) fn raw_operations(operations: &[MemoryOperation]) -> Vec<RawMemoryOperation> {
    let raw = |one: &MemoryOperation| RawMemoryOperation {
        operation: one.operation,
        short_flags: if one.address.0 == 0 { one.flags } else { 0 },
        address: one.address.0,
        value: one.value,
        flags: one.flags,
        ..RawMemoryOperation::ZERO
    };
    operations.iter().map(raw).collect()
}

/// Converts one of the driver's operations.
pub(super) fn plain_operation(raw: &RawMemoryOperation) -> MemoryOperation {
    let flags = if raw.address == 0 { raw.short_flags } else { raw.flags };
    MemoryOperation { operation: raw.operation, flags, address: DevicePtr(raw.address), value: raw.value }
}

/// Operations on single values, at addresses of the session.
#[derive(Debug)]
pub struct CheckedOperations(Vec<MemoryOperation>);

impl CheckedOperations {
    /// Returns operations for a call of the driver.
    ///
    /// # Safety
    ///
    /// The bytes that each one accesses must belong to the session.
    pub unsafe fn new(operations: Vec<MemoryOperation>) -> Self {
        Self(operations)
    }
}

/// The answer of `cuStreamGetCaptureInfo`.
#[derive(Debug)]
pub struct CaptureInfo {
    /// `CUstreamCaptureStatus`.
    pub status: c_int,
    /// The id of the capture.
    pub id: u64,
    /// The graph, if the status is active.
    pub graph: CUgraph,
    /// The nodes that the next work depends on.
    pub links: Links,
}

/// Runs `body` with the calling thread's capture mode relaxed. Calls that the worker makes for itself must not
/// invalidate a capture of the program.
pub fn with_capture_relaxed<T>(gpu: &Driver, body: impl FnOnce() -> T) -> T {
    let mode = gpu.exchange_capture_mode(CAPTURE_RELAXED);
    let result = body();
    if let Ok((mode,)) = mode {
        let _ = gpu.exchange_capture_mode(mode);
    }
    result
}

/// Runs `body` with `context` current, and restores the earlier current context.
///
/// Errors: the driver's errors, and those of `body`.
pub fn while_current(gpu: &Driver, context: CUcontext, body: impl FnOnce() -> CuResult<()>) -> CuResult<()> {
    if gpu.cuCtxGetCurrent() == Ok((context,)) {
        return body();
    }
    gpu.cuCtxPushCurrent_v2(context)?;
    let result = body();
    gpu.cuCtxPopCurrent_v2()?;
    result
}

impl Driver {
    /// Swaps the calling thread's capture mode.
    pub fn exchange_capture_mode(&self, mode: c_int) -> CuResult<(c_int,)> {
        let mut mode = mode;
        // SAFETY: the pointer is to a local.
        unsafe { self.cuThreadExchangeStreamCaptureMode(&raw mut mode) }?;
        Ok((mode,))
    }

    /// Returns the state of the stream's capture.
    pub fn capture_info(&self, stream: CUstream) -> CuResult<CaptureInfo> {
        let (mut status, mut id, mut graph, mut count) = (0, 0, null_mut(), 0);
        let (mut nodes, mut edges): (*const CUgraphNode, *const CUgraphEdgeData) = (null(), null());
        // SAFETY: all pointers are to locals.
        unsafe {
            self.cuStreamGetCaptureInfo_v3(
                stream,
                &raw mut status,
                &raw mut id,
                &raw mut graph,
                &raw mut nodes,
                &raw mut edges,
                &raw mut count,
            )
        }?;
        let mut links = Links::default();
        // `CU_STREAM_CAPTURE_STATUS_ACTIVE`. The other results are set only in this state.
        if status != 1 {
            return Ok(CaptureInfo { status, id: 0, graph: null_mut(), links });
        }
        if count > 0 && !nodes.is_null() {
            // SAFETY: the driver says that there are so many, good until the next call on the stream. Calls on streams
            // that capture hold the lock of captures (`CallContext::note_capture`).
            links.nodes = unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec();
            links.edges = vec![[0; 8]; count];
            if !edges.is_null() {
                // SAFETY: the driver has as many edges as nodes, good until the next call on the stream; an edge is 8
                // bytes.
                links.edges = unsafe { std::slice::from_raw_parts(edges.cast::<[u8; 8]>(), count) }.to_vec();
            }
        }
        Ok(CaptureInfo { status, id, graph, links })
    }

    /// Returns the state of the stream's capture: `CUstreamCaptureStatus`, its id, the graph and the nodes that the next work
    /// depends on. The graph is null if the stream does not capture.
    pub fn capture_state(&self, stream: CUstream) -> CuResult<(c_int, u64, CUgraph, InGraph<Links>)> {
        let CaptureInfo { status, id, graph, links } = self.capture_info(stream)?;
        Ok((status, id, graph, InGraph { graph, found: links }))
    }

    /// Sets (flag 1) or extends the dependencies of the stream's next work.
    pub fn update_capture(&self, stream: CUstream, links: Links, flags: c_uint) -> CuResult<()> {
        let nodes = links.nodes().cast_mut();
        // SAFETY: as many nodes and edges as said, read only.
        unsafe {
            self.cuStreamUpdateCaptureDependencies_v2(stream, nodes, links.edges(), links.nodes.len(), flags)
        }
    }

    /// Captures into a graph.
    pub fn begin_capture_to(
        &self,
        stream: CUstream,
        graph: CUgraph,
        links: &Links,
        mode: c_uint,
    ) -> CuResult<()> {
        // SAFETY: as many nodes and edges as said.
        unsafe {
            self.cuStreamBeginCaptureToGraph(
                stream,
                graph,
                links.nodes(),
                links.edges(),
                links.nodes.len(),
                mode,
            )
        }
    }

    /// Waits for and writes values in stream order.
    pub fn memory_operations(
        &self,
        stream: CUstream,
        operations: CheckedOperations,
        flags: c_uint,
    ) -> CuResult<()> {
        let mut raw = raw_operations(&operations.0);
        // SAFETY: as many operations as said; their addresses were checked.
        unsafe { self.cuStreamBatchMemOp_v2(stream, raw.len() as c_uint, raw.as_mut_ptr().cast(), flags) }
    }
}
