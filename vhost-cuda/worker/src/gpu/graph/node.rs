// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Adds and changes nodes, and queries their parameters.

use std::ffi::c_int;
use std::ptr::null_mut;

use cudarc::driver::sys::CUDA_HOST_NODE_PARAMS;
use virtio_cuda_protocol::cuda::{MemoryOperation, NODE_CONDITIONAL, NODE_MEM_ALLOC};

use super::super::raw::{RawBatch, RawConditional, RawMemAlloc, RawMemoryOperation};
use super::super::{CUdeviceptr, CUgraph, CUgraphExec, CUgraphNode, CuResult, Driver};
use super::capture::plain_operation;
use super::parameters::UserFunction;
use super::{Links, NodeParameters};

/// The results for an added node besides its handle.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The address of an allocation.
    pub dptr: CUdeviceptr,
    /// The graphs of a conditional node.
    pub graphs: Vec<CUgraph>,
}

impl Driver {
    /// Adds a node.
    ///
    /// # Safety
    ///
    /// The memory in the parameters must belong to the session.
    pub unsafe fn add_node(
        &self,
        graph: CUgraph,
        links: &Links,
        parameters: &mut NodeParameters,
    ) -> CuResult<(CUgraphNode, Outcome)> {
        parameters.with_raw(|raw| {
            // SAFETY: the parameters and what they point to live across the call, which copies them; the memory that
            // they name is the session's by this function's contract.
            let (node,) = unsafe {
                self.cuGraphAddNode_v2(
                    graph,
                    links.nodes(),
                    links.edges(),
                    links.nodes.len(),
                    std::ptr::from_mut(raw).cast(),
                )
            }?;
            let mut outcome = Outcome::default();
            match raw.kind {
                // SAFETY: the payload of this kind is that, and the driver has filled it in.
                NODE_MEM_ALLOC => unsafe {
                    outcome.dptr = raw.payload.as_ptr().cast::<RawMemAlloc>().read().dptr;
                },
                NODE_CONDITIONAL => {
                    // SAFETY: the payload of a conditional node begins with this structure, and the driver has filled
                    // it in.
                    let answer = unsafe { raw.payload.as_ptr().cast::<RawConditional>().read() };
                    let graphs = answer.graphs as *const CUgraph;
                    if !graphs.is_null() {
                        let size = answer.size as usize;
                        // SAFETY: an array of the driver's of that size, good as long as the node.
                        let graphs = unsafe { std::slice::from_raw_parts(graphs, size) };
                        outcome.graphs = graphs.to_vec();
                    }
                }
                _ => {}
            }
            Ok((node, outcome))
        })
    }

    /// Replaces the parameters of a node.
    ///
    /// # Safety
    ///
    /// As [`Self::add_node`].
    pub unsafe fn set_node(&self, node: CUgraphNode, parameters: &mut NodeParameters) -> CuResult<()> {
        // SAFETY: the parameters and what they point to live across the call, which copies them; the memory that they
        // name is the session's by this function's contract.
        parameters.with_raw(|raw| unsafe { self.cuGraphNodeSetParams(node, std::ptr::from_mut(raw).cast()) })
    }

    /// Replaces the parameters of a node in an executable graph.
    ///
    /// # Safety
    ///
    /// As [`Self::add_node`].
    pub unsafe fn set_exec_node(
        &self,
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: &mut NodeParameters,
    ) -> CuResult<()> {
        parameters.with_raw(|raw| {
            // SAFETY: the parameters and what they point to live across the call, which copies them; the memory that
            // they name is the session's by this function's contract.
            unsafe { self.cuGraphExecNodeSetParams(exec, node, std::ptr::from_mut(raw).cast()) }
        })
    }

    /// Returns a host node's function and its argument.
    pub fn host_node(&self, node: CUgraphNode) -> CuResult<(Option<UserFunction>, u64)> {
        let mut raw = CUDA_HOST_NODE_PARAMS { fn_: None, userData: null_mut() };
        // SAFETY: the pointer is to a local.
        unsafe { self.cuGraphHostNodeGetParams(node, &raw mut raw) }?;
        Ok((raw.fn_, raw.userData as u64))
    }

    /// Returns flags and operations of a node that waits for and writes values.
    pub fn batch_node(&self, node: CUgraphNode) -> CuResult<(u32, Vec<MemoryOperation>)> {
        let mut raw = RawBatch::ZERO;
        // SAFETY: the pointer is to a local of that structure.
        unsafe { self.cuGraphBatchMemOpNodeGetParams(node, (&raw mut raw).cast()) }?;
        let operations = raw.operations as *const RawMemoryOperation;
        if operations.is_null() {
            return Ok((raw.flags, Vec::new()));
        }
        // SAFETY: an array of the driver's of that size, good as long as nobody changes the node, whose graph the call has for itself.
        let operations = unsafe { std::slice::from_raw_parts(operations, raw.count as usize) };
        Ok((raw.flags, operations.iter().map(plain_operation).collect()))
    }

    /// Returns bytes, device and address of an allocating node.
    pub fn mem_alloc_node(&self, node: CUgraphNode) -> CuResult<(u64, c_int, CUdeviceptr)> {
        let mut raw = RawMemAlloc::ZERO;
        // SAFETY: the pointer is to a local of that structure.
        unsafe { self.cuGraphMemAllocNodeGetParams(node, (&raw mut raw).cast()) }?;
        Ok((raw.bytes as u64, raw.pool.location.id, raw.dptr))
    }
}
