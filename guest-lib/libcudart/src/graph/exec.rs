// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executable graphs.

use core::ffi::c_uint;

use crate::abi::shared::or_per_thread;
use crate::abi::{cudaGraph_t, cudaGraphExec_t, cudaGraphInstantiateParams, cudaGraphNode_t, cudaStream_t};
use crate::pointers::not_null;
use crate::{driver, state};

api! {
    #[cfg(not(cuda_major = "11"))]
    fn cudaGraphInstantiate(exec: *mut cudaGraphExec_t, graph: cudaGraph_t, flags: u64) {
        not_null(exec)?;
        state::context()?;
    } => driver::cuGraphInstantiateWithFlags(exec, graph, flags);

    fn cudaGraphInstantiateWithFlags(exec: *mut cudaGraphExec_t, graph: cudaGraph_t, flags: u64) {
        not_null(exec)?;
        state::context()?;
    } => driver::cuGraphInstantiateWithFlags(exec, graph, flags);

    fn cudaGraphInstantiateWithParams(
        exec: *mut cudaGraphExec_t, graph: cudaGraph_t, parameters: *mut cudaGraphInstantiateParams,
    ) {
        not_null(exec)?;
        state::context()?;
    } => driver::cuGraphInstantiateWithParams(exec, graph, parameters);

    fn cudaGraphInstantiateWithParams_ptsz(
        exec: *mut cudaGraphExec_t, graph: cudaGraph_t, parameters: *mut cudaGraphInstantiateParams,
    ) {
        not_null(exec)?;
        not_null(parameters)?;
        state::context()?;
        // SAFETY: not null, so the program promises parameters, which the call may change.
        let upload_stream = unsafe { &mut (*parameters).upload_stream };
        *upload_stream = or_per_thread(*upload_stream as cudaStream_t) as u64;
    } => driver::cuGraphInstantiateWithParams(exec, graph, parameters);

    fn cudaGraphExecGetFlags(exec: cudaGraphExec_t, flags: *mut u64) {
        state::context()?;
    } => driver::cuGraphExecGetFlags(exec, flags);

    fn cudaGraphExecDestroy(exec: cudaGraphExec_t) {
        state::context()?;
    } => driver::cuGraphExecDestroy(exec);

    fn cudaGraphLaunch, cudaGraphLaunch_ptsz(exec: cudaGraphExec_t, stream: cudaStream_t) per_thread stream {
        state::context()?;
    } => driver::cuGraphLaunch(exec, stream);

    fn cudaGraphUpload, cudaGraphUpload_ptsz(exec: cudaGraphExec_t, stream: cudaStream_t) per_thread stream {
        state::context()?;
    } => driver::cuGraphUpload(exec, stream);

    #[cfg(not(cuda_major = "11"))]
    fn cudaGraphExecUpdate(
        exec: cudaGraphExec_t, graph: cudaGraph_t, result: *mut crate::abi::cudaGraphExecUpdateResultInfo,
    ) {
        state::context()?;
    } => driver::cuGraphExecUpdate_v2(exec, graph, result);

    fn cudaGraphNodeSetEnabled(exec: cudaGraphExec_t, node: cudaGraphNode_t, enabled: c_uint) {
        state::context()?;
    } => driver::cuGraphNodeSetEnabled(exec, node, enabled);

    fn cudaGraphNodeGetEnabled(exec: cudaGraphExec_t, node: cudaGraphNode_t, enabled: *mut c_uint) {
        state::context()?;
    } => driver::cuGraphNodeGetEnabled(exec, node, enabled);
}
