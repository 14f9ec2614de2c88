// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The attributes of an emulated device. Limits are those of its compute capability, so that programs tuned for it
//! run. Sizes and rates are those of a small device, because programs choose their grids by them.

use super::Device;
use super::model::Pageable;
use crate::driver::result::{CUresult, CuResult};

/// Threads in a warp.
pub(crate) const WARP: u32 = 32;
/// The maximum number of threads per block.
pub(crate) const MAX_THREADS: u32 = 1024;
/// The maximum block size in each dimension.
pub(crate) const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// The maximum grid size in each dimension.
pub(crate) const MAX_GRID: [u32; 3] = [0x7fff_ffff, 65535, 65535];
/// The default shared memory of a block, in bytes.
pub(crate) const SHARED_DEFAULT: u32 = 48 << 10;
/// The number of 32-bit registers per multiprocessor, and the maximum per block.
pub(crate) const REGISTERS: u32 = 64 << 10;
/// Alignment of the rows of cuMemAllocPitch, bytes.
pub(crate) const PITCH_ALIGNMENT: u64 = 512;
/// Alignment of the rows of a texture on linear memory, bytes.
pub(crate) const TEXTURE_PITCH_ALIGNMENT: u64 = 32;
/// The maximum row length of a pitched copy, in bytes.
pub(crate) const MAX_PITCH: u64 = 0x7fff_ffff;

/// The maximum number of CUdevice_attribute, CU_DEVICE_ATTRIBUTE_MAX - 1 of CUDA 13.0.
const LAST: i32 = 147;
/// The attributes that are the same for all devices and not 0. Attributes of missing features (fabric handles,
/// multicast, tensor maps, access to pageable memory) are 0.
static ATTRIBUTES: &[(i32, i32)] = &[
    (1, MAX_THREADS as i32),              // MAX_THREADS_PER_BLOCK
    (2, MAX_BLOCK[0] as i32),             // MAX_BLOCK_DIM_X
    (3, MAX_BLOCK[1] as i32),             // MAX_BLOCK_DIM_Y
    (4, MAX_BLOCK[2] as i32),             // MAX_BLOCK_DIM_Z
    (5, MAX_GRID[0] as i32),              // MAX_GRID_DIM_X
    (6, MAX_GRID[1] as i32),              // MAX_GRID_DIM_Y
    (7, MAX_GRID[2] as i32),              // MAX_GRID_DIM_Z
    (8, SHARED_DEFAULT as i32),           // MAX_SHARED_MEMORY_PER_BLOCK
    (9, 64 << 10),                        // TOTAL_CONSTANT_MEMORY, bytes
    (10, WARP as i32),                    // WARP_SIZE
    (11, MAX_PITCH as i32),               // MAX_PITCH
    (12, REGISTERS as i32),               // MAX_REGISTERS_PER_BLOCK
    (13, 1_000_000),                      // CLOCK_RATE, kHz: clock64() counts nanoseconds
    (14, PITCH_ALIGNMENT as i32),         // TEXTURE_ALIGNMENT
    (15, 1),                              // GPU_OVERLAP
    (19, 1),                              // CAN_MAP_HOST_MEMORY
    (21, 131_072),                        // MAXIMUM_TEXTURE1D_WIDTH
    (22, 131_072),                        // MAXIMUM_TEXTURE2D_WIDTH
    (23, 65_536),                         // MAXIMUM_TEXTURE2D_HEIGHT
    (24, 16_384),                         // MAXIMUM_TEXTURE3D_WIDTH
    (25, 16_384),                         // MAXIMUM_TEXTURE3D_HEIGHT
    (26, 16_384),                         // MAXIMUM_TEXTURE3D_DEPTH
    (27, 32_768),                         // MAXIMUM_TEXTURE2D_LAYERED_WIDTH
    (28, 32_768),                         // MAXIMUM_TEXTURE2D_LAYERED_HEIGHT
    (29, 2_048),                          // MAXIMUM_TEXTURE2D_LAYERED_LAYERS
    (30, PITCH_ALIGNMENT as i32),         // SURFACE_ALIGNMENT
    (31, 1),                              // CONCURRENT_KERNELS
    (36, 1_000_000),                      // MEMORY_CLOCK_RATE, kHz
    (37, 128),                            // GLOBAL_MEMORY_BUS_WIDTH, bits
    (38, 4 << 20),                        // L2_CACHE_SIZE, bytes
    (40, 2),                              // ASYNC_ENGINE_COUNT
    (41, 1),                              // UNIFIED_ADDRESSING
    (42, 32_768),                         // MAXIMUM_TEXTURE1D_LAYERED_WIDTH
    (43, 2_048),                          // MAXIMUM_TEXTURE1D_LAYERED_LAYERS
    (44, 1),                              // CAN_TEX2D_GATHER
    (45, 32_768),                         // MAXIMUM_TEXTURE2D_GATHER_WIDTH
    (46, 32_768),                         // MAXIMUM_TEXTURE2D_GATHER_HEIGHT
    (47, 8_192),                          // MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE
    (48, 8_192),                          // MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE
    (49, 32_768),                         // MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE
    (51, TEXTURE_PITCH_ALIGNMENT as i32), // TEXTURE_PITCH_ALIGNMENT
    (52, 32_768),                         // MAXIMUM_TEXTURECUBEMAP_WIDTH
    (53, 32_768),                         // MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH
    (54, 2_046),                          // MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS
    (55, 32_768),                         // MAXIMUM_SURFACE1D_WIDTH
    (56, 131_072),                        // MAXIMUM_SURFACE2D_WIDTH
    (57, 65_536),                         // MAXIMUM_SURFACE2D_HEIGHT
    (58, 16_384),                         // MAXIMUM_SURFACE3D_WIDTH
    (59, 16_384),                         // MAXIMUM_SURFACE3D_HEIGHT
    (60, 16_384),                         // MAXIMUM_SURFACE3D_DEPTH
    (61, 32_768),                         // MAXIMUM_SURFACE1D_LAYERED_WIDTH
    (62, 2_048),                          // MAXIMUM_SURFACE1D_LAYERED_LAYERS
    (63, 32_768),                         // MAXIMUM_SURFACE2D_LAYERED_WIDTH
    (64, 32_768),                         // MAXIMUM_SURFACE2D_LAYERED_HEIGHT
    (65, 2_048),                          // MAXIMUM_SURFACE2D_LAYERED_LAYERS
    (66, 32_768),                         // MAXIMUM_SURFACECUBEMAP_WIDTH
    (67, 32_768),                         // MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH
    (68, 2_046),                          // MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS
    (69, 268_435_456),                    // MAXIMUM_TEXTURE1D_LINEAR_WIDTH
    (70, 131_072),                        // MAXIMUM_TEXTURE2D_LINEAR_WIDTH
    (71, 65_000),                         // MAXIMUM_TEXTURE2D_LINEAR_HEIGHT
    (72, 2_097_120),                      // MAXIMUM_TEXTURE2D_LINEAR_PITCH
    (73, 32_768),                         // MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH
    (74, 32_768),                         // MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT
    (77, 32_768),                         // MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH
    (78, 1),                              // STREAM_PRIORITIES_SUPPORTED
    (79, 1),                              // GLOBAL_L1_CACHE_SUPPORTED
    (80, 1),                              // LOCAL_L1_CACHE_SUPPORTED
    (82, REGISTERS as i32),               // MAX_REGISTERS_PER_MULTIPROCESSOR
    (83, 1),                              // MANAGED_MEMORY
    (86, 1),                              // HOST_NATIVE_ATOMIC_SUPPORTED
    (87, 2),                              // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
    (89, 1),                              // CONCURRENT_MANAGED_ACCESS
    (90, 1),                              // COMPUTE_PREEMPTION_SUPPORTED
    (91, 1),                              // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    (92, 1),                              // CAN_USE_STREAM_MEM_OPS_V1
    (93, 1),                              // CAN_USE_64_BIT_STREAM_MEM_OPS_V1
    (94, 1),                              // CAN_USE_STREAM_WAIT_VALUE_NOR_V1
    (95, 1),                              // COOPERATIVE_LAUNCH
    (99, 1),                              // HOST_REGISTER_SUPPORTED
    (101, 1),                             // DIRECT_MANAGED_MEM_ACCESS_FROM_HOST
    (102, 1),                             // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    (103, 1),                             // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
    (107, 1),                             // GENERIC_COMPRESSION_SUPPORTED: kept, without effect
    (112, 1),                             // SPARSE_CUDA_ARRAY_SUPPORTED
    (113, 1),                             // READ_ONLY_HOST_REGISTER_SUPPORTED
    (115, 1),                             // MEMORY_POOLS_SUPPORTED
    (119, 1),                             // MEMPOOL_SUPPORTED_HANDLE_TYPES: file descriptors
    (121, 1),                             // DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED
    (122, 1),                             // CAN_USE_64_BIT_STREAM_MEM_OPS
    (123, 1),                             // CAN_USE_STREAM_WAIT_VALUE_NOR
    (125, 1),                             // IPC_EVENT_SUPPORTED
    (126, 1),                             // MEM_SYNC_DOMAIN_COUNT
    (131, -1),                            // NUMA_ID
    (141, 1),                             // HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    (142, 1),                             // HOST_NUMA_MEMORY_POOLS_SUPPORTED
    (144, 1),                             // HOST_MEMORY_POOLS_SUPPORTED
    (145, 1),                             // HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
];

