// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Structs and constants that are the same in every runtime since 12.0. Those of 11.8 are the same, or the beginning of
//! these.

use core::ffi::{c_int, c_uint, c_void};
use core::mem::{offset_of, size_of};

use super::{CUarray, CUstream};

/// The legacy default stream as programs pass it: 0.
pub const DEFAULT_STREAM: CUstream = core::ptr::null_mut();
/// `cudaStreamPerThread`.
pub const PER_THREAD_STREAM: CUstream = 2 as CUstream;

/// Returns the stream for a `_ptsz` function, whose default stream is the thread's own.
pub fn or_per_thread(stream: super::cudaStream_t) -> super::cudaStream_t {
    if stream.is_null() { PER_THREAD_STREAM } else { stream }
}

pub const cudaMemcpyHostToHost: c_uint = 0;
pub const cudaMemcpyHostToDevice: c_uint = 1;
pub const cudaMemcpyDeviceToHost: c_uint = 2;
pub const cudaMemcpyDeviceToDevice: c_uint = 3;
pub const cudaMemcpyDefault: c_uint = 4;

pub const cudaMemoryTypeUnregistered: c_uint = 0;
pub const cudaMemoryTypeHost: c_uint = 1;
pub const cudaMemoryTypeDevice: c_uint = 2;
pub const cudaMemoryTypeManaged: c_uint = 3;

