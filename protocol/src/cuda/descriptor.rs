// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Descriptions of arrays, textures, pools and allocations, field by field as `cuda.h` has them.

use super::handle::AllocationId;
use super::value::{wire_structs, Wire};

/// Levels of the largest mipmapped array.
pub const MAX_MIPMAP_LEVELS: u32 = 32;

wire_structs! {
    /// `CUdevResource`: the members that the program may see, and the resource's name in the worker.
    DeviceResource {
        /// The name.
        name: u64,
        /// `CUdevResourceType`.
        kind: u32,
        /// `CUdevSmResource`: multiprocessors, minimum of a partition, alignment of a partition's number, flags.
        sm: [u32; 4],
    }

    /// `CUDA_ARRAY3D_DESCRIPTOR`.
    ArrayDescriptor {
        /// Elements per row.
        width: u64,
        /// Rows; 0 for a 1D array.
        height: u64,
        /// Slices, layers or faces; 0 for a 1D or 2D array.
        depth: u64,
        /// `CU_AD_FORMAT_*`.
        format: u32,
        /// Channels per element.
        channels: u32,
        /// `CUDA_ARRAY3D_*` bits.
        flags: u32,
    }

    /// `CUDA_ARRAY_MEMORY_REQUIREMENTS`.
    MemoryRequirements {
        /// Bytes.
        bytes: u64,
        /// Alignment in bytes.
        alignment: u64,
    }

    /// `CUDA_ARRAY_SPARSE_PROPERTIES`.
    SparseProperties {
        /// Texels per tile, in each direction.
        tile: [u32; 3],
        /// First level of the mipmap tail.
        first_level: u32,
        /// Bytes of the mipmap tail.
        tail_bytes: u64,
        /// `CU_ARRAY_SPARSE_PROPERTIES_*` bits.
        flags: u32,
    }

    /// `CUarrayMapInfo`, without the members that must be zero.
    ArrayMapInfo {
        /// `CU_RESOURCE_TYPE_ARRAY` or `CU_RESOURCE_TYPE_MIPMAPPED_ARRAY`.
        resource_kind: u32,
        /// Name of the array or mipmapped array.
        resource: u64,
        /// `CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_*`.
        subresource_kind: u32,
        /// The union `subresource` in words of four bytes, as `cuda.h` has it.
        subresource: [u32; 8],
        /// `CU_MEM_OPERATION_TYPE_*`.
        operation: u32,
        /// `CU_MEM_HANDLE_TYPE_*`.
        handle_kind: u32,
        /// The allocation; 0 for none.
        memory: AllocationId,
        /// Bytes into the allocation.
        offset: u64,
        /// Bit `n`: device `n`.
        device_mask: u32,
    }

    /// The start of a copy in an array.
    ArrayOrigin {
        /// Bytes into the row.
        x: u64,
        /// Row.
        y: u64,
        /// Slice, layer or face.
        z: u64,
    }

    /// `CUDA_RESOURCE_DESC`; members that the kind does not have are 0.
    ResourceDescriptor {
        /// `CU_RESOURCE_TYPE_*`.
        kind: u32,
        /// Name of the array or mipmapped array.
        object: u64,
        /// First address of linear or pitched memory.
        dptr: u64,
        /// `CU_AD_FORMAT_*` of linear or pitched memory.
        format: u32,
        /// Channels of linear or pitched memory.
        channels: u32,
        /// Bytes of linear memory, or elements per row of pitched memory.
        width: u64,
        /// Rows of pitched memory.
        height: u64,
        /// Bytes from row to row of pitched memory.
        pitch: u64,
    }

    /// `CUDA_TEXTURE_DESC`.
    TextureDescriptor {
        /// `CU_TR_ADDRESS_MODE_*` of each dimension.
        address_modes: [u32; 3],
        /// `CU_TR_FILTER_MODE_*`.
        filter_mode: u32,
        /// `CU_TRSF_*` bits.
        flags: u32,
        /// Maximum anisotropy.
        max_anisotropy: u32,
        /// `CU_TR_FILTER_MODE_*` between levels.
        mipmap_filter_mode: u32,
        /// Bias that is added to the mipmap level.
        mipmap_level_bias: f32,
        /// Minimum mipmap level.
        min_mipmap_level_clamp: f32,
        /// Maximum mipmap level.
        max_mipmap_level_clamp: f32,
        /// The colour outside, with address mode `BORDER`.
        border_color: [f32; 4],
    }

    /// `CUDA_RESOURCE_VIEW_DESC`, if `present` is 1.
    ViewDescriptor {
        /// 1: there is a view; 0: the other members have no meaning.
        present: u32,
        /// `CU_RES_VIEW_FORMAT_*`.
        format: u32,
        /// Width of the view.
        width: u64,
        /// Height of the view.
        height: u64,
        /// Depth of the view.
        depth: u64,
        /// First level.
        first_mipmap_level: u32,
        /// Last level.
        last_mipmap_level: u32,
        /// First layer.
        first_layer: u32,
        /// Last layer.
        last_layer: u32,
    }

    /// The members that tensor maps of all kinds have in common (`cuTensorMapEncode…`).
    TensorDescriptor {
        /// `CU_TENSOR_MAP_DATA_TYPE_*`.
        data_type: i32,
        /// Number of dimensions, 1 to 5. Further elements of the arrays have no meaning.
        rank: u32,
        /// First address.
        address: u64,
        /// Elements in each dimension.
        dims: [u64; 5],
        /// Bytes from element to element in each dimension but the first.
        strides: [u64; 4],
        /// Traversal stride in each dimension, in elements.
        element_strides: [u32; 5],
        /// `CU_TENSOR_MAP_INTERLEAVE_*`.
        interleave: i32,
        /// `CU_TENSOR_MAP_SWIZZLE_*`.
        swizzle: i32,
        /// `CU_TENSOR_MAP_L2_PROMOTION_*`.
        l2_promotion: i32,
        /// `CU_TENSOR_MAP_FLOAT_OOB_FILL_*`.
        oob_fill: i32,
    }

    /// `CUmemLocation`.
    Location {
        /// `CU_MEM_LOCATION_TYPE_*`.
        kind: u32,
        /// Ordinal of the device.
        id: i32,
    }

    /// `CUmemPoolProps`, without handle types.
    PoolProperties {
        /// `CU_MEM_ALLOCATION_TYPE_*`.
        kind: u32,
        /// The location of its memory.
        location: Location,
        /// Maximum size in bytes; 0 for the driver's own limit.
        max_bytes: u64,
        /// `CU_MEM_POOL_CREATE_USAGE_*` bits.
        usage: u32,
    }

    /// `CUmemAllocationProp`.
    AllocationProperties {
        /// `CU_MEM_ALLOCATION_TYPE_*`.
        kind: u32,
        /// `CU_MEM_HANDLE_TYPE_*` bits: none, or file descriptors.
        handle_types: u32,
        /// The location of the memory.
        location: Location,
        /// `CU_MEM_ALLOCATION_COMP_*`.
        compression: u32,
        /// 1: other devices of the host may reach it.
        gpu_direct_rdma: u32,
        /// `CU_MEM_CREATE_USAGE_*` bits.
        usage: u32,
    }

    /// Options of the just-in-time compiler that have a number for a value.
    JitOptions {
        /// Number of options that are given: the first ones of both arrays.
        count: u32,
        /// `CUjit_option`.
        options: [u32; JIT_OPTIONS],
        /// The values. Those of the log buffers' sizes are the room in bytes.
        values: [u32; JIT_OPTIONS],
    }
}

