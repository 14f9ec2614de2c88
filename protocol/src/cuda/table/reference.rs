// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Texture and surface references: variables of a module that the program binds to arrays and memory.

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! reference_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Bulk in: the name. Gives a texture reference of the module the name `reference`; it ends with the module.
            0x0960 part cuModuleGetTexRef(module: ModuleId, reference: TexRefId) -> () [other same code] as cuModuleGetTexRef(module, name());
            /// Bulk in: the name. Gives a surface reference of the module the name `reference`; it ends with the module.
            0x0961 part cuModuleGetSurfRef(module: ModuleId, reference: SurfRefId) -> () [other same code] as cuModuleGetSurfRef(module, name());
            /// Creates a texture reference that no kernel has.
            0x0962 create cuTexRefCreate(reference: TexRefId) -> () [other same code];
            /// Destroys a texture reference that `cuTexRefCreate` made.
            0x0963 destroy cuTexRefDestroy(reference: TexRefId) -> () [other changes code];
            /// Binds an array.
            0x0964 forward cuTexRefSetArray(reference: TexRefId, array: ArrayId, flags: u32) -> () [other special code] entry first;
            /// Binds a mipmapped array.
            0x0965 forward cuTexRefSetMipmappedArray(reference: TexRefId, mipmap: MipmappedArrayId, flags: u32) -> () [other special code] entry first;
            /// Binds memory. With `aligned` 1 the texture begins at an aligned address, `offset` bytes before `dptr`; else an
            /// unaligned `dptr` is an error.
            0x0966 forward cuTexRefSetAddress_v2(reference: TexRefId, dptr: DevicePtr, bytes: u64, aligned: u32) -> (offset: u64) [other special code]
                as texture_address(reference, memory(dptr, Some(bytes)), bytes, aligned != 0);
            /// Binds rows of memory. `size` is the number of elements per row, and of rows.
            0x0967 forward cuTexRefSetAddress2D_v3(reference: TexRefId, size: [u64; 2], format: u32, channels: u32, dptr: DevicePtr, pitch: u64) -> () [other special code]
                as cuTexRefSetAddress2D_v3(reference, texels(size, format, channels), memory(dptr, pitched(size, format, channels, pitch)), pitch);
            /// Sets the format of the memory.
            0x0968 forward cuTexRefSetFormat(reference: TexRefId, format: i32, channels: i32) -> () [other special code] entry first;
            /// Sets the address mode of a dimension.
            0x0969 forward cuTexRefSetAddressMode(reference: TexRefId, dimension: i32, mode: i32) -> () [other special code] entry first;
            /// Sets the filter mode.
            0x096a forward cuTexRefSetFilterMode(reference: TexRefId, mode: i32) -> () [other special code] entry first;
            /// Sets the filter mode between levels.
            0x096b forward cuTexRefSetMipmapFilterMode(reference: TexRefId, mode: i32) -> () [other special code] entry first;
            /// Sets the bias that is added to the mipmap level.
            0x096c forward cuTexRefSetMipmapLevelBias(reference: TexRefId, bias: f32) -> () [other special code] entry first;
            /// Sets the minimum and the maximum mipmap level.
            0x096d forward cuTexRefSetMipmapLevelClamp(reference: TexRefId, least: f32, greatest: f32) -> () [other special code] entry first;
            /// Sets the maximum anisotropy.
            0x096e forward cuTexRefSetMaxAnisotropy(reference: TexRefId, most: u32) -> () [other special code] entry first;
            /// Sets the colour outside of the texture, for address mode `BORDER`.
            0x096f forward cuTexRefSetBorderColor(reference: TexRefId, color: [f32; 4]) -> () [other special code] entry first;
            /// Sets `CU_TRSF_*` bits.
            0x0970 forward cuTexRefSetFlags(reference: TexRefId, flags: u32) -> () [other special code] entry first;
            /// The memory that is bound.
            0x0971 forward cuTexRefGetAddress_v2(reference: TexRefId) -> (dptr: DevicePtr) [other same code] entry first;
            /// The array that is bound.
            0x0972 forward cuTexRefGetArray(reference: TexRefId) -> (array: ArrayId) [other same code] entry first;
            /// The mipmapped array that is bound.
            0x0973 forward cuTexRefGetMipmappedArray(reference: TexRefId) -> (mipmap: MipmappedArrayId) [other same code] entry first;
            /// The address mode of a dimension.
            0x0974 forward cuTexRefGetAddressMode(reference: TexRefId, dimension: i32) -> (mode: i32) [other same code] entry first;
            /// The filter mode.
            0x0975 forward cuTexRefGetFilterMode(reference: TexRefId) -> (mode: i32) [other same code] entry first;
            /// Returns the format of the memory.
            0x0976 forward cuTexRefGetFormat(reference: TexRefId) -> (format: i32, channels: i32) [other same code];
            /// The filter mode between levels.
            0x0977 forward cuTexRefGetMipmapFilterMode(reference: TexRefId) -> (mode: i32) [other same code] entry first;
            /// Returns the bias that is added to the level.
            0x0978 forward cuTexRefGetMipmapLevelBias(reference: TexRefId) -> (bias: f32) [other same code] entry first;
            /// The minimum and the maximum mipmap level.
            0x0979 forward cuTexRefGetMipmapLevelClamp(reference: TexRefId) -> (least: f32, greatest: f32) [other same code] entry first;
            /// The maximum anisotropy.
            0x097a forward cuTexRefGetMaxAnisotropy(reference: TexRefId) -> (most: i32) [other same code] entry first;
            /// Returns the colour outside of the texture.
            0x097b forward cuTexRefGetBorderColor(reference: TexRefId) -> (color: [f32; 4]) [other same code] entry first;
            /// `CU_TRSF_*` bits.
            0x097c forward cuTexRefGetFlags(reference: TexRefId) -> (flags: u32) [other same code] entry first;
            /// Binds an array to a surface reference.
            0x097d forward cuSurfRefSetArray(reference: SurfRefId, array: ArrayId, flags: u32) -> () [other special code] entry first;
            /// The array that is bound to a surface reference.
            0x097e forward cuSurfRefGetArray(reference: SurfRefId) -> (array: ArrayId) [other same code] entry first;
            /// Makes a texture reference a parameter of a function, which it is anyway.
            0x097f forward cuParamSetTexRef(function: FunctionId, unit: i32, reference: TexRefId) -> () [other special code];
        } }
    };
}
