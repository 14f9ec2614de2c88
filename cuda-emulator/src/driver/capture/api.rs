// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls that begin, end and inspect stream captures.

use std::sync::Arc;

use cuda_abi::CUgraphEdgeData;

use super::branch::lock;
use crate::driver::capture::{self, MODE, RELAXED};
use crate::driver::ffi::{In, InOut, Out};
use crate::driver::graph::{self, CUgraph, CUgraphNode, Graph};
use crate::driver::handle::Handle;
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::{self, CUstream, Stream};

/// CUstreamCaptureStatus
const NONE: u32 = 0;
const ACTIVE: u32 = 1;
const INVALIDATED: u32 = 2;
/// CU_STREAM_SET_CAPTURE_DEPENDENCIES
const SET_DEPENDENCIES: u32 = 1;

fn begin_capture(handle: CUstream, mode: u32) -> CuResult<()> {
    if mode > RELAXED {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (_, stream) = stream::with_stream(handle)?;
    capture::begin(&stream, mode, Graph::new(), Vec::new())
}

fn begin_capture_v1(handle: CUstream) -> CuResult<()> {
    begin_capture(handle, capture::GLOBAL)
}

fn begin_capture_to_graph(
    handle: CUstream,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
    mode: u32,
) -> CuResult<()> {
    if mode > RELAXED {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (_, stream) = stream::with_stream(handle)?;
    let graph = graph::find(graph)?;
    let dependencies = graph.read_dependencies(nodes, edges, count)?;
    capture::begin(&stream, mode, graph, dependencies)
}

fn end_capture(handle: CUstream, out: Out<CUgraph>) -> CuResult<()> {
    out.set_if_wanted(Handle::NULL);
    let (_, stream) = stream::with_stream(handle)?;
    let capture = {
        let branch = lock(stream.id);
        let branch = branch.get().ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        if !branch.origin {
            branch.capture.invalidate();
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        Arc::clone(&branch.capture)
    };
    if capture.is_foreign() {
        capture.invalidate();
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }
    capture.end(&stream)?;
    out.set_if_wanted(capture.graph.publish());
    Ok(())
}

/// Returns a stream whose capture status may be queried.
fn inspected(handle: CUstream) -> CuResult<Arc<Stream>> {
    let (context, stream) = stream::with_stream(handle)?;
    if stream.is_legacy() && capture::disturbs(&context) {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    Ok(stream)
}

fn is_capturing(handle: CUstream, status: Out<u32>) -> CuResult<()> {
    capture_info(handle, status, Out::NULL, &mut |_, _| ())
}

/// Receives the graph of a capture and its dependencies: nodes and as many edges.
type Show<'a> = &'a mut dyn FnMut(CUgraph, Option<&(Vec<CUgraphNode>, Vec<CUgraphEdgeData>)>);

fn capture_info(handle: CUstream, status: Out<u32>, id: Out<u64>, show: Show<'_>) -> CuResult<()> {
    status.check()?;
    let stream = inspected(handle)?;
    let mut branch = lock(stream.id);
    let Some(branch) = branch.get_mut() else {
        status.set_if_wanted(NONE);
        id.set_if_wanted(0);
        show(Handle::NULL, None);
        return Ok(());
    };
    id.set_if_wanted(branch.capture.id);
    if branch.capture.is_invalidated() {
        status.set_if_wanted(INVALIDATED);
        show(Handle::NULL, None);
        return Ok(());
    }
    status.set_if_wanted(ACTIVE);
    branch.shown = branch.dependencies.iter().copied().unzip();
    show(branch.capture.graph.publish(), Some(&branch.shown));
    Ok(())
}

fn capture_info_v1(handle: CUstream, status: Out<u32>, id: Out<u64>) -> CuResult<()> {
    capture_info(handle, status, id, &mut |_, _| ())
}

/// The program's places for the graph of a capture and for its dependencies.
struct Places {
    graph: Out<CUgraph>,
    nodes: Out<*const CUgraphNode>,
    edges: Out<*const CUgraphEdgeData>,
    count: Out<usize>,
}

fn capture_info_v2(handle: CUstream, status: Out<u32>, id: Out<u64>, places: Places) -> CuResult<()> {
    let Places { graph, nodes, edges, count } = places;
    let mut result = Ok(());
    capture_info(handle, status, id, &mut |captured, shown| {
        graph.set_if_wanted(captured);
        nodes.set_if_wanted(shown.map_or(std::ptr::null(), |(nodes, _)| nodes.as_ptr()));
        count.set_if_wanted(shown.map_or(0, |(nodes, _)| nodes.len()));
        if !edges.is_null() {
            edges.set_if_wanted(shown.map_or(std::ptr::null(), |(_, edges)| edges.as_ptr()));
        } else if !nodes.is_null() && shown.is_some_and(|(_, edges)| graph::loses_edges(edges)) {
            result = Err(CUresult::CUDA_ERROR_LOSSY_QUERY);
        }
    })?;
    result
}

fn update_dependencies(handle: CUstream, nodes: In<CUgraphNode>, count: usize, flags: u32) -> CuResult<()> {
    update_dependencies_v2(handle, nodes, In::NULL, count, flags)
}

fn update_dependencies_v2(
    handle: CUstream,
    nodes: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
    flags: u32,
) -> CuResult<()> {
    let (_, stream) = stream::with_stream(handle)?;
    let mut branch = lock(stream.id);
    let branch = branch.get_mut().ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    if flags > SET_DEPENDENCIES {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if branch.capture.is_invalidated() {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    let given = branch.capture.graph.read_dependencies(nodes, edges, count)?;
    if flags == SET_DEPENDENCIES {
        branch.dependencies.clear();
    }
    for (node, edge) in given {
        if branch.dependencies.iter().all(|known| *known != (node, edge)) {
            branch.dependencies.push((node, edge));
        }
    }
    Ok(())
}

fn exchange_stream_capture_mode(mode: InOut<u32>) -> CuResult<()> {
    let wanted = mode.get()?;
    if wanted > RELAXED {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    mode.set_if_wanted(MODE.replace(wanted));
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuStreamBeginCapture + cuStreamBeginCapture_ptsz => begin_capture_v1(stream: CUstream);
    cuStreamBeginCapture_v2 + cuStreamBeginCapture_v2_ptsz => begin_capture(stream: CUstream, mode: u32);
    cuStreamBeginCaptureToGraph + cuStreamBeginCaptureToGraph_ptsz => begin_capture_to_graph(
        stream: CUstream, graph: CUgraph, nodes: In<CUgraphNode>, edges: In<CUgraphEdgeData>, count: usize, mode: u32);
    cuStreamEndCapture + cuStreamEndCapture_ptsz => end_capture(stream: CUstream, graph: Out<CUgraph>);
    cuStreamIsCapturing + cuStreamIsCapturing_ptsz => is_capturing(stream: CUstream, status: Out<u32>);
    cuStreamGetCaptureInfo + cuStreamGetCaptureInfo_ptsz => capture_info_v1(
        stream: CUstream, status: Out<u32>, id: Out<u64>);
    cuStreamGetCaptureInfo_v2 + cuStreamGetCaptureInfo_v2_ptsz => capture_info_v2(
        stream: CUstream, status: Out<u32>, id: Out<u64>, graph: Out<CUgraph>, nodes: Out<*const CUgraphNode>,
        count: Out<usize>) as (stream, status, id, Places { graph, nodes, edges: Out::NULL, count });
    cuStreamGetCaptureInfo_v3 + cuStreamGetCaptureInfo_v3_ptsz => capture_info_v2(
        stream: CUstream, status: Out<u32>, id: Out<u64>, graph: Out<CUgraph>, nodes: Out<*const CUgraphNode>,
        edges: Out<*const CUgraphEdgeData>, count: Out<usize>) as (
        stream, status, id, Places { graph, nodes, edges, count });
    cuStreamUpdateCaptureDependencies + cuStreamUpdateCaptureDependencies_ptsz => update_dependencies(
        stream: CUstream, nodes: In<CUgraphNode>, count: usize, flags: u32);
    cuStreamUpdateCaptureDependencies_v2 + cuStreamUpdateCaptureDependencies_v2_ptsz => update_dependencies_v2(
        stream: CUstream, nodes: In<CUgraphNode>, edges: In<CUgraphEdgeData>, count: usize, flags: u32);
    cuThreadExchangeStreamCaptureMode => exchange_stream_capture_mode(mode: InOut<u32>);
}
