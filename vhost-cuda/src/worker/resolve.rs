// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every guest value becomes a host value here, by its type. A type without [`Resolve`] does not reach the driver.

use virtio_cuda_protocol::cuda::{
    ArrayId, ContextId, EventId, FunctionId, GraphExecId, GraphNodeId, LibraryId, MemoryPoolId,
    MipmappedArrayId, ModuleId, StreamId, SurfRefId, TexRefId, UserObjectId,
};

use super::gpu::{
    CUarray, CUcontext, CUevent, CUfunction, CUgraphExec, CUgraphNode, CUkernel, CUlibrary, CUmemoryPool,
    CUmipmappedArray, CUmodule, CUstream, CUsurfref, CUtexref, CUuserObject, CuResult, CudaError,
};
use super::objects::Kind;
use super::state::SessionState;

/// Largest of CUDA's own stream values: 0 is the current default stream, 1 the legacy one, 2 the thread's.
const LAST_DEFAULT_STREAM: u64 = 2;

/// Turns a value of the wire into what the driver takes.
pub trait Resolve {
    /// What the driver takes.
    type Host;
    /// Looks the value up in the session.
    ///
    /// Errors: `CUDA_ERROR_INVALID_HANDLE`, for contexts `CUDA_ERROR_INVALID_CONTEXT`.
    fn resolve(self, session: &SessionState) -> CuResult<Self::Host>;
}

impl Resolve for u32 {
    type Host = u32;
    fn resolve(self, _session: &SessionState) -> CuResult<u32> {
        Ok(self)
    }
}

impl Resolve for i32 {
    type Host = i32;
    fn resolve(self, _session: &SessionState) -> CuResult<i32> {
        Ok(self)
    }
}

impl Resolve for f32 {
    type Host = f32;
    fn resolve(self, _session: &SessionState) -> CuResult<f32> {
        Ok(self)
    }
}

impl Resolve for ContextId {
    type Host = CUcontext;
    fn resolve(self, session: &SessionState) -> CuResult<CUcontext> {
        Ok(session.contexts.get(self)?.raw())
    }
}

impl Resolve for StreamId {
    type Host = CUstream;
    fn resolve(self, session: &SessionState) -> CuResult<CUstream> {
        if self.0 <= LAST_DEFAULT_STREAM {
            return Ok(self.0 as CUstream);
        }
        Ok(session.objects.streams.get(self.0)?.raw as CUstream)
    }
}

impl Resolve for EventId {
    type Host = CUevent;
    fn resolve(self, session: &SessionState) -> CuResult<CUevent> {
        Ok(session.objects.events.get(self.0)?.raw as CUevent)
    }
}

impl Resolve for ModuleId {
    type Host = CUmodule;
    fn resolve(self, session: &SessionState) -> CuResult<CUmodule> {
        Ok(session.objects.modules.get(self.0)?.raw as CUmodule)
    }
}

impl Resolve for LibraryId {
    type Host = CUlibrary;
    fn resolve(self, session: &SessionState) -> CuResult<CUlibrary> {
        Ok(session.objects.libraries.get(self.0)?.raw as CUlibrary)
    }
}

impl Resolve for ArrayId {
    type Host = CUarray;
    fn resolve(self, session: &SessionState) -> CuResult<CUarray> {
        Ok(session.objects.arrays.get(self.0)?.raw as CUarray)
    }
}

impl Resolve for MipmappedArrayId {
    type Host = CUmipmappedArray;
    fn resolve(self, session: &SessionState) -> CuResult<CUmipmappedArray> {
        Ok(session.objects.mipmaps.get(self.0)?.raw as CUmipmappedArray)
    }
}

impl Resolve for TexRefId {
    type Host = CUtexref;
    fn resolve(self, session: &SessionState) -> CuResult<CUtexref> {
        Ok(session.objects.texture_references.get(self.0)?.raw as CUtexref)
    }
}

impl Resolve for SurfRefId {
    type Host = CUsurfref;
    fn resolve(self, session: &SessionState) -> CuResult<CUsurfref> {
        Ok(session.objects.surface_references.get(self.0)?.raw as CUsurfref)
    }
}

impl Resolve for MemoryPoolId {
    type Host = CUmemoryPool;
    fn resolve(self, session: &SessionState) -> CuResult<CUmemoryPool> {
        Ok(session.objects.pools.get(self.0)?.raw as CUmemoryPool)
    }
}

impl Resolve for FunctionId {
    type Host = CUfunction;
    /// Of either kind: the driver takes a kernel for a function.
    fn resolve(self, session: &SessionState) -> CuResult<CUfunction> {
        Ok(session.objects.functions.get(self.0)?.raw as CUfunction)
    }
}

impl Resolve for GraphNodeId {
    type Host = CUgraphNode;
    fn resolve(self, session: &SessionState) -> CuResult<CUgraphNode> {
        session.graphs.node(self)
    }
}

impl Resolve for GraphExecId {
    type Host = CUgraphExec;
    fn resolve(self, session: &SessionState) -> CuResult<CUgraphExec> {
        session.graphs.exec(self)
    }
}

impl Resolve for UserObjectId {
    type Host = CUuserObject;
    fn resolve(self, session: &SessionState) -> CuResult<CUuserObject> {
        Ok(session.objects.user_objects.get(self.0)?.raw as CUuserObject)
    }
}

/// A function that must be a kernel: the driver does not take a function for one.
#[derive(Clone, Copy, Debug)]
pub struct KernelOnly(pub FunctionId);

impl Resolve for KernelOnly {
    type Host = CUkernel;
    fn resolve(self, session: &SessionState) -> CuResult<CUkernel> {
        let entry = session.objects.functions.get(self.0.0)?;
        if entry.kind == Kind::Kernel { Ok(entry.raw as CUkernel) } else { Err(CudaError::INVALID_HANDLE) }
    }
}
