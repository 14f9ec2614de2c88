// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Events.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! event_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Creates an event named `event`.
            0x0701 create cuEventCreate(event: EventId, flags: u32) -> () [other same silent may_post];
            /// Destroys an event.
            0x0702 destroy cuEventDestroy_v2(event: EventId) -> () [other same prints may_post];
            /// Records the event in a stream.
            0x0703 forward cuEventRecordWithFlags(event: EventId, stream: StreamId, flags: u32) -> () [other same prints may_post];
            /// `CUDA_ERROR_NOT_READY` until the event's latest record is reached.
            0x0704 forward cuEventQuery(event: EventId) -> () [idle same prints];
            /// Waits for the event's latest record.
            0x0705 forward cuEventSynchronize(event: EventId) -> () [idle same prints];
            /// Milliseconds between two completed events, by the GPU's clock.
            0x0706 forward cuEventElapsedTime_v2(start: EventId, end: EventId) -> (milliseconds: f32) [other same silent];
        } }
    };
}
