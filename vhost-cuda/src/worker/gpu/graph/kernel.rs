// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nodes that launch kernels.

use std::ffi::{c_uint, c_void};
use std::ptr::{null, null_mut};

use cudarc::driver::sys::CUDA_KERNEL_NODE_PARAMS;
use virtio_cuda_protocol::cuda::{KernelNode, ParamLayout};

use super::super::{CUcontext, CUfunction, CUgraphNode, CUkernel, CuResult, Driver};

/// `CUDA_KERNEL_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RawKernel {
    pub(super) function: CUfunction,
    pub(super) grid: [c_uint; 3],
    pub(super) block: [c_uint; 3],
    pub(super) shared_bytes: c_uint,
    pub(super) parameters: *mut *mut c_void,
    pub(super) extra: *mut *mut c_void,
    pub(super) kernel: CUkernel,
    pub(super) context: CUcontext,
}
const _: () = assert!(size_of::<RawKernel>() == size_of::<CUDA_KERNEL_NODE_PARAMS>());

impl Driver {
    /// A kernel node: function, kernel (one may be null), shape, and the parameters packed as `layout` says for
    /// the two.
    pub fn kernel_node(
        &self,
        node: CUgraphNode,
        layout: impl FnOnce(CUfunction, CUkernel) -> CuResult<Vec<ParamLayout>>,
    ) -> CuResult<(CUfunction, CUkernel, KernelNode, Vec<u8>)> {
        let mut raw = RawKernel {
            function: null_mut(),
            grid: [0; 3],
            block: [0; 3],
            shared_bytes: 0,
            parameters: null_mut(),
            extra: null_mut(),
            kernel: null_mut(),
            context: null_mut(),
        };
        // SAFETY: the pointer is to a local of that structure.
        unsafe { self.cuGraphKernelNodeGetParams_v2(node, (&raw mut raw).cast()) }?;
        let mut block = Vec::new();
        if !raw.parameters.is_null() {
            for (index, one) in layout(raw.function, raw.kernel)?.iter().enumerate() {
                let end = one.offset as usize + one.bytes as usize;
                block.resize(block.len().max(end), 0);
                // SAFETY: the driver gives a pointer for each parameter, to a value of its size; both belong to
                // the node, whose graph the call has for itself (`CallContext::node`).
                unsafe {
                    let value = raw.parameters.add(index).read().cast::<u8>();
                    if !value.is_null() {
                        let place = block[one.offset as usize..end].as_mut_ptr();
                        std::ptr::copy_nonoverlapping(value, place, one.bytes as usize);
                    }
                }
            }
        } else if !raw.extra.is_null() {
            block = packed_block(raw.extra);
        }
        let shape = KernelNode {
            grid: raw.grid,
            block: raw.block,
            shared_bytes: raw.shared_bytes,
            ..KernelNode::default()
        };
        Ok((raw.function, raw.kernel, shape, block))
    }
}

/// The block that an `extra` array of the driver's own names.
fn packed_block(extra: *mut *mut c_void) -> Vec<u8> {
    let (mut address, mut bytes) = (null::<u8>(), 0usize);
    for pair in 0..2 {
        // SAFETY: the array has two pairs, or one and an end, which is 0.
        unsafe {
            match extra.add(2 * pair).read() as usize {
                1 => address = extra.add(2 * pair + 1).read().cast(),
                2 => bytes = extra.add(2 * pair + 1).read().cast::<usize>().read(),
                _ => break,
            }
        }
    }
    if address.is_null() {
        return Vec::new();
    }
    // SAFETY: the node owns a block of that size.
    unsafe { std::slice::from_raw_parts(address, bytes) }.to_vec()
}
