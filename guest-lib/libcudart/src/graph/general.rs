// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cudaGraphAddNode and its relatives: one struct for every kind of node.
//!
//! The driver's struct has the same outer layout. The parameters of most kinds begin alike, and the driver's end with a
//! context. Copies differ.

use core::ffi::c_uint;
use core::mem::size_of;
use core::ptr;

use crate::abi::driver::{CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY_NODE_PARAMS, CUgraphNodeParams};
use crate::abi::shared::{cudaGraphNodeParams, cudaKernelNodeParams, cudaMemcpy3DParms};
use crate::abi::{CUcontext, cudaGraph_t, cudaGraphEdgeData, cudaGraphExec_t, cudaGraphNode_t};
use crate::error::{Result, cudaErrorInvalidValue};
use crate::graph::kernel;
use crate::memory::to_driver as copy_to_driver;
use crate::pointers::Out;
use crate::{driver, state};

/// `cudaGraphNodeType` (same values as `CUgraphNodeType`).
const KERNEL: c_uint = 0;
const MEMCPY: c_uint = 1;
const MEMSET: c_uint = 2;
const HOST: c_uint = 3;
const GRAPH: c_uint = 4;
const EMPTY: c_uint = 5;
const WAIT_EVENT: c_uint = 6;
const EVENT_RECORD: c_uint = 7;
const SEMAPHORE_SIGNAL: c_uint = 8;
const SEMAPHORE_WAIT: c_uint = 9;
const MEM_ALLOC: c_uint = 10;
const MEM_FREE: c_uint = 11;
const CONDITIONAL: c_uint = 13;

/// The offset of the description of the copy in `cudaMemcpyNodeParams`, after flags and reserved words.
const MEMCPY_PARAMETERS_OFFSET: usize = 16;

api! {
    fn cudaGraphAddNode / cudaGraphAddNode_v2(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t,
        dependencies: *const cudaGraphNode_t, edges: *const cudaGraphEdgeData, count: usize,
        parameters: Out<cudaGraphNodeParams>,
    ) {
        state::context()?;
        let mut given = parameters.get()?;
        let mut translated = to_driver(&given)?;
        // SAFETY: `translated` is a local; for the other arguments the driver's function has this function's contract.
        unsafe { driver::cuGraphAddNode_v2(node, graph, dependencies, edges, count, &mut translated) }?;
        // Allocations and conditional nodes return results in their parameters.
        if let MEM_ALLOC | CONDITIONAL = given.kind {
            let words = shared_size(given.kind)? / size_of::<u64>();
            given.payload[..words].copy_from_slice(&translated.payload[..words]);
            parameters.set(given)?;
        }
        Ok(())
    }

    fn cudaGraphNodeSetParams(node: cudaGraphNode_t, parameters: Out<cudaGraphNodeParams>) {
        state::context()?;
    } => driver::cuGraphNodeSetParams(node, &mut to_driver(&parameters.get()?)?);

    fn cudaGraphExecNodeSetParams(
        exec: cudaGraphExec_t, node: cudaGraphNode_t, parameters: Out<cudaGraphNodeParams>,
    ) {
        state::context()?;
    } => driver::cuGraphExecNodeSetParams(exec, node, &mut to_driver(&parameters.get()?)?);
}

/// Bytes at the start of a kind's parameters that are the same in both APIs.
fn shared_size(kind: c_uint) -> Result<usize> {
    Ok(match kind {
        MEMSET => 40,
        HOST | GRAPH => 16,
        EMPTY => 0,
        WAIT_EVENT | EVENT_RECORD | MEM_FREE => 8,
        SEMAPHORE_SIGNAL | SEMAPHORE_WAIT | CONDITIONAL => 24,
        MEM_ALLOC => 120,
        _ => return Err(cudaErrorInvalidValue),
    })
}

/// Needs a context.
fn to_driver(given: &cudaGraphNodeParams) -> Result<CUgraphNodeParams> {
    let mut answer = CUgraphNodeParams { payload: [0; 29], ..*given };
    let context = state::current_context()?;
    match given.kind {
        KERNEL => {
            // SAFETY: the payload of this kind begins with these parameters; it is aligned for pointers and
            // larger than they are.
            let kernel: cudaKernelNodeParams = unsafe { read(&given.payload, 0) };
            // SAFETY: the payload is larger than the driver's parameters.
            unsafe { write::<CUDA_KERNEL_NODE_PARAMS>(&mut answer.payload, 0, kernel::to_driver(&kernel)?) };
        }
        MEMCPY => {
            // SAFETY: the payload of this kind holds the copy's description there; see KERNEL.
            let copy: cudaMemcpy3DParms = unsafe { read(&given.payload, MEMCPY_PARAMETERS_OFFSET) };
            let copy = copy_to_driver(&copy)?;
            // The flags are the first word on both sides.
            let flags = given.payload[0] as i32;
            let copy = CUDA_MEMCPY_NODE_PARAMS { flags, reserved: 0, context: context as u64, copy };
            // SAFETY: the payload is larger than the driver's parameters.
            unsafe { write(&mut answer.payload, 0, copy) };
        }
        kind => {
            let size = shared_size(kind)?;
            let words = size / size_of::<u64>();
            answer.payload[..words].copy_from_slice(&given.payload[..words]);
            if let MEMSET | CONDITIONAL = kind {
                // SAFETY: the payload is larger than these parameters and the context after them.
                unsafe { write::<CUcontext>(&mut answer.payload, size, context) };
            }
        }
    }
    Ok(answer)
}

/// # Safety
/// A `T` lies at `offset`, in bytes, and is aligned there.
unsafe fn read<T: Copy>(payload: &[u64; 29], offset: usize) -> T {
    // SAFETY: by this function's contract an aligned `T` lies inside of the payload at that offset.
    unsafe { ptr::from_ref(payload).byte_add(offset).cast::<T>().read() }
}

/// # Safety
/// A `T` has room at `offset`, in bytes, and is aligned there.
unsafe fn write<T>(payload: &mut [u64; 29], offset: usize, value: T) {
    // SAFETY: by this function's contract there is aligned room for a `T` inside of the payload at that offset.
    unsafe { ptr::from_mut(payload).byte_add(offset).cast::<T>().write(value) }
}

const _: () = assert!(MEMCPY_PARAMETERS_OFFSET + size_of::<cudaMemcpy3DParms>() <= 29 * 8);
const _: () =
    assert!(size_of::<CUDA_MEMCPY_NODE_PARAMS>() <= 29 * 8 && size_of::<CUDA_KERNEL_NODE_PARAMS>() <= 29 * 8);
