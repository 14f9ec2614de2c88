// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every result of the driver, or of a part of the session, becomes a guest value here, by its type. Lists become bulk output.

use std::sync::Arc;

use virtio_cuda_protocol::cuda::{
    ArrayId, DevicePtr, DeviceResource, GraphEdge, GraphId, GraphNodeId, MemoryRequirements,
    MipmappedArrayId, NodeLink, SparseProperties, Wire,
};
use zerocopy::{Immutable, IntoBytes};

use crate::call::CallContext;
use crate::call::resolve::Ready;
use crate::gpu::{
    AttributeValue, CUarray, CUgraph, CUgraphNode, CUmipmappedArray, CuResult, CudaError, Edges, InGraph,
    Links, Names, RawAffinity, RawDevResource, RawRequirements, RawSparse, RawTensorMap, SplitResource,
    SurfaceObject, TextureObject,
};
use crate::objects::Table;
use crate::words::contents::put_all;

/// Turns a result of the driver, or of a part of the session, into a value of the wire.
pub trait Answer<W>: Sized {
    /// Looks handles up in the session, or writes a list to the bulk output.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for an object without a name.
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<W>;
}

/// What a function of a part of the session returns: an outcome, or values if it cannot fail.
pub trait Outcome {
    /// The values.
    type Values;
    /// Returns the values.
    ///
    /// Errors: the function's.
    fn outcome(self) -> CuResult<Self::Values>;
}

impl<T> Outcome for CuResult<T> {
    type Values = T;
    fn outcome(self) -> CuResult<T> {
        self
    }
}

impl Outcome for () {
    type Values = ();
    fn outcome(self) -> CuResult<()> {
        Ok(())
    }
}

impl<A, B> Outcome for (A, B) {
    type Values = Self;
    fn outcome(self) -> CuResult<Self> {
        Ok(self)
    }
}

impl<A, B, C> Outcome for (A, B, C) {
    type Values = Self;
    fn outcome(self) -> CuResult<Self> {
        Ok(self)
    }
}

impl<T: Ready> Answer<T> for T {
    fn answer(self, _cx: &mut CallContext<'_>) -> CuResult<T> {
        Ok(self)
    }
}

impl Answer<u64> for usize {
    fn answer(self, _cx: &mut CallContext<'_>) -> CuResult<u64> {
        Ok(self as u64)
    }
}

impl Answer<DevicePtr> for u64 {
    fn answer(self, _cx: &mut CallContext<'_>) -> CuResult<DevicePtr> {
        Ok(DevicePtr(self))
    }
}

impl Answer<DeviceResource> for RawDevResource {
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<DeviceResource> {
        Ok(cx.session.resources.name(self))
    }
}

impl Answer<MemoryRequirements> for RawRequirements {
    fn answer(self, _cx: &mut CallContext<'_>) -> CuResult<MemoryRequirements> {
        Ok(self.into())
    }
}

impl Answer<SparseProperties> for RawSparse {
    fn answer(self, _cx: &mut CallContext<'_>) -> CuResult<SparseProperties> {
        Ok(self.into())
    }
}

impl Answer<u32> for RawAffinity {
    fn answer(self, _cx: &mut CallContext<'_>) -> CuResult<u32> {
        Ok(self.sm_count)
    }
}

impl Answer<[u8; 128]> for RawTensorMap {
    fn answer(self, _cx: &mut CallContext<'_>) -> CuResult<[u8; 128]> {
        Ok(self.opaque)
    }
}

impl Answer<AttributeValue> for AttributeValue {
    fn answer(self, _cx: &mut CallContext<'_>) -> CuResult<AttributeValue> {
        Ok(self)
    }
}

impl Answer<u32> for bool {
    fn answer(self, _cx: &mut CallContext<'_>) -> CuResult<u32> {
        Ok(self.into())
    }
}

impl<T: IntoBytes + Immutable> Answer<u64> for Vec<T> {
    /// Writes as many bytes as there is room for. Returns their number.
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<u64> {
        self.as_slice().as_bytes().answer(cx)
    }
}

impl Answer<u64> for &[u8] {
    /// As a vector.
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<u64> {
        let room = usize::try_from(cx.bulk_out.room()).unwrap_or(usize::MAX);
        let bytes = &self[..self.len().min(room)];
        cx.bulk_out.put(bytes)?;
        Ok(bytes.len() as u64)
    }
}

impl Answer<u64> for Arc<[u8]> {
    /// As a vector.
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<u64> {
        (*self).answer(cx)
    }
}

