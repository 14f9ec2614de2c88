// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Texture and surface objects. Kernels take their values, so the driver names them, not the guest.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! texture_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Creates a texture object.
            0x0940 forward cuTexObjectCreate(resource: ResourceDescriptor, texture: TextureDescriptor, view: ViewDescriptor) -> (object: u64) [other same code]
                as cuTexObjectCreate(shown(resource), texture, view);
            /// Destroys a texture object.
            0x0941 destroy cuTexObjectDestroy(object: u64) -> () [other same code] as TextureObject(object);
            /// Creates a surface object.
            0x0942 forward cuSurfObjectCreate(resource: ResourceDescriptor) -> (object: u64) [other same code] as cuSurfObjectCreate(surface(resource));
            /// Destroys a surface object.
            0x0943 destroy cuSurfObjectDestroy(object: u64) -> () [other same code] as SurfaceObject(object);
            /// Returns the maximum number of elements of a 1D texture in linear memory.
            0x0944 forward cuDeviceGetTexture1DLinearMaxWidth(format: u32, channels: u32, device: DeviceOrdinal) -> (elements: u64) [other same code];
            /// Encodes a tensor map for tiles.
            0x0950 forward cuTensorMapEncodeTiled(tensor: TensorDescriptor, box_dim: [u32; 5]) -> (map: [u8; 128]) [other same code]
                as cuTensorMapEncodeTiled(tensor.data_type, rank(tensor.rank), opaque(tensor.address), tensor.dims, tensor.strides, box_dim, tensor.element_strides, tensor.interleave, tensor.swizzle, tensor.l2_promotion, tensor.oob_fill);
            /// Encodes a tensor map for columns of an image.
            0x0951 forward cuTensorMapEncodeIm2col(tensor: TensorDescriptor, lower_corner: [i32; 3], upper_corner: [i32; 3], channels_per_pixel: u32, pixels_per_column: u32) -> (map: [u8; 128]) [other same code]
                as cuTensorMapEncodeIm2col(tensor.data_type, rank(tensor.rank), opaque(tensor.address), tensor.dims, tensor.strides, lower_corner, upper_corner, channels_per_pixel, pixels_per_column, tensor.element_strides, tensor.interleave, tensor.swizzle, tensor.l2_promotion, tensor.oob_fill);
            /// The same, along the width only.
            0x0952 forward cuTensorMapEncodeIm2colWide(tensor: TensorDescriptor, lower_corner: i32, upper_corner: i32, channels_per_pixel: u32, pixels_per_column: u32, mode: i32) -> (map: [u8; 128]) [other same code]
                as cuTensorMapEncodeIm2colWide(tensor.data_type, rank(tensor.rank), opaque(tensor.address), tensor.dims, tensor.strides, lower_corner, upper_corner, channels_per_pixel, pixels_per_column, tensor.element_strides, tensor.interleave, mode, tensor.swizzle, tensor.l2_promotion, tensor.oob_fill);
            /// Puts another address into a tensor map.
            0x0953 forward cuTensorMapReplaceAddress(map: [u8; 128], address: DevicePtr) -> (replaced: [u8; 128]) [other same code]
                as map_at(tensor_map(map), opaque(address.0));
        } }
    };
}
