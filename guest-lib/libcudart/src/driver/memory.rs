// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that is allocated, registered, imported or described: buffers, pools, arrays, textures.

use core::ffi::{c_uint, c_void};

use super::{Result, Slot, cudaError_t, driver};
use crate::abi::driver::{
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC,
};
use crate::abi::shared::{cudaIpcEventHandle_t, cudaIpcMemHandle_t, cudaMemLocation};
use crate::abi::{
    CUarray, CUdevice, CUdeviceptr, CUevent, CUexternalMemory, CUexternalSemaphore, CUgraphicsResource,
    CUmemoryPool, CUmipmappedArray, CUstream, CUsurfObject, CUtexObject, cudaArrayMemoryRequirements,
    cudaArraySparseProperties, cudaExternalMemoryBufferDesc, cudaExternalMemoryHandleDesc,
    cudaExternalSemaphoreHandleDesc, cudaExternalSemaphoreSignalParams, cudaExternalSemaphoreWaitParams,
    cudaMemAccessDesc, cudaMemPoolProps, cudaMemPoolPtrExportData, cudaResourceViewDesc,
};

driver! {
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    fn cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize);
    fn cuMemAllocPitch_v2(
        dptr: *mut CUdeviceptr, pPitch: *mut usize, WidthInBytes: usize, Height: usize,
        ElementSizeBytes: c_uint,
    );
    fn cuMemFree_v2(dptr: CUdeviceptr);
    fn cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, Flags: c_uint);
    fn cuMemFreeHost(p: *mut c_void);
    fn cuMemHostGetDevicePointer_v2(pdptr: *mut CUdeviceptr, p: *mut c_void, Flags: c_uint);
    fn cuMemHostGetFlags(pFlags: *mut c_uint, p: *mut c_void);
    fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, Flags: c_uint);
    fn cuMemHostUnregister(p: *mut c_void);
    fn cuMemAllocManaged(dptr: *mut CUdeviceptr, bytesize: usize, flags: c_uint);
    fn cuPointerGetAttributes(
        numAttributes: c_uint, attributes: *mut c_uint, data: *mut *mut c_void, ptr: CUdeviceptr,
    );
    fn cuMemAdvise_v2(devPtr: CUdeviceptr, count: usize, advice: c_uint, location: cudaMemLocation);
    fn cuMemPrefetchAsync_v2(
        devPtr: CUdeviceptr, count: usize, location: cudaMemLocation, flags: c_uint, hStream: CUstream,
    );
    fn cuMemRangeGetAttribute(
        data: *mut c_void, dataSize: usize, attribute: c_uint, devPtr: CUdeviceptr, count: usize,
    );
    fn cuMemRangeGetAttributes(
        data: *mut *mut c_void, dataSizes: *mut usize, attributes: *mut c_uint, numAttributes: usize,
        devPtr: CUdeviceptr, count: usize,
    );
    fn cuMemPrefetchBatchAsync(
        dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetchLocs: *mut cudaMemLocation,
        prefetchLocIdxs: *mut usize, numPrefetchLocs: usize, flags: u64, hStream: CUstream,
    );
    fn cuMemDiscardBatchAsync(
        dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: u64, hStream: CUstream,
    );
    fn cuMemDiscardAndPrefetchBatchAsync(
        dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetchLocs: *mut cudaMemLocation,
        prefetchLocIdxs: *mut usize, numPrefetchLocs: usize, flags: u64, hStream: CUstream,
    );
    fn cuStreamAttachMemAsync(hStream: CUstream, dptr: CUdeviceptr, length: usize, flags: c_uint);

    fn cuIpcGetMemHandle(pHandle: *mut cudaIpcMemHandle_t, dptr: CUdeviceptr);
    fn cuIpcOpenMemHandle_v2(pdptr: *mut CUdeviceptr, handle: cudaIpcMemHandle_t, Flags: c_uint);
    fn cuIpcCloseMemHandle(dptr: CUdeviceptr);
    fn cuIpcGetEventHandle(pHandle: *mut cudaIpcEventHandle_t, event: CUevent);
    fn cuIpcOpenEventHandle(phEvent: *mut CUevent, handle: cudaIpcEventHandle_t);

    fn cuMemAllocAsync(dptr: *mut CUdeviceptr, bytesize: usize, hStream: CUstream);
    fn cuMemFreeAsync(dptr: CUdeviceptr, hStream: CUstream);
    fn cuMemAllocFromPoolAsync(
        dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, hStream: CUstream,
    );
    fn cuMemPoolCreate(pool: *mut CUmemoryPool, poolProps: *const cudaMemPoolProps);
    fn cuMemPoolDestroy(pool: CUmemoryPool);
    fn cuMemPoolTrimTo(pool: CUmemoryPool, minBytesToKeep: usize);
    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attr: c_uint, value: *mut c_void);
    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attr: c_uint, value: *mut c_void);
    fn cuMemPoolSetAccess(pool: CUmemoryPool, map: *const cudaMemAccessDesc, count: usize);
    fn cuMemPoolGetAccess(flags: *mut c_uint, memPool: CUmemoryPool, location: *mut cudaMemLocation);
    fn cuMemPoolExportToShareableHandle(
        handle_out: *mut c_void, pool: CUmemoryPool, handleType: c_uint, flags: u64,
    );
    fn cuMemPoolImportFromShareableHandle(
        pool_out: *mut CUmemoryPool, handle: *mut c_void, handleType: c_uint, flags: u64,
    );
    fn cuMemPoolExportPointer(shareData_out: *mut cudaMemPoolPtrExportData, ptr: CUdeviceptr);
    fn cuMemPoolImportPointer(
        ptr_out: *mut CUdeviceptr, pool: CUmemoryPool, shareData: *mut cudaMemPoolPtrExportData,
    );
    fn cuMemGetDefaultMemPool(pool_out: *mut CUmemoryPool, location: *mut cudaMemLocation, type_: c_uint);
    fn cuMemGetMemPool(pool: *mut CUmemoryPool, location: *mut cudaMemLocation, type_: c_uint);
    fn cuMemSetMemPool(location: *mut cudaMemLocation, type_: c_uint, pool: CUmemoryPool);

    fn cuArray3DCreate_v2(pHandle: *mut CUarray, pAllocateArray: *const CUDA_ARRAY3D_DESCRIPTOR);
    fn cuArray3DGetDescriptor_v2(pArrayDescriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, hArray: CUarray);
    fn cuArrayDestroy(hArray: CUarray);
    fn cuArrayGetPlane(pPlaneArray: *mut CUarray, hArray: CUarray, planeIdx: c_uint);
    fn cuArrayGetMemoryRequirements(
        memoryRequirements: *mut cudaArrayMemoryRequirements, array: CUarray, device: CUdevice,
    );
    fn cuArrayGetSparseProperties(sparseProperties: *mut cudaArraySparseProperties, array: CUarray);
    fn cuMipmappedArrayCreate(
        pHandle: *mut CUmipmappedArray, pMipmappedArrayDesc: *const CUDA_ARRAY3D_DESCRIPTOR,
        numMipmapLevels: c_uint,
    );
    fn cuMipmappedArrayGetLevel(pLevelArray: *mut CUarray, hMipmappedArray: CUmipmappedArray, level: c_uint);
    fn cuMipmappedArrayDestroy(hMipmappedArray: CUmipmappedArray);
    fn cuMipmappedArrayGetMemoryRequirements(
        memoryRequirements: *mut cudaArrayMemoryRequirements, mipmap: CUmipmappedArray, device: CUdevice,
    );
    fn cuMipmappedArrayGetSparseProperties(
        sparseProperties: *mut cudaArraySparseProperties, mipmap: CUmipmappedArray,
    );

    fn cuTexObjectCreate(
        pTexObject: *mut CUtexObject, pResDesc: *const CUDA_RESOURCE_DESC,
        pTexDesc: *const CUDA_TEXTURE_DESC, pResViewDesc: *const cudaResourceViewDesc,
    );
    fn cuTexObjectDestroy(texObject: CUtexObject);
    fn cuTexObjectGetResourceDesc(pResDesc: *mut CUDA_RESOURCE_DESC, texObject: CUtexObject);
    fn cuTexObjectGetTextureDesc(pTexDesc: *mut CUDA_TEXTURE_DESC, texObject: CUtexObject);
    fn cuTexObjectGetResourceViewDesc(pResViewDesc: *mut cudaResourceViewDesc, texObject: CUtexObject);
    fn cuSurfObjectCreate(pSurfObject: *mut CUsurfObject, pResDesc: *const CUDA_RESOURCE_DESC);
    fn cuSurfObjectDestroy(surfObject: CUsurfObject);
    fn cuSurfObjectGetResourceDesc(pResDesc: *mut CUDA_RESOURCE_DESC, surfObject: CUsurfObject);

    fn cuImportExternalMemory(
        extMem_out: *mut CUexternalMemory, memHandleDesc: *const cudaExternalMemoryHandleDesc,
    );
    fn cuExternalMemoryGetMappedBuffer(
        devPtr: *mut CUdeviceptr, extMem: CUexternalMemory, bufferDesc: *const cudaExternalMemoryBufferDesc,
    );
    fn cuExternalMemoryGetMappedMipmappedArray(
        mipmap: *mut CUmipmappedArray, extMem: CUexternalMemory,
        mipmapDesc: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
    );
    fn cuDestroyExternalMemory(extMem: CUexternalMemory);
    fn cuImportExternalSemaphore(
        extSem_out: *mut CUexternalSemaphore, semHandleDesc: *const cudaExternalSemaphoreHandleDesc,
    );
    fn cuSignalExternalSemaphoresAsync(
        extSemArray: *const CUexternalSemaphore, paramsArray: *const cudaExternalSemaphoreSignalParams,
        numExtSems: c_uint, stream: CUstream,
    );
    fn cuWaitExternalSemaphoresAsync(
        extSemArray: *const CUexternalSemaphore, paramsArray: *const cudaExternalSemaphoreWaitParams,
        numExtSems: c_uint, stream: CUstream,
    );
    fn cuDestroyExternalSemaphore(extSem: CUexternalSemaphore);

    fn cuGraphicsUnregisterResource(resource: CUgraphicsResource);
    fn cuGraphicsResourceSetMapFlags_v2(resource: CUgraphicsResource, flags: c_uint);
    fn cuGraphicsMapResources(count: c_uint, resources: *mut CUgraphicsResource, hStream: CUstream);
    fn cuGraphicsUnmapResources(count: c_uint, resources: *mut CUgraphicsResource, hStream: CUstream);
    fn cuGraphicsResourceGetMappedPointer_v2(
        pDevPtr: *mut CUdeviceptr, pSize: *mut usize, resource: CUgraphicsResource,
    );
    fn cuGraphicsSubResourceGetMappedArray(
        pArray: *mut CUarray, resource: CUgraphicsResource, arrayIndex: c_uint, mipLevel: c_uint,
    );
    fn cuGraphicsResourceGetMappedMipmappedArray(
        pMipmappedArray: *mut CUmipmappedArray, resource: CUgraphicsResource,
    );
}