impl Answer<[u8; 52]> for [u32; 13] {
    /// Little-endian.
    fn answer(self, _cx: &mut CallContext<'_>) -> CuResult<[u8; 52]> {
        let mut bytes = [0; 52];
        for (place, word) in bytes.chunks_exact_mut(4).zip(self) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Ok(bytes)
    }
}

impl Answer<u64> for TextureObject {
    /// Enters it into the session, which may have too many textures.
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<u64> {
        let entered = cx.session.objects.textures.insert(self.0, cx.home());
        entered.inspect_err(|_| {
            let _ = cx.gpu().cuTexObjectDestroy(self.0);
        })?;
        Ok(self.0)
    }
}

impl Answer<u64> for SurfaceObject {
    /// As a texture object.
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<u64> {
        let entered = cx.session.objects.surfaces.insert(self.0, cx.home());
        entered.inspect_err(|_| {
            let _ = cx.gpu().cuSurfObjectDestroy(self.0);
        })?;
        Ok(self.0)
    }
}

/// Returns the name of the object with the driver's handle `raw`; it may be destroyed.
fn name_of<T>(table: &Table, raw: *mut T) -> CuResult<u64> {
    table.find(|object| object.is(raw)).ok_or(CudaError::INVALID_VALUE)
}

impl Answer<ArrayId> for CUarray {
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<ArrayId> {
        Ok(ArrayId(name_of(&cx.session.objects.arrays, self)?))
    }
}

impl Answer<MipmappedArrayId> for CUmipmappedArray {
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<MipmappedArrayId> {
        Ok(MipmappedArrayId(name_of(&cx.session.objects.mipmaps, self)?))
    }
}

impl<T: Wire> Answer<u32> for Vec<T> {
    /// Writes as many elements as there is room for. Returns the length of the list.
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<u32> {
        put_all(cx, self)
    }
}

impl Answer<u64> for Names {
    /// Writes the names if there is room for all. Returns their bytes.
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<u64> {
        let bytes = self.0.len() as u64;
        if bytes <= cx.bulk_out.room() {
            cx.bulk_out.put(&self.0)?;
        }
        Ok(bytes)
    }
}

impl Answer<u32> for SplitResource {
    /// Writes the parts with names. Returns the number of groups.
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<u32> {
        let resources = &cx.session.resources;
        put_all(cx, self.parts.into_iter().map(|part| resources.name(part)))?;
        Ok(self.count)
    }
}

impl Answer<GraphId> for CUgraph {
    /// 0 for null.
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<GraphId> {
        Ok(if self.is_null() { GraphId(0) } else { cx.session.graphs.name_graph(self, None) })
    }
}

impl Answer<GraphNodeId> for InGraph<CUgraphNode> {
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<GraphNodeId> {
        let graphs = &cx.session.graphs;
        Ok(graphs.name_node(self.found, graphs.name_graph(self.graph, None)))
    }
}

impl Answer<u32> for InGraph<Vec<CUgraphNode>> {
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<u32> {
        put_named(cx, self.graph, self.found, |node, name| name(node))
    }
}

impl Answer<u32> for InGraph<Links> {
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<u32> {
        let links = self.found.nodes.into_iter().zip(self.found.edges);
        put_named(cx, self.graph, links, |(node, data), name| NodeLink { node: name(node), data })
    }
}

impl Answer<u32> for InGraph<Edges> {
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<u32> {
        let Edges { from, to } = self.found;
        let edges = from.into_iter().zip(to.nodes.into_iter().zip(to.edges));
        put_named(cx, self.graph, edges, |(from, (to, data)), name| {
            let (from, to) = (name(from), name(to));
            GraphEdge { from, to, data }
        })
    }
}

/// Writes what a graph has to the bulk output; `named` gives nodes their names. Returns the length of the list.
fn put_named<T, W: Wire>(
    cx: &mut CallContext<'_>,
    graph: CUgraph,
    found: impl IntoIterator<Item = T>,
    named: impl Fn(T, &dyn Fn(CUgraphNode) -> GraphNodeId) -> W,
) -> CuResult<u32> {
    let graphs = &cx.session.graphs;
    let mut found = found.into_iter().peekable();
    if found.peek().is_none() {
        return Ok(0);
    }
    let graph = graphs.name_graph(graph, None);
    put_all(cx, found.map(|one| named(one, &|node| graphs.name_node(node, graph))))
}

impl Answer<u64> for InGraph<u64> {
    /// The handle of a conditional node, which belongs to the graph.
    fn answer(self, cx: &mut CallContext<'_>) -> CuResult<u64> {
        let graphs = &cx.session.graphs;
        graphs.add_conditional_handle(graphs.name_graph(self.graph, None), self.found)?;
        Ok(self.found)
    }
}
