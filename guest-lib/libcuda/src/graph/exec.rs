// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Executable graphs, attributes of kernel nodes, and the memory that graphs allocate.

use cuda_abi::{CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraphExecUpdateResultInfo};
use virtio_cuda_client::protocol::{GraphExecId, GraphId, GraphNodeId, StreamId};
use virtio_cuda_client::touched::graphs_use_events;
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, In, Out};
use crate::handles::{Kind, new_handle};
use crate::launch::{
    ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, ATTRIBUTE_LAUNCH_COMPLETION_EVENT, ATTRIBUTE_PROGRAMMATIC_EVENT,
    DEVICE_NODE_OFFSET,
};
use crate::state::contexts::current;
use crate::state::moving::Uses;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`.
const UPLOAD: u64 = 2;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`.
const DEVICE_LAUNCH: u64 = 4;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY`.
const USE_NODE_PRIORITY: u64 = 8;

/// Returns the flags for a new executable graph. `CUDA_GRAPHS_USE_NODE_PRIORITY` overrides the program's choice.
fn chosen_flags(api: Api, flags: u64) -> u64 {
    match api.driver.environment.node_priority {
        None => flags,
        Some(true) => flags | USE_NODE_PRIORITY,
        Some(false) => flags & !USE_NODE_PRIORITY,
    }
}

/// Instantiates a graph. Also returns the `CUgraphInstantiateResult` and the node that caused an error.
fn instantiate(
    api: Api,
    out: Out<u64>,
    graph: u64,
    flags: u64,
    upload: StreamId,
) -> Result<(Result<(), CudaError>, i32, u64), CudaError> {
    out.check()?;
    if flags & DEVICE_LAUNCH != 0 {
        return for_device(api, out, graph, flags, upload, true);
    }
    let exec = new_handle(Kind::Exec);
    let flags = chosen_flags(api, flags);
    // The program may get a node of it.
    api.driver.retraced.forget(graph);
    let mut call = api.in_context()?;
    let (status, result, node) =
        calls::cuGraphInstantiateWithParams(&mut call, GraphExecId(exec), GraphId(graph), flags, upload)?;
    let outcome = CudaError::check(status).and_then(|()| out.set(exec));
    Ok((outcome, result, node.0))
}

/// Like [`instantiate`], for a graph that kernels can launch, too. Kernels read its handle from a parameter or from
/// memory, where this library cannot translate it. The program therefore gets the driver's own handle.
fn for_device(
    api: Api,
    out: Out<u64>,
    graph: u64,
    flags: u64,
    upload: StreamId,
    with_params: bool,
) -> Result<(Result<(), CudaError>, i32, u64), CudaError> {
    api.driver.retraced.forget(graph);
    let mut call = api.in_context()?;
    let made =
        calls::graph_instantiate_for_device(&mut call, GraphId(graph), flags, upload, with_params.into());
    let (exec, status, result, node) = made?;
    let outcome = CudaError::check(status).and_then(|()| out.set(exec.0));
    Ok((outcome, result, node.0))
}

fn with_flags(api: Api, out: Out<u64>, graph: u64, flags: u64) -> Result<(), CudaError> {
    out.check()?;
    if flags & DEVICE_LAUNCH != 0 {
        return for_device(api, out, graph, flags, StreamId(0), false)?.0;
    }
    let exec = new_handle(Kind::Exec);
    let flags = chosen_flags(api, flags);
    let mut call = api.in_context()?;
    calls::cuGraphInstantiateWithFlags(&mut call, GraphExecId(exec), GraphId(graph), flags)?;
    out.set(exec)
}

fn with_log(
    api: Api,
    out: Out<u64>,
    graph: u64,
    error_node: Out<u64>,
    log: Out<u8>,
    log_bytes: usize,
) -> Result<(), CudaError> {
    let (outcome, _, node) = instantiate(api, out, graph, 0, StreamId(0))?;
    if outcome.is_err() {
        error_node.set_if_wanted(node);
    }
    if log_bytes > 0 {
        log.set_if_wanted(0);
    }
    outcome
}

entry_points! {
    /// Makes a graph executable. The log is always empty.
    call cuGraphInstantiate(api, phGraphExec: Out<u64>, hGraph: u64, phErrorNode: Out<u64>, logBuffer: Out<u8>, bufferSize: usize) {
        with_log(api, phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize)
    }

    /// Makes a graph executable. The log is always empty.
    call cuGraphInstantiate_v2(api, phGraphExec: Out<u64>, hGraph: u64, phErrorNode: Out<u64>, logBuffer: Out<u8>, bufferSize: usize) {
        with_log(api, phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize)
    }

    /// Makes a graph executable.
    call cuGraphInstantiateWithFlags(api, phGraphExec: Out<u64>, hGraph: u64, flags: u64) {
        with_flags(api, phGraphExec, hGraph, flags)
    }

    /// Makes a graph executable, and returns the reason of a failure.
    call cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz (api, phGraphExec: Out<u64>, hGraph: u64, instantiateParams: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>) {
        let params = instantiateParams.get()?;
        let upload = if params.flags & UPLOAD != 0 { api.stream(params.upload_stream)? } else { StreamId(0) };
        let (outcome, result, error_node) = instantiate(api, phGraphExec, hGraph, params.flags, upload)?;
        instantiateParams.set(CUDA_GRAPH_INSTANTIATE_PARAMS { error_node, result, ..params })?;
        outcome
    }

    /// Destroys an executable graph.
    call cuGraphExecDestroy(api, hGraphExec: u64) {
        api.driver.kept.exec_replaced(hGraphExec);
        calls::cuGraphExecDestroy(&mut api.call(), GraphExecId(hGraphExec))
    }

    /// Executes a graph in stream order.
    call cuGraphLaunch / cuGraphLaunch_ptsz (api, hGraphExec: u64, hStream: u64) {
        let _sent = api.before_work(Uses::Anything, api.stream(hStream)?)?;
        let mut call = api.in_context_of(hStream)?;
        let kept = &api.driver.kept;
        let is_proven = kept.is_proven(hGraphExec, current());
        call = call.posted_if(is_proven && api.may_post(hStream));
        let launched = calls::cuGraphLaunch(&mut call, GraphExecId(hGraphExec), api.stream(hStream)?);
        // The graph's nodes may record events.
        api.driver.events.all_recorded();
        launched?;
        if !is_proven {
            kept.exec_launched(hGraphExec, current());
        }
        api.work_queued();
        api.end_asynchronous(api.stream(hStream)?)
    }

    /// Uploads an executable graph in stream order.
    call cuGraphUpload / cuGraphUpload_ptsz (api, hGraphExec: u64, hStream: u64) {
        calls::cuGraphUpload(&mut api.in_context_of(hStream)?, GraphExecId(hGraphExec), api.stream(hStream)?)
    }

    /// Copies all parameters of a graph to an executable graph of the same topology.
    call cuGraphExecUpdate(api, hGraphExec: u64, hGraph: u64, hErrorNode_out: Out<u64>, updateResult_out: Out<i32>) {
        api.driver.kept.exec_replaced(hGraphExec);
        api.driver.retraced.forget(hGraph);
        let updated = calls::cuGraphExecUpdate_v2(&mut api.in_context()?, GraphExecId(hGraphExec), GraphId(hGraph));
        let (status, result, node, _) = updated?;
        hErrorNode_out.set_if_wanted(node.0);
        updateResult_out.set_if_wanted(result);
        CudaError::check(status)
    }

    /// Copies all parameters of a graph to an executable graph of the same topology.
    call cuGraphExecUpdate_v2(api, hGraphExec: u64, hGraph: u64, resultInfo: Out<CUgraphExecUpdateResultInfo>) {
        api.driver.kept.exec_replaced(hGraphExec);
        api.driver.retraced.forget(hGraph);
        let updated = calls::cuGraphExecUpdate_v2(&mut api.in_context()?, GraphExecId(hGraphExec), GraphId(hGraph));
        let (status, result, node, from) = updated?;
        resultInfo.set_if_wanted(CUgraphExecUpdateResultInfo { result, pad: 0, error_node: node.0, error_from_node: from.0 });
        CudaError::check(status)
    }

    /// Sets an attribute of a kernel node. The attribute that has a result stores it in `value`, as in NVIDIA's
    /// library.
    call cuGraphKernelNodeSetAttribute(api, hNode: u64, attr: i32, value: HostPtr) {
        let node = GraphNodeId(hNode);
        if let ATTRIBUTE_PROGRAMMATIC_EVENT | ATTRIBUTE_LAUNCH_COMPLETION_EVENT = attr as u32 {
            graphs_use_events();
        }
        // SAFETY: the program passes a `CUkernelNodeAttrValue`, a union of 64 bytes.
        let wanted = unsafe { value.as_in() }.get()?;
        calls::cuGraphKernelNodeSetAttribute(&mut api.call(), node, attr, wanted)?;
        if attr as u32 == ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE {
            let now = calls::cuGraphKernelNodeGetAttribute(&mut api.call(), node, attr)?;
            let device_node: [u8; 8] = std::array::from_fn(|byte| now[DEVICE_NODE_OFFSET + byte]);
            // SAFETY: the value of this attribute has the handle there.
            unsafe { value.offset(DEVICE_NODE_OFFSET).as_out() }.set(device_node)?;
        }
        Ok(())
    }

    /// Returns an attribute of the graph memory pool; each is a `cuuint64_t`.
    call cuDeviceGetGraphMemAttribute(api, device: i32, attr: i32, value: Out<u64>) {
        value.check()?;
        let device = api.driver.devices.check(device)?.on_wire();
        value.set(calls::cuDeviceGetGraphMemAttribute(&mut api.call(), device, attr)?)
    }

    /// Sets an attribute of the graph memory pool.
    call cuDeviceSetGraphMemAttribute(api, device: i32, attr: i32, value: In<u64>) {
        let device = api.driver.devices.check(device)?.on_wire();
        calls::cuDeviceSetGraphMemAttribute(&mut api.call(), device, attr, value.get()?)
    }
}
