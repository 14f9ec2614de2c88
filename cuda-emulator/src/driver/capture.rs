// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What programs ask about stream capture before they do anything: there is none, since graphs are not supported yet.

use std::cell::Cell;

use super::ffi::{In, Out};
use super::result::{CUresult, CuResult};
use super::stream::{self, CUstream};

thread_local! {
    /// This thread's CUstreamCaptureMode; CU_STREAM_CAPTURE_MODE_GLOBAL to begin with.
    static MODE: Cell<u32> = const { Cell::new(0) };
}

fn is_capturing(handle: CUstream, status: Out<u32>) -> CuResult<()> {
    status.check()?;
    stream::with_stream(handle)?;
    // CU_STREAM_CAPTURE_STATUS_NONE
    status.set(0);
    Ok(())
}

fn capture_info(handle: CUstream, status: Out<u32>, id: Out<u64>) -> CuResult<()> {
    id.set(0);
    is_capturing(handle, status)
}

fn capture_info_v2(
    handle: CUstream,
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<usize>,
    nodes: Out<usize>,
    count: Out<usize>,
) -> CuResult<()> {
    capture_info_v3(handle, status, id, graph, nodes, Out::from_raw(std::ptr::null_mut()), count)
}

fn capture_info_v3(
    handle: CUstream,
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<usize>,
    nodes: Out<usize>,
    edges: Out<usize>,
    count: Out<usize>,
) -> CuResult<()> {
    capture_info(handle, status, id)?;
    for place in [graph, nodes, edges, count] {
        place.set(0);
    }
    Ok(())
}

fn exchange_mode(mode: Out<u32>, wanted: In<u32>) -> CuResult<()> {
    let wanted = wanted.get()?;
    if wanted > 2 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    mode.set(MODE.replace(wanted));
    Ok(())
}

fn exchange_stream_capture_mode(mode: *mut u32) -> CuResult<()> {
    exchange_mode(Out::from_raw(mode), In::from_raw(mode.cast_const()))
}

super::ffi::entries! { after_init
    cuStreamIsCapturing + cuStreamIsCapturing_ptsz => is_capturing(stream: CUstream, status: Out<u32>);
    cuStreamGetCaptureInfo + cuStreamGetCaptureInfo_ptsz => capture_info(
        stream: CUstream, status: Out<u32>, id: Out<u64>);
    cuStreamGetCaptureInfo_v2 + cuStreamGetCaptureInfo_v2_ptsz => capture_info_v2(
        stream: CUstream, status: Out<u32>, id: Out<u64>, graph: Out<usize>, nodes: Out<usize>, count: Out<usize>);
    cuStreamGetCaptureInfo_v3 + cuStreamGetCaptureInfo_v3_ptsz => capture_info_v3(
        stream: CUstream, status: Out<u32>, id: Out<u64>, graph: Out<usize>, nodes: Out<usize>, edges: Out<usize>,
        count: Out<usize>);
    cuThreadExchangeStreamCaptureMode => exchange_stream_capture_mode(mode: *mut u32);
}
