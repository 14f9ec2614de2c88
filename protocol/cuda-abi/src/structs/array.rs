// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Arrays.

use crate::c_structs;

c_structs! {
    /// `CUDA_ARRAY_DESCRIPTOR`.
    CUDA_ARRAY_DESCRIPTOR: 24 {
        /// Elements per row.
        width: usize,
        /// Rows; 0 for a 1D array.
        height: usize,
        /// `CU_AD_FORMAT_*`.
        format: u32,
        /// Channels per element.
        channels: u32,
    }

    /// `CUDA_ARRAY3D_DESCRIPTOR`.
    CUDA_ARRAY3D_DESCRIPTOR: 40 (Eq) {
        /// Elements per row.
        width: usize,
        /// Rows; 0 for a 1D array.
        height: usize,
        /// Slices, layers or faces; 0 for a 1D or 2D array.
        depth: usize,
        /// `CU_AD_FORMAT_*`.
        format: u32,
        /// Channels per element.
        channels: u32,
        /// `CUDA_ARRAY3D_*` bits.
        flags: u32,
    }

    /// `CUDA_ARRAY_MEMORY_REQUIREMENTS`.
    CUDA_ARRAY_MEMORY_REQUIREMENTS: 32 {
        /// Bytes.
        bytes: usize,
        /// Alignment in bytes.
        alignment: usize,
        /// Zero.
        reserved: [u32; 4],
    }

    /// `CUDA_ARRAY_SPARSE_PROPERTIES`.
    CUDA_ARRAY_SPARSE_PROPERTIES: 48 {
        /// Texels per tile, in each direction.
        tile: [u32; 3],
        /// First level of the mipmap tail.
        first_level: u32,
        /// Bytes of the mipmap tail.
        tail_bytes: u64,
        /// `CU_ARRAY_SPARSE_PROPERTIES_*` bits.
        flags: u32,
        /// Zero.
        reserved: [u32; 4],
    }

    /// `CUarrayMapInfo`.
    CUarrayMapInfo: 96 {
        /// `CU_RESOURCE_TYPE_ARRAY` or `CU_RESOURCE_TYPE_MIPMAPPED_ARRAY`.
        resource_kind: u32,
        /// The array or mipmapped array.
        resource: u64,
        /// `CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_*`.
        subresource_kind: u32,
        /// A word of padding, and the union.
        subresource: [u32; 9],
        /// `CU_MEM_OPERATION_TYPE_*`.
        operation: u32,
        /// `CU_MEM_HANDLE_TYPE_*`.
        handle_kind: u32,
        /// The allocation.
        memory: u64,
        /// Bytes into the allocation.
        offset: u64,
        /// Bit `n`: device `n`.
        device_mask: u32,
        /// Zero.
        flags: u32,
        /// Zero.
        reserved: [u32; 2],
    }
}

impl CUDA_ARRAY3D_DESCRIPTOR {
    /// Width, height and depth.
    pub fn size(&self) -> [usize; 3] {
        [self.width, self.height, self.depth]
    }

    /// Returns the same array with another size.
    pub fn with_size(self, [width, height, depth]: [usize; 3]) -> Self {
        Self { width, height, depth, ..self }
    }
}
