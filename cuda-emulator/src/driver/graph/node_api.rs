// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls that add the other kinds of nodes, any kind (cuGraphAddNode), and that return and change them.

use cuda_abi::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_EXT_SEM_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_MEMCPY_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS_v2,
    CUgraphEdgeData, CUgraphNodeParams, CopyEnd3D,
};

use super::body::{self, CUgraph, CUgraphNode};
use super::edit_api::{add, plain};
use super::kernel_api::kernel_of;
use super::params::{self, Member, member};
use super::work::{CopyWork, HostWork, Work};
use super::{child, conditional, memory_api};
use crate::driver::context::{self, CUcontext};
use crate::driver::copy::api::{self as copy_api, ARRAY};
use crate::driver::copy::{Fill, Pattern};
use crate::driver::event::{self, CUevent};
use crate::driver::ffi::{In, InOut, Out};
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::mem_op::{self, MemOp};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

pub(super) fn copy_of(params: &CUDA_MEMCPY3D, context: CUcontext) -> CuResult<Work> {
    context::usable(context)?;
    // Unlike a copy in a stream, a node must have bytes to copy, and even a single row must fit its pitch.
    let too_short = |place: &CopyEnd3D| {
        place.memory_type != ARRAY && place.pitch != 0 && place.pitch < params.width.saturating_add(place.x)
    };
    if too_short(&params.src) || too_short(&params.dst) {
        return Err(INVALID);
    }
    let known = |kind: u32| (1..=4).contains(&kind);
    let transfer =
        copy_api::boxed(params)?.filter(|_| known(params.src.memory_type) && known(params.dst.memory_type));
    Ok(Work::Copy(CopyWork::new(Some(transfer.ok_or(INVALID)?), *params)))
}

pub(super) fn fill_of(params: &CUDA_MEMSET_NODE_PARAMS, context: CUcontext) -> CuResult<Work> {
    context::usable(context)?;
    if !matches!(params.element_bytes, 1 | 2 | 4) {
        return Err(INVALID);
    }
    let pattern = Pattern::new(params.value, params.element_bytes as usize);
    let extent = [params.width as u64, params.height as u64];
    let fill = Fill { to: params.dst, pitch: params.pitch as u64, pattern, extent };
    if fill.check()?.is_none() { Err(INVALID) } else { Ok(Work::Fill(fill)) }
}

pub(super) fn host_of(params: &CUDA_HOST_NODE_PARAMS) -> CuResult<Work> {
    let function = params.function.ok_or(INVALID)?;
    Ok(Work::Host(HostWork { function, argument: params.argument }))
}

pub(super) fn batch_of(params: &CUDA_BATCH_MEM_OP_NODE_PARAMS) -> CuResult<Work> {
    context::usable(CUcontext::new(params.context as usize))?;
    // SAFETY: the program's parameters, which say that `count` operations are there, or NULL.
    let operations = unsafe { In::new(params.operations as *const MemOp) };
    if operations.is_null() {
        return Err(INVALID);
    }
    let operations = mem_op::read(operations, params.count, params.flags)?;
    Ok(Work::MemOps(operations.into()))
}

/// A null event is an invalid value, any other invalid one an invalid handle.
fn not_null(event: CUevent) -> CuResult<()> {
    if event == CUevent::NULL { Err(INVALID) } else { Ok(()) }
}

pub(super) fn record_of(event: CUevent) -> CuResult<Work> {
    not_null(event)?;
    Ok(Work::EventRecord(event, event::find_own(event)?))
}

pub(super) fn wait_of(event: CUevent) -> CuResult<Work> {
    not_null(event)?;
    Ok(Work::EventWait(event, event::find_own(event)?))
}

/// Returns the work of CUgraphNodeParams. Results (addresses) are stored there.
pub(super) fn work_of_params(place: InOut<CUgraphNodeParams>) -> CuResult<Work> {
    let node = place.get()?;
    if node.reserved0 != [0; 3] || node.reserved2 != 0 {
        return Err(INVALID);
    }
    /// Reads the union as one of its members.
    fn read<T: Member>(place: InOut<CUgraphNodeParams>) -> CuResult<T> {
        member(place).get()
    }
    match node.kind {
        params::KERNEL => kernel_of(&read::<CUDA_KERNEL_NODE_PARAMS>(place)?),
        params::MEMCPY => {
            let copy = read::<CUDA_MEMCPY_NODE_PARAMS>(place)?;
            if copy.flags != 0 || copy.reserved != 0 {
                return Err(INVALID);
            }
            copy_of(&copy.copy, CUcontext::new(copy.context as usize))
        }
        params::MEMSET => {
            let fill = read::<CUDA_MEMSET_NODE_PARAMS_v2>(place)?;
            fill_of(&fill.v1, CUcontext::new(fill.context as usize))
        }
        params::HOST => host_of(&read::<CUDA_HOST_NODE_PARAMS>(place)?),
        params::GRAPH => child::child_of(&read(place)?),
        params::EMPTY => Ok(Work::Empty),
        params::WAIT_EVENT => wait_of(read::<CUevent>(place)?),
        params::EVENT_RECORD => record_of(read::<CUevent>(place)?),
        params::MEM_ALLOC => memory_api::allocation_of(member(place)),
        params::MEM_FREE => memory_api::free_of(read(place)?),
        params::BATCH_MEM_OP => batch_of(&read::<CUDA_BATCH_MEM_OP_NODE_PARAMS>(place)?),
        params::CONDITIONAL => conditional::conditional_of(member(place)),
        params::SEMAPHORES_SIGNAL | params::SEMAPHORES_WAIT => {
            if read::<CUDA_EXT_SEM_NODE_PARAMS>(place)?.count > 0 {
                return Err(INVALID);
            }
            Ok(Work::Semaphores(node.kind))
        }
        _ => Err(INVALID),
    }
}