/// Returns the value of attribute `number` (CUdevice_attribute) of a device.
pub(crate) fn attribute(number: i32, device: &Device) -> CuResult<i32> {
    if !(1..=LAST).contains(&number) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (model, limits) = (&device.model, device.model.limits());
    let own = match number {
        16 => model.multiprocessors,   // MULTIPROCESSOR_COUNT
        33 => device.model.pci_bus(),  // PCI_BUS_ID
        39 => limits.threads,          // MAX_THREADS_PER_MULTIPROCESSOR
        75 => model.architecture / 10, // COMPUTE_CAPABILITY_MAJOR
        76 => model.architecture % 10, // COMPUTE_CAPABILITY_MINOR
        81 => limits.shared,           // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
        // PAGEABLE_MEMORY_ACCESS
        88 => u32::from(model.pageable != Pageable::No),
        // PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES
        100 => u32::from(model.pageable == Pageable::Ats),
        97 => limits.shared_optin,     // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        106 => limits.blocks,          // MAX_BLOCKS_PER_MULTIPROCESSOR
        111 => limits.shared_reserved, // RESERVED_SHARED_MEMORY_PER_BLOCK
        _ => return Ok(shared(number)),
    };
    Ok(own as i32)
}

fn shared(number: i32) -> i32 {
    let found = ATTRIBUTES.binary_search_by_key(&number, |(number, _)| *number);
    found.map_or(0, |index| ATTRIBUTES[index].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_or_zero() {
        assert!(ATTRIBUTES.is_sorted_by_key(|(number, _)| *number));
        assert_eq!(shared(10), 32);
        assert_eq!(shared(88), 0);
    }
}
