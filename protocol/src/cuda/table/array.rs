// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Arrays, and copies between them and memory.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! array_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Creates an array named `array` (of `depth` 0 and `flags` 0 also for `cuArrayCreate_v2`); answers what
            /// it became.
            0x0901 custom cuArray3DCreate_v2(array: ArrayId, descriptor: ArrayDescriptor) -> (actual: ArrayDescriptor);
            /// Destroys an array that `cuArray3DCreate_v2` made.
            0x0902 custom cuArrayDestroy(array: ArrayId) -> ();
            /// Bytes and alignment of an array with deferred mapping.
            0x0903 custom cuArrayGetMemoryRequirements(array: ArrayId, device: u32) -> (bytes: u64, alignment: u64);
            /// Names a plane of an array of several planes `plane`; it ends with the array.
            0x0904 custom cuArrayGetPlane(array: ArrayId, index: u32, plane: ArrayId) -> (descriptor: ArrayDescriptor);
            /// Tiles of a sparse array: texels a tile, the first level and the bytes of the tail, `CU_ARRAY_SPARSE_PROPERTIES_*`.
            0x0905 custom cuArrayGetSparseProperties(array: ArrayId) -> (tile: [u32; 3], first_level: u32, tail_bytes: u64, flags: u32);
            /// Creates a mipmapped array named `mipmap`.
            0x0910 custom cuMipmappedArrayCreate(mipmap: MipmappedArrayId, descriptor: ArrayDescriptor, levels: u32) -> ();
            /// Destroys a mipmapped array and its levels.
            0x0911 custom cuMipmappedArrayDestroy(mipmap: MipmappedArrayId) -> ();
            /// Names a level of a mipmapped array `array`; it ends with the mipmapped array.
            0x0912 custom cuMipmappedArrayGetLevel(mipmap: MipmappedArrayId, level: u32, array: ArrayId) -> (descriptor: ArrayDescriptor);
            /// Bytes and alignment of a mipmapped array with deferred mapping.
            0x0913 custom cuMipmappedArrayGetMemoryRequirements(mipmap: MipmappedArrayId, device: u32) -> (bytes: u64, alignment: u64);
            /// Tiles of a sparse mipmapped array, as of an array.
            0x0914 custom cuMipmappedArrayGetSparseProperties(mipmap: MipmappedArrayId) -> (tile: [u32; 3], first_level: u32, tail_bytes: u64, flags: u32);
            /// Bulk in: packed rows. Copies a box into an array, in stream order.
            0x0920 custom memcpy_box_htoa(dst: ArrayId, origin: ArrayOrigin, size: Box3, stream: StreamId) -> () [may_print];
            /// Bulk out: packed rows. Copies a box out of an array, in stream order.
            0x0921 custom memcpy_box_atoh(src: ArrayId, origin: ArrayOrigin, size: Box3, stream: StreamId) -> () [may_print];
            /// Copies a box between arrays, in stream order.
            0x0922 custom memcpy_box_atoa(dst: ArrayId, dst_origin: ArrayOrigin, src: ArrayId, src_origin: ArrayOrigin, size: Box3, stream: StreamId) -> () [may_print];
            /// Copies a box from device memory into an array, in stream order.
            0x0923 custom memcpy_box_dtoa(dst: ArrayId, origin: ArrayOrigin, src: DevicePtr, extent: Extent, size: Box3, stream: StreamId) -> () [may_print];
            /// Copies a box from an array into device memory, in stream order.
            0x0924 custom memcpy_box_atod(dst: DevicePtr, extent: Extent, src: ArrayId, origin: ArrayOrigin, size: Box3, stream: StreamId) -> () [may_print];
        } }
    };
}
