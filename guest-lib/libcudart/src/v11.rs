// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names that only `libcudart.so.11.0` exports, and functions that had other parameters in CUDA 11.
//!
//! A comparison of the prototypes of `cuda_runtime_api.h` and `cuda_profiler_api.h` of 11.8 and of 12.9, after the
//! preprocessor, and of the names that NVIDIA's two libraries export showed what is here. Names that CUDA 12 added are
//! compiled as well, and not exported (`libcudart.so.11.0.map`). `cudaProfilerInitialize` answers cudaErrorNotSupported.

use core::ffi::{c_char, c_uint, c_void};
use core::ptr;

use crate::abi::shared::cudaTextureDesc;
use crate::abi::version::cudaResourceDesc;
use crate::abi::{
    cudaGraph_t, cudaGraphExec_t, cudaGraphExecUpdateResultInfo, cudaGraphNode_t, cudaResourceViewDesc,
    cudaTextureObject_t,
};
use crate::error::{Result, cudaErrorSymbolNotFound};
use crate::pointers::{In, Out, not_null};
use crate::{driver, entry_point, state, texture};

mod reference;

api! {
    fn cudaGraphInstantiate(
        exec: *mut cudaGraphExec_t, graph: cudaGraph_t, error_node: *mut cudaGraphNode_t, log: *mut c_char,
        log_bytes: usize,
    ) {
        not_null(exec)?;
        state::context()?;
    } => driver::cuGraphInstantiate_v2(exec, graph, error_node, log, log_bytes);

    fn cudaGraphExecUpdate(
        exec: cudaGraphExec_t, graph: cudaGraph_t, error_node: Out<cudaGraphNode_t>, result: Out<c_uint>,
    ) {
        result.check()?;
        error_node.check()?;
        state::context()?;
        let mut info = cudaGraphExecUpdateResultInfo::ZERO;
        // SAFETY: `info` is a local; the program promises live graphs.
        let updated = unsafe { driver::cuGraphExecUpdate_v2(exec, graph, &mut info) };
        result.set(info.result.cast_unsigned())?;
        error_node.set(ptr::with_exposed_provenance_mut(info.error_node as usize))?;
        updated
    }

    fn cudaGetDriverEntryPoint(symbol: *const c_char, function: *mut *mut c_void, flags: u64) {
    } => find(symbol, function, flags);

    fn cudaGetDriverEntryPoint_ptsz(symbol: *const c_char, function: *mut *mut c_void, flags: u64) {
    } => find(symbol, function, entry_point::per_thread(flags));

    /// Takes the struct that CUDA 12 has under the plain name.
    fn cudaCreateTextureObject_v2(
        texture: *mut cudaTextureObject_t, resource: In<cudaResourceDesc>, desc: *const cudaTextureDesc,
        view: *const cudaResourceViewDesc,
    ) {} => texture::create(texture, resource, desc, size_of::<cudaTextureDesc>(), view);

    fn cudaGetTextureObjectTextureDesc_v2(desc: *mut cudaTextureDesc, texture: cudaTextureObject_t) {
    } => texture::describe(desc, size_of::<cudaTextureDesc>(), texture);
}

/// The function of 11 has no place for a status; it answers cudaErrorSymbolNotFound.
///
/// # Safety
/// `symbol` is a string, `function` is valid for a write, or null.
unsafe fn find(symbol: *const c_char, function: *mut *mut c_void, flags: u64) -> Result {
    let mut status: c_uint = 0;
    // SAFETY: `symbol` and `function` are as `find` wants them by this function's contract; `status` is a local.
    unsafe { entry_point::find(symbol, function, entry_point::OWN_VERSION, flags, &mut status) }?;
    if status == 0 { Ok(()) } else { Err(cudaErrorSymbolNotFound) }
}
