// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Stream capture. The device knows what is capturing. Here is stored only which streams could be capturing, so that
//! programs without captures have no overhead.

use std::cell::RefCell;

use virtio_cuda_client::protocol::{GraphId, GraphNodeId, NODE_LINK_BYTES, NodeLink, Reader, Wire};
use virtio_cuda_client::{CudaError, caller, calls, changes};

use crate::answer;
use crate::api::PER_THREAD;
use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, In, Out};
use crate::wire::links_in;

/// `CU_STREAM_CAPTURE_STATUS_*`.
const NOT_CAPTURING: i32 = 0;
const ACTIVE: i32 = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`, the last mode.
const RELAXED: u32 = 2;
/// `CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD`, `CUDA_ERROR_ILLEGAL_STATE`: the capture continues, or there is none.
const WRONG_THREAD: i32 = 908;
const ILLEGAL_STATE: i32 = 401;
/// Number of dependencies in the buffer for the first reply.
const USUAL_LINKS: usize = 64;

thread_local! {
    /// The nodes and edges to which `cuStreamGetCaptureInfo` last returned pointers.
    static ANSWER: RefCell<(Vec<u64>, Vec<[u8; 8]>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// The result of `cuStreamGetCaptureInfo`.
struct Info {
    status: i32,
    id: u64,
    graph: u64,
    links: Vec<NodeLink>,
}

fn begin(api: Api, stream: u64, mode: u32) -> Result<(), CudaError> {
    let mut call = api.in_context_of(stream)?;
    let begin = || calls::cuStreamBeginCapture_v2(&mut call, api.stream(stream)?, mode);
    api.driver.captures.begin(api.capturing(stream)?, begin)
}

fn info(api: Api, stream: u64) -> Result<Info, CudaError> {
    if !api.driver.captures.any() {
        // The handle is checked nevertheless.
        api.context_of_stream(stream)?;
        return Ok(Info { status: NOT_CAPTURING, id: 0, graph: 0, links: Vec::new() });
    }
    let ((status, id, graph, count), links) = answer::fetch(USUAL_LINKS * NODE_LINK_BYTES, |room| {
        let mut call = api.in_context_of(stream)?.output(room);
        let info = calls::cuStreamGetCaptureInfo_v3(&mut call, api.stream(stream)?)?;
        Ok((info, u64::from(info.3) * NODE_LINK_BYTES as u64))
    })?;
    let mut reader = Reader::new(&links);
    let take = |_| NodeLink::take(&mut reader).map_err(|_| CudaError::UNKNOWN);
    let links = (0..count).map(take).collect::<Result<Vec<_>, _>>()?;
    Ok(Info { status, id, graph: graph.0, links })
}

/// The pointers of `cuStreamGetCaptureInfo_v2` and `_v3`.
struct InfoPlaces {
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<u64>,
    nodes: Out<usize>,
    edges: Option<Out<usize>>,
    count: Out<usize>,
}

/// Stores results through the pointers of `cuStreamGetCaptureInfo_v2` and, with `edges`, of `_v3`.
fn answer(api: Api, stream: u64, places: InfoPlaces) -> Result<(), CudaError> {
    let InfoPlaces { status, id, graph, nodes, edges, count } = places;
    status.check()?;
    let info = info(api, stream)?;
    if info.status == ACTIVE {
        id.set_if_wanted(info.id);
        graph.set_if_wanted(info.graph);
        count.set_if_wanted(info.links.len());
        ANSWER.with_borrow_mut(|kept| {
            *kept = info.links.iter().map(|link| (link.node.0, link.data)).unzip();
            nodes.set_if_wanted(kept.0.as_ptr() as usize);
            if let Some(edges) = edges {
                edges.set_if_wanted(kept.1.as_ptr() as usize);
            }
        });
    }
    status.set(info.status)
}

fn update(
    api: Api,
    stream: u64,
    nodes: In<u64>,
    edges: Option<In<[u8; 8]>>,
    count: usize,
    flags: u32,
) -> Result<(), CudaError> {
    if !api.driver.captures.any() {
        return CudaError::check(ILLEGAL_STATE);
    }
    let bytes = links_in(nodes, edges, count)?;
    let mut call = api.in_context_of(stream)?.input(&bytes);
    calls::cuStreamUpdateCaptureDependencies_v2(&mut call, api.stream(stream)?, flags)
}

entry_points! {
    /// Begins a capture in global mode.
    call cuStreamBeginCapture / cuStreamBeginCapture_ptsz (api, hStream: u64) {
        begin(api, hStream, 0)
    }

    /// Begins a capture.
    call cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz (api, hStream: u64, mode: u32) {
        begin(api, hStream, mode)
    }

    /// Begins a capture into an existing graph.
    call cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz (api, hStream: u64, hGraph: u64,
        dependencies: In<u64>, dependencyData: In<[u8; 8]>, numDependencies: usize, mode: u32) {
        let bytes = links_in(dependencies, Some(dependencyData), numDependencies)?;
        let call = api.in_context_of(hStream)?.input(&bytes);
        let (stream, retraced) = (api.capturing(hStream)?, &api.driver.retraced);
        // A stream of the program, into an empty graph: there is nothing to refuse.
        let post = hStream > PER_THREAD && mode <= RELAXED && bytes.is_empty() && retraced.is_empty(hGraph) && api.may_post(hStream);
        // The call itself is counted.
        let counted = changes::in_captures() + 1;
        let mut call = call.posted_if(post);
        let begin = || calls::cuStreamBeginCaptureToGraph(&mut call, api.stream(hStream)?, GraphId(hGraph), mode);
        let begun = api.driver.captures.begin(stream, begin);
        match begun {
            Ok(()) if post => retraced.begun(stream, hGraph, mode, counted),
            _ => _ = retraced.forget(hGraph),
        }
        begun
    }

    /// Ends a capture.
    call cuStreamEndCapture / cuStreamEndCapture_ptsz (api, hStream: u64, phGraph: Out<u64>) {
        let call = api.in_context_of(hStream)?;
        let stream = api.capturing(hStream);
        // The graph that the call returns is known if the program made no other call meanwhile that could have ended the capture.
        let retraced = stream.as_ref().ok().and_then(|stream| api.driver.retraced.end(*stream, changes::in_captures()));
        let graph = retraced.map_or(0, |(graph, _)| graph).to_le_bytes();
        let post = retraced.is_some_and(|(_, work)| api.driver.retraced.has_ended(work)) && api.may_post_captured(hStream);
        let mut call = call.results(&graph).posted_if(post);
        let ended = calls::cuStreamEndCapture(&mut call, api.stream(hStream)?);
        if let (Some((graph, work)), Ok(GraphId(ended))) = (retraced, &ended)
            && graph == *ended
        {
            api.driver.retraced.ended(graph, work);
        }
        let goes_on = |error: &CudaError| {
            matches!(error.code(), WRONG_THREAD | ILLEGAL_STATE) || *error == CudaError::INVALID_HANDLE
        };
        if caller::has_taken() {
            // The error of an earlier call was returned in place of the end.
            let _ = calls::cuStreamEndCapture(&mut api.internal().in_context_of(hStream)?, api.stream(hStream)?);
        }
        if caller::has_taken() || !ended.as_ref().is_err_and(goes_on) {
            api.driver.captures.ended(stream?);
        }
        phGraph.set_if_wanted(ended.map(|graph| graph.0).unwrap_or(0));
        ended.map(|_| ())
    }

    /// Reports whether the stream captures.
    call cuStreamIsCapturing / cuStreamIsCapturing_ptsz (api, hStream: u64, captureStatus: Out<i32>) {
        captureStatus.check()?;
        if !api.driver.captures.any() {
            api.context_of_stream(hStream)?;
            return captureStatus.set(NOT_CAPTURING);
        }
        captureStatus.set(calls::cuStreamIsCapturing(&mut api.in_context_of(hStream)?, api.stream(hStream)?)?)
    }

    /// Returns the state of the stream's capture.
    call cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz (api, hStream: u64, captureStatus_out: Out<i32>, id_out: Out<u64>) {
        captureStatus_out.check()?;
        let info = info(api, hStream)?;
        if info.status == ACTIVE {
            id_out.set_if_wanted(info.id);
        }
        captureStatus_out.set(info.status)
    }

    /// Returns the state of the stream's capture. The nodes are valid until the thread's next such call.
    call cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz (api, hStream: u64, captureStatus_out: Out<i32>,
        id_out: Out<u64>, graph_out: Out<u64>, dependencies_out: Out<usize>, numDependencies_out: Out<usize>) {
        let places = InfoPlaces {
            status: captureStatus_out, id: id_out, graph: graph_out, nodes: dependencies_out, edges: None, count: numDependencies_out,
        };
        answer(api, hStream, places)
    }

    /// Returns the state of the stream's capture. Nodes and edges are valid until the thread's next such call.
    call cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz (api, hStream: u64, captureStatus_out: Out<i32>,
        id_out: Out<u64>, graph_out: Out<u64>, dependencies_out: Out<usize>, edgeData_out: Out<usize>, numDependencies_out: Out<usize>) {
        let places = InfoPlaces {
            status: captureStatus_out, id: id_out, graph: graph_out, nodes: dependencies_out, edges: Some(edgeData_out), count: numDependencies_out,
        };
        answer(api, hStream, places)
    }

    /// Changes the dependencies of the stream's next work.
    call cuStreamUpdateCaptureDependencies / cuStreamUpdateCaptureDependencies_ptsz (api, hStream: u64,
        dependencies: In<u64>, numDependencies: usize, flags: u32) {
        update(api, hStream, dependencies, None, numDependencies, flags)
    }

    /// Changes the dependencies of the stream's next work.
    call cuStreamUpdateCaptureDependencies_v2 / cuStreamUpdateCaptureDependencies_v2_ptsz (api, hStream: u64,
        dependencies: In<u64>, dependencyData: In<[u8; 8]>, numDependencies: usize, flags: u32) {
        update(api, hStream, dependencies, Some(dependencyData), numDependencies, flags)
    }

    /// Swaps the calling thread's capture mode.
    call cuThreadExchangeStreamCaptureMode(api, mode: Out<i32>) {
        let new = mode.get()?;
        if !(0..=2).contains(&new) {
            return Err(CudaError::INVALID_VALUE);
        }
        mode.set(calls::cuThreadExchangeStreamCaptureMode(&mut api.call(), new)?)
    }
}

const _: () = assert!(size_of::<GraphNodeId>() == 8 && size_of::<HostPtr>() == 8);