/// The maximum number of options of the just-in-time compiler per call.
pub const JIT_OPTIONS: usize = 24;

/// Bytes of an [`ArrayMapInfo`] on the wire.
pub const ARRAY_MAP_INFO_BYTES: usize = ArrayMapInfo::BYTES;

/// The maximum number of [`ArrayMapInfo`]s per call.
pub const MAX_ARRAY_MAP_INFOS: usize = 4096;

/// Texels per side of the blocks of compressed formats.
pub const BLOCK_TEXELS: u64 = 4;

/// Returns the bytes of a block of 4 by 4 texels. `None`: the format is not compressed.
pub fn block_bytes(format: u32) -> Option<u64> {
    match format {
        // BC1 and BC4; the other ones.
        0x91 | 0x92 | 0x97 | 0x98 => Some(8),
        0x93..=0x96 | 0x99..=0x9e => Some(16),
        _ => None,
    }
}

/// Returns the bytes of an element. `None`: unknown, or compressed in blocks ([`block_bytes`]) or planar.
pub fn element_bytes(format: u32, channels: u32) -> Option<u64> {
    let plain = match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        // Normalized integers, of 1, 2 and 4 channels each; 10-10-10-2.
        0xc0..=0xcb => {
            let bytes = if matches!(format, 0xc0..=0xc2 | 0xc6..=0xc8) { 1 } else { 2 };
            let fixed = [1, 2, 4][(format as usize - 0xc0) % 3];
            return (channels == fixed).then(|| bytes * u64::from(fixed));
        }
        0x50 => return (channels == 4).then_some(4),
        _ => return None,
    };
    matches!(channels, 1 | 2 | 4).then(|| plain * u64::from(channels))
}

