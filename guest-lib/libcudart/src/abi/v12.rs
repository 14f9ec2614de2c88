// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The structs of `libcudart.so.12`, and of `libcudart.so.11.0`. Sizes and offsets were taken from the 12.9 headers with a
//! C program.
//!
//! A comparison of the debug information of `cuda_runtime_api.h` of 11.8 and of 12.9 (`gcc -g
//! -fno-eliminate-unused-debug-types`) showed what differs in 11: `cudaDeviceProp`, `cudaFuncAttributes` and
//! `cudaTextureDesc` end earlier, and enumerations have fewer values. All else that both have is the same.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::mem::{offset_of, size_of};
use core::ptr;

use super::shared::{LinearResource, Pitch2DResource, cudaChannelFormatDesc, cudaExtent, cudaUUID_t};
use super::{CUarray, CUmipmappedArray};

/// The value that cudaRuntimeGetVersion returns: 1000 * major + 10 * minor.
pub const RUNTIME_VERSION: c_int = if cfg!(cuda_major = "11") { 11080 } else { 12090 };
/// The oldest driver that supports this runtime: the first of the same major version.
pub const MINIMUM_DRIVER_VERSION: c_int = if cfg!(cuda_major = "11") { 11000 } else { 12000 };

/// Bytes that driver structs have in common with those of 12. CUDA 13 added fields at the end. Padding after the last
/// field does not count.
pub const EXTERNAL_MEMORY_HANDLE_BYTES: usize = 36;
pub const EXTERNAL_BUFFER_BYTES: usize = 20;
pub const EXTERNAL_SEMAPHORE_HANDLE_BYTES: usize = 28;
pub const RESOURCE_VIEW_BYTES: usize = 48;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct cudaPointerAttributes {
    pub type_: c_uint,
    pub device: c_int,
    pub devicePointer: *mut c_void,
    pub hostPointer: *mut c_void,
}
const _: () = assert!(size_of::<cudaPointerAttributes>() == 24);

