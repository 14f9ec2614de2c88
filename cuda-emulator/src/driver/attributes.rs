// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the emulated device says of itself. Limits are those of compute capability 9.0, so that programs tuned for it run;
//! sizes and rates are those of a small device, because programs size their grids by them.

use super::result::{CUresult, CuResult};

/// The name of each device.
pub(super) const NAME: &str = "CUDA Emulator (CPU)";
/// Multiprocessors: enough for programs that spread work over them, few enough for grids of "some blocks on each".
pub(crate) const MULTIPROCESSORS: u32 = 16;
/// Compute capability times ten: PTX for newer devices is not chosen.
pub(crate) const ARCHITECTURE: u32 = 90;
/// Device memory unless CUDA_EMULATOR_MEMORY says otherwise, bytes.
pub(super) const DEFAULT_MEMORY: u64 = 8 << 30;

/// Threads in a warp.
pub(super) const WARP: u32 = 32;
/// Most threads of a block.
pub(super) const MAX_THREADS: u32 = 1024;
/// Largest block in each dimension.
pub(super) const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// Largest grid in each dimension.
pub(super) const MAX_GRID: [u32; 3] = [0x7fff_ffff, 65535, 65535];
/// Shared memory of a block that has not asked for more, bytes.
pub(super) const SHARED_DEFAULT: u32 = 48 << 10;
/// Shared memory that a block may ask for, bytes.
pub(super) const SHARED_OPTIN: u32 = 227 << 10;
/// Shared memory of a multiprocessor, bytes.
pub(super) const SHARED_PER_MULTIPROCESSOR: u32 = 228 << 10;
/// What the driver takes of each block's shared memory, bytes.
pub(super) const SHARED_RESERVED: u32 = 1 << 10;
/// 32-bit registers of a multiprocessor, and most of a block.
pub(super) const REGISTERS: u32 = 64 << 10;
/// Most resident threads of a multiprocessor.
pub(super) const THREADS_PER_MULTIPROCESSOR: u32 = 2048;
/// Most resident blocks of a multiprocessor.
pub(super) const BLOCKS_PER_MULTIPROCESSOR: u32 = 32;
/// Alignment of the rows of cuMemAllocPitch, bytes.
pub(super) const PITCH_ALIGNMENT: u64 = 512;
/// Alignment of the rows of a texture on linear memory, bytes.
pub(super) const TEXTURE_PITCH_ALIGNMENT: u64 = 32;
/// Longest row of a pitched copy, bytes.
pub(super) const MAX_PITCH: u64 = 0x7fff_ffff;

/// The largest number of CUdevice_attribute, CU_DEVICE_ATTRIBUTE_MAX - 1 of CUDA 13.0.
const LAST: i32 = 147;
/// CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: the only attribute that differs between devices.
const PCI_BUS_ID: i32 = 33;

