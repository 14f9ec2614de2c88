// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Graphs.

use crate::c_structs;

c_structs! {
    /// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
    CUDA_GRAPH_INSTANTIATE_PARAMS: 32 {
        /// `CUDA_GRAPH_INSTANTIATE_FLAG_*` bits.
        flags: u64,
        /// The stream on which the graph is uploaded.
        upload_stream: u64,
        /// The node that caused the error.
        error_node: u64,
        /// `CUgraphInstantiateResult`.
        result: i32,
        /// Padding.
        tail_pad: u32,
    }

    /// `CUgraphExecUpdateResultInfo`.
    CUgraphExecUpdateResultInfo: 24 {
        /// `CUgraphExecUpdateResult`.
        result: i32,
        /// Padding.
        pad: u32,
        /// The node that caused the error.
        error_node: u64,
        /// The start of the edge to that node.
        error_from_node: u64,
    }

    /// `CUgraphEdgeData`.
    CUgraphEdgeData: 8 (Eq, Default) {
        /// `CU_GRAPH_KERNEL_NODE_PORT_*`.
        from_port: u8,
        /// Zero.
        to_port: u8,
        /// `CUgraphDependencyType`.
        kind: u8,
        /// Zero.
        reserved: [u8; 5],
    }
}
