// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The structs of `libcudart.so.13`. Sizes and offsets were taken from the 13.0 headers with a C program; they differ
//! in 12.x.

use core::ffi::{c_char, c_int, c_long, c_uint, c_void};
use core::mem::{offset_of, size_of};

use super::shared::{LinearResource, Pitch2DResource, cudaChannelFormatDesc, cudaExtent, cudaUUID_t};
use super::{CUarray, CUmipmappedArray};

/// The value that cudaRuntimeGetVersion returns: 1000 * major + 10 * minor.
pub const RUNTIME_VERSION: c_int = 13000;
/// The oldest driver that supports this runtime: the first of the same major version.
pub const MINIMUM_DRIVER_VERSION: c_int = 13000;

/// Bytes of structs that equal the driver's, reserved words included.
pub const EXTERNAL_MEMORY_HANDLE_BYTES: usize = 104;
pub const EXTERNAL_BUFFER_BYTES: usize = 88;
pub const EXTERNAL_SEMAPHORE_HANDLE_BYTES: usize = 96;
pub const RESOURCE_VIEW_BYTES: usize = 112;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct cudaPointerAttributes {
    pub type_: c_uint,
    pub device: c_int,
    pub devicePointer: *mut c_void,
    pub hostPointer: *mut c_void,
    pub reserved: [c_long; 8],
}
const _: () = assert!(size_of::<cudaPointerAttributes>() == 88);

#[repr(C)]
#[derive(Clone, Copy)]
pub union Resource {
    pub array: CUarray,
    pub mipmap: CUmipmappedArray,
    pub linear: LinearResource,
    pub pitch2D: Pitch2DResource,
    pub reserved: [c_int; 32],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct cudaResourceDesc {
    pub resType: c_uint,
    pub res: Resource,
    pub flags: c_uint,
}

/// The access flags of the resource.
pub fn resource_flags(resource: &cudaResourceDesc) -> c_uint {
    resource.flags
}

/// A description whose resource is still to be filled in.
pub fn empty_resource_desc(resType: c_uint, flags: c_uint) -> cudaResourceDesc {
    cudaResourceDesc { resType, res: Resource { reserved: [0; 32] }, flags }
}

const _: () = assert!(size_of::<cudaResourceDesc>() == 144 && offset_of!(cudaResourceDesc, flags) == 136);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct cudaExternalMemoryMipmappedArrayDesc {
    pub offset: u64,
    pub formatDesc: cudaChannelFormatDesc,
    pub extent: cudaExtent,
    pub flags: c_uint,
    pub numLevels: c_uint,
    pub reserved: [c_uint; 16],
}
const _: () = assert!(size_of::<cudaExternalMemoryMipmappedArrayDesc>() == 128);

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
    pub totalConstMem: usize,
    pub major: c_int,
    pub minor: c_int,
    pub textureAlignment: usize,
    pub texturePitchAlignment: usize,
    pub multiProcessorCount: c_int,
    pub integrated: c_int,
    pub canMapHostMemory: c_int,
    pub maxTexture1D: c_int,
    pub maxTexture1DMipmap: c_int,
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
    pub pageableMemoryAccess: c_int,
    pub concurrentManagedAccess: c_int,
    pub computePreemptionSupported: c_int,
    pub canUseHostPointerForRegisteredMem: c_int,
    pub cooperativeLaunch: c_int,
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
    pub deviceNumaConfig: c_int,
    pub deviceNumaId: c_int,
    pub mpsEnabled: c_int,
    pub hostNumaId: c_int,
    pub gpuPciDeviceID: c_uint,
    pub gpuPciSubsystemID: c_uint,
    pub hostNumaMultinodeIpcSupported: c_int,
    pub reserved: [c_int; 56],
}

/// Bytes of the struct that programs of this version have.
pub const DEVICE_PROP_BYTES: usize = size_of::<cudaDeviceProp>();

const _: () = {
    assert!(size_of::<cudaDeviceProp>() == 1008);
    assert!(offset_of!(cudaDeviceProp, uuid) == 256);
    assert!(offset_of!(cudaDeviceProp, totalGlobalMem) == 288);
    assert!(offset_of!(cudaDeviceProp, multiProcessorCount) == 384);
    assert!(offset_of!(cudaDeviceProp, surfaceAlignment) == 552);
    assert!(offset_of!(cudaDeviceProp, concurrentKernels) == 560);
    assert!(offset_of!(cudaDeviceProp, l2CacheSize) == 596);
    assert!(offset_of!(cudaDeviceProp, sharedMemPerMultiprocessor) == 624);
    assert!(offset_of!(cudaDeviceProp, sharedMemPerBlockOptin) == 672);
    assert!(offset_of!(cudaDeviceProp, reservedSharedMemPerBlock) == 696);
    assert!(offset_of!(cudaDeviceProp, hostRegisterSupported) == 704);
    assert!(offset_of!(cudaDeviceProp, clusterLaunch) == 748);
    assert!(offset_of!(cudaDeviceProp, hostNumaId) == 768);
    assert!(offset_of!(cudaDeviceProp, hostNumaMultinodeIpcSupported) == 780);
    assert!(offset_of!(cudaDeviceProp, reserved) == 784);
};