/// The attributes that are not 0. Left at 0 are what the device lacks (textures, surfaces, arrays, virtual memory management,
/// IPC, clusters, tensor maps, access to pageable memory) and what is naturally 0.
static ATTRIBUTES: &[(i32, i32)] = &[
    (1, MAX_THREADS as i32),                 // MAX_THREADS_PER_BLOCK
    (2, MAX_BLOCK[0] as i32),                // MAX_BLOCK_DIM_X
    (3, MAX_BLOCK[1] as i32),                // MAX_BLOCK_DIM_Y
    (4, MAX_BLOCK[2] as i32),                // MAX_BLOCK_DIM_Z
    (5, MAX_GRID[0] as i32),                 // MAX_GRID_DIM_X
    (6, MAX_GRID[1] as i32),                 // MAX_GRID_DIM_Y
    (7, MAX_GRID[2] as i32),                 // MAX_GRID_DIM_Z
    (8, SHARED_DEFAULT as i32),              // MAX_SHARED_MEMORY_PER_BLOCK
    (9, 64 << 10),                           // TOTAL_CONSTANT_MEMORY, bytes
    (10, WARP as i32),                       // WARP_SIZE
    (11, MAX_PITCH as i32),                  // MAX_PITCH
    (12, REGISTERS as i32),                  // MAX_REGISTERS_PER_BLOCK
    (13, 1_000_000),                         // CLOCK_RATE, kHz: clock64() counts nanoseconds
    (14, PITCH_ALIGNMENT as i32),            // TEXTURE_ALIGNMENT
    (15, 1),                                 // GPU_OVERLAP
    (16, MULTIPROCESSORS as i32),            // MULTIPROCESSOR_COUNT
    (19, 1),                                 // CAN_MAP_HOST_MEMORY
    (30, PITCH_ALIGNMENT as i32),            // SURFACE_ALIGNMENT
    (31, 1),                                 // CONCURRENT_KERNELS
    (36, 1_000_000),                         // MEMORY_CLOCK_RATE, kHz
    (37, 128),                               // GLOBAL_MEMORY_BUS_WIDTH, bits
    (38, 4 << 20),                           // L2_CACHE_SIZE, bytes
    (39, THREADS_PER_MULTIPROCESSOR as i32), // MAX_THREADS_PER_MULTIPROCESSOR
    (40, 2),                                 // ASYNC_ENGINE_COUNT
    (41, 1),                                 // UNIFIED_ADDRESSING
    (51, TEXTURE_PITCH_ALIGNMENT as i32),    // TEXTURE_PITCH_ALIGNMENT
    (75, ARCHITECTURE as i32 / 10),          // COMPUTE_CAPABILITY_MAJOR
    (76, ARCHITECTURE as i32 % 10),          // COMPUTE_CAPABILITY_MINOR
    (78, 1),                                 // STREAM_PRIORITIES_SUPPORTED
    (79, 1),                                 // GLOBAL_L1_CACHE_SUPPORTED
    (80, 1),                                 // LOCAL_L1_CACHE_SUPPORTED
    (81, SHARED_PER_MULTIPROCESSOR as i32),  // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    (82, REGISTERS as i32),                  // MAX_REGISTERS_PER_MULTIPROCESSOR
    (83, 1),                                 // MANAGED_MEMORY
    (86, 1),                                 // HOST_NATIVE_ATOMIC_SUPPORTED
    (87, 2),                                 // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
    (89, 1),                                 // CONCURRENT_MANAGED_ACCESS
    (90, 1),                                 // COMPUTE_PREEMPTION_SUPPORTED
    (91, 1),                                 // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    (95, 1),                                 // COOPERATIVE_LAUNCH
    (97, SHARED_OPTIN as i32),               // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    (99, 1),                                 // HOST_REGISTER_SUPPORTED
    (101, 1),                                // DIRECT_MANAGED_MEM_ACCESS_FROM_HOST
    (106, BLOCKS_PER_MULTIPROCESSOR as i32), // MAX_BLOCKS_PER_MULTIPROCESSOR
    (111, SHARED_RESERVED as i32),           // RESERVED_SHARED_MEMORY_PER_BLOCK
    (113, 1),                                // READ_ONLY_HOST_REGISTER_SUPPORTED
    (115, 1),                                // MEMORY_POOLS_SUPPORTED
    (126, 1),                                // MEM_SYNC_DOMAIN_COUNT
    (131, -1),                               // NUMA_ID
    (134, -1),                               // HOST_NUMA_ID
];

/// The value of attribute `number` (CUdevice_attribute) of device `ordinal`.
pub(super) fn attribute(number: i32, ordinal: i32) -> CuResult<i32> {
    if !(1..=LAST).contains(&number) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if number == PCI_BUS_ID {
        return Ok(ordinal + 1);
    }
    let found = ATTRIBUTES.binary_search_by_key(&number, |(number, _)| *number);
    Ok(found.map_or(0, |index| ATTRIBUTES[index].1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_or_zero() {
        assert!(ATTRIBUTES.is_sorted_by_key(|(number, _)| *number));
        assert_eq!(attribute(10, 0), Ok(32));
        assert_eq!(attribute(88, 0), Ok(0));
        assert_eq!(attribute(0, 0), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        assert_eq!(attribute(LAST + 1, 0), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        assert_ne!(attribute(PCI_BUS_ID, 0), attribute(PCI_BUS_ID, 1));
    }
}
