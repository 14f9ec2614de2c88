// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! CUPTI's activity records, as its header of CUDA 13.5 has them. Each begins with the records of all releases since 12.0, so
//! that one layout serves readers and writers of all of them. `completed` and later times are 0 where they are not measured.

use crate::c_structs;

/// `CUPTI_ACTIVITY_KIND_MEMCPY`
pub const ACTIVITY_MEMCPY: u32 = 1;
/// `CUPTI_ACTIVITY_KIND_MEMSET`
pub const ACTIVITY_MEMSET: u32 = 2;
/// `CUPTI_ACTIVITY_KIND_KERNEL`: kernels, one at a time.
pub const ACTIVITY_KERNEL: u32 = 3;
/// `CUPTI_ACTIVITY_KIND_DRIVER`
pub const ACTIVITY_DRIVER: u32 = 4;
/// `CUPTI_ACTIVITY_KIND_RUNTIME`
pub const ACTIVITY_RUNTIME: u32 = 5;
/// `CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL`
pub const ACTIVITY_CONCURRENT_KERNEL: u32 = 10;
/// `CUPTI_ACTIVITY_KIND_MEMCPY2`: copies between GPUs.
pub const ACTIVITY_MEMCPY2: u32 = 22;
/// `CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION`
pub const ACTIVITY_EXTERNAL_CORRELATION: u32 = 39;

