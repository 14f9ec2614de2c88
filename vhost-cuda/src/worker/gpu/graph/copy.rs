// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nodes that copy and fill.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys::{CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS};
use virtio_cuda_protocol::cuda::{
    COPY_ARRAY, COPY_DEVICE, COPY_HOST, CopyEnd, DevicePtr, MemcpyNode, MemsetNode,
};

use super::super::{CUcontext, CUdeviceptr, CUgraphNode, CuResult, CudaError, Driver};

/// `CU_MEMORYTYPE_*`.
const TYPE_HOST: c_uint = 1;
const TYPE_DEVICE: c_uint = 2;
const TYPE_ARRAY: c_uint = 3;
const TYPE_UNIFIED: c_uint = 4;

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RawCopyEnd {
    x: usize,
    y: usize,
    z: usize,
    lod: usize,
    memory_type: c_uint,
    host: *mut c_void,
    device: CUdeviceptr,
    array: *mut c_void,
    reserved: *mut c_void,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RawCopy {
    pub(super) src: RawCopyEnd,
    pub(super) dst: RawCopyEnd,
    pub(super) size: [usize; 3],
}
const _: () = assert!(size_of::<RawCopy>() == size_of::<CUDA_MEMCPY3D>());

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
pub(super) struct RawCopyNode {
    pub(super) flags: c_int,
    pub(super) reserved: c_int,
    pub(super) context: CUcontext,
    pub(super) copy: RawCopy,
}

/// `CUDA_MEMSET_NODE_PARAMS_v2`.
#[repr(C)]
pub(super) struct RawMemsetNode {
    pub(super) memset: RawMemset,
    pub(super) context: CUcontext,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RawMemset {
    pub(super) dst: CUdeviceptr,
    pub(super) pitch: usize,
    pub(super) value: c_uint,
    pub(super) element_bytes: c_uint,
    pub(super) width: usize,
    pub(super) height: usize,
}
const _: () = assert!(size_of::<RawMemset>() == size_of::<CUDA_MEMSET_NODE_PARAMS>());

fn raw_end(end: &CopyEnd) -> RawCopyEnd {
    RawCopyEnd {
        x: end.x as usize,
        y: end.y as usize,
        z: end.z as usize,
        lod: 0,
        // Host memory has an address of the GPU too, and the driver knows which memory is behind it.
        memory_type: match end.kind {
            COPY_DEVICE => TYPE_DEVICE,
            COPY_ARRAY => TYPE_ARRAY,
            _ => TYPE_UNIFIED,
        },
        host: null_mut(),
        device: if end.kind == COPY_ARRAY { 0 } else { end.address.0 },
        array: std::ptr::without_provenance_mut(if end.kind == COPY_ARRAY {
            end.address.0 as usize
        } else {
            0
        }),
        reserved: null_mut(),
        pitch: end.pitch as usize,
        height: end.height as usize,
    }
}

fn end_of(raw: &RawCopyEnd) -> CuResult<CopyEnd> {
    let (kind, address) = match raw.memory_type {
        TYPE_HOST => (COPY_HOST, raw.host as u64),
        TYPE_DEVICE => (COPY_DEVICE, raw.device),
        TYPE_ARRAY => (COPY_ARRAY, raw.array as u64),
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
    let size = [node.size.width as usize, node.size.height as usize, node.size.depth as usize];
    RawCopy { src: raw_end(&node.src), dst: raw_end(&node.dst), size }
}

impl Driver {
    /// A copy node. Addresses are the driver's.
    pub fn memcpy_node(&self, node: CUgraphNode) -> CuResult<MemcpyNode> {
        let mut raw = raw_copy(&MemcpyNode::default());
        // SAFETY: the pointer is to a local of that structure.
        unsafe { self.cuGraphMemcpyNodeGetParams(node, (&raw mut raw).cast()) }?;
        let mut answer =
            MemcpyNode { src: end_of(&raw.src)?, dst: end_of(&raw.dst)?, ..MemcpyNode::default() };
        let [width, height, depth] = raw.size;
        (answer.size.width, answer.size.height, answer.size.depth) =
            (width as u64, height as u64, depth as u64);
        Ok(answer)
    }

    /// A fill node.
    pub fn memset_node(&self, node: CUgraphNode) -> CuResult<MemsetNode> {
        let mut raw = RawMemset { dst: 0, pitch: 0, value: 0, element_bytes: 0, width: 0, height: 0 };
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
