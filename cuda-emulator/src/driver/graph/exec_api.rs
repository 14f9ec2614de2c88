// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls that instantiate, launch and destroy executable graphs.

use std::ffi::c_char;
use std::sync::Arc;

use cuda_abi::CUDA_GRAPH_INSTANTIATE_PARAMS;

use super::body::{self, CUgraph, CUgraphNode};
use super::exec::{self, CUgraphExec, UPLOAD};
use super::params;
use crate::driver::capture;
use crate::driver::ffi::{InOut, Out, copy_text};
use crate::driver::handle::Handle;
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::CUstream;

fn instantiate_v1(
    out: Out<CUgraphExec>,
    graph: CUgraph,
    node: Out<CUgraphNode>,
    log: Out<c_char>,
    capacity: usize,
) -> CuResult<()> {
    node.set_if_wanted(Handle::NULL);
    if !log.is_null() {
        // SAFETY: the caller says that the buffer has `capacity` bytes.
        unsafe { copy_text(log, capacity, "") };
    }
    instantiate_with_flags(out, graph, 0)
}

fn instantiate_with_flags(out: Out<CUgraphExec>, graph: CUgraph, flags: u64) -> CuResult<()> {
    out.check()?;
    capture::check_safe()?;
    // There is no stream for the upload. cuGraphInstantiateWithParams has one.
    if flags & UPLOAD != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    out.set_if_wanted(exec::instantiate(&*body::find(graph)?, flags).map_err(|(error, ..)| error)?);
    Ok(())
}

fn instantiate_with_params(
    out: Out<CUgraphExec>,
    graph: CUgraph,
    place: InOut<CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> CuResult<()> {
    out.check()?;
    capture::check_safe()?;
    let mut params = place.get()?;
    let made = exec::instantiate(&*body::find(graph)?, params.flags);
    (params.result, params.error_node) =
        made.map_or_else(|(_, reason, node)| (reason as i32, node.0 as u64), |_| (0, 0));
    place.set_if_wanted(params);
    let exec = made.map_err(|(error, ..)| error)?;
    if params.flags & UPLOAD != 0
        && let Err(error) = upload(exec, Handle::new(params.upload_stream as usize))
    {
        let _ = exec::destroy(exec);
        return Err(error);
    }
    out.set_if_wanted(exec);
    Ok(())
}

fn exec_get_flags(exec: CUgraphExec, flags: Out<u64>) -> CuResult<()> {
    flags.check()?;
    flags.set_if_wanted(exec::find(exec)?.flags);
    Ok(())
}

fn exec_destroy(exec: CUgraphExec) -> CuResult<()> {
    exec::destroy(exec)
}

fn launch(exec: CUgraphExec, stream: CUstream) -> CuResult<()> {
    exec::launch(exec, stream)
}

/// There is no memory to upload to, but this resets kernels' changes to the host's state.
fn upload(exec: CUgraphExec, stream: CUstream) -> CuResult<()> {
    let exec = exec::find(exec)?;
    let (context, stream) = capture::place_work(stream)?;
    capture::refuse(&stream)?;
    exec.upload();
    let body = exec.body();
    if body.is_updatable() {
        context.submit_work(&stream, move |_| {
            body.for_updatable(&mut |wanted, updatable| drop(updatable.settle(wanted)));
            Ok(())
        });
    }
    Ok(())
}

/// Checks that a kind of node can be disabled: kernels, copies and fills.
fn can_be_disabled(kind: u32) -> CuResult<()> {
    if matches!(kind, params::KERNEL | params::MEMCPY | params::MEMSET) {
        Ok(())
    } else {
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    }
}

fn node_set_enabled(exec: CUgraphExec, node: CUgraphNode, enabled: u32) -> CuResult<()> {
    let exec = exec::find(exec)?;
    let mut body = exec.lock();
    let node = Arc::make_mut(&mut body).find(node).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    can_be_disabled(node.work.kind())?;
    node.enabled = enabled != 0;
    node.changed();
    Ok(())
}

fn node_get_enabled(exec: CUgraphExec, node: CUgraphNode, enabled: Out<u32>) -> CuResult<()> {
    enabled.check()?;
    let exec = exec::find(exec)?;
    let mut body = exec.lock();
    let node = Arc::make_mut(&mut body).find(node).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    can_be_disabled(node.work.kind())?;
    enabled.set_if_wanted(node.enabled.into());
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuGraphInstantiate => instantiate_v1(
        out: Out<CUgraphExec>, graph: CUgraph, node: Out<CUgraphNode>, log: Out<c_char>, capacity: usize);
    cuGraphInstantiate_v2 => instantiate_v1(
        out: Out<CUgraphExec>, graph: CUgraph, node: Out<CUgraphNode>, log: Out<c_char>, capacity: usize);
    cuGraphInstantiateWithFlags => instantiate_with_flags(out: Out<CUgraphExec>, graph: CUgraph, flags: u64);
    cuGraphInstantiateWithParams + cuGraphInstantiateWithParams_ptsz => instantiate_with_params(
        out: Out<CUgraphExec>, graph: CUgraph, params: InOut<CUDA_GRAPH_INSTANTIATE_PARAMS>);
    cuGraphExecGetFlags => exec_get_flags(exec: CUgraphExec, flags: Out<u64>);
    cuGraphExecDestroy => exec_destroy(exec: CUgraphExec);
    cuGraphLaunch + cuGraphLaunch_ptsz => launch(exec: CUgraphExec, stream: CUstream);
    cuGraphUpload + cuGraphUpload_ptsz => upload(exec: CUgraphExec, stream: CUstream);
    cuGraphNodeSetEnabled => node_set_enabled(exec: CUgraphExec, node: CUgraphNode, enabled: u32);
    cuGraphNodeGetEnabled => node_get_enabled(exec: CUgraphExec, node: CUgraphNode, enabled: Out<u32>);
}
