// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Sessions: the stack's own calls, which CUDA does not have.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! session_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Compares call table versions and returns the facts that every process needs first.
            0x0001 custom session_hello(call_table_version: u32) -> (call_table_version: u32, driver_version: i32, device_count: u32) [other same silent no_context];
            /// Bulk out: the text that device code printed to `fd` (1 or 2), as much as fits; `left` bytes remain.
            0x0002 custom session_output(fd: u32) -> (bytes: u64, left: u64) [other same prints no_context];
            /// The calling guest thread has ended.
            0x0003 custom session_thread_exit() -> () [other same prints no_context];
            /// Makes the shared area named `tag` lane number `lane`, that of the calling thread (crate
            /// `virtio-cuda-ring`). Its positions begin at `begins`, where those of the thread that had it last ended.
            0x0004 custom session_lane(tag: u64, lane: u32, begins: u64) -> () [other same silent no_context];
            /// Wakes the calling thread's executor and answers once record `reply` of its lane is answered (if not
            /// 0) and `consumed` bytes of it are consumed. Never in a lane.
            0x0005 custom session_wait(reply: u64, consumed: u64) -> () [idle same silent no_context];
            /// Does nothing, once lane number `lane` has come to `position`; in any case after the records before it.
            0x0006 custom session_order(lane: u32, position: u64) -> () [idle same silent no_context may_post];
            /// Returns the number of copies of host memory that the worker has made for calls that wait, and their time
            /// in nanoseconds.
            0x0007 custom session_statistics() -> (copies: u64, copy_ns: u64) [idle same silent no_context];
            /// Waits until a function of the program is due. `done` is the ticket of the one that has just been run, or
            /// 0. Ticket 0: none is due yet, ask again. `todo` has `CALLBACK_*` bits; `status` is for stream callbacks.
            0x0010 custom session_next_callback(done: u64) -> (ticket: u64, callback: CallbackId, status: i32, todo: u32) [other same silent no_context];
            /// Begins to measure the work of GPUs for a profiler. From then on calls carry the number of the program's API
            /// call in their flags (`CALL_CORRELATION_SHIFT`).
            0x0020 custom trace_start() -> () [other same silent no_context];
            /// Ends the measurement. Its results stay until they are read.
            0x0021 custom trace_stop() -> () [other same silent no_context];
            /// The clock of measurements, in nanoseconds.
            0x0022 custom trace_clock() -> (ns: u64) [other same silent no_context];
            /// Bulk out: completed work (`TraceWork` of the crate `cuda-abi`), as much as fits. `left` pieces remain; `dropped`
            /// were lost for lack of room since the last call.
            0x0023 custom trace_read() -> (bytes: u64, left: u64, dropped: u64) [other same silent no_context];
            /// Bulk out: the name of a kernel, as far as it fits, by its number in a piece of work.
            0x0024 custom trace_name(name: u32) -> (bytes: u64) [other same silent no_context];
        } }
    };
}
