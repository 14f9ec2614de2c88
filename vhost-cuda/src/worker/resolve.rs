// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every guest value becomes a host value here, by its type. A type without [`Resolve`] does not reach the driver.

use virtio_cuda_protocol::cuda::{
    ArrayId, ContextId, EventId, FunctionId, GraphExecId, GraphNodeId, LibraryId, MemoryPoolId,
    MipmappedArrayId, ModuleId, StreamId, SurfRefId, TexRefId,
};

use super::call::CallContext;
use super::gpu::{
    CUarray, CUcontext, CUevent, CUfunction, CUgraphExec, CUgraphNode, CUkernel, CUlibrary, CUmemoryPool,
    CUmipmappedArray, CUmodule, CUstream, CUsurfref, CUtexref, CuResult, CudaError,
};
use super::objects::Kind;

/// Largest of CUDA's own stream values: 0 is the current default stream, 1 the legacy one, 2 the thread's.
const LAST_DEFAULT_STREAM: u64 = 2;

/// Turns a value of the wire into what the driver takes.
pub trait Resolve: Sized {
    /// What the driver takes.
    type Host;
    /// Looks the value up in the session. The call keeps what it stands for until it is done.
    ///
    /// Errors: `CUDA_ERROR_INVALID_HANDLE`, for contexts `CUDA_ERROR_INVALID_CONTEXT`.
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<Self::Host>;
    /// The node of a graph that the value is.
    fn as_node(&self) -> Option<GraphNodeId> {
        None
    }
}

impl Resolve for u32 {
    type Host = u32;
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<u32> {
        Ok(self)
    }
}

impl Resolve for i32 {
    type Host = i32;
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<i32> {
        Ok(self)
    }
}

impl Resolve for f32 {
    type Host = f32;
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<f32> {
        Ok(self)
    }
}

impl Resolve for ContextId {
    type Host = CUcontext;
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUcontext> {
        Ok(cx.held().keep(cx.session.contexts.get(self)?.object))
    }
}

impl Resolve for StreamId {
    type Host = CUstream;
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUstream> {
        if self.0 <= LAST_DEFAULT_STREAM {
            cx.note_capture(self.0 as CUstream);
            return Ok(self.0 as CUstream);
        }
        let stream = cx.keep(&cx.session.objects.streams, self.0)?;
        cx.note_capture(stream);
        Ok(stream)
    }
}

impl Resolve for EventId {
    type Host = CUevent;
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUevent> {
        cx.keep(&cx.session.objects.events, self.0)
    }
}

impl Resolve for ModuleId {
    type Host = CUmodule;
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUmodule> {
        cx.keep(&cx.session.objects.modules, self.0)
    }
}

impl Resolve for LibraryId {
    type Host = CUlibrary;
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUlibrary> {
        cx.keep(&cx.session.objects.libraries, self.0)
    }
}

impl Resolve for ArrayId {
    type Host = CUarray;
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUarray> {
        cx.keep(&cx.session.objects.arrays, self.0)
    }
}

impl Resolve for MipmappedArrayId {
    type Host = CUmipmappedArray;
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUmipmappedArray> {
        cx.keep(&cx.session.objects.mipmaps, self.0)
    }
}

impl Resolve for TexRefId {
    type Host = CUtexref;
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUtexref> {
        cx.keep(&cx.session.objects.texture_references, self.0)
    }
}

impl Resolve for SurfRefId {
    type Host = CUsurfref;
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUsurfref> {
        cx.keep(&cx.session.objects.surface_references, self.0)
    }
}

impl Resolve for MemoryPoolId {
    type Host = CUmemoryPool;
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUmemoryPool> {
        cx.keep(&cx.session.objects.pools, self.0)
    }
}

impl Resolve for FunctionId {
    type Host = CUfunction;
    /// Of either kind: the driver takes a kernel for a function.
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUfunction> {
        cx.keep(&cx.session.objects.functions, self.0)
    }
}

impl Resolve for GraphNodeId {
    type Host = CUgraphNode;
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUgraphNode> {
        cx.node(self)
    }
    fn as_node(&self) -> Option<GraphNodeId> {
        Some(*self)
    }
}

impl Resolve for GraphExecId {
    type Host = CUgraphExec;
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUgraphExec> {
        cx.session.graphs.exec(cx.held(), self)
    }
}

/// A function that must be a kernel: the driver does not take a function for one.
#[derive(Clone, Copy, Debug)]
pub struct KernelOnly(pub FunctionId);

impl Resolve for KernelOnly {
    type Host = CUkernel;
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUkernel> {
        let object = cx.session.objects.functions.get(self.0.0)?;
        if object.kind() != Kind::Kernel {
            return Err(CudaError::INVALID_HANDLE);
        }
        Ok(cx.held().keep(object))
    }
}
