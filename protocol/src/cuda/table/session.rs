// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Sessions: the stack's own calls, which CUDA does not have.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! session_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Compares call table versions and answers what every process asks first.
            0x0001 custom session_hello(call_table_version: u32) -> (call_table_version: u32, driver_version: i32, device_count: u32);
            /// Bulk out: what device code printed to `fd` (1 or 2), as much as fits; `left` bytes are still there.
            0x0002 custom session_output(fd: u32) -> (bytes: u64, left: u64);
            /// The calling guest thread has ended.
            0x0003 custom session_thread_exit() -> ();
        } }
    };
}
