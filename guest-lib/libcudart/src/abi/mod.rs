// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C types of CUDA that this library passes on or reads.
//!
//! Handles are the driver's own objects under two names (`cudaStream_t` is `CUstream`). Nothing is translated, and
//! programs may mix both APIs. Enumerations are plain integers: a program may pass any value, and the driver validates
//! it.

use core::ffi::{c_int, c_uint, c_void};

pub mod driver;
pub mod shared;
/// The structs whose layout belongs to one major version of the runtime.
#[cfg_attr(not(cuda_major = "13"), path = "v12.rs")]
#[cfg_attr(cuda_major = "13", path = "v13.rs")]
pub mod version;

/// Declares handle types: pointers to objects that only the driver reads.
macro_rules! handles {
    ($($(#[$meta:meta])* $handle:ident => $object:ident $(, $alias:ident)?;)*) => { $(
        #[repr(C)]
        pub struct $object {
            private: [u8; 0],
        }
        $(#[$meta])*
        pub type $handle = *mut $object;
        $( pub type $alias = $handle; )?
    )* };
}

handles! {
    CUcontext => CUctx_st;
    CUstream => CUstream_st, cudaStream_t;
    CUevent => CUevent_st, cudaEvent_t;
    CUlibrary => CUlib_st, cudaLibrary_t;
    CUkernel => CUkern_st, cudaKernel_t;
    CUfunction => CUfunc_st, cudaFunction_t;
    CUarray => CUarray_st, cudaArray_t;
    CUmipmappedArray => CUmipmappedArray_st, cudaMipmappedArray_t;
    CUmemoryPool => CUmemPoolHandle_st, cudaMemPool_t;
    CUgraph => CUgraph_st, cudaGraph_t;
    CUgraphNode => CUgraphNode_st, cudaGraphNode_t;
    CUgraphExec => CUgraphExec_st, cudaGraphExec_t;
    CUuserObject => CUuserObject_st, cudaUserObject_t;
    CUexternalMemory => CUextMemory_st, cudaExternalMemory_t;
    CUexternalSemaphore => CUextSemaphore_st, cudaExternalSemaphore_t;
    CUgraphicsResource => CUgraphicsResource_st, cudaGraphicsResource_t;
    CUasyncCallbackHandle => CUasyncCallbackEntry_st, cudaAsyncCallbackHandle_t;
    CUlogsCallbackHandle => CUlogsCallbackEntry_st;
}

#[cfg(cuda_major = "13")]
handles! {
    CUgreenCtx => CUgreenCtx_st;
    CUdevResourceDesc => CUdevResourceDesc_st;
}

#[cfg(cuda_major = "13")]
pub type cudaLogsCallbackHandle = CUlogsCallbackHandle;

// The runtime's names of the driver's structs that pass through unread.
pub use cuda_abi::{
    CUDA_ARRAY_MEMORY_REQUIREMENTS as cudaArrayMemoryRequirements,
    CUDA_ARRAY_SPARSE_PROPERTIES as cudaArraySparseProperties,
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS as cudaExternalSemaphoreSignalNodeParams,
    CUDA_EXT_SEM_WAIT_NODE_PARAMS as cudaExternalSemaphoreWaitNodeParams,
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC as cudaExternalMemoryBufferDesc,
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC as cudaExternalMemoryHandleDesc,
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC as cudaExternalSemaphoreHandleDesc,
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS as cudaExternalSemaphoreSignalParams,
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS as cudaExternalSemaphoreWaitParams,
    CUDA_GRAPH_INSTANTIATE_PARAMS as cudaGraphInstantiateParams, CUDA_HOST_NODE_PARAMS as cudaHostNodeParams,
    CUDA_MEM_ALLOC_NODE_PARAMS as cudaMemAllocNodeParams, CUDA_MEMCPY3D_BATCH_OP as cudaMemcpy3DBatchOp,
    CUDA_MEMSET_NODE_PARAMS as cudaMemsetParams, CUDA_RESOURCE_VIEW_DESC as cudaResourceViewDesc,
    CUgraphEdgeData as cudaGraphEdgeData, CUgraphExecUpdateResultInfo as cudaGraphExecUpdateResultInfo,
    CUlaunchAttributeValue as cudaLaunchAttributeValue, CUmemAccessDesc as cudaMemAccessDesc,
    CUmemPoolProps as cudaMemPoolProps, CUmemPoolPtrExportData as cudaMemPoolPtrExportData,
    CUmemcpyAttributes as cudaMemcpyAttributes,
};
#[cfg(cuda_major = "13")]
pub use cuda_abi::{
    CUdevResource as cudaDevResource, CUdevSmResourceGroupParams as cudaDevSmResourceGroupParams,
};

/// An address in the GPU's address space.
pub type CUdeviceptr = u64;
/// The driver's device handle; the runtime counts ordinals instead.
pub type CUdevice = c_int;
pub type CUtexObject = u64;
pub type CUsurfObject = u64;
pub type cudaTextureObject_t = CUtexObject;
pub type cudaSurfaceObject_t = CUsurfObject;
pub type cudaGraphConditionalHandle = u64;

pub type cudaHostFn_t = Option<unsafe extern "C" fn(*mut c_void)>;
/// `cudaError_t` and `CUresult` are both 32-bit integers with the same values, so one type serves both APIs.
pub type cudaStreamCallback_t = Option<unsafe extern "C" fn(CUstream, c_uint, *mut c_void)>;
pub type cudaAsyncCallback = Option<unsafe extern "C" fn(*mut c_void, *mut c_void, CUasyncCallbackHandle)>;
pub type cudaLogsCallback_t =
    Option<unsafe extern "C" fn(*mut c_void, c_uint, *mut core::ffi::c_char, usize)>;