c_structs! {
    /// `CUpti_ActivityKernel13`, packed and aligned to 8 bytes.
    CUpti_ActivityKernel: 248 {
        /// [`ACTIVITY_CONCURRENT_KERNEL`] or [`ACTIVITY_KERNEL`].
        kind: u32,
        /// Requested and used cache configuration, 4 bits each; and that of shared memory.
        cache_config: [u8; 2],
        /// Registers per thread.
        registers: u16,
        /// Partitioned cache, requested and executed.
        partitioned: [u32; 2],
        /// Nanoseconds.
        start: u64,
        /// Nanoseconds.
        end: u64,
        /// Nanoseconds; 0 if it is not known.
        completed: u64,
        /// The device's ordinal.
        device: u32,
        /// The context's number.
        context: u32,
        /// The stream's number.
        stream: u32,
        /// Blocks.
        grid: [u32; 3],
        /// Threads of a block.
        block: [u32; 3],
        /// Bytes.
        static_shared: u32,
        /// Bytes.
        dynamic_shared: u32,
        /// Bytes.
        local_per_thread: u32,
        /// Bytes.
        local_total: u32,
        /// The correlation id of the API call.
        correlation: u32,
        /// The number of the launch.
        grid_id: u64,
        /// `const char *`: the mangled name.
        name: usize,
        /// NULL.
        reserved: usize,
        /// Nanoseconds; 0 if it is not known.
        queued: u64,
        /// Nanoseconds; 0 if it is not known.
        submitted: u64,
        /// Launch type and carve-out.
        launch_type: [u8; 4],
        /// Bytes of shared memory that the driver configured.
        shared_executed: u32,
        /// The node, if a graph launched it.
        graph_node: u64,
        /// `CUpti_FuncShmemLimitConfig`
        shared_limit: u32,
        /// The graph, if one launched it.
        graph: u32,
        /// `CUaccessPolicyWindow *`
        access_policy: usize,
        /// The channel.
        channel: u32,
        /// `CUpti_ChannelType`
        channel_type: u32,
        /// Blocks of a cluster.
        cluster: [u32; 3],
        /// The scheduling policy of clusters.
        cluster_scheduling: u32,
        /// Bytes.
        local_total_64: u64,
        /// Blocks.
        max_potential_cluster: u32,
        /// Clusters.
        max_active_clusters: u32,
        /// 1 if device code launched it, and fields of newer releases.
        later: [u64; 5],
    }

    /// `CUpti_ActivityMemcpy7`
    CUpti_ActivityMemcpy: 112 {
        /// [`ACTIVITY_MEMCPY`]
        kind: u32,
        /// Direction, kinds of memory of source and destination, flags.
        kinds: [u8; 4],
        /// Their number.
        bytes: u64,
        /// Nanoseconds.
        start: u64,
        /// Nanoseconds.
        end: u64,
        /// The device's ordinal.
        device: u32,
        /// The context's number.
        context: u32,
        /// The stream's number.
        stream: u32,
        /// The correlation id of the API call.
        correlation: u32,
        /// 0.
        runtime_correlation: u32,
        /// 0.
        padding: u32,
        /// NULL.
        reserved: usize,
        /// The node, if a graph copied.
        graph_node: u64,
        /// The graph, if one copied.
        graph: u32,
        /// The channel.
        channel: u32,
        /// `CUpti_ChannelType`
        channel_type: u32,
        /// 1 if device code started it.
        device_launched: u32,
        /// Copies in this record.
        copies: u64,
        /// Fields of newer releases.
        later: [u64; 2],
    }

    /// `CUpti_ActivityMemcpyPtoP4`
    CUpti_ActivityMemcpyPtoP: 96 {
        /// [`ACTIVITY_MEMCPY2`]
        kind: u32,
        /// Direction, kinds of memory of source and destination, flags.
        kinds: [u8; 4],
        /// Their number.
        bytes: u64,
        /// Nanoseconds.
        start: u64,
        /// Nanoseconds.
        end: u64,
        /// The ordinal of the device that copied.
        device: u32,
        /// The context's number.
        context: u32,
        /// The stream's number.
        stream: u32,
        /// Device and context of the source.
        source: [u32; 2],
        /// Device and context of the destination.
        destination: [u32; 2],
        /// The correlation id of the API call.
        correlation: u32,
        /// NULL.
        reserved: usize,
        /// The node, if a graph copied.
        graph_node: u64,
        /// The graph, if one copied.
        graph: u32,
        /// The channel.
        channel: u32,
        /// `CUpti_ChannelType`
        channel_type: u32,
        /// 0.
        padding: u32,
    }

    /// `CUpti_ActivityMemset5`
    CUpti_ActivityMemset: 104 {
        /// [`ACTIVITY_MEMSET`]
        kind: u32,
        /// The pattern.
        value: u32,
        /// Their number.
        bytes: u64,
        /// Nanoseconds.
        start: u64,
        /// Nanoseconds.
        end: u64,
        /// The device's ordinal.
        device: u32,
        /// The context's number.
        context: u32,
        /// The stream's number.
        stream: u32,
        /// The correlation id of the API call.
        correlation: u32,
        /// `CUpti_ActivityFlag`
        flags: u16,
        /// `CUpti_ActivityMemoryKind`
        memory_kind: u16,
        /// 0.
        padding: u32,
        /// NULL.
        reserved: usize,
        /// The node, if a graph filled.
        graph_node: u64,
        /// The graph, if one filled.
        graph: u32,
        /// The channel.
        channel: u32,
        /// `CUpti_ChannelType`
        channel_type: u32,
        /// 1 if device code started it.
        device_launched: u32,
        /// Fields of newer releases.
        later: [u64; 2],
    }

    /// `CUpti_ActivityAPI`
    CUpti_ActivityAPI: 40 {
        /// [`ACTIVITY_DRIVER`] or [`ACTIVITY_RUNTIME`].
        kind: u32,
        /// The function: a number of `CUpti_driver_api_trace_cbid` or `CUpti_runtime_api_trace_cbid`.
        cbid: u32,
        /// Nanoseconds.
        start: u64,
        /// Nanoseconds.
        end: u64,
        /// The caller's.
        process: u32,
        /// The caller's.
        thread: u32,
        /// The number of this call.
        correlation: u32,
        /// Its result.
        result: u32,
    }

    /// `CUpti_ActivityExternalCorrelation`
    CUpti_ActivityExternalCorrelation: 24 {
        /// [`ACTIVITY_EXTERNAL_CORRELATION`]
        kind: u32,
        /// `CUpti_ExternalCorrelationKind`
        external_kind: u32,
        /// The id that the program pushed.
        external: u64,
        /// The call's number.
        correlation: u32,
        /// 0.
        reserved: u32,
    }
}

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use super::*;

    /// Numbers of a C program with cupti_activity.h of CUDA 13.5; those of 12.9 are the same as far as its records go.
    #[test]
    fn fields_lie_where_the_header_has_them() {
        let kernel = [
            offset_of!(CUpti_ActivityKernel, registers),
            offset_of!(CUpti_ActivityKernel, start),
            offset_of!(CUpti_ActivityKernel, device),
            offset_of!(CUpti_ActivityKernel, grid),
            offset_of!(CUpti_ActivityKernel, block),
            offset_of!(CUpti_ActivityKernel, static_shared),
            offset_of!(CUpti_ActivityKernel, correlation),
            offset_of!(CUpti_ActivityKernel, grid_id),
            offset_of!(CUpti_ActivityKernel, name),
            offset_of!(CUpti_ActivityKernel, queued),
            offset_of!(CUpti_ActivityKernel, graph_node),
            offset_of!(CUpti_ActivityKernel, graph),
            offset_of!(CUpti_ActivityKernel, channel),
            offset_of!(CUpti_ActivityKernel, cluster),
            offset_of!(CUpti_ActivityKernel, local_total_64),
            offset_of!(CUpti_ActivityKernel, max_active_clusters),
            offset_of!(CUpti_ActivityKernel, later),
        ];
        assert_eq!(kernel, [6, 16, 40, 52, 64, 76, 92, 96, 104, 120, 144, 156, 168, 176, 192, 204, 208]);
        let copy = [
            offset_of!(CUpti_ActivityMemcpy, kinds),
            offset_of!(CUpti_ActivityMemcpy, start),
            offset_of!(CUpti_ActivityMemcpy, correlation),
            offset_of!(CUpti_ActivityMemcpy, graph_node),
            offset_of!(CUpti_ActivityMemcpy, channel_type),
            offset_of!(CUpti_ActivityMemcpy, copies),
            offset_of!(CUpti_ActivityMemcpy, later),
        ];
        assert_eq!(copy, [4, 16, 44, 64, 80, 88, 96]);
        let peer = [
            offset_of!(CUpti_ActivityMemcpyPtoP, source),
            offset_of!(CUpti_ActivityMemcpyPtoP, correlation),
            offset_of!(CUpti_ActivityMemcpyPtoP, graph_node),
            offset_of!(CUpti_ActivityMemcpyPtoP, channel_type),
        ];
        assert_eq!(peer, [44, 60, 72, 88]);
        let fill = [
            offset_of!(CUpti_ActivityMemset, value),
            offset_of!(CUpti_ActivityMemset, start),
            offset_of!(CUpti_ActivityMemset, correlation),
            offset_of!(CUpti_ActivityMemset, memory_kind),
            offset_of!(CUpti_ActivityMemset, graph_node),
            offset_of!(CUpti_ActivityMemset, later),
        ];
        assert_eq!(fill, [4, 16, 44, 50, 64, 88]);
        let call = [
            offset_of!(CUpti_ActivityAPI, start),
            offset_of!(CUpti_ActivityAPI, thread),
            offset_of!(CUpti_ActivityAPI, correlation),
            offset_of!(CUpti_ActivityExternalCorrelation, external),
            offset_of!(CUpti_ActivityExternalCorrelation, correlation),
        ];
        assert_eq!(call, [8, 28, 32, 8, 16]);
    }
}