/// `cudaInvalidDeviceId`.
pub const cudaInvalidDeviceId: c_int = -2;
/// A flag of cudaHostAlloc.
pub const cudaHostAllocMapped: c_uint = 0x02;
/// `cudaDeviceMapHost`: mapping of host memory. Always on since unified addressing.
pub const cudaDeviceMapHost: c_uint = 0x08;
/// `cudaDeviceMask`: every flag that cudaSetDeviceFlags knows.
pub const cudaDeviceMask: c_uint = 0xff;
/// `cudaInitDeviceFlagsAreValid`.
pub const cudaInitDeviceFlagsAreValid: c_uint = 0x01;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct dim3 {
    pub x: c_uint,
    pub y: c_uint,
    pub z: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct cudaExtent {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct cudaPos {
    pub x: usize,
    pub y: usize,
    pub z: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudaPitchedPtr {
    pub ptr: *mut c_void,
    /// Bytes from one row to the next.
    pub pitch: usize,
    /// Logical width in bytes.
    pub xsize: usize,
    /// Logical height in rows.
    pub ysize: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct cudaMemcpy3DParms {
    pub srcArray: CUarray,
    pub srcPos: cudaPos,
    pub srcPtr: cudaPitchedPtr,
    pub dstArray: CUarray,
    pub dstPos: cudaPos,
    pub dstPtr: cudaPitchedPtr,
    pub extent: cudaExtent,
    pub kind: c_uint,
}
const _: () = assert!(size_of::<cudaMemcpy3DParms>() == 160 && offset_of!(cudaMemcpy3DParms, kind) == 152);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct cudaMemcpy3DPeerParms {
    pub srcArray: CUarray,
    pub srcPos: cudaPos,
    pub srcPtr: cudaPitchedPtr,
    pub srcDevice: c_int,
    pub dstArray: CUarray,
    pub dstPos: cudaPos,
    pub dstPtr: cudaPitchedPtr,
    pub dstDevice: c_int,
    pub extent: cudaExtent,
}
const _: () =
    assert!(size_of::<cudaMemcpy3DPeerParms>() == 168 && offset_of!(cudaMemcpy3DPeerParms, extent) == 144);

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct cudaChannelFormatDesc {
    /// Bits of the first to the fourth channel; 0 for a missing channel.
    pub x: c_int,
    pub y: c_int,
    pub z: c_int,
    pub w: c_int,
    /// One of `cudaChannelFormatKind*`.
    pub f: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct cudaTextureDesc {
    pub addressMode: [c_uint; 3],
    pub filterMode: c_uint,
    pub readMode: c_uint,
    pub sRGB: c_int,
    pub borderColor: [f32; 4],
    pub normalizedCoords: c_int,
    pub maxAnisotropy: c_uint,
    pub mipmapFilterMode: c_uint,
    pub mipmapLevelBias: f32,
    pub minMipmapLevelClamp: f32,
    pub maxMipmapLevelClamp: f32,
    pub disableTrilinearOptimization: c_int,
    pub seamlessCubemap: c_int,
}
const _: () = assert!(size_of::<cudaTextureDesc>() == 72);
/// Bytes of the struct that programs of this version have.
pub const TEXTURE_DESC_BYTES: usize = if cfg!(cuda_major = "11") {
    offset_of!(cudaTextureDesc, seamlessCubemap)
} else {
    size_of::<cudaTextureDesc>()
};

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct cudaFuncAttributes {
    pub sharedSizeBytes: usize,
    pub constSizeBytes: usize,
    pub localSizeBytes: usize,
    pub maxThreadsPerBlock: c_int,
    pub numRegs: c_int,
    pub ptxVersion: c_int,
    pub binaryVersion: c_int,
    pub cacheModeCA: c_int,
    pub maxDynamicSharedSizeBytes: c_int,
    pub preferredShmemCarveout: c_int,
    pub clusterDimMustBeSet: c_int,
    pub requiredClusterWidth: c_int,
    pub requiredClusterHeight: c_int,
    pub requiredClusterDepth: c_int,
    pub clusterSchedulingPolicyPreference: c_int,
    pub nonPortableClusterSizeAllowed: c_int,
    pub reserved: [c_int; 16],
}
const _: () = assert!(size_of::<cudaFuncAttributes>() == 144);
/// Bytes of the struct that programs of this version have.
pub const FUNC_ATTRIBUTES_BYTES: usize = if cfg!(cuda_major = "11") {
    offset_of!(cudaFuncAttributes, clusterDimMustBeSet)
} else {
    size_of::<cudaFuncAttributes>()
};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct cudaLaunchConfig_t {
    pub gridDim: dim3,
    pub blockDim: dim3,
    pub dynamicSmemBytes: usize,
    pub stream: CUstream,
    /// An array of `cudaLaunchAttribute` (same layout as `CUlaunchAttribute`).
    pub attrs: *mut c_void,
    pub numAttrs: c_uint,
}
const _: () =
    assert!(size_of::<cudaLaunchConfig_t>() == 56 && offset_of!(cudaLaunchConfig_t, numAttrs) == 48);

/// The runtime's names of structs that both APIs have.
pub use cuda_abi::{
    CUDA_KERNEL_NODE_PARAMS_v1 as cudaKernelNodeParams, CUgraphNodeParams as cudaGraphNodeParams,
    CUipcMemHandle as cudaIpcMemHandle_t, CUipcMemHandle as cudaIpcEventHandle_t,
    CUmemLocation as cudaMemLocation, CUuuid as cudaUUID_t,
};

/// A texture's linear memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LinearResource {
    pub devPtr: *mut c_void,
    pub desc: cudaChannelFormatDesc,
    pub sizeInBytes: usize,
}

/// A texture's pitched 2D memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pitch2DResource {
    pub devPtr: *mut c_void,
    pub desc: cudaChannelFormatDesc,
    pub width: usize,
    pub height: usize,
    pub pitchInBytes: usize,
}
const _: () =
    assert!(offset_of!(LinearResource, sizeInBytes) == 32 && offset_of!(Pitch2DResource, pitchInBytes) == 48);

/// One launch of cudaLaunchCooperativeKernelMultiDevice, which CUDA 13 removed.
#[cfg(not(cuda_major = "13"))]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cudaLaunchParams {
    pub func: *mut c_void,
    pub gridDim: dim3,
    pub blockDim: dim3,
    pub args: *mut *mut c_void,
    pub sharedMem: usize,
    pub stream: CUstream,
}
#[cfg(not(cuda_major = "13"))]
const _: () = assert!(size_of::<cudaLaunchParams>() == 56);
