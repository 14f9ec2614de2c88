// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Arrays, textures, surfaces and tensor maps.

/// Passes the prototypes of this area to a macro.
#[macro_export]
macro_rules! array_prototypes {
    ($callback:ident) => {
        $callback! {
            fn cuArray3DCreate_v2(pHandle: *mut CUarray, pAllocateArray: *const CUDA_ARRAY3D_DESCRIPTOR);
            fn cuArray3DGetDescriptor_v2(pArrayDescriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, hArray: CUarray);
            fn cuArrayCreate_v2(pHandle: *mut CUarray, pAllocateArray: *const CUDA_ARRAY_DESCRIPTOR);
            fn cuArrayDestroy(hArray: CUarray);
            fn cuArrayGetDescriptor_v2(pArrayDescriptor: *mut CUDA_ARRAY_DESCRIPTOR, hArray: CUarray);
            fn cuArrayGetMemoryRequirements(
                memoryRequirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, array: CUarray, device: CUdevice,
            );
            fn cuArrayGetPlane(pPlaneArray: *mut CUarray, hArray: CUarray, planeIdx: c_uint);
            fn cuArrayGetSparseProperties(
                sparseProperties: *mut CUDA_ARRAY_SPARSE_PROPERTIES, array: CUarray,
            );
            fn cuMemMapArrayAsync(mapInfoList: *mut CUarrayMapInfo, count: c_uint, hStream: CUstream);
            fn cuMipmappedArrayCreate(
                pHandle: *mut CUmipmappedArray, pMipmappedArrayDesc: *const CUDA_ARRAY3D_DESCRIPTOR,
                numMipmapLevels: c_uint,
            );
            fn cuMipmappedArrayDestroy(hMipmappedArray: CUmipmappedArray);
            fn cuMipmappedArrayGetLevel(
                pLevelArray: *mut CUarray, hMipmappedArray: CUmipmappedArray, level: c_uint,
            );
            fn cuMipmappedArrayGetMemoryRequirements(
                memoryRequirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, mipmap: CUmipmappedArray,
                device: CUdevice,
            );
            fn cuMipmappedArrayGetSparseProperties(
                sparseProperties: *mut CUDA_ARRAY_SPARSE_PROPERTIES, mipmap: CUmipmappedArray,
            );
            fn cuSurfObjectCreate(pSurfObject: *mut CUsurfObject, pResDesc: *const CUDA_RESOURCE_DESC);
            fn cuSurfObjectDestroy(surfObject: CUsurfObject);
            fn cuSurfObjectGetResourceDesc(pResDesc: *mut CUDA_RESOURCE_DESC, surfObject: CUsurfObject);
            fn cuSurfRefGetArray(phArray: *mut CUarray, hSurfRef: CUsurfref);
            fn cuSurfRefSetArray(hSurfRef: CUsurfref, hArray: CUarray, Flags: c_uint);
            fn cuTensorMapEncodeIm2col(
                tensorMap: *mut CUtensorMap, tensorDataType: c_uint, tensorRank: u32,
                globalAddress: *mut c_void, globalDim: *const u64, globalStrides: *const u64,
                pixelBoxLowerCorner: *const c_int, pixelBoxUpperCorner: *const c_int, channelsPerPixel: u32,
                pixelsPerColumn: u32, elementStrides: *const u32, interleave: c_uint, swizzle: c_uint,
                l2Promotion: c_uint, oobFill: c_uint,
            );
            fn cuTensorMapEncodeIm2colWide(
                tensorMap: *mut CUtensorMap, tensorDataType: c_uint, tensorRank: u32,
                globalAddress: *mut c_void, globalDim: *const u64, globalStrides: *const u64,
                pixelBoxLowerCornerWidth: c_int, pixelBoxUpperCornerWidth: c_int, channelsPerPixel: u32,
                pixelsPerColumn: u32, elementStrides: *const u32, interleave: c_uint, mode: c_uint,
                swizzle: c_uint, l2Promotion: c_uint, oobFill: c_uint,
            );
            fn cuTensorMapEncodeTiled(
                tensorMap: *mut CUtensorMap, tensorDataType: c_uint, tensorRank: u32,
                globalAddress: *mut c_void, globalDim: *const u64, globalStrides: *const u64,
                boxDim: *const u32, elementStrides: *const u32, interleave: c_uint, swizzle: c_uint,
                l2Promotion: c_uint, oobFill: c_uint,
            );
            fn cuTensorMapReplaceAddress(tensorMap: *mut CUtensorMap, globalAddress: *mut c_void);
            fn cuTexObjectCreate(
                pTexObject: *mut CUtexObject, pResDesc: *const CUDA_RESOURCE_DESC,
                pTexDesc: *const CUDA_TEXTURE_DESC, pResViewDesc: *const CUDA_RESOURCE_VIEW_DESC,
            );
            fn cuTexObjectDestroy(texObject: CUtexObject);
            fn cuTexObjectGetResourceDesc(pResDesc: *mut CUDA_RESOURCE_DESC, texObject: CUtexObject);
            fn cuTexObjectGetResourceViewDesc(
                pResViewDesc: *mut CUDA_RESOURCE_VIEW_DESC, texObject: CUtexObject,
            );
            fn cuTexObjectGetTextureDesc(pTexDesc: *mut CUDA_TEXTURE_DESC, texObject: CUtexObject);
            fn cuTexRefCreate(pTexRef: *mut CUtexref);
            fn cuTexRefDestroy(hTexRef: CUtexref);
            fn cuTexRefGetAddressMode(pam: *mut c_uint, hTexRef: CUtexref, dim: c_int);
            fn cuTexRefGetAddress_v2(pdptr: *mut CUdeviceptr, hTexRef: CUtexref);
            fn cuTexRefGetArray(phArray: *mut CUarray, hTexRef: CUtexref);
            fn cuTexRefGetBorderColor(pBorderColor: *mut [f32; 4], hTexRef: CUtexref);
            fn cuTexRefGetFilterMode(pfm: *mut c_uint, hTexRef: CUtexref);
            fn cuTexRefGetFlags(pFlags: *mut c_uint, hTexRef: CUtexref);
            fn cuTexRefGetFormat(pFormat: *mut c_uint, pNumChannels: *mut c_int, hTexRef: CUtexref);
            fn cuTexRefGetMaxAnisotropy(pmaxAniso: *mut c_int, hTexRef: CUtexref);
            fn cuTexRefGetMipmapFilterMode(pfm: *mut c_uint, hTexRef: CUtexref);
            fn cuTexRefGetMipmapLevelBias(pbias: *mut f32, hTexRef: CUtexref);
            fn cuTexRefGetMipmapLevelClamp(
                pminMipmapLevelClamp: *mut f32, pmaxMipmapLevelClamp: *mut f32, hTexRef: CUtexref,
            );
            fn cuTexRefGetMipmappedArray(phMipmappedArray: *mut CUmipmappedArray, hTexRef: CUtexref);
            fn cuTexRefSetAddress2D_v2(
                hTexRef: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR, dptr: CUdeviceptr, Pitch: usize,
            );
            fn cuTexRefSetAddress2D_v3(
                hTexRef: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR, dptr: CUdeviceptr, Pitch: usize,
            );
            fn cuTexRefSetAddressMode(hTexRef: CUtexref, dim: c_int, am: c_uint);
            fn cuTexRefSetAddress_v2(
                ByteOffset: *mut usize, hTexRef: CUtexref, dptr: CUdeviceptr, bytes: usize,
            );
            fn cuTexRefSetArray(hTexRef: CUtexref, hArray: CUarray, Flags: c_uint);
            fn cuTexRefSetBorderColor(hTexRef: CUtexref, pBorderColor: *mut [f32; 4]);
            fn cuTexRefSetFilterMode(hTexRef: CUtexref, fm: c_uint);
            fn cuTexRefSetFlags(hTexRef: CUtexref, Flags: c_uint);
            fn cuTexRefSetFormat(hTexRef: CUtexref, fmt: c_uint, NumPackedComponents: c_int);
            fn cuTexRefSetMaxAnisotropy(hTexRef: CUtexref, maxAniso: c_uint);
            fn cuTexRefSetMipmapFilterMode(hTexRef: CUtexref, fm: c_uint);
            fn cuTexRefSetMipmapLevelBias(hTexRef: CUtexref, bias: f32);
            fn cuTexRefSetMipmapLevelClamp(
                hTexRef: CUtexref, minMipmapLevelClamp: f32, maxMipmapLevelClamp: f32,
            );
            fn cuTexRefSetMipmappedArray(hTexRef: CUtexref, hMipmappedArray: CUmipmappedArray, Flags: c_uint);
        }
    };
}
