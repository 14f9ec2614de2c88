// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's structures with plain integers for enums, because the values of the guest or of a newer driver may be
//! unknown to cudarc. The compiler compares their sizes with cudarc's.

pub use cuda_abi::{
    CUDA_ARRAY_DESCRIPTOR as RawRows, CUDA_ARRAY_MEMORY_REQUIREMENTS as RawRequirements,
    CUDA_ARRAY_SPARSE_PROPERTIES as RawSparse, CUDA_ARRAY3D_DESCRIPTOR as RawArray,
    CUDA_BATCH_MEM_OP_NODE_PARAMS as RawBatch, CUDA_CONDITIONAL_NODE_PARAMS as RawConditional,
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC as RawExternalBuffer, CUDA_EXTERNAL_MEMORY_HANDLE_DESC as RawExternal,
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC as RawExternalArray,
    CUDA_GRAPH_INSTANTIATE_PARAMS as RawInstantiate, CUDA_HOST_NODE_PARAMS as RawHost,
    CUDA_KERNEL_NODE_PARAMS as RawKernel, CUDA_KERNEL_NODE_PARAMS_v1 as RawKernelV1,
    CUDA_MEM_ALLOC_NODE_PARAMS as RawMemAlloc, CUDA_MEMCPY_NODE_PARAMS as RawCopyNode,
    CUDA_MEMCPY3D as RawCopy, CUDA_MEMSET_NODE_PARAMS as RawMemset,
    CUDA_MEMSET_NODE_PARAMS_v2 as RawMemsetNode, CUDA_RESOURCE_DESC as RawResource,
    CUDA_RESOURCE_VIEW_DESC as RawView, CUDA_TEXTURE_DESC as RawTexture, CUarrayMapInfo as RawArrayMap,
    CUdevResource as RawDevResource, CUexecAffinityParam as RawAffinity,
    CUgraphExecUpdateResultInfo as RawUpdate, CUgraphNodeParams as RawNodeParameters,
    CUipcMemHandle as RawIpcHandle, CUlaunchAttribute as RawLaunchAttribute, CUmemAccessDesc as RawAccess,
    CUmemAllocationProp as RawAllocation, CUmemLocation as RawLocation, CUmemPoolProps as RawPool,
    CUstreamBatchMemOpParams as RawMemoryOperation, CUtensorMap as RawTensorMap, CopyEnd3D as RawCopyEnd,
};
use cudarc::driver::sys;

const _: () = assert!(size_of::<RawArray>() == size_of::<sys::CUDA_ARRAY3D_DESCRIPTOR>());
const _: () = assert!(size_of::<RawRequirements>() == size_of::<sys::CUDA_ARRAY_MEMORY_REQUIREMENTS>());
const _: () = assert!(size_of::<RawSparse>() == size_of::<sys::CUDA_ARRAY_SPARSE_PROPERTIES>());
const _: () = assert!(size_of::<RawArrayMap>() == size_of::<sys::CUarrayMapInfo>());
const _: () = assert!(size_of::<RawResource>() == size_of::<sys::CUDA_RESOURCE_DESC>());
const _: () = assert!(size_of::<RawRows>() == size_of::<sys::CUDA_ARRAY_DESCRIPTOR>());
const _: () = assert!(size_of::<RawTexture>() == size_of::<sys::CUDA_TEXTURE_DESC>());
const _: () = assert!(size_of::<RawView>() == size_of::<sys::CUDA_RESOURCE_VIEW_DESC>());
const _: () = assert!(size_of::<RawLocation>() == size_of::<sys::CUmemLocation>());
const _: () = assert!(size_of::<RawAccess>() == size_of::<sys::CUmemAccessDesc>());
const _: () = assert!(size_of::<RawPool>() == size_of::<sys::CUmemPoolProps>());
const _: () = assert!(size_of::<RawAllocation>() == size_of::<sys::CUmemAllocationProp>());
const _: () = assert!(size_of::<RawExternal>() == size_of::<sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC>());
const _: () = assert!(size_of::<RawExternalBuffer>() == size_of::<sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC>());
const _: () =
    assert!(size_of::<RawExternalArray>() == size_of::<sys::CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC>());
const _: () = assert!(size_of::<RawInstantiate>() == size_of::<sys::CUDA_GRAPH_INSTANTIATE_PARAMS>());
const _: () = assert!(size_of::<RawCopy>() == size_of::<sys::CUDA_MEMCPY3D>());
const _: () = assert!(size_of::<RawMemset>() == size_of::<sys::CUDA_MEMSET_NODE_PARAMS>());
const _: () = assert!(size_of::<RawMemoryOperation>() == size_of::<sys::CUstreamBatchMemOpParams>());
const _: () = assert!(size_of::<RawNodeParameters>() == size_of::<sys::CUgraphNodeParams>());
const _: () = assert!(size_of::<RawKernel>() == size_of::<sys::CUDA_KERNEL_NODE_PARAMS>());
const _: () = assert!(size_of::<RawMemAlloc>() == size_of::<sys::CUDA_MEM_ALLOC_NODE_PARAMS>());
const _: () = assert!(size_of::<RawBatch>() == size_of::<sys::CUDA_BATCH_MEM_OP_NODE_PARAMS>());
const _: () = assert!(size_of::<RawUpdate>() == size_of::<sys::CUgraphExecUpdateResultInfo>());

const _: () = assert!(size_of::<RawAffinity>() == size_of::<sys::CUexecAffinityParam>());
const _: () = assert!(size_of::<RawTensorMap>() == size_of::<sys::CUtensorMap>());
const _: () = assert!(align_of::<RawTensorMap>() == align_of::<sys::CUtensorMap>());
const _: () = assert!(size_of::<RawDevResource>() == size_of::<sys::CUdevResource>());
const _: () = assert!(size_of::<RawLaunchAttribute>() == size_of::<sys::CUlaunchAttribute>());
const _: () = assert!(size_of::<RawIpcHandle>() == size_of::<sys::CUipcMemHandle>());
const _: () = assert!(size_of::<RawIpcHandle>() == size_of::<sys::CUipcEventHandle>());
const _: () = assert!(size_of::<RawIpcHandle>() == size_of::<sys::CUmemPoolPtrExportData>());
