// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Access of one device to the memory of another.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! peer_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Lets the current context reach memory of `peer`.
            0x0c00 forward cuCtxEnablePeerAccess(peer: ContextId, flags: u32) -> () [other same code];
            /// Ends that access.
            0x0c01 forward cuCtxDisablePeerAccess(peer: ContextId) -> () [other same code];
        } }
    };
}
