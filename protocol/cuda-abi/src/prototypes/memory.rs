// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Allocations, pools, address ranges and host memory.

/// Passes the prototypes of this area to a macro.
#[macro_export]
macro_rules! memory_prototypes {
    ($callback:ident) => {
        $callback! {
            fn cuMemAddressFree(ptr: CUdeviceptr, size: usize);
            fn cuMemAddressReserve(
                ptr: *mut CUdeviceptr, size: usize, alignment: usize, addr: CUdeviceptr, flags: u64,
            );
            fn cuMemAdvise(devPtr: CUdeviceptr, count: usize, advice: c_uint, device: CUdevice);
            fn cuMemAdvise_v2(devPtr: CUdeviceptr, count: usize, advice: c_uint, location: CUmemLocation);
            fn cuMemAllocAsync(dptr: *mut CUdeviceptr, bytesize: usize, hStream: CUstream);
            fn cuMemAllocFromPoolAsync(
                dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, hStream: CUstream,
            );
            fn cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize);
            fn cuMemAllocManaged(dptr: *mut CUdeviceptr, bytesize: usize, flags: c_uint);
            fn cuMemAllocPitch_v2(
                dptr: *mut CUdeviceptr, pPitch: *mut usize, WidthInBytes: usize, Height: usize,
                ElementSizeBytes: c_uint,
            );
            fn cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize);
            fn cuMemCreate(
                handle: *mut CUmemGenericAllocationHandle, size: usize, prop: *const CUmemAllocationProp,
                flags: u64,
            );
            fn cuMemDiscardAndPrefetchBatchAsync(
                dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetchLocs: *mut CUmemLocation,
                prefetchLocIdxs: *mut usize, numPrefetchLocs: usize, flags: u64, hStream: CUstream,
            );
            fn cuMemDiscardBatchAsync(
                dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: u64, hStream: CUstream,
            );
            fn cuMemExportToShareableHandle(
                shareableHandle: *mut c_void, handle: CUmemGenericAllocationHandle, handleType: c_uint,
                flags: u64,
            );
            fn cuMemFreeAsync(dptr: CUdeviceptr, hStream: CUstream);
            fn cuMemFreeHost(p: *mut c_void);
            fn cuMemFree_v2(dptr: CUdeviceptr);
            fn cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation, ptr: CUdeviceptr);
            fn cuMemGetAddressRange_v2(pbase: *mut CUdeviceptr, psize: *mut usize, dptr: CUdeviceptr);
            fn cuMemGetAllocationGranularity(
                granularity: *mut usize, prop: *const CUmemAllocationProp, option: c_uint,
            );
            fn cuMemGetAllocationPropertiesFromHandle(
                prop: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle,
            );
            fn cuMemGetDefaultMemPool(
                pool_out: *mut CUmemoryPool, location: *mut CUmemLocation, type_: c_uint,
            );
            fn cuMemGetHandleForAddressRange(
                handle: *mut c_void, dptr: CUdeviceptr, size: usize, handleType: c_uint, flags: u64,
            );
            fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
            fn cuMemGetLocationInfo(
                ptr: CUdeviceptr, size: usize, summaryGranularity: usize, samplingGranularity: usize,
                location_out: *mut CUmemLocation,
            );
            fn cuMemGetMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, type_: c_uint);
            fn cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, Flags: c_uint);
            fn cuMemHostGetDevicePointer_v2(pdptr: *mut CUdeviceptr, p: *mut c_void, Flags: c_uint);
            fn cuMemHostGetFlags(pFlags: *mut c_uint, p: *mut c_void);
            fn cuMemHostRegister(p: *mut c_void, bytesize: usize, Flags: c_uint);
            fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, Flags: c_uint);
            fn cuMemHostUnregister(p: *mut c_void);
            fn cuMemImportFromShareableHandle(
                handle: *mut CUmemGenericAllocationHandle, osHandle: *mut c_void, shHandleType: c_uint,
            );
            fn cuMemMap(
                ptr: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle,
                flags: u64,
            );
            fn cuMemPoolCreate(pool: *mut CUmemoryPool, poolProps: *const CUmemPoolProps);
            fn cuMemPoolDestroy(pool: CUmemoryPool);
            fn cuMemPoolExportPointer(shareData_out: *mut CUmemPoolPtrExportData, ptr: CUdeviceptr);
            fn cuMemPoolExportToShareableHandle(
                handle_out: *mut c_void, pool: CUmemoryPool, handleType: c_uint, flags: u64,
            );
            fn cuMemPoolGetAccess(flags: *mut c_uint, memPool: CUmemoryPool, location: *mut CUmemLocation);
            fn cuMemPoolGetAttribute(pool: CUmemoryPool, attr: c_uint, value: *mut c_void);
            fn cuMemPoolImportFromShareableHandle(
                pool_out: *mut CUmemoryPool, handle: *mut c_void, handleType: c_uint, flags: u64,
            );
            fn cuMemPoolImportPointer(
                ptr_out: *mut CUdeviceptr, pool: CUmemoryPool, shareData: *mut CUmemPoolPtrExportData,
            );
            fn cuMemPoolSetAccess(pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize);
            fn cuMemPoolSetAttribute(pool: CUmemoryPool, attr: c_uint, value: *mut c_void);
            fn cuMemPoolTrimTo(pool: CUmemoryPool, minBytesToKeep: usize);
            fn cuMemPrefetchAsync(devPtr: CUdeviceptr, count: usize, dstDevice: CUdevice, hStream: CUstream);
            fn cuMemPrefetchAsync_v2(
                devPtr: CUdeviceptr, count: usize, location: CUmemLocation, flags: c_uint, hStream: CUstream,
            );
            fn cuMemPrefetchBatchAsync(
                dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetchLocs: *mut CUmemLocation,
                prefetchLocIdxs: *mut usize, numPrefetchLocs: usize, flags: u64, hStream: CUstream,
            );
            fn cuMemRangeGetAttribute(
                data: *mut c_void, dataSize: usize, attribute: c_uint, devPtr: CUdeviceptr, count: usize,
            );
            fn cuMemRangeGetAttributes(
                data: *mut *mut c_void, dataSizes: *mut usize, attributes: *mut c_uint, numAttributes: usize,
                devPtr: CUdeviceptr, count: usize,
            );
            fn cuMemRelease(handle: CUmemGenericAllocationHandle);
            fn cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, addr: *mut c_void);
            fn cuMemSetAccess(ptr: CUdeviceptr, size: usize, desc: *const CUmemAccessDesc, count: usize);
            fn cuMemSetMemPool(location: *mut CUmemLocation, type_: c_uint, pool: CUmemoryPool);
            fn cuMemUnmap(ptr: CUdeviceptr, size: usize);
            fn cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, ptr: CUdeviceptr);
            fn cuPointerGetAttributes(
                numAttributes: c_uint, attributes: *mut c_uint, data: *mut *mut c_void, ptr: CUdeviceptr,
            );
            fn cuPointerSetAttribute(value: *const c_void, attribute: c_uint, ptr: CUdeviceptr);
        }
    };
}