#[repr(C)]
#[derive(Clone, Copy)]
pub union Resource {
    pub array: CUarray,
    pub mipmap: CUmipmappedArray,
    pub linear: LinearResource,
    pub pitch2D: Pitch2DResource,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct cudaResourceDesc {
    pub resType: c_uint,
    pub res: Resource,
}

/// The access flags of the resource, which programs of 12 cannot specify.
pub fn resource_flags(_resource: &cudaResourceDesc) -> c_uint {
    0
}

/// A description whose resource is still to be filled in.
pub fn empty_resource_desc(resType: c_uint, _flags: c_uint) -> cudaResourceDesc {
    let empty = cudaChannelFormatDesc { x: 0, y: 0, z: 0, w: 0, f: 0 };
    let pitch2D =
        Pitch2DResource { devPtr: ptr::null_mut(), desc: empty, width: 0, height: 0, pitchInBytes: 0 };
    cudaResourceDesc { resType, res: Resource { pitch2D } }
}

const _: () = assert!(size_of::<cudaResourceDesc>() == 64 && offset_of!(cudaResourceDesc, res) == 8);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct cudaExternalMemoryMipmappedArrayDesc {
    pub offset: u64,
    pub formatDesc: cudaChannelFormatDesc,
    pub extent: cudaExtent,
    pub flags: c_uint,
    pub numLevels: c_uint,
}
const _: () = assert!(size_of::<cudaExternalMemoryMipmappedArrayDesc>() == 64);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct cudaDeviceProp {
    pub name: [c_char; 256],
    pub uuid: cudaUUID_t,
    pub luid: [c_char; 8],
    pub luidDeviceNodeMask: c_uint,
    pub totalGlobalMem: usize,
    pub sharedMemPerBlock: usize,
    pub regsPerBlock: c_int,
    pub warpSize: c_int,
    pub memPitch: usize,
    pub maxThreadsPerBlock: c_int,
    pub maxThreadsDim: [c_int; 3],
    pub maxGridSize: [c_int; 3],
    pub clockRate: c_int,
    pub totalConstMem: usize,
    pub major: c_int,
    pub minor: c_int,
    pub textureAlignment: usize,
    pub texturePitchAlignment: usize,
    pub deviceOverlap: c_int,
    pub multiProcessorCount: c_int,
    pub kernelExecTimeoutEnabled: c_int,
    pub integrated: c_int,
    pub canMapHostMemory: c_int,
    pub computeMode: c_int,
    pub maxTexture1D: c_int,
    pub maxTexture1DMipmap: c_int,
    pub maxTexture1DLinear: c_int,
    pub maxTexture2D: [c_int; 2],
    pub maxTexture2DMipmap: [c_int; 2],
    pub maxTexture2DLinear: [c_int; 3],
    pub maxTexture2DGather: [c_int; 2],
    pub maxTexture3D: [c_int; 3],
    pub maxTexture3DAlt: [c_int; 3],
    pub maxTextureCubemap: c_int,
    pub maxTexture1DLayered: [c_int; 2],
    pub maxTexture2DLayered: [c_int; 3],
    pub maxTextureCubemapLayered: [c_int; 2],
    pub maxSurface1D: c_int,
    pub maxSurface2D: [c_int; 2],
    pub maxSurface3D: [c_int; 3],
    pub maxSurface1DLayered: [c_int; 2],
    pub maxSurface2DLayered: [c_int; 3],
    pub maxSurfaceCubemap: c_int,
    pub maxSurfaceCubemapLayered: [c_int; 2],
    pub surfaceAlignment: usize,
    pub concurrentKernels: c_int,
    pub ECCEnabled: c_int,
    pub pciBusID: c_int,
    pub pciDeviceID: c_int,
    pub pciDomainID: c_int,
    pub tccDriver: c_int,
    pub asyncEngineCount: c_int,
    pub unifiedAddressing: c_int,
    pub memoryClockRate: c_int,
    pub memoryBusWidth: c_int,
    pub l2CacheSize: c_int,
    pub persistingL2CacheMaxSize: c_int,
    pub maxThreadsPerMultiProcessor: c_int,
    pub streamPrioritiesSupported: c_int,
    pub globalL1CacheSupported: c_int,
    pub localL1CacheSupported: c_int,
    pub sharedMemPerMultiprocessor: usize,
    pub regsPerMultiprocessor: c_int,
    pub managedMemory: c_int,
    pub isMultiGpuBoard: c_int,
    pub multiGpuBoardGroupID: c_int,
    pub hostNativeAtomicSupported: c_int,
    pub singleToDoublePrecisionPerfRatio: c_int,
    pub pageableMemoryAccess: c_int,
    pub concurrentManagedAccess: c_int,
    pub computePreemptionSupported: c_int,
    pub canUseHostPointerForRegisteredMem: c_int,
    pub cooperativeLaunch: c_int,
    pub cooperativeMultiDeviceLaunch: c_int,
    pub sharedMemPerBlockOptin: usize,
    pub pageableMemoryAccessUsesHostPageTables: c_int,
    pub directManagedMemAccessFromHost: c_int,
    pub maxBlocksPerMultiProcessor: c_int,
    pub accessPolicyMaxWindowSize: c_int,
    pub reservedSharedMemPerBlock: usize,
    pub hostRegisterSupported: c_int,
    pub sparseCudaArraySupported: c_int,
    pub hostRegisterReadOnlySupported: c_int,
    pub timelineSemaphoreInteropSupported: c_int,
    pub memoryPoolsSupported: c_int,
    pub gpuDirectRDMASupported: c_int,
    pub gpuDirectRDMAFlushWritesOptions: c_uint,
    pub gpuDirectRDMAWritesOrdering: c_int,
    pub memoryPoolSupportedHandleTypes: c_uint,
    pub deferredMappingCudaArraySupported: c_int,
    pub ipcEventSupported: c_int,
    pub clusterLaunch: c_int,
    pub unifiedFunctionPointers: c_int,
    pub reserved: [c_int; 63],
}

/// Bytes of the struct of CUDA 11.
pub const PROPERTIES_OF_11: usize = offset_of!(cudaDeviceProp, hostRegisterSupported);
/// Bytes of the struct that programs of this version have.
pub const DEVICE_PROP_BYTES: usize =
    if cfg!(cuda_major = "11") { PROPERTIES_OF_11 } else { size_of::<cudaDeviceProp>() };

const _: () = {
    assert!(size_of::<cudaDeviceProp>() == 1032);
    assert!(offset_of!(cudaDeviceProp, totalGlobalMem) == 288);
    assert!(offset_of!(cudaDeviceProp, clockRate) == 348);
    assert!(offset_of!(cudaDeviceProp, multiProcessorCount) == 388);
    assert!(offset_of!(cudaDeviceProp, computeMode) == 404);
    assert!(offset_of!(cudaDeviceProp, maxTexture1DLinear) == 416);
    assert!(offset_of!(cudaDeviceProp, surfaceAlignment) == 568);
    assert!(offset_of!(cudaDeviceProp, concurrentKernels) == 576);
    assert!(offset_of!(cudaDeviceProp, memoryClockRate) == 608);
    assert!(offset_of!(cudaDeviceProp, l2CacheSize) == 616);
    assert!(offset_of!(cudaDeviceProp, sharedMemPerMultiprocessor) == 640);
    assert!(offset_of!(cudaDeviceProp, singleToDoublePrecisionPerfRatio) == 668);
    assert!(offset_of!(cudaDeviceProp, cooperativeMultiDeviceLaunch) == 692);
    assert!(offset_of!(cudaDeviceProp, sharedMemPerBlockOptin) == 696);
    assert!(offset_of!(cudaDeviceProp, reservedSharedMemPerBlock) == 720);
    assert!(offset_of!(cudaDeviceProp, hostRegisterSupported) == 728);
    assert!(offset_of!(cudaDeviceProp, clusterLaunch) == 772);
    assert!(offset_of!(cudaDeviceProp, reserved) == 780);
};
