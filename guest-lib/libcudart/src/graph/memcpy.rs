// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copy nodes. All forms are converted to the driver's 3D copy.

use core::ffi::{c_uint, c_void};
use core::ptr;

use crate::abi::driver::CUDA_MEMCPY3D;
use crate::abi::shared::{cudaExtent, cudaMemcpy3DParms, cudaPitchedPtr, cudaPos};
use crate::abi::{cudaGraph_t, cudaGraphExec_t, cudaGraphNode_t};
use crate::error::Result;
use crate::memory::{from_driver, read_direction, symbol_part, to_driver, write_direction};
use crate::pointers::{In, Out};
use crate::{driver, state};

api! {
    fn cudaGraphAddMemcpyNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        parameters: In<cudaMemcpy3DParms>,
    ) {
        state::context()?;
        let copy = to_driver(&parameters.get()?)?;
    } => driver::cuGraphAddMemcpyNode(node, graph, dependencies, count, &copy, state::current_context()?);

    fn cudaGraphAddMemcpyNode1D(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        dst: *mut c_void, src: *const c_void, size: usize, kind: c_uint,
    ) {
        state::context()?;
        let copy = row(dst, src, size, kind)?;
    } => driver::cuGraphAddMemcpyNode(node, graph, dependencies, count, &copy, state::current_context()?);

    fn cudaGraphAddMemcpyNodeToSymbol(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        symbol: *const c_void, src: *const c_void, size: usize, offset: usize, kind: c_uint,
    ) {
        state::context()?;
        let copy = row_to_symbol(symbol, src, size, offset, kind)?;
    } => driver::cuGraphAddMemcpyNode(node, graph, dependencies, count, &copy, state::current_context()?);

    fn cudaGraphAddMemcpyNodeFromSymbol(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        dst: *mut c_void, symbol: *const c_void, size: usize, offset: usize, kind: c_uint,
    ) {
        state::context()?;
        let copy = row_from_symbol(dst, symbol, size, offset, kind)?;
    } => driver::cuGraphAddMemcpyNode(node, graph, dependencies, count, &copy, state::current_context()?);

    fn cudaGraphMemcpyNodeGetParams(node: cudaGraphNode_t, parameters: Out<cudaMemcpy3DParms>) {
        parameters.check()?;
        state::context()?;
        let mut copy = row(ptr::null_mut(), ptr::null(), 0, 0)?;
        // SAFETY: `copy` is a local; the program promises a live node.
        unsafe { driver::cuGraphMemcpyNodeGetParams(node, &mut copy) }?;
        parameters.set(from_driver(&copy)?)
    }

    fn cudaGraphMemcpyNodeSetParams(node: cudaGraphNode_t, parameters: In<cudaMemcpy3DParms>) {
        state::context()?;
    } => driver::cuGraphMemcpyNodeSetParams(node, &to_driver(&parameters.get()?)?);

    fn cudaGraphMemcpyNodeSetParams1D(
        node: cudaGraphNode_t, dst: *mut c_void, src: *const c_void, size: usize, kind: c_uint,
    ) {
        state::context()?;
    } => driver::cuGraphMemcpyNodeSetParams(node, &row(dst, src, size, kind)?);

    fn cudaGraphMemcpyNodeSetParamsToSymbol(
        node: cudaGraphNode_t, symbol: *const c_void, src: *const c_void, size: usize, offset: usize,
        kind: c_uint,
    ) {
        state::context()?;
    } => driver::cuGraphMemcpyNodeSetParams(node, &row_to_symbol(symbol, src, size, offset, kind)?);

    fn cudaGraphMemcpyNodeSetParamsFromSymbol(
        node: cudaGraphNode_t, dst: *mut c_void, symbol: *const c_void, size: usize, offset: usize,
        kind: c_uint,
    ) {
        state::context()?;
    } => driver::cuGraphMemcpyNodeSetParams(node, &row_from_symbol(dst, symbol, size, offset, kind)?);

    fn cudaGraphExecMemcpyNodeSetParams(
        exec: cudaGraphExec_t, node: cudaGraphNode_t, parameters: In<cudaMemcpy3DParms>,
    ) {
        state::context()?;
    } => set_in_exec(exec, node, &to_driver(&parameters.get()?)?);

    fn cudaGraphExecMemcpyNodeSetParams1D(
        exec: cudaGraphExec_t, node: cudaGraphNode_t, dst: *mut c_void, src: *const c_void,
        size: usize, kind: c_uint,
    ) {
        state::context()?;
    } => set_in_exec(exec, node, &row(dst, src, size, kind)?);

    fn cudaGraphExecMemcpyNodeSetParamsToSymbol(
        exec: cudaGraphExec_t, node: cudaGraphNode_t,
        symbol: *const c_void, src: *const c_void, size: usize, offset: usize, kind: c_uint,
    ) {
        state::context()?;
    } => set_in_exec(exec, node, &row_to_symbol(symbol, src, size, offset, kind)?);

    fn cudaGraphExecMemcpyNodeSetParamsFromSymbol(
        exec: cudaGraphExec_t, node: cudaGraphNode_t,
        dst: *mut c_void, symbol: *const c_void, size: usize, offset: usize, kind: c_uint,
    ) {
        state::context()?;
    } => set_in_exec(exec, node, &row_from_symbol(dst, symbol, size, offset, kind)?);
}

/// # Safety
/// `copy` describes valid memory.
unsafe fn set_in_exec(exec: cudaGraphExec_t, node: cudaGraphNode_t, copy: &CUDA_MEMCPY3D) -> Result {
    // SAFETY: `copy` describes valid memory by this function's contract, and the driver only reads it.
    unsafe { driver::cuGraphExecMemcpyNodeSetParams(exec, node, copy, state::current_context()?) }
}

/// Describes `size` consecutive bytes as a 3D copy of one row.
fn row(dst: *mut c_void, src: *const c_void, size: usize, kind: c_uint) -> Result<CUDA_MEMCPY3D> {
    let memory = |ptr| cudaPitchedPtr { ptr, pitch: 0, xsize: 0, ysize: 0 };
    to_driver(&cudaMemcpy3DParms {
        srcArray: ptr::null_mut(),
        srcPos: cudaPos::default(),
        srcPtr: memory(src.cast_mut()),
        dstArray: ptr::null_mut(),
        dstPos: cudaPos::default(),
        dstPtr: memory(dst),
        extent: cudaExtent { width: size, height: 1, depth: 1 },
        kind,
    })
}

fn row_to_symbol(
    symbol: *const c_void,
    src: *const c_void,
    size: usize,
    offset: usize,
    kind: c_uint,
) -> Result<CUDA_MEMCPY3D> {
    let part = symbol_part(symbol, size, offset)?;
    write_direction(kind)?;
    row(part, src, size, kind)
}

fn row_from_symbol(
    dst: *mut c_void,
    symbol: *const c_void,
    size: usize,
    offset: usize,
    kind: c_uint,
) -> Result<CUDA_MEMCPY3D> {
    let part = symbol_part(symbol, size, offset)?;
    read_direction(kind)?;
    row(dst, part, size, kind)
}
