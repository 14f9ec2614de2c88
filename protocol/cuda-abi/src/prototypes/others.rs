// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The prototypes that cudarc lacks (OpenGL, EGL, VDPAU, checkpoints, variants without a version that only old programs call),
//! or declares with a type that says less. Handles of other APIs are numbers, or pointers that are passed on.

/// Passes the prototypes that are written by hand to a macro.
#[macro_export]
macro_rules! other_prototypes {
    ($callback:ident) => {
        $callback! {
            fn cuCheckpointProcessCheckpoint(pid: c_int, args: *mut CUcheckpointCheckpointArgs);
            fn cuCheckpointProcessGetRestoreThreadId(pid: c_int, tid: *mut c_int);
            fn cuCheckpointProcessGetState(pid: c_int, state: *mut c_uint);
            fn cuCheckpointProcessLock(pid: c_int, args: *mut CUcheckpointLockArgs);
            fn cuCheckpointProcessRestore(pid: c_int, args: *mut CUcheckpointRestoreArgs);
            fn cuCheckpointProcessUnlock(pid: c_int, args: *mut CUcheckpointUnlockArgs);
            fn cuCtxCreate(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice);
            fn cuCtxDestroy(ctx: CUcontext);
            fn cuCtxPopCurrent(pctx: *mut CUcontext);
            fn cuCtxPushCurrent(ctx: CUcontext);
            fn cuDeviceGetNvSciSyncAttributes(nvSciSyncAttrList: *mut c_void, dev: CUdevice, flags: c_int);
            fn cuDevicePrimaryCtxRelease(dev: CUdevice);
            fn cuDevicePrimaryCtxReset(dev: CUdevice);
            fn cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: c_uint);
            fn cuDeviceTotalMem(bytes: *mut c_uint, dev: CUdevice);
            fn cuEGLStreamConsumerAcquireFrame(
                conn: *mut *mut c_void, pCudaResource: *mut CUgraphicsResource, pStream: *mut CUstream,
                timeout: c_uint,
            );
            fn cuEGLStreamConsumerConnect(conn: *mut *mut c_void, stream: *mut c_void);
            fn cuEGLStreamConsumerConnectWithFlags(conn: *mut *mut c_void, stream: *mut c_void, flags: c_uint);
            fn cuEGLStreamConsumerDisconnect(conn: *mut *mut c_void);
            fn cuEGLStreamConsumerReleaseFrame(
                conn: *mut *mut c_void, pCudaResource: CUgraphicsResource, pStream: *mut CUstream,
            );
            fn cuEGLStreamProducerConnect(
                conn: *mut *mut c_void, stream: *mut c_void, width: c_int, height: c_int,
            );
            fn cuEGLStreamProducerDisconnect(conn: *mut *mut c_void);
            fn cuEventDestroy(hEvent: CUevent);
            fn cuGLGetDevices_v2(
                pCudaDeviceCount: *mut c_uint, pCudaDevices: *mut CUdevice, cudaDeviceCount: c_uint,
                deviceList: c_uint,
            );
            fn cuGLInit();
            fn cuGLMapBufferObjectAsync_v2(
                dptr: *mut CUdeviceptr, size: *mut usize, buffer: c_uint, hStream: CUstream,
            );
            fn cuGLMapBufferObject_v2(dptr: *mut CUdeviceptr, size: *mut usize, buffer: c_uint);
            fn cuGLRegisterBufferObject(buffer: c_uint);
            fn cuGLSetBufferObjectMapFlags(buffer: c_uint, Flags: c_uint);
            fn cuGLUnmapBufferObject(buffer: c_uint);
            fn cuGLUnmapBufferObjectAsync(buffer: c_uint, hStream: CUstream);
            fn cuGLUnregisterBufferObject(buffer: c_uint);
            fn cuGraphAddKernelNode(
                phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
                numDependencies: usize, nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
            );
            fn cuGraphExecKernelNodeSetParams(
                hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
            );
            fn cuGraphInstantiate(
                phGraphExec: *mut CUgraphExec, hGraph: CUgraph, phErrorNode: *mut CUgraphNode,
                logBuffer: *mut c_char, bufferSize: usize,
            );
            fn cuGraphKernelNodeGetParams(hNode: CUgraphNode, nodeParams: *mut CUDA_KERNEL_NODE_PARAMS_v1);
            fn cuGraphKernelNodeSetParams(hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1);
            fn cuGraphicsEGLRegisterImage(
                pCudaResource: *mut CUgraphicsResource, image: *mut c_void, flags: c_uint,
            );
            fn cuGraphicsGLRegisterBuffer(
                pCudaResource: *mut CUgraphicsResource, buffer: c_uint, Flags: c_uint,
            );
            fn cuGraphicsGLRegisterImage(
                pCudaResource: *mut CUgraphicsResource, image: c_uint, target: c_uint, Flags: c_uint,
            );
            fn cuGraphicsVDPAURegisterOutputSurface(
                pCudaResource: *mut CUgraphicsResource, vdpSurface: c_uint, flags: c_uint,
            );
            fn cuGraphicsVDPAURegisterVideoSurface(
                pCudaResource: *mut CUgraphicsResource, vdpSurface: c_uint, flags: c_uint,
            );
            fn cuIpcOpenMemHandle(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: c_uint);
            fn cuLinkAddData(
                state: CUlinkState, type_: c_uint, data: *mut c_void, size: usize, name: *const c_char,
                numOptions: c_uint, options: *mut c_uint, optionValues: *mut *mut c_void,
            );
            fn cuLinkAddFile(
                state: CUlinkState, type_: c_uint, path: *const c_char, numOptions: c_uint,
                options: *mut c_uint, optionValues: *mut *mut c_void,
            );
            fn cuLinkCreate(
                numOptions: c_uint, options: *mut c_uint, optionValues: *mut *mut c_void,
                stateOut: *mut CUlinkState,
            );
            fn cuMemHostRegister(p: *mut c_void, bytesize: usize, Flags: c_uint);
            fn cuStreamBeginCapture(hStream: CUstream);
            fn cuStreamBeginRecaptureToGraph(
                hStream: CUstream, mode: c_uint, hGraph: CUgraph,
                callbackFunc: Option<unsafe extern "C" fn() -> c_int>, userData: *mut c_void,
            );
            fn cuStreamDestroy(hStream: CUstream);
            fn cuTexRefGetBorderColor(pBorderColor: *mut [f32; 4], hTexRef: CUtexref);
            fn cuTexRefSetAddress2D_v2(
                hTexRef: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR, dptr: CUdeviceptr, Pitch: usize,
            );
            fn cuTexRefSetBorderColor(hTexRef: CUtexref, pBorderColor: *mut [f32; 4]);
            fn cuVDPAUGetDevice(pDevice: *mut CUdevice, vdpDevice: c_uint, vdpGetProcAddress: *mut c_void);
        }
    };
}
