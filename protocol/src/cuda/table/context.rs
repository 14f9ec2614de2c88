// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Contexts. The current context travels in every call's header, so the stack of them is the guest's own.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! context_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Retains the primary context of `device` and names it `context` (the same name each time).
            0x0201 custom cuDevicePrimaryCtxRetain(device: u32, context: ContextId) -> ();
            /// Gives one retain back.
            0x0202 custom cuDevicePrimaryCtxRelease_v2(device: u32) -> ();
            /// Destroys everything in the primary context; its name becomes free.
            0x0203 custom cuDevicePrimaryCtxReset_v2(device: u32) -> ();
            /// Flags for the primary context.
            0x0204 custom cuDevicePrimaryCtxSetFlags_v2(device: u32, flags: u32) -> ();
            /// Flags and activity of the primary context, as this session made it.
            0x0205 custom cuDevicePrimaryCtxGetState(device: u32) -> (flags: u32, active: i32);
            /// Creates a context named `context`.
            0x0206 custom cuCtxCreate_v2(context: ContextId, flags: u32, device: u32) -> ();
            /// Destroys a context that `cuCtxCreate_v2` made.
            0x0207 custom cuCtxDestroy_v2(context: ContextId) -> ();
            /// Waits for all work of the current context.
            0x0208 forward cuCtxSynchronize() -> ();
            /// A limit of the current context.
            0x0209 custom cuCtxGetLimit(limit: i32) -> (value: u64);
            /// Sets a limit of the current context.
            0x020a custom cuCtxSetLimit(limit: i32, value: u64) -> ();
            /// Preferred cache configuration.
            0x020b custom cuCtxGetCacheConfig() -> (config: i32);
            /// Sets the preferred cache configuration.
            0x020c custom cuCtxSetCacheConfig(config: i32) -> ();
            /// Lowest and highest stream priority.
            0x020d custom cuCtxGetStreamPriorityRange() -> (least: i32, greatest: i32);
            /// Flags of the current context.
            0x020e custom cuCtxGetFlags() -> (flags: u32);
            /// API version a context was made for.
            0x020f custom cuCtxGetApiVersion(context: ContextId) -> (version: u32);
            /// Resets persisting lines of the L2 cache.
            0x0210 forward cuCtxResetPersistingL2Cache() -> ();
        } }
    };
}
