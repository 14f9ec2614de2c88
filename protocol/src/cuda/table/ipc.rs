// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Sharing between processes. Guest processes exchange tokens that the device has issued.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! ipc_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Offers device memory to other processes.
            0x0d00 custom cuIpcGetMemHandle(dptr: DevicePtr) -> (token: [u8; 16]) [other same code];
            /// Opens memory that another process has offered.
            0x0d01 custom cuIpcOpenMemHandle_v2(token: [u8; 16], flags: u32) -> (dptr: DevicePtr, bytes: u64) [other same code];
            /// Closes memory that was opened. `last` is 1 if it is no longer open.
            0x0d02 custom cuIpcCloseMemHandle(dptr: DevicePtr) -> (last: u32) [other same code];
            /// Offers an event to other processes.
            0x0d03 custom cuIpcGetEventHandle(event: EventId) -> (token: [u8; 16]) [other same code];
            /// Opens an event that another process has offered, as `event`.
            0x0d04 create cuIpcOpenEventHandle(event: EventId, token: [u8; 16]) -> () [other same code] as open_event(shared_event(token));
            /// Offers an allocation to other processes.
            0x0d05 custom cuMemExportToShareableHandle(handle: AllocationId) -> (token: [u8; 16]) [other same code];
            /// Opens an allocation that another process has offered, as `handle`.
            0x0d06 custom cuMemImportFromShareableHandle(handle: AllocationId, token: [u8; 16]) -> () [other same code];
        } }
    };
}
