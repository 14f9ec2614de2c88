// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Initialisation, devices, contexts, green contexts, logs, core dumps and checkpoints.

/// Passes the prototypes of this area to a macro.
#[macro_export]
macro_rules! context_prototypes {
    ($callback:ident) => {
        $callback! {
            fn cuCheckpointProcessCheckpoint(pid: c_int, args: *mut CUcheckpointCheckpointArgs);
            fn cuCheckpointProcessGetRestoreThreadId(pid: c_int, tid: *mut c_int);
            fn cuCheckpointProcessGetState(pid: c_int, state: *mut c_uint);
            fn cuCheckpointProcessLock(pid: c_int, args: *mut CUcheckpointLockArgs);
            fn cuCheckpointProcessRestore(pid: c_int, args: *mut CUcheckpointRestoreArgs);
            fn cuCheckpointProcessUnlock(pid: c_int, args: *mut CUcheckpointUnlockArgs);
            fn cuCoredumpGetAttribute(attrib: c_uint, value: *mut c_void, size: *mut usize);
            fn cuCoredumpGetAttributeGlobal(attrib: c_uint, value: *mut c_void, size: *mut usize);
            fn cuCoredumpSetAttribute(attrib: c_uint, value: *mut c_void, size: *mut usize);
            fn cuCoredumpSetAttributeGlobal(attrib: c_uint, value: *mut c_void, size: *mut usize);
            fn cuCtxAttach(pctx: *mut CUcontext, flags: c_uint);
            fn cuCtxCreate(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice);
            fn cuCtxCreate_v2(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice);
            fn cuCtxCreate_v3(
                pctx: *mut CUcontext, paramsArray: *mut CUexecAffinityParam, numParams: c_int, flags: c_uint,
                dev: CUdevice,
            );
            fn cuCtxCreate_v4(
                pctx: *mut CUcontext, ctxCreateParams: *mut CUctxCreateParams, flags: c_uint, dev: CUdevice,
            );
            fn cuCtxDestroy(ctx: CUcontext);
            fn cuCtxDestroy_v2(ctx: CUcontext);
            fn cuCtxDetach(ctx: CUcontext);
            fn cuCtxDisablePeerAccess(peerContext: CUcontext);
            fn cuCtxEnablePeerAccess(peerContext: CUcontext, Flags: c_uint);
            fn cuCtxFromGreenCtx(pContext: *mut CUcontext, hCtx: CUgreenCtx);
            fn cuCtxGetApiVersion(ctx: CUcontext, version: *mut c_uint);
            fn cuCtxGetCacheConfig(pconfig: *mut c_uint);
            fn cuCtxGetCurrent(pctx: *mut CUcontext);
            fn cuCtxGetDevResource(hCtx: CUcontext, resource: *mut CUdevResource, type_: c_uint);
            fn cuCtxGetDevice(device: *mut CUdevice);
            fn cuCtxGetDevice_v2(device: *mut CUdevice, ctx: CUcontext);
            fn cuCtxGetExecAffinity(pExecAffinity: *mut CUexecAffinityParam, type_: c_uint);
            fn cuCtxGetFlags(flags: *mut c_uint);
            fn cuCtxGetId(ctx: CUcontext, ctxId: *mut u64);
            fn cuCtxGetLimit(pvalue: *mut usize, limit: c_uint);
            fn cuCtxGetSharedMemConfig(pConfig: *mut c_uint);
            fn cuCtxGetStreamPriorityRange(leastPriority: *mut c_int, greatestPriority: *mut c_int);
            fn cuCtxPopCurrent(pctx: *mut CUcontext);
            fn cuCtxPopCurrent_v2(pctx: *mut CUcontext);
            fn cuCtxPushCurrent(ctx: CUcontext);
            fn cuCtxPushCurrent_v2(ctx: CUcontext);
            fn cuCtxRecordEvent(hCtx: CUcontext, hEvent: CUevent);
            fn cuCtxResetPersistingL2Cache();
            fn cuCtxSetCacheConfig(config: c_uint);
            fn cuCtxSetCurrent(ctx: CUcontext);
            fn cuCtxSetFlags(flags: c_uint);
            fn cuCtxSetLimit(limit: c_uint, value: usize);
            fn cuCtxSetSharedMemConfig(config: c_uint);
            fn cuCtxSynchronize();
            fn cuCtxSynchronize_v2(ctx: CUcontext);
            fn cuCtxWaitEvent(hCtx: CUcontext, hEvent: CUevent);
            fn cuDevResourceGenerateDesc(
                phDesc: *mut CUdevResourceDesc, resources: *mut CUdevResource, nbResources: c_uint,
            );
            fn cuDevSmResourceSplit(
                result: *mut CUdevResource, nbGroups: c_uint, input: *const CUdevResource,
                remainder: *mut CUdevResource, flags: c_uint, groupParams: *mut CUdevSmResourceGroupParams,
            );
            fn cuDevSmResourceSplitByCount(
                result: *mut CUdevResource, nbGroups: *mut c_uint, input: *const CUdevResource,
                remaining: *mut CUdevResource, useFlags: c_uint, minCount: c_uint,
            );
            fn cuDeviceCanAccessPeer(canAccessPeer: *mut c_int, dev: CUdevice, peerDev: CUdevice);
            fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, dev: CUdevice);
            fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
            fn cuDeviceGetAttribute(pi: *mut c_int, attrib: c_uint, dev: CUdevice);
            fn cuDeviceGetByPCIBusId(dev: *mut CUdevice, pciBusId: *const c_char);
            fn cuDeviceGetCount(count: *mut c_int);
            fn cuDeviceGetDefaultMemPool(pool_out: *mut CUmemoryPool, dev: CUdevice);
            fn cuDeviceGetDevResource(device: CUdevice, resource: *mut CUdevResource, type_: c_uint);
            fn cuDeviceGetExecAffinitySupport(pi: *mut c_int, type_: c_uint, dev: CUdevice);
            fn cuDeviceGetHostAtomicCapabilities(
                capabilities: *mut c_uint, operations: *const c_uint, count: c_uint, dev: CUdevice,
            );
            fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, dev: CUdevice);
            fn cuDeviceGetName(name: *mut c_char, len: c_int, dev: CUdevice);
            fn cuDeviceGetNvSciSyncAttributes(nvSciSyncAttrList: *mut c_void, dev: CUdevice, flags: c_int);
            fn cuDeviceGetP2PAtomicCapabilities(
                capabilities: *mut c_uint, operations: *const c_uint, count: c_uint, srcDevice: CUdevice,
                dstDevice: CUdevice,
            );
            fn cuDeviceGetP2PAttribute(
                value: *mut c_int, attrib: c_uint, srcDevice: CUdevice, dstDevice: CUdevice,
            );
            fn cuDeviceGetPCIBusId(pciBusId: *mut c_char, len: c_int, dev: CUdevice);
            fn cuDeviceGetProperties(prop: *mut CUdevprop, dev: CUdevice);
            fn cuDeviceGetTexture1DLinearMaxWidth(
                maxWidthInElements: *mut usize, format: c_uint, numChannels: c_uint, dev: CUdevice,
            );
            fn cuDeviceGetUuid(uuid: *mut CUuuid, dev: CUdevice);
            fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice);
            fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut c_uint, active: *mut c_int);
            fn cuDevicePrimaryCtxRelease(dev: CUdevice);
            fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice);
            fn cuDevicePrimaryCtxReset(dev: CUdevice);
            fn cuDevicePrimaryCtxReset_v2(dev: CUdevice);
            fn cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice);
            fn cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: c_uint);
            fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: c_uint);
            fn cuDeviceRegisterAsyncNotification(
                device: CUdevice, callbackFunc: CUasyncCallback, userData: *mut c_void,
                callback: *mut CUasyncCallbackHandle,
            );
            fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool);
            fn cuDeviceTotalMem(bytes: *mut c_uint, dev: CUdevice);
            fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice);
            fn cuDeviceUnregisterAsyncNotification(device: CUdevice, callback: CUasyncCallbackHandle);
            fn cuDriverGetVersion(driverVersion: *mut c_int);
            fn cuFlushGPUDirectRDMAWrites(target: c_uint, scope: c_uint);
            fn cuGetErrorName(error: c_uint, pStr: *mut *const c_char);
            fn cuGetErrorString(error: c_uint, pStr: *mut *const c_char);
            fn cuGetExportTable(ppExportTable: *mut *const c_void, pExportTableId: *const CUuuid);
            fn cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, cudaVersion: c_int, flags: u64);
            fn cuGetProcAddress_v2(
                symbol: *const c_char, pfn: *mut *mut c_void, cudaVersion: c_int, flags: u64,
                symbolStatus: *mut c_uint,
            );
            fn cuGreenCtxCreate(
                phCtx: *mut CUgreenCtx, desc: CUdevResourceDesc, dev: CUdevice, flags: c_uint,
            );
            fn cuGreenCtxDestroy(hCtx: CUgreenCtx);
            fn cuGreenCtxGetDevResource(hCtx: CUgreenCtx, resource: *mut CUdevResource, type_: c_uint);
            fn cuGreenCtxGetId(greenCtx: CUgreenCtx, greenCtxId: *mut u64);
            fn cuGreenCtxRecordEvent(hCtx: CUgreenCtx, hEvent: CUevent);
            fn cuGreenCtxStreamCreate(
                phStream: *mut CUstream, greenCtx: CUgreenCtx, flags: c_uint, priority: c_int,
            );
            fn cuGreenCtxWaitEvent(hCtx: CUgreenCtx, hEvent: CUevent);
            fn cuInit(Flags: c_uint);
            fn cuLogsCurrent(iterator_out: *mut CUlogIterator, flags: c_uint);
            fn cuLogsDumpToFile(iterator: *mut CUlogIterator, pathToFile: *const c_char, flags: c_uint);
            fn cuLogsDumpToMemory(
                iterator: *mut CUlogIterator, buffer: *mut c_char, size: *mut usize, flags: c_uint,
            );
            fn cuLogsRegisterCallback(
                callbackFunc: CUlogsCallback, userData: *mut c_void, callback_out: *mut CUlogsCallbackHandle,
            );
            fn cuLogsUnregisterCallback(callback: CUlogsCallbackHandle);
            fn cuProfilerStart();
            fn cuProfilerStop();
        }
    };
}
