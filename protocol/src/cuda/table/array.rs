// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Arrays, and copies between them and memory.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! array_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Creates an array named `array` (of `depth` 0 and `flags` 0 also for `cuArrayCreate_v2`). Returns its actual
            /// descriptor.
            0x0901 custom cuArray3DCreate_v2(array: ArrayId, descriptor: ArrayDescriptor) -> (actual: ArrayDescriptor) [other same code_prints];
            /// Destroys an array that `cuArray3DCreate_v2` made.
            0x0902 destroy cuArrayDestroy(array: ArrayId) -> () [other same code_prints];
            /// Bytes and alignment of an array with deferred mapping.
            0x0903 forward cuArrayGetMemoryRequirements(array: ArrayId, device: DeviceOrdinal) -> (needs: MemoryRequirements) [other same code];
            /// Gives a plane of an array of several planes the name `plane`. The plane ends with the array.
            0x0904 part cuArrayGetPlane(array: ArrayId, index: u32, plane: ArrayId) -> (descriptor: ArrayDescriptor) [other same code] as cuArrayGetPlane(array, index);
            /// Tiles of a sparse array: texels per tile, first level and bytes of the tail, `CU_ARRAY_SPARSE_PROPERTIES_*`.
            0x0905 forward cuArrayGetSparseProperties(array: ArrayId) -> (properties: SparseProperties) [other same code];
            /// Creates a mipmapped array named `mipmap`.
            0x0910 custom cuMipmappedArrayCreate(mipmap: MipmappedArrayId, descriptor: ArrayDescriptor, levels: u32) -> () [other same code_prints];
            /// Destroys a mipmapped array and its levels.
            0x0911 destroy cuMipmappedArrayDestroy(mipmap: MipmappedArrayId) -> () [other same code_prints];
            /// Gives a level of a mipmapped array the name `array`. The level ends with the mipmapped array.
            0x0912 part cuMipmappedArrayGetLevel(mipmap: MipmappedArrayId, level: u32, array: ArrayId) -> (descriptor: ArrayDescriptor) [other same code]
                as cuMipmappedArrayGetLevel(mipmap, level);
            /// Bytes and alignment of a mipmapped array with deferred mapping.
            0x0913 forward cuMipmappedArrayGetMemoryRequirements(mipmap: MipmappedArrayId, device: DeviceOrdinal) -> (needs: MemoryRequirements) [other same code];
            /// Tiles of a sparse mipmapped array, as for an array.
            0x0914 forward cuMipmappedArrayGetSparseProperties(mipmap: MipmappedArrayId) -> (properties: SparseProperties) [other same code];
        } }
    };
}
