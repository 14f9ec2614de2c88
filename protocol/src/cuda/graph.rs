// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The parts of graphs, as bulk data: nodes with their parameters, and the edges between them.
//!
//! A node's parameters are the struct of its kind below; a kernel's are followed by its packed parameter
//! block, a conditional node's by the names of its graphs, those of a node of memory operations by the operations.

use super::handle::{CallbackId, DeviceOrdinal, DevicePtr, EventId, FunctionId, GraphId, GraphNodeId};
use super::value::{wire_structs, Box3, Wire};

/// `CU_GRAPH_NODE_TYPE_*`.
pub const NODE_KERNEL: u32 = 0;
/// A copy.
pub const NODE_MEMCPY: u32 = 1;
/// A fill.
pub const NODE_MEMSET: u32 = 2;
/// A function of the program.
pub const NODE_HOST: u32 = 3;
/// A graph in a graph.
pub const NODE_GRAPH: u32 = 4;
/// Nothing.
pub const NODE_EMPTY: u32 = 5;
/// Waits for an event.
pub const NODE_WAIT_EVENT: u32 = 6;
/// Records an event.
pub const NODE_EVENT_RECORD: u32 = 7;
/// Signals semaphores of other APIs, whose number must be 0.
pub const NODE_SEMAPHORES_SIGNAL: u32 = 8;
/// Waits for semaphores of other APIs, whose number must be 0.
pub const NODE_SEMAPHORES_WAIT: u32 = 9;
/// Allocates.
pub const NODE_MEM_ALLOC: u32 = 10;
/// Frees.
pub const NODE_MEM_FREE: u32 = 11;
/// Waits for and writes values.
pub const NODE_BATCH_MEM_OP: u32 = 12;
/// Runs a graph if, or while, device code says so.
pub const NODE_CONDITIONAL: u32 = 13;

/// [`CopyEnd::kind`]: packed rows in the call's bulk data (`memcpy_box` only).
pub const COPY_BULK: u32 = 0;
/// [`CopyEnd::kind`]: host memory, by an address that the GPU reaches.
pub const COPY_HOST: u32 = 1;
/// [`CopyEnd::kind`]: device memory.
pub const COPY_DEVICE: u32 = 2;

/// [`CopyEnd::kind`]: an array, by its name instead of an address.
pub const COPY_ARRAY: u32 = 3;

/// `session_next_callback`: run the function and answer with its ticket.
pub const CALLBACK_RUN: u32 = 1 << 0;
/// `session_next_callback`: nothing refers to the function any more.
pub const CALLBACK_FORGET: u32 = 1 << 1;

/// Bytes of a [`NodeLink`] on the wire.
pub const NODE_LINK_BYTES: usize = NodeLink::BYTES;
/// Bytes of a [`GraphEdge`] on the wire.
pub const GRAPH_EDGE_BYTES: usize = GraphEdge::BYTES;
/// Bytes of a [`LaunchAttribute`] on the wire.
pub const LAUNCH_ATTRIBUTE_BYTES: usize = LaunchAttribute::BYTES;
/// Bytes of a [`MemoryOperation`] on the wire.
pub const MEMORY_OPERATION_BYTES: usize = MemoryOperation::BYTES;

wire_structs! {
    /// One end of an edge, seen from the other.
    NodeLink {
        /// The node at the other end.
        node: GraphNodeId,
        /// `CUgraphEdgeData`.
        data: [u8; 8],
    }

    /// An edge.
    GraphEdge {
        /// The node that comes first.
        from: GraphNodeId,
        /// The node that depends on it.
        to: GraphNodeId,
        /// `CUgraphEdgeData`.
        data: [u8; 8],
    }

    /// [`NODE_KERNEL`].
    KernelNode {
        /// The function or kernel.
        function: FunctionId,
        /// Blocks in x, y, z.
        grid: [u32; 3],
        /// Threads per block in x, y, z.
        block: [u32; 3],
        /// Bytes of dynamic shared memory per block.
        shared_bytes: u32,
    }

    /// One end of a copy, as `CUDA_MEMCPY3D` has it.
    CopyEnd {
        /// `COPY_*`.
        kind: u32,
        /// Address, or the name of an array.
        address: DevicePtr,
        /// Bytes into the row.
        x: u64,
        /// First row.
        y: u64,
        /// First slice.
        z: u64,
        /// Bytes from row to row; 0 for rows without gaps.
        pitch: u64,
        /// Rows from slice to slice; 0 for slices without gaps.
        height: u64,
    }

    /// [`NODE_MEMCPY`].
    MemcpyNode {
        /// Destination.
        dst: CopyEnd,
        /// Source.
        src: CopyEnd,
        /// The size of the copied box.
        size: Box3,
        /// Runs before each copy and fetches a source that the GPU cannot reach; 0 for none.
        before: CallbackId,
        /// Runs after each copy and moves the data to a destination that the GPU cannot reach; 0 for none.
        after: CallbackId,
    }

    /// [`NODE_MEMSET`].
    MemsetNode {
        /// First byte.
        dst: DevicePtr,
        /// Bytes from row to row.
        pitch: u64,
        /// The value.
        value: u32,
        /// Bytes of an element: 1, 2 or 4.
        element_bytes: u32,
        /// Elements per row.
        width: u64,
        /// Rows.
        height: u64,
    }

    /// [`NODE_HOST`].
    HostNode {
        /// The function.
        callback: CallbackId,
    }

    /// [`NODE_GRAPH`].
    ChildGraphNode {
        /// The graph that is copied into the node.
        graph: GraphId,
    }

    /// [`NODE_WAIT_EVENT`] and [`NODE_EVENT_RECORD`].
    EventNode {
        /// The event.
        event: EventId,
    }

    /// [`NODE_MEM_ALLOC`].
    MemAllocNode {
        /// Bytes.
        bytes: u64,
        /// The device that the memory is on.
        device: DeviceOrdinal,
    }

    /// [`NODE_MEM_FREE`].
    MemFreeNode {
        /// The address that an allocating node gave.
        dptr: DevicePtr,
    }

    /// [`NODE_CONDITIONAL`].
    ConditionalNode {
        /// The result of `cuGraphConditionalHandleCreate`.
        handle: u64,
        /// `CUgraphConditionalNodeType`.
        kind: u32,
        /// Graphs in the node.
        graphs: u32,
    }

    /// [`NODE_BATCH_MEM_OP`]; [`MemoryOperation`]s follow.
    BatchMemOpNode {
        /// Flags of the node.
        flags: u32,
    }

    /// `CUstreamBatchMemOpParams`.
    MemoryOperation {
        /// `CUstreamBatchMemOpType`.
        operation: u32,
        /// Flags of the operation.
        flags: u32,
        /// The value's address.
        address: DevicePtr,
        /// The value; the low half for 32-bit operations.
        value: u64,
    }

    /// `CUlaunchAttribute`.
    LaunchAttribute {
        /// `CUlaunchAttributeID`.
        id: u32,
        /// Zero.
        reserved: u32,
        /// `CUlaunchAttributeValue`, as words; handles in it are the guest's.
        value: [u32; 16],
    }
}