/// Returns the bytes per row, the rows and the slices of an array, as copies count them: in compressed formats, a row is a row
/// of blocks. `None`: the format is unknown, or a size overflows.
pub fn array_bounds(of: &ArrayDescriptor) -> Option<[u64; 3]> {
    let (height, depth) = (of.height.max(1), of.depth.max(1));
    let (row, rows) = match block_bytes(of.format) {
        Some(block) => (of.width.div_ceil(BLOCK_TEXELS).checked_mul(block)?, height.div_ceil(BLOCK_TEXELS)),
        None => (of.width.checked_mul(element_bytes(of.format, of.channels)?)?, height),
    };
    Some([row, rows, depth])
}

#[cfg(test)]
mod tests {
    use super::super::value::Writer;
    use super::*;

    #[test]
    fn compressed_arrays_are_counted_in_blocks() {
        let array = ArrayDescriptor { width: 30, height: 14, depth: 0, format: 0x91, channels: 4, flags: 0 };
        assert_eq!(array_bounds(&array), Some([64, 4, 1]));
        assert_eq!(array_bounds(&ArrayDescriptor { format: 0x9d, ..array }), Some([128, 4, 1]));
        assert_eq!(array_bounds(&ArrayDescriptor { format: 0x20, ..array }), Some([480, 14, 1]));
        assert_eq!(array_bounds(&ArrayDescriptor { width: u64::MAX, ..array }), None);
        assert_eq!(array_bounds(&ArrayDescriptor { format: 0xb0, ..array }), None);
    }

    #[test]
    fn map_infos_have_the_bytes_that_are_said() {
        let mut room = [0; 2 * ARRAY_MAP_INFO_BYTES];
        let mut writer = Writer::new(&mut room);
        ArrayMapInfo::default().put(&mut writer).unwrap();
        assert_eq!(writer.used(), ARRAY_MAP_INFO_BYTES);
    }

    #[test]
    fn elements_have_the_bytes_of_their_channels() {
        assert_eq!(element_bytes(0x01, 4), Some(4));
        assert_eq!(element_bytes(0x10, 2), Some(4));
        assert_eq!(element_bytes(0x20, 4), Some(16));
        assert_eq!(element_bytes(0xc5, 4), Some(8));
        assert_eq!(element_bytes(0xc7, 2), Some(2));
        assert_eq!(element_bytes(0x50, 4), Some(4));
        for (format, channels) in
            [(0x20, 3), (0x20, 0), (0xc5, 1), (0x91, 4), (0xb0, 3), (0, 1), (u32::MAX, 1)]
        {
            assert_eq!(element_bytes(format, channels), None, "{format:#x} {channels}");
        }
    }
}
