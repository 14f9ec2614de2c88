// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nodes that copy and fill.

use std::ffi::c_uint;

use virtio_cuda_protocol::cuda::{
    COPY_ARRAY, COPY_DEVICE, COPY_HOST, CopyEnd, DevicePtr, MemcpyNode, MemsetNode,
};

use super::super::raw::{RawCopy, RawCopyEnd, RawMemset};
use super::super::{CUgraphNode, CuResult, CudaError, Driver};

/// `CU_MEMORYTYPE_*`.
const TYPE_HOST: c_uint = 1;
const TYPE_DEVICE: c_uint = 2;
const TYPE_ARRAY: c_uint = 3;
const TYPE_UNIFIED: c_uint = 4;

fn raw_end(end: &CopyEnd) -> RawCopyEnd {
    RawCopyEnd {
        x: end.x as usize,
        y: end.y as usize,
        z: end.z as usize,
        // Host memory has a GPU address too, and the driver knows the kind of memory at it.
        memory_type: match end.kind {
            COPY_DEVICE => TYPE_DEVICE,
            COPY_ARRAY => TYPE_ARRAY,
            _ => TYPE_UNIFIED,
        },
        device: if end.kind == COPY_ARRAY { 0 } else { end.address.0 },
        array: if end.kind == COPY_ARRAY { end.address.0 } else { 0 },
        pitch: end.pitch as usize,
        height: end.height as usize,
        ..RawCopyEnd::ZERO
    }
}

fn end_of(raw: &RawCopyEnd) -> CuResult<CopyEnd> {
    let (kind, address) = match raw.memory_type {
        TYPE_HOST => (COPY_HOST, raw.host),
        TYPE_DEVICE => (COPY_DEVICE, raw.device),
        TYPE_ARRAY => (COPY_ARRAY, raw.array),
        TYPE_UNIFIED => (COPY_HOST, raw.device),
        _ => return Err(CudaError::NOT_SUPPORTED),
    };
    Ok(CopyEnd {
        kind,
        address: DevicePtr(address),
        x: raw.x as u64,
        y: raw.y as u64,
        z: raw.z as u64,
        pitch: raw.pitch as u64,
        height: raw.height as u64,
    })
}

pub(super) fn raw_copy(node: &MemcpyNode) -> RawCopy {
    RawCopy {
        src: raw_end(&node.src),
        dst: raw_end(&node.dst),
        width: node.size.width as usize,
        height: node.size.height as usize,
        depth: node.size.depth as usize,
    }
}

impl Driver {
    /// Returns the parameters of a copy node. Addresses are the driver's.
    pub fn memcpy_node(&self, node: CUgraphNode) -> CuResult<MemcpyNode> {
        let mut raw = raw_copy(&MemcpyNode::default());
        // SAFETY: the pointer is to a local of that structure.
        unsafe { self.cuGraphMemcpyNodeGetParams(node, (&raw mut raw).cast()) }?;
        let mut answer =
            MemcpyNode { src: end_of(&raw.src)?, dst: end_of(&raw.dst)?, ..MemcpyNode::default() };
        (answer.size.width, answer.size.height, answer.size.depth) =
            (raw.width as u64, raw.height as u64, raw.depth as u64);
        Ok(answer)
    }

    /// Returns the parameters of a fill node.
    pub fn memset_node(&self, node: CUgraphNode) -> CuResult<MemsetNode> {
        let mut raw = RawMemset::ZERO;
        // SAFETY: the pointer is to a local of that structure.
        unsafe { self.cuGraphMemsetNodeGetParams(node, (&raw mut raw).cast()) }?;
        Ok(MemsetNode {
            dst: DevicePtr(raw.dst),
            pitch: raw.pitch as u64,
            value: raw.value,
            element_bytes: raw.element_bytes,
            width: raw.width as u64,
            height: raw.height as u64,
        })
    }
}
