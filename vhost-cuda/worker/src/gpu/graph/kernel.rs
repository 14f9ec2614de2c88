// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nodes that launch kernels.

use std::ffi::c_void;
use std::ptr::null;

use virtio_cuda_protocol::cuda::{KernelNode, ParamLayout};

use super::super::launch::extra;
use super::super::raw::{RawKernel, RawKernelV1};
use super::super::{CUfunction, CUgraphNode, CUkernel, CuResult, Driver};

impl Driver {
    /// Returns a kernel node: function, kernel (one may be null), shape, and the parameters packed according to the
    /// layout that `layout` returns for the two.
    pub fn kernel_node(
        &self,
        node: CUgraphNode,
        layout: impl FnOnce(CUfunction, CUkernel) -> CuResult<Vec<ParamLayout>>,
    ) -> CuResult<(CUfunction, CUkernel, KernelNode, Vec<u8>)> {
        let mut raw = RawKernel::ZERO;
        // SAFETY: the pointer is to a local of that structure.
        unsafe { self.cuGraphKernelNodeGetParams_v2(node, (&raw mut raw).cast()) }?;
        let mut block = Vec::new();
        let (function, kernel) = (raw.v1.function as CUfunction, raw.kernel as CUkernel);
        let (parameters, extra) = (raw.v1.params as *mut *mut c_void, raw.v1.extra as *mut *mut c_void);
        if !parameters.is_null() {
            for (index, one) in layout(function, kernel)?.iter().enumerate() {
                let end = one.offset as usize + one.bytes as usize;
                block.resize(block.len().max(end), 0);
                // SAFETY: the driver gives a pointer for each parameter, to a value of its size; both belong to
                // the node, whose graph the call has for itself (`CallContext::node`).
                unsafe {
                    let value = parameters.add(index).read().cast::<u8>();
                    if !value.is_null() {
                        let place = block[one.offset as usize..end].as_mut_ptr();
                        std::ptr::copy_nonoverlapping(value, place, one.bytes as usize);
                    }
                }
            }
        } else if !extra.is_null() {
            block = packed_block(extra);
        }
        let shape = KernelNode {
            grid: raw.v1.grid,
            block: raw.v1.block,
            shared_bytes: raw.v1.shared_bytes,
            ..KernelNode::default()
        };
        Ok((function, kernel, shape, block))
    }
}

/// Passes the driver's structure for a kernel node to `body`: function or kernel (the other is null), its shape and
/// packed parameters. The structure points to `params`, and is valid during the call of `body`.
pub(super) fn with_raw_kernel<T>(
    function: CUfunction,
    kernel: CUkernel,
    shape: &KernelNode,
    params: &[u8],
    body: impl FnOnce(RawKernel) -> T,
) -> T {
    let bytes = params.len();
    let mut extra = extra(params, &bytes);
    body(RawKernel {
        v1: RawKernelV1 {
            function: function as u64,
            grid: shape.grid,
            block: shape.block,
            shared_bytes: shape.shared_bytes,
            extra: extra.as_mut_ptr() as usize,
            ..RawKernelV1::ZERO
        },
        kernel: kernel as u64,
        context: 0,
    })
}

/// Returns the block that an `extra` array of the driver refers to.
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
