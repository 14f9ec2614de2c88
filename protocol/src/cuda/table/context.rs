// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Contexts. The current context travels in every call's header, so the stack of them is the guest's own.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! context_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Retains the primary context of `device` and names it `context` (the same name each time).
            0x0201 custom cuDevicePrimaryCtxRetain(device: DeviceOrdinal, context: ContextId) -> () [other same code_prints no_context];
            /// Gives back one retain.
            0x0202 custom cuDevicePrimaryCtxRelease_v2(device: DeviceOrdinal) -> () [other changes code_prints no_context];
            /// Destroys everything in the primary context; its name becomes free.
            0x0203 custom cuDevicePrimaryCtxReset_v2(device: DeviceOrdinal) -> () [other changes code_prints no_context];
            /// Flags for the primary context.
            0x0204 custom cuDevicePrimaryCtxSetFlags_v2(device: DeviceOrdinal, flags: u32) -> () [other changes code no_context];
            /// Flags and activity of the primary context, as this session made it.
            0x0205 custom cuDevicePrimaryCtxGetState(device: DeviceOrdinal) -> (flags: u32, active: i32) [other same code no_context];
            /// Creates a context named `context`.
            0x0206 custom cuCtxCreate_v2(context: ContextId, flags: u32, device: DeviceOrdinal) -> () [other same code_prints no_context];
            /// Destroys a context that `cuCtxCreate_v2` made.
            0x0207 destroy cuCtxDestroy_v2(context: ContextId) -> () [other changes code_prints no_context];
            /// Waits for all work of the current context.
            0x0208 forward cuCtxSynchronize() -> () [waits same code_prints];
            /// A limit of the current context.
            0x0209 forward cuCtxGetLimit(limit: i32) -> (value: u64) [other same code] entry first;
            /// Sets a limit of the current context.
            0x020a custom cuCtxSetLimit(limit: i32, value: u64) -> () [other changes code_prints] entry first;
            /// Preferred cache configuration.
            0x020b forward cuCtxGetCacheConfig() -> (config: i32) [other same code] entry first;
            /// Sets the preferred cache configuration.
            0x020c forward cuCtxSetCacheConfig(config: i32) -> () [other changes code] entry first;
            /// Lowest and highest stream priority.
            0x020d forward cuCtxGetStreamPriorityRange() -> (least: i32, greatest: i32) [other same code];
            /// Flags of the current context.
            0x020e forward cuCtxGetFlags() -> (flags: u32) [other same code]
                as context_flags(kept_flags()) entry first;
            /// API version a context was made for.
            0x020f forward cuCtxGetApiVersion(context: ContextId) -> (version: u32) [other same code no_context];
            /// Resets persisting lines of the L2 cache.
            0x0210 forward cuCtxResetPersistingL2Cache() -> () [other same code] entry first;
            /// Records an event that stands for all work of a context so far.
            0x0211 forward cuCtxRecordEvent(context: ContextId, event: EventId) -> () [other same code];
            /// Later work of a context waits for the event's latest record.
            0x0212 forward cuCtxWaitEvent(context: ContextId, event: EventId) -> () [other same code];
            /// Returns a device's resource of a `CUdevResourceType`.
            0x0213 forward cuDeviceGetDevResource(device: DeviceOrdinal, kind: u32) -> (resource: DeviceResource) [other same code no_context];
            /// Returns a context's resource of a `CUdevResourceType`.
            0x0214 forward cuCtxGetDevResource(context: ContextId, kind: u32) -> (resource: DeviceResource) [other same code no_context];
            /// Splits the multiprocessors of the resource named `input`. Bulk out: at most `groups` [`DeviceResource`]s, then the
            /// remaining one; nothing if `groups` is 0, which asks for the number of groups only.
            0x0215 custom cuDevSmResourceSplitByCount(input: u64, groups: u32, flags: u32, min_count: u32) -> (groups: u32) [other same code no_context];
            /// Bulk in: names of resources (`u64`). Creates a description of all of them, named `description`.
            0x0216 create cuDevResourceGenerateDesc(description: ResourceDescId) -> () [other same code no_context] as resource_description(resources());
            /// Creates a green context. `context` names the context that makes it current. The primary context of the device must
            /// be retained.
            0x0217 custom cuGreenCtxCreate(context: ContextId, description: ResourceDescId, device: DeviceOrdinal, flags: u32) -> () [other special code_prints no_context];
            /// Destroys a green context. Objects that were made in it belong to the primary context and stay.
            0x0218 destroy cuGreenCtxDestroy(context: ContextId) -> () [other changes code_prints no_context] as GreenContext(context);
            /// Sets the flags of the current context.
            0x0219 custom cuCtxSetFlags(flags: u32) -> () [other changes code] entry first;
            /// Returns the number of multiprocessors of the current context (`kind` 0).
            0x021a forward cuCtxGetExecAffinity(kind: i32) -> (count: u32) [other same code] as cuCtxGetExecAffinity(multiprocessors(kind));
            /// Makes writes of other devices to the GPU's memory visible.
            0x021b forward cuFlushGPUDirectRDMAWrites(target: i32, scope: i32) -> () [other same code];
            /// Waits for all work of the current context, for the guest library itself. Unlike `cuCtxSynchronize` it never ends a
            /// capture: while a stream captures, it is refused.
            0x021c custom wait_unless_capturing() -> () [waits same prints];
        } }
    };
}
