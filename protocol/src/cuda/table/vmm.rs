// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Virtual memory management: addresses and memory apart.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! vmm_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Reserves addresses, at `addr` if the driver can.
            0x0a00 custom cuMemAddressReserve(bytesize: u64, alignment: u64, addr: DevicePtr, flags: u64) -> (dptr: DevicePtr) [other same code no_context];
            /// Gives reserved addresses back.
            0x0a01 custom cuMemAddressFree(dptr: DevicePtr, bytesize: u64) -> () [other same code no_context];
            /// Allocates memory without addresses, named `handle`.
            0x0a02 custom cuMemCreate(handle: AllocationId, bytesize: u64, properties: AllocationProperties, flags: u64) -> () [other same code no_context];
            /// Gives back one hold on an allocation.
            0x0a03 destroy cuMemRelease(handle: AllocationId) -> () [other same code no_context];
            /// Maps an allocation at reserved addresses. Returns the location of its memory.
            0x0a04 custom cuMemMap(dptr: DevicePtr, bytesize: u64, offset: u64, handle: AllocationId, flags: u64) -> (location: Location) [other same code no_context];
            /// Takes whole mappings away.
            0x0a05 custom cuMemUnmap(dptr: DevicePtr, bytesize: u64) -> () [other same code_prints no_context];
            /// Sets the access of a location to whole mappings (`CU_MEM_ACCESS_FLAGS_*`).
            0x0a06 custom cuMemSetAccess(dptr: DevicePtr, bytesize: u64, location: Location, access: u32) -> () [other same code no_context];
            /// Returns the access of a location to the memory at an address.
            0x0a07 custom cuMemGetAccess(location: Location, dptr: DevicePtr) -> (access: u64) [other same code no_context];
            /// The unit of sizes and addresses, in bytes.
            0x0a08 forward cuMemGetAllocationGranularity(properties: AllocationProperties, option: u32) -> (bytes: u64) [other same code no_context];
            /// Holds the allocation that is mapped at an address once more.
            0x0a09 custom cuMemRetainAllocationHandle(dptr: DevicePtr) -> (handle: AllocationId) [other same code no_context];
            /// Returns the properties of an allocation, which may differ from the requested ones.
            0x0a0a custom cuMemGetAllocationPropertiesFromHandle(handle: AllocationId) -> (properties: AllocationProperties) [other same code no_context];
            /// Bulk in: `ArrayMapInfo`s. Maps allocations into sparse arrays and arrays with deferred mapping, or takes
            /// such mappings away, in stream order.
            0x0a0b custom cuMemMapArrayAsync(stream: StreamId) -> () [other same code];
            /// Makes `bytesize` bytes from `base` on, behind [`RESERVATIONS_BASE`](crate::cuda::RESERVATIONS_BASE), a part of the
            /// address window: kept pages of the process can be mapped there. Nothing else may be there. Also for addresses inside
            /// one reservation of the session, where nothing is mapped: it can neither be freed nor mapped until `window_yield`.
            0x0a0c custom window_claim(base: u64, bytesize: u64) -> () [other same code no_context];
            /// Undoes `window_claim` of just these addresses, where nothing is mapped any more.
            0x0a0d custom window_yield(base: u64, bytesize: u64) -> () [other same code no_context];
            /// Imports an allocation that a process of the guest has offered, as external memory `memory` of the current context.
            0x0a10 custom cuImportExternalMemory(memory: ExternalMemoryId, token: [u8; 16], bytesize: u64) -> () [other same code];
            /// Maps a part of external memory, which `cuMemFree_v2` ends.
            0x0a11 custom cuExternalMemoryGetMappedBuffer(memory: ExternalMemoryId, offset: u64, bytesize: u64) -> (dptr: DevicePtr) [other same code];
            /// Maps a part of external memory as the mipmapped array `mipmap`.
            0x0a12 custom cuExternalMemoryGetMappedMipmappedArray(memory: ExternalMemoryId, offset: u64, descriptor: ArrayDescriptor, levels: u32, mipmap: MipmappedArrayId) -> () [other same code];
            /// Forgets external memory. Its mappings stay.
            0x0a13 destroy cuDestroyExternalMemory(memory: ExternalMemoryId) -> () [other same code];
        } }
    };
}
