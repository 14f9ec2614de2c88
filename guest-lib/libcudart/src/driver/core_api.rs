// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Start, devices, contexts, streams, events, logs.

use core::ffi::{c_char, c_int, c_uint, c_void};

use super::{Result, Slot, cudaError_t, driver};
use crate::abi::shared::cudaUUID_t;
use crate::abi::{
    CUasyncCallbackHandle, CUcontext, CUdevice, CUevent, CUgraph, CUgraphNode, CUlogsCallbackHandle,
    CUmemoryPool, CUstream, cudaAsyncCallback, cudaGraphEdgeData, cudaHostFn_t, cudaLaunchAttributeValue,
    cudaLogIterator, cudaLogsCallback_t, cudaStreamCallback_t,
};

driver! {
    fn cuInit(Flags: c_uint);
    fn cuDriverGetVersion(driverVersion: *mut c_int);
    fn cuGetProcAddress_v2(
        symbol: *const c_char, pfn: *mut *mut c_void, cudaVersion: c_int, flags: u64,
        symbolStatus: *mut c_uint,
    );
    fn cuModuleGetLoadingMode(mode: *mut c_uint);

    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGetName(name: *mut c_char, len: c_int, dev: CUdevice);
    fn cuDeviceGetUuid_v2(uuid: *mut cudaUUID_t, dev: CUdevice);
    fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice);
    fn cuDeviceGetAttribute(pi: *mut c_int, attrib: c_uint, dev: CUdevice);
    fn cuDeviceGetByPCIBusId(dev: *mut CUdevice, pciBusId: *const c_char);
    fn cuDeviceGetPCIBusId(pciBusId: *mut c_char, len: c_int, dev: CUdevice);
    fn cuDeviceGetP2PAttribute(value: *mut c_int, attrib: c_uint, srcDevice: CUdevice, dstDevice: CUdevice);
    fn cuDeviceCanAccessPeer(canAccessPeer: *mut c_int, dev: CUdevice, peerDev: CUdevice);
    fn cuDeviceGetTexture1DLinearMaxWidth(
        maxWidthInElements: *mut usize, format: c_uint, numChannels: c_uint, dev: CUdevice,
    );
    fn cuDeviceGetDefaultMemPool(pool_out: *mut CUmemoryPool, dev: CUdevice);
    fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, dev: CUdevice);
    fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool);
    fn cuDeviceGetNvSciSyncAttributes(nvSciSyncAttrList: *mut c_void, dev: CUdevice, flags: c_int);
    fn cuDeviceGraphMemTrim(device: CUdevice);
    fn cuDeviceGetGraphMemAttribute(device: CUdevice, attr: c_uint, value: *mut c_void);
    fn cuDeviceSetGraphMemAttribute(device: CUdevice, attr: c_uint, value: *mut c_void);
    fn cuDeviceRegisterAsyncNotification(
        device: CUdevice, callbackFunc: cudaAsyncCallback, userData: *mut c_void,
        callback: *mut CUasyncCallbackHandle,
    );
    fn cuDeviceUnregisterAsyncNotification(device: CUdevice, callback: CUasyncCallbackHandle);
    fn cuDeviceGetHostAtomicCapabilities(
        capabilities: *mut c_uint, operations: *const c_uint, count: c_uint, dev: CUdevice,
    );
    fn cuDeviceGetP2PAtomicCapabilities(
        capabilities: *mut c_uint, operations: *const c_uint, count: c_uint, srcDevice: CUdevice,
        dstDevice: CUdevice,
    );
    fn cuFlushGPUDirectRDMAWrites(target: c_uint, scope: c_uint);

    fn cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice);
    fn cuDevicePrimaryCtxReset_v2(dev: CUdevice);
    fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: c_uint);
    fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut c_uint, active: *mut c_int);

    fn cuCtxGetCurrent(pctx: *mut CUcontext);
    fn cuCtxSetCurrent(ctx: CUcontext);
    fn cuCtxGetDevice(device: *mut CUdevice);
    fn cuCtxGetFlags(flags: *mut c_uint);
    fn cuCtxSynchronize();
    fn cuCtxGetLimit(pvalue: *mut usize, limit: c_uint);
    fn cuCtxSetLimit(limit: c_uint, value: usize);
    fn cuCtxGetCacheConfig(pconfig: *mut c_uint);
    fn cuCtxSetCacheConfig(config: c_uint);
    fn cuCtxGetSharedMemConfig(pConfig: *mut c_uint);
    fn cuCtxSetSharedMemConfig(config: c_uint);
    fn cuCtxGetStreamPriorityRange(leastPriority: *mut c_int, greatestPriority: *mut c_int);
    fn cuCtxResetPersistingL2Cache();
    fn cuCtxEnablePeerAccess(peerContext: CUcontext, Flags: c_uint);
    fn cuCtxDisablePeerAccess(peerContext: CUcontext);
    fn cuProfilerStart();
    fn cuProfilerStop();

    fn cuStreamCreate(phStream: *mut CUstream, Flags: c_uint);
    fn cuStreamCreateWithPriority(phStream: *mut CUstream, flags: c_uint, priority: c_int);
    fn cuStreamDestroy_v2(hStream: CUstream);
    fn cuStreamSynchronize(hStream: CUstream);
    fn cuStreamQuery(hStream: CUstream);
    fn cuStreamWaitEvent(hStream: CUstream, hEvent: CUevent, Flags: c_uint);
    fn cuStreamAddCallback(
        hStream: CUstream, callback: cudaStreamCallback_t, userData: *mut c_void, flags: c_uint,
    );
    fn cuLaunchHostFunc(hStream: CUstream, fn_: cudaHostFn_t, userData: *mut c_void);
    fn cuStreamGetPriority(hStream: CUstream, priority: *mut c_int);
    fn cuStreamGetFlags(hStream: CUstream, flags: *mut c_uint);
    fn cuStreamGetId(hStream: CUstream, streamId: *mut u64);
    fn cuStreamGetDevice(hStream: CUstream, device: *mut CUdevice);
    fn cuStreamCopyAttributes(dst: CUstream, src: CUstream);
    fn cuStreamGetAttribute(hStream: CUstream, attr: c_uint, value_out: *mut cudaLaunchAttributeValue);
    fn cuStreamSetAttribute(hStream: CUstream, attr: c_uint, value: *const cudaLaunchAttributeValue);
    fn cuStreamBeginCapture_v2(hStream: CUstream, mode: c_uint);
    fn cuStreamBeginCaptureToGraph(
        hStream: CUstream, hGraph: CUgraph, dependencies: *const CUgraphNode,
        dependencyData: *const cudaGraphEdgeData, numDependencies: usize, mode: c_uint,
    );
    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
    fn cuStreamEndCapture(hStream: CUstream, phGraph: *mut CUgraph);
    fn cuStreamIsCapturing(hStream: CUstream, captureStatus: *mut c_uint);
    fn cuStreamGetCaptureInfo_v3(
        hStream: CUstream, captureStatus_out: *mut c_uint, id_out: *mut u64, graph_out: *mut CUgraph,
        dependencies_out: *mut *const CUgraphNode, edgeData_out: *mut *const cudaGraphEdgeData,
        numDependencies_out: *mut usize,
    );
    fn cuStreamUpdateCaptureDependencies_v2(
        hStream: CUstream, dependencies: *mut CUgraphNode, dependencyData: *const cudaGraphEdgeData,
        numDependencies: usize, flags: c_uint,
    );

    fn cuEventCreate(phEvent: *mut CUevent, Flags: c_uint);
    fn cuEventDestroy_v2(hEvent: CUevent);
    fn cuEventRecord(hEvent: CUevent, hStream: CUstream);
    fn cuEventRecordWithFlags(hEvent: CUevent, hStream: CUstream, flags: c_uint);
    fn cuEventQuery(hEvent: CUevent);
    fn cuEventSynchronize(hEvent: CUevent);
    fn cuEventElapsedTime_v2(pMilliseconds: *mut f32, hStart: CUevent, hEnd: CUevent);

    fn cuLogsRegisterCallback(
        callbackFunc: cudaLogsCallback_t, userData: *mut c_void, callback_out: *mut CUlogsCallbackHandle,
    );
    fn cuLogsUnregisterCallback(callback: CUlogsCallbackHandle);
    fn cuLogsCurrent(iterator_out: *mut cudaLogIterator, flags: c_uint);
    fn cuLogsDumpToFile(iterator: *mut cudaLogIterator, pathToFile: *const c_char, flags: c_uint);
    fn cuLogsDumpToMemory(
        iterator: *mut cudaLogIterator, buffer: *mut c_char, size: *mut usize, flags: c_uint,
    );
}
