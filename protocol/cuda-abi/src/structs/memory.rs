// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Allocations, pools and memory locations.

use crate::c_structs;

c_structs! {
    /// `CUmemLocation`.
    CUmemLocation: 8 (Eq, Hash) {
        /// `CU_MEM_LOCATION_TYPE_*`.
        kind: u32,
        /// The device or NUMA node.
        id: i32,
    }

    /// `CUmemAccessDesc`.
    CUmemAccessDesc: 12 {
        /// The location that gets access.
        location: CUmemLocation,
        /// `CU_MEM_ACCESS_FLAGS_*`.
        flags: u32,
    }

    /// `CUmemPoolProps`.
    CUmemPoolProps: 88 {
        /// `CU_MEM_ALLOCATION_TYPE_*`.
        kind: u32,
        /// `CU_MEM_HANDLE_TYPE_*` bits.
        handle_types: u32,
        /// The location of the pool's memory.
        location: CUmemLocation,
        /// Used on Windows only.
        win32_security: usize,
        /// Maximum bytes; 0 for the driver's own limit.
        max_bytes: usize,
        /// `CU_MEM_POOL_CREATE_USAGE_*` bits.
        usage: u16,
        /// Zero.
        reserved: [u8; 54],
    }

    /// `CUmemcpyAttributes`.
    CUmemcpyAttributes: 24 {
        /// `CU_MEMCPY_SRC_ACCESS_ORDER_*`.
        access_order: u32,
        /// The location of the source, if the program knows it.
        source_hint: CUmemLocation,
        /// The location of the destination, if the program knows it.
        destination_hint: CUmemLocation,
        /// `CU_MEMCPY_FLAG_*` bits.
        flags: u32,
    }

    /// `CUmemAllocationProp`.
    CUmemAllocationProp: 32 {
        /// `CU_MEM_ALLOCATION_TYPE_*`.
        kind: u32,
        /// `CU_MEM_HANDLE_TYPE_*` bits.
        handle_types: u32,
        /// The location of the memory.
        location: CUmemLocation,
        /// Used on Windows only.
        win32_metadata: usize,
        /// `CU_MEM_ALLOCATION_COMP_*`.
        compression: u8,
        /// Not 0 if other devices of the host may access it.
        gpu_direct_rdma: u8,
        /// `CU_MEM_CREATE_USAGE_*` bits.
        usage: u16,
        /// Zero.
        reserved: [u8; 4],
    }
}
