// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Launches of kernels.

use crate::c_structs;

c_structs! {
    /// `CUlaunchConfig`.
    CUlaunchConfig: 56 {
        /// Blocks.
        grid: [u32; 3],
        /// Threads per block.
        block: [u32; 3],
        /// Bytes of dynamic shared memory.
        shared_bytes: u32,
        /// Padding.
        pad: u32,
        /// The stream.
        stream: u64,
        /// The address of an array of `CUlaunchAttribute`.
        attributes: usize,
        /// Length of the array.
        attribute_count: u32,
        /// Padding.
        tail_pad: u32,
    }

    /// `CUlaunchAttribute` (same layout as `cudaLaunchAttribute`).
    CUlaunchAttribute: 72 {
        /// `CUlaunchAttributeID`.
        id: u32,
        /// Padding.
        pad: u32,
        /// The value of the attribute with this id.
        value: CUlaunchAttributeValue,
    }

    /// `CUDA_LAUNCH_PARAMS`.
    CUDA_LAUNCH_PARAMS: 56 {
        /// The function.
        function: u64,
        /// Blocks.
        grid: [u32; 3],
        /// Threads per block.
        block: [u32; 3],
        /// Bytes of dynamic shared memory.
        shared_bytes: u32,
        /// Padding.
        pad: u32,
        /// The stream.
        stream: u64,
        /// Addresses of the parameters' values.
        params: usize,
    }
}

/// `CUlaunchAttributeValue`.
pub type CUlaunchAttributeValue = [u32; 16];
/// `CUkernelNodeAttrValue`.
pub type CUkernelNodeAttrValue = CUlaunchAttributeValue;
/// `CUstreamAttrValue`.
pub type CUstreamAttrValue = CUlaunchAttributeValue;
