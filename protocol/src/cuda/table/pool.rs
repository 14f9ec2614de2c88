// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Memory pools.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! pool_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Creates a pool named `pool`.
            0x0980 create cuMemPoolCreate(pool: MemoryPoolId, properties: PoolProperties) -> () [other same code no_context] as cuMemPoolCreate(private(properties));
            /// Destroys a pool that `cuMemPoolCreate` made.
            0x0981 destroy cuMemPoolDestroy(pool: MemoryPoolId) -> () [other same code no_context];
            /// Gives the default pool of a device the name `pool`.
            0x0982 part cuDeviceGetDefaultMemPool(device: DeviceOrdinal, pool: MemoryPoolId) -> () [other same code no_context] as cuDeviceGetDefaultMemPool(device);
            /// Makes a pool the one that `cuMemAllocAsync` allocates from.
            0x0983 forward cuDeviceSetMemPool(device: DeviceOrdinal, pool: MemoryPoolId) -> () [other same code no_context];
            /// An attribute of a pool.
            0x0984 custom cuMemPoolGetAttribute(pool: MemoryPoolId, attribute: i32) -> (value: u64) [other same code no_context];
            /// Sets an attribute of a pool.
            0x0985 custom cuMemPoolSetAttribute(pool: MemoryPoolId, attribute: i32, value: u64) -> () [other same code no_context];
            /// Returns the access of a location to a pool's memory (`CU_MEM_ACCESS_FLAGS_*`).
            0x0986 forward cuMemPoolGetAccess(pool: MemoryPoolId, location: Location) -> (access: u32) [other same code no_context];
            /// Sets the access of a location to a pool's memory.
            0x0987 forward cuMemPoolSetAccess(pool: MemoryPoolId, location: Location, access: u32) -> () [other same code no_context]
                as cuMemPoolSetAccess(pool, granted(location, access), one());
            /// Gives unused memory back until at most `keep` bytes are left.
            0x0988 forward cuMemPoolTrimTo(pool: MemoryPoolId, keep: u64) -> () [other same code no_context];
            /// Allocates from a pool in stream order.
            0x0989 custom cuMemAllocFromPoolAsync(bytesize: u64, pool: MemoryPoolId, stream: StreamId) -> (dptr: DevicePtr) [other same code];
            /// Creates a pool named `pool` that other processes may share.
            0x098a create pool_create_shareable(pool: MemoryPoolId, properties: PoolProperties) -> () [other same code no_context]
                as cuMemPoolCreate(shareable(properties));
            /// Offers a pool to other processes.
            0x098b custom cuMemPoolExportToShareableHandle(pool: MemoryPoolId) -> (token: [u8; 16]) [other same code no_context];
            /// Opens a pool that another process has offered, as `pool`.
            0x098c create cuMemPoolImportFromShareableHandle(pool: MemoryPoolId, token: [u8; 16]) -> () [other same code no_context] as open_pool(shared_pool(token));
            /// Offers an allocation of a pool that is offered.
            0x098d custom cuMemPoolExportPointer(dptr: DevicePtr) -> (token: [u8; 16]) [other same code no_context];
            /// Opens an allocation of a pool that another process has offered.
            0x098e custom cuMemPoolImportPointer(pool: MemoryPoolId, token: [u8; 16]) -> (dptr: DevicePtr, bytes: u64) [other same code];
        } }
    };
}