fn add_node(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
    params: InOut<CUgraphNodeParams>,
) -> CuResult<()> {
    add_node_v2(out, graph, nodes, plain(), count, params)
}

fn add_node_v2(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
    params: InOut<CUgraphNodeParams>,
) -> CuResult<()> {
    // Invalid parameters are reported before an invalid graph.
    let work = work_of_params(params)?;
    let into = body::find(graph)?;
    let dependencies = into.read_dependencies(nodes, edges, count)?;
    let work = memory_api::place_in(work, &into, dependencies, member(params));
    add(out, graph, nodes, edges, count, work)
}

fn set_params(node: CUgraphNode, params: InOut<CUgraphNodeParams>) -> CuResult<()> {
    let kind = params.get()?.kind;
    if kind == params::CONDITIONAL {
        return Err(INVALID);
    }
    body::check_kind(node, kind)?;
    body::set_work(node, work_of_params(params)?)
}

fn add_memcpy_node(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_MEMCPY3D>,
    context: CUcontext,
) -> CuResult<()> {
    add(out, graph, nodes, plain(), count, copy_of(&params.get()?, context)?)
}

fn memcpy_get_params(node: CUgraphNode, params: Out<CUDA_MEMCPY3D>) -> CuResult<()> {
    params.check()?;
    match body::work_of(node)? {
        Work::Copy(copy) => params.set_if_wanted(copy.params),
        _ => return Err(INVALID),
    }
    Ok(())
}

fn memcpy_set_params(node: CUgraphNode, params: In<CUDA_MEMCPY3D>) -> CuResult<()> {
    body::check_kind(node, params::MEMCPY)?;
    body::set_work(node, copy_of(&params.get()?, CUcontext::NULL)?)
}

fn add_memset_node(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_MEMSET_NODE_PARAMS>,
    context: CUcontext,
) -> CuResult<()> {
    add(out, graph, nodes, plain(), count, fill_of(&params.get()?, context)?)
}

fn memset_get_params(node: CUgraphNode, params: Out<CUDA_MEMSET_NODE_PARAMS>) -> CuResult<()> {
    params.check()?;
    let Work::Fill(fill) = body::work_of(node)? else { return Err(INVALID) };
    params.set_if_wanted(CUDA_MEMSET_NODE_PARAMS {
        dst: fill.to,
        pitch: fill.pitch as usize,
        value: u32::from_le_bytes(fill.pattern.value),
        element_bytes: fill.pattern.bytes as u32,
        width: fill.extent[0] as usize,
        height: fill.extent[1] as usize,
    });
    Ok(())
}

fn memset_set_params(node: CUgraphNode, params: In<CUDA_MEMSET_NODE_PARAMS>) -> CuResult<()> {
    body::check_kind(node, params::MEMSET)?;
    body::set_work(node, fill_of(&params.get()?, CUcontext::NULL)?)
}

fn add_host_node(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_HOST_NODE_PARAMS>,
) -> CuResult<()> {
    add(out, graph, nodes, plain(), count, host_of(&params.get()?)?)
}

fn host_get_params(node: CUgraphNode, params: Out<CUDA_HOST_NODE_PARAMS>) -> CuResult<()> {
    params.check()?;
    let Work::Host(host) = body::work_of(node)? else { return Err(INVALID) };
    params.set_if_wanted(CUDA_HOST_NODE_PARAMS { function: Some(host.function), argument: host.argument });
    Ok(())
}

fn host_set_params(node: CUgraphNode, params: In<CUDA_HOST_NODE_PARAMS>) -> CuResult<()> {
    body::set_work(node, host_of(&params.get()?)?)
}

fn add_empty_node(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
) -> CuResult<()> {
    add(out, graph, nodes, plain(), count, Work::Empty)
}

fn add_record_node(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
    event: CUevent,
) -> CuResult<()> {
    add(out, graph, nodes, plain(), count, record_of(event)?)
}

fn record_get_event(node: CUgraphNode, out: Out<CUevent>) -> CuResult<()> {
    out.check()?;
    let Work::EventRecord(event, _) = body::work_of(node)? else { return Err(INVALID) };
    out.set_if_wanted(event);
    Ok(())
}

