// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Streams, events and capture.

/// Passes the prototypes of this area to a macro.
#[macro_export]
macro_rules! stream_prototypes {
    ($callback:ident) => {
        $callback! {
            fn cuEventCreate(phEvent: *mut CUevent, Flags: c_uint);
            fn cuEventDestroy(hEvent: CUevent);
            fn cuEventDestroy_v2(hEvent: CUevent);
            fn cuEventElapsedTime(pMilliseconds: *mut f32, hStart: CUevent, hEnd: CUevent);
            fn cuEventElapsedTime_v2(pMilliseconds: *mut f32, hStart: CUevent, hEnd: CUevent);
            fn cuEventQuery(hEvent: CUevent);
            fn cuEventRecord(hEvent: CUevent, hStream: CUstream);
            fn cuEventRecordWithFlags(hEvent: CUevent, hStream: CUstream, flags: c_uint);
            fn cuEventSynchronize(hEvent: CUevent);
            fn cuLaunchHostFunc(hStream: CUstream, fn_: CUhostFn, userData: *mut c_void);
            fn cuLaunchHostFunc_v2(
                hStream: CUstream, func: CUhostFn, userData: *mut c_void, syncMode: c_uint,
            );
            fn cuStreamAddCallback(
                hStream: CUstream, callback: CUstreamCallback, userData: *mut c_void, flags: c_uint,
            );
            fn cuStreamAttachMemAsync(hStream: CUstream, dptr: CUdeviceptr, length: usize, flags: c_uint);
            fn cuStreamBatchMemOp(
                stream: CUstream, count: c_uint, paramArray: *mut CUstreamBatchMemOpParams, flags: c_uint,
            );
            fn cuStreamBatchMemOp_v2(
                stream: CUstream, count: c_uint, paramArray: *mut CUstreamBatchMemOpParams, flags: c_uint,
            );
            fn cuStreamBeginCapture(hStream: CUstream);
            fn cuStreamBeginCaptureToGraph(
                hStream: CUstream, hGraph: CUgraph, dependencies: *const CUgraphNode,
                dependencyData: *const CUgraphEdgeData, numDependencies: usize, mode: c_uint,
            );
            fn cuStreamBeginCapture_v2(hStream: CUstream, mode: c_uint);
            fn cuStreamBeginRecaptureToGraph(
                hStream: CUstream, mode: c_uint, hGraph: CUgraph,
                callbackFunc: Option<unsafe extern "C" fn() -> c_int>, userData: *mut c_void,
            );
            fn cuStreamCopyAttributes(dstStream: CUstream, srcStream: CUstream);
            fn cuStreamCreate(phStream: *mut CUstream, Flags: c_uint);
            fn cuStreamCreateWithPriority(phStream: *mut CUstream, flags: c_uint, priority: c_int);
            fn cuStreamDestroy(hStream: CUstream);
            fn cuStreamDestroy_v2(hStream: CUstream);
            fn cuStreamEndCapture(hStream: CUstream, phGraph: *mut CUgraph);
            fn cuStreamGetAttribute(hStream: CUstream, attr: c_uint, value: *mut CUstreamAttrValue);
            fn cuStreamGetCaptureInfo(hStream: CUstream, captureStatus_out: *mut c_uint, id_out: *mut u64);
            fn cuStreamGetCaptureInfo_v2(
                hStream: CUstream, captureStatus_out: *mut c_uint, id_out: *mut u64, graph_out: *mut CUgraph,
                dependencies_out: *mut *const CUgraphNode, numDependencies_out: *mut usize,
            );
            fn cuStreamGetCaptureInfo_v3(
                hStream: CUstream, captureStatus_out: *mut c_uint, id_out: *mut u64, graph_out: *mut CUgraph,
                dependencies_out: *mut *const CUgraphNode, edgeData_out: *mut *const CUgraphEdgeData,
                numDependencies_out: *mut usize,
            );
            fn cuStreamGetCtx(hStream: CUstream, pctx: *mut CUcontext);
            fn cuStreamGetCtx_v2(hStream: CUstream, pCtx: *mut CUcontext, pGreenCtx: *mut CUgreenCtx);
            fn cuStreamGetDevResource(hStream: CUstream, resource: *mut CUdevResource, type_: c_uint);
            fn cuStreamGetDevice(hStream: CUstream, device: *mut CUdevice);
            fn cuStreamGetFlags(hStream: CUstream, flags: *mut c_uint);
            fn cuStreamGetGreenCtx(hStream: CUstream, phCtx: *mut CUgreenCtx);
            fn cuStreamGetId(hStream: CUstream, streamId: *mut u64);
            fn cuStreamGetPriority(hStream: CUstream, priority: *mut c_int);
            fn cuStreamIsCapturing(hStream: CUstream, captureStatus: *mut c_uint);
            fn cuStreamQuery(hStream: CUstream);
            fn cuStreamSetAttribute(hStream: CUstream, attr: c_uint, param: *const CUstreamAttrValue);
            fn cuStreamSynchronize(hStream: CUstream);
            fn cuStreamUpdateCaptureDependencies(
                hStream: CUstream, dependencies: *mut CUgraphNode, numDependencies: usize, flags: c_uint,
            );
            fn cuStreamUpdateCaptureDependencies_v2(
                hStream: CUstream, dependencies: *mut CUgraphNode, dependencyData: *const CUgraphEdgeData,
                numDependencies: usize, flags: c_uint,
            );
            fn cuStreamWaitEvent(hStream: CUstream, hEvent: CUevent, Flags: c_uint);
            fn cuStreamWaitValue32(stream: CUstream, addr: CUdeviceptr, value: u32, flags: c_uint);
            fn cuStreamWaitValue32_v2(stream: CUstream, addr: CUdeviceptr, value: u32, flags: c_uint);
            fn cuStreamWaitValue64(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint);
            fn cuStreamWaitValue64_v2(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint);
            fn cuStreamWriteValue32(stream: CUstream, addr: CUdeviceptr, value: u32, flags: c_uint);
            fn cuStreamWriteValue32_v2(stream: CUstream, addr: CUdeviceptr, value: u32, flags: c_uint);
            fn cuStreamWriteValue64(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint);
            fn cuStreamWriteValue64_v2(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint);
            fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
        }
    };
}
