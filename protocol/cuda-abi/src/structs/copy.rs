// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Copies, fills and operations on single values.

use crate::c_structs;

c_structs! {
    /// One end of `CUDA_MEMCPY2D`.
    CopyEnd2D: 56 {
        /// Bytes into the row.
        x: usize,
        /// Row.
        y: usize,
        /// `CU_MEMORYTYPE_*`.
        memory_type: u32,
        /// Padding.
        pad: u32,
        /// The address of host memory.
        host: u64,
        /// The address of device and unified memory.
        device: u64,
        /// The handle of an array.
        array: u64,
        /// Bytes from row to row.
        pitch: usize,
    }

    /// `CUDA_MEMCPY2D`.
    CUDA_MEMCPY2D: 128 {
        /// Source.
        src: CopyEnd2D,
        /// Destination.
        dst: CopyEnd2D,
        /// Bytes per row.
        width: usize,
        /// Rows.
        height: usize,
    }

    /// One end of `CUDA_MEMCPY3D` or `CUDA_MEMCPY3D_PEER`.
    CopyEnd3D: 88 {
        /// Bytes into the row.
        x: usize,
        /// Row.
        y: usize,
        /// Slice.
        z: usize,
        /// Must be 0.
        lod: usize,
        /// `CU_MEMORYTYPE_*`.
        memory_type: u32,
        /// Padding.
        pad: u32,
        /// The address of host memory.
        host: u64,
        /// The address of device and unified memory.
        device: u64,
        /// The handle of an array.
        array: u64,
        /// The context in a copy between peers; otherwise reserved.
        context: u64,
        /// Bytes from row to row.
        pitch: usize,
        /// Rows from slice to slice.
        height: usize,
    }

    /// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
    CUDA_MEMCPY3D: 200 {
        /// Source.
        src: CopyEnd3D,
        /// Destination.
        dst: CopyEnd3D,
        /// Bytes per row.
        width: usize,
        /// Rows.
        height: usize,
        /// Slices.
        depth: usize,
    }

    /// `CUDA_MEMSET_NODE_PARAMS`.
    CUDA_MEMSET_NODE_PARAMS: 40 {
        /// The first byte.
        dst: u64,
        /// Bytes from row to row.
        pitch: usize,
        /// The value; its first `element_bytes` bytes are used.
        value: u32,
        /// Bytes per element: 1, 2 or 4.
        element_bytes: u32,
        /// Elements per row.
        width: usize,
        /// Rows.
        height: usize,
    }

    /// `CUstreamBatchMemOpParams`.
    CUstreamBatchMemOpParams: 48 (Eq) {
        /// `CUstreamBatchMemOpType`.
        operation: u32,
        /// The flags of operations that have no address.
        short_flags: u32,
        /// The address of the value.
        address: u64,
        /// The value to wait for or to write.
        value: u64,
        /// The flags.
        flags: u32,
        /// Padding.
        pad: u32,
        /// Unused.
        alias: u64,
        /// Unused: the union is longer.
        rest: u64,
    }

    /// `CUmemcpy3DOperand`.
    CUmemcpy3DOperand: 40 {
        /// `CU_MEMCPY_OPERAND_TYPE_*`.
        kind: u32,
        /// Padding.
        pad: u32,
        /// The union: address, elements per row, rows per slice and a `CUmemLocation`; or array and offset.
        words: [u64; 4],
    }

    /// `CUDA_MEMCPY3D_BATCH_OP`.
    CUDA_MEMCPY3D_BATCH_OP: 112 {
        /// Source.
        src: CUmemcpy3DOperand,
        /// Destination.
        dst: CUmemcpy3DOperand,
        /// Elements per row, rows and slices.
        extent: [usize; 3],
        /// `CU_MEMCPY_SRC_ACCESS_ORDER_*`.
        access_order: u32,
        /// `CU_MEMCPY_FLAG_*` bits.
        flags: u32,
    }
}

/// `CUDA_MEMCPY3D_PEER`.
pub type CUDA_MEMCPY3D_PEER = CUDA_MEMCPY3D;

/// `CU_MEMORYTYPE_*`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

impl CopyEnd2D {
    /// Rows of host memory.
    pub fn host(address: u64, pitch: usize) -> Self {
        Self { memory_type: HOST, host: address, pitch, ..Self::ZERO }
    }

    /// Rows of device memory.
    pub fn device(address: u64, pitch: usize) -> Self {
        Self { memory_type: DEVICE, device: address, pitch, ..Self::ZERO }
    }
}
