// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Streams.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! stream_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Creates a stream named `stream`.
            0x0601 create cuStreamCreateWithPriority(stream: StreamId, flags: u32, priority: i32) -> () [other same silent may_post];
            /// Destroys a stream; its work completes.
            0x0602 destroy cuStreamDestroy_v2(stream: StreamId) -> () [other same prints may_post];
            /// Waits for the stream's work.
            0x0603 custom cuStreamSynchronize(stream: StreamId) -> () [idle same prints];
            /// `CUDA_ERROR_NOT_READY` while the stream has work.
            0x0604 forward cuStreamQuery(stream: StreamId) -> () [idle same prints];
            /// Later work of the stream waits for the event's latest record.
            0x0605 forward cuStreamWaitEvent(stream: StreamId, event: EventId, flags: u32) -> () [other same prints may_post];
            /// Flags of a stream.
            0x0606 forward cuStreamGetFlags(stream: StreamId) -> (flags: u32) [other same silent];
            /// Priority of a stream.
            0x0607 forward cuStreamGetPriority(stream: StreamId) -> (priority: i32) [other same silent] entry last / cuStreamGetPriority_ptsz;
            /// Number of a stream, unique in the process.
            0x0608 forward cuStreamGetId(stream: StreamId) -> (id: u64) [other same silent];
            /// Begins to capture the stream's work (`CUstreamCaptureMode`).
            0x0610 custom cuStreamBeginCapture_v2(stream: StreamId, mode: u32) -> () [graphs same silent];
            /// Ends a capture and names the graph it made.
            0x0611 custom cuStreamEndCapture(stream: StreamId) -> (graph: GraphId) [other same silent];
            /// `CUstreamCaptureStatus`.
            0x0612 forward cuStreamIsCapturing(stream: StreamId) -> (status: i32) [other same silent];
            /// Bulk out: as many of the `count` [`NodeLink`]s as fit, the dependencies of the stream's next work.
            0x0613 custom cuStreamGetCaptureInfo_v3(stream: StreamId) -> (status: i32, id: u64, graph: GraphId, count: u32) [other same silent];
            /// Bulk in: [`NodeLink`]s. Sets, or adds to, the dependencies of the stream's next work.
            0x0614 forward cuStreamUpdateCaptureDependencies_v2(stream: StreamId, flags: u32) -> () [other same silent]
                as update_capture(stream, links(), flags);
            /// Bulk in: [`NodeLink`]s. Captures into a graph that exists.
            0x0615 custom cuStreamBeginCaptureToGraph(stream: StreamId, graph: GraphId, mode: u32) -> () [graphs same silent];
            /// Swaps the calling thread's capture mode.
            0x0616 forward cuThreadExchangeStreamCaptureMode(mode: i32) -> (mode: i32) [other same silent] as exchange_capture_mode(mode);
            /// Bulk in: a [`MemcpyNode`]. Adds a copy of memory that the GPU does not reach to a capture.
            0x0617 custom capture_memcpy(stream: StreamId) -> () [other same silent];
            /// Makes the guest run `callback` in stream order.
            0x0620 custom cuLaunchHostFunc(stream: StreamId, callback: CallbackId) -> () [other same silent];
            /// Makes the guest run `callback` in stream order, also after an error.
            0x0621 forward cuStreamAddCallback(stream: StreamId, callback: CallbackId) -> () [other same silent] as add_callback(stream, in_guest(callback));
            /// Sets an attribute (`CUlaunchAttributeID`) to a `CUlaunchAttributeValue`.
            0x0628 forward cuStreamSetAttribute(stream: StreamId, attribute: i32, value: [u8; 64]) -> () [other special silent]
                as set_stream_attribute(attribute, attribute_value(attribute, value), stream);
            /// An attribute of a stream.
            0x0629 forward cuStreamGetAttribute(stream: StreamId, attribute: i32) -> (value: [u8; 64]) [other same silent]
                as stream_attribute(stream, attribute);
            /// Copies all attributes.
            0x062a forward cuStreamCopyAttributes(dst: StreamId, src: StreamId) -> () [other special silent];
            /// Bulk in: [`MemoryOperation`]s, executed in stream order; they wait for and write single values.
            0x0630 forward cuStreamBatchMemOp_v2(stream: StreamId, flags: u32) -> () [other same silent] as memory_operations(stream, operations(), flags);
        } }
    };
}