fn record_set_event(node: CUgraphNode, event: CUevent) -> CuResult<()> {
    body::check_kind(node, params::EVENT_RECORD)?;
    body::set_work(node, record_of(event)?)
}

fn add_wait_node(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
    event: CUevent,
) -> CuResult<()> {
    add(out, graph, nodes, plain(), count, wait_of(event)?)
}

fn wait_get_event(node: CUgraphNode, out: Out<CUevent>) -> CuResult<()> {
    out.check()?;
    let Work::EventWait(event, _) = body::work_of(node)? else { return Err(INVALID) };
    out.set_if_wanted(event);
    Ok(())
}

fn wait_set_event(node: CUgraphNode, event: CUevent) -> CuResult<()> {
    body::check_kind(node, params::WAIT_EVENT)?;
    body::set_work(node, wait_of(event)?)
}

fn add_batch_node(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_BATCH_MEM_OP_NODE_PARAMS>,
) -> CuResult<()> {
    add(out, graph, nodes, plain(), count, batch_of(&params.get()?)?)
}

/// Returns the operations by a pointer to the stored ones.
fn batch_get_params(node: CUgraphNode, params: Out<CUDA_BATCH_MEM_OP_NODE_PARAMS>) -> CuResult<()> {
    params.check()?;
    let Work::MemOps(operations) = body::work_of(node)? else { return Err(INVALID) };
    params.set_if_wanted(CUDA_BATCH_MEM_OP_NODE_PARAMS {
        count: operations.len() as u32,
        operations: operations.as_ptr() as usize,
        ..CUDA_BATCH_MEM_OP_NODE_PARAMS::ZERO
    });
    Ok(())
}

fn batch_set_params(node: CUgraphNode, params: In<CUDA_BATCH_MEM_OP_NODE_PARAMS>) -> CuResult<()> {
    body::set_work(node, batch_of(&params.get()?)?)
}

crate::driver::ffi::entries! { after_init
    cuGraphAddNode => add_node(
        out: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: InOut<CUgraphNodeParams>);
    cuGraphAddNode_v2 => add_node_v2(
        out: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, edges: In<CUgraphEdgeData>, count: usize,
        params: InOut<CUgraphNodeParams>);
    cuGraphAddNode_v3 => add_node_v2(
        out: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, edges: In<CUgraphEdgeData>, count: usize,
        params: InOut<CUgraphNodeParams>);
    cuGraphNodeSetParams => set_params(node: CUgraphNode, params: InOut<CUgraphNodeParams>);
    cuGraphAddMemcpyNode => add_memcpy_node(
        out: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: In<CUDA_MEMCPY3D>,
        context: CUcontext);
    cuGraphMemcpyNodeGetParams => memcpy_get_params(node: CUgraphNode, params: Out<CUDA_MEMCPY3D>);
    cuGraphMemcpyNodeSetParams => memcpy_set_params(node: CUgraphNode, params: In<CUDA_MEMCPY3D>);
    cuGraphAddMemsetNode => add_memset_node(
        out: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: In<CUDA_MEMSET_NODE_PARAMS>,
        context: CUcontext);
    cuGraphMemsetNodeGetParams => memset_get_params(node: CUgraphNode, params: Out<CUDA_MEMSET_NODE_PARAMS>);
    cuGraphMemsetNodeSetParams => memset_set_params(node: CUgraphNode, params: In<CUDA_MEMSET_NODE_PARAMS>);
    cuGraphAddHostNode => add_host_node(
        out: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: In<CUDA_HOST_NODE_PARAMS>);
    cuGraphHostNodeGetParams => host_get_params(node: CUgraphNode, params: Out<CUDA_HOST_NODE_PARAMS>);
    cuGraphHostNodeSetParams => host_set_params(node: CUgraphNode, params: In<CUDA_HOST_NODE_PARAMS>);
    cuGraphAddEmptyNode => add_empty_node(
        out: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize);
    cuGraphAddEventRecordNode => add_record_node(
        out: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, event: CUevent);
    cuGraphEventRecordNodeGetEvent => record_get_event(node: CUgraphNode, event: Out<CUevent>);
    cuGraphEventRecordNodeSetEvent => record_set_event(node: CUgraphNode, event: CUevent);
    cuGraphAddEventWaitNode => add_wait_node(
        out: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, event: CUevent);
    cuGraphEventWaitNodeGetEvent => wait_get_event(node: CUgraphNode, event: Out<CUevent>);
    cuGraphEventWaitNodeSetEvent => wait_set_event(node: CUgraphNode, event: CUevent);
    cuGraphAddBatchMemOpNode => add_batch_node(
        out: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: In<CUDA_BATCH_MEM_OP_NODE_PARAMS>);
    cuGraphBatchMemOpNodeGetParams => batch_get_params(node: CUgraphNode, params: Out<CUDA_BATCH_MEM_OP_NODE_PARAMS>);
    cuGraphBatchMemOpNodeSetParams => batch_set_params(node: CUgraphNode, params: In<CUDA_BATCH_MEM_OP_NODE_PARAMS>);
}
