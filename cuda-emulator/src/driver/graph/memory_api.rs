// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nodes that allocate and free memory, and queries of that memory.

use std::ffi::c_void;

use cuda_abi::{CUDA_MEM_ALLOC_NODE_PARAMS, CUgraphEdgeData, CUmemPoolProps};

use super::body::{self, CUgraph, CUgraphNode, Graph};
use super::edit_api::{add, plain};
use super::footprint;
use super::memory::{self, GraphMemory};
use super::work::Work;
use crate::driver::device::{CUdevice, CUdeviceptr, Device, device};
use crate::driver::ffi::{In, InOut, Out};
use crate::driver::pool::PoolProperties as _;
use crate::driver::result::{CUresult, CuResult};

/// Returns the allocation of node parameters. Its address is stored there.
pub(super) fn allocation_of(place: InOut<CUDA_MEM_ALLOC_NODE_PARAMS>) -> CuResult<Work> {
    let params = place.get()?;
    if params.bytes == 0 || params.pool.is_shareable() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let memory = GraphMemory::new(device(params.pool.device_ordinal()?)?, params)?;
    place.set_if_wanted(memory.params);
    Ok(Work::Alloc(memory))
}

/// Returns an allocation for a node of `graph` after `dependencies`, moved to a free block if there is one. The new
/// address is stored in the parameters, too.
pub(super) fn place_in(
    work: Work,
    graph: &Graph,
    dependencies: Vec<(CUgraphNode, CUgraphEdgeData)>,
    description: InOut<CUDA_MEM_ALLOC_NODE_PARAMS>,
) -> Work {
    let Work::Alloc(memory) = &work else { return work };
    let dependencies = dependencies.into_iter().map(|(node, _)| node).collect();
    let Some(moved) = memory.at_freed_place(graph, dependencies) else { return work };
    description.set_if_wanted(moved.params);
    Work::Alloc(moved)
}

/// cuMemAllocAsync in a capturing stream.
pub(in super::super) fn capture_allocation(
    device: &'static Device,
    bytes: usize,
) -> CuResult<(Work, CUdeviceptr)> {
    let pool = CUmemPoolProps::of_device(device.ordinal);
    let memory = GraphMemory::new(
        device,
        CUDA_MEM_ALLOC_NODE_PARAMS { pool, bytes, ..CUDA_MEM_ALLOC_NODE_PARAMS::ZERO },
    )?;
    let ptr = memory.ptr;
    Ok((Work::Alloc(memory), ptr))
}

/// Returns the free of node parameters.
pub(in super::super) fn free_of(ptr: CUdeviceptr) -> CuResult<Work> {
    // Graphs free only what graphs allocate.
    let memory = memory::find(ptr).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    Ok(Work::Free(ptr, Some(memory)))
}

fn add_alloc_node(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
    params: InOut<CUDA_MEM_ALLOC_NODE_PARAMS>,
) -> CuResult<()> {
    out.check()?;
    let into = body::find(graph)?;
    let dependencies = into.read_dependencies(nodes, plain(), count)?;
    let work = place_in(allocation_of(params)?, &into, dependencies, params);
    add(out, graph, nodes, plain(), count, work)
}

fn alloc_node_get_params(node: CUgraphNode, params: Out<CUDA_MEM_ALLOC_NODE_PARAMS>) -> CuResult<()> {
    params.check()?;
    match body::work_of(node)? {
        Work::Alloc(memory) => params.set_if_wanted(memory.params),
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

fn add_free_node(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
    ptr: CUdeviceptr,
) -> CuResult<()> {
    add(out, graph, nodes, plain(), count, free_of(ptr)?)
}

fn free_node_get_params(node: CUgraphNode, out: Out<CUdeviceptr>) -> CuResult<()> {
    out.check()?;
    match body::work_of(node)? {
        Work::Free(ptr, _) => out.set_if_wanted(ptr),
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

fn graph_mem_trim(ordinal: CUdevice) -> CuResult<()> {
    footprint::trim(device(ordinal)?);
    Ok(())
}

fn get_graph_mem_attribute(ordinal: CUdevice, attribute: u32, value: *mut c_void) -> CuResult<()> {
    // SAFETY: the caller's pointer, NULL or valid for writing an attribute, each of which has eight bytes.
    let place = unsafe { Out::new(value.cast::<u64>()) };
    place.check()?;
    place.set_if_wanted(footprint::attribute(device(ordinal)?, attribute)?);
    Ok(())
}

fn set_graph_mem_attribute(ordinal: CUdevice, attribute: u32, value: *mut c_void) -> CuResult<()> {
    // SAFETY: the caller's pointer, NULL or valid for reading an attribute, each of which has eight bytes.
    let value = unsafe { In::new(value.cast_const().cast::<u64>()) };
    footprint::reset(device(ordinal)?, attribute, value.get()?)
}

crate::driver::ffi::entries! { after_init
    cuGraphAddMemAllocNode => add_alloc_node(
        out: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: InOut<CUDA_MEM_ALLOC_NODE_PARAMS>);
    cuGraphMemAllocNodeGetParams => alloc_node_get_params(node: CUgraphNode, params: Out<CUDA_MEM_ALLOC_NODE_PARAMS>);
    cuGraphAddMemFreeNode => add_free_node(
        out: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, ptr: CUdeviceptr);
    cuGraphMemFreeNodeGetParams => free_node_get_params(node: CUgraphNode, ptr: Out<CUdeviceptr>);
    cuDeviceGraphMemTrim => graph_mem_trim(device: CUdevice);
    cuDeviceGetGraphMemAttribute => get_graph_mem_attribute(device: CUdevice, attribute: u32, value: *mut c_void);
    cuDeviceSetGraphMemAttribute => set_graph_mem_attribute(device: CUdevice, attribute: u32, value: *mut c_void);
}
