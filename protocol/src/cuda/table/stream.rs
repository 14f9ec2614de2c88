// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Streams.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! stream_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Creates a stream named `stream`.
            0x0601 custom cuStreamCreateWithPriority(stream: StreamId, flags: u32, priority: i32) -> ();
            /// Destroys a stream; its work completes.
            0x0602 custom cuStreamDestroy_v2(stream: StreamId) -> ();
            /// Waits for the stream's work.
            0x0603 forward cuStreamSynchronize(stream: StreamId) -> ();
            /// `CUDA_ERROR_NOT_READY` while the stream has work.
            0x0604 forward cuStreamQuery(stream: StreamId) -> ();
            /// Later work of the stream waits for the event's latest record.
            0x0605 forward cuStreamWaitEvent(stream: StreamId, event: EventId, flags: u32) -> ();
            /// Flags of a stream.
            0x0606 custom cuStreamGetFlags(stream: StreamId) -> (flags: u32);
            /// Priority of a stream.
            0x0607 custom cuStreamGetPriority(stream: StreamId) -> (priority: i32);
            /// Number of a stream, unique in the process.
            0x0608 custom cuStreamGetId(stream: StreamId) -> (id: u64);
        } }
    };
}
