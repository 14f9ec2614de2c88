// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! OpenGL, EGL and VDPAU. Handles of these APIs are numbers, or pointers that are passed on.

/// Passes the prototypes of this area to a macro.
#[macro_export]
macro_rules! graphics_prototypes {
    ($callback:ident) => {
        $callback! {
            fn cuEGLStreamConsumerAcquireFrame(
                conn: *mut *mut c_void, pCudaResource: *mut CUgraphicsResource, pStream: *mut CUstream,
                timeout: c_uint,
            );
            fn cuEGLStreamConsumerConnect(conn: *mut *mut c_void, stream: *mut c_void);
            fn cuEGLStreamConsumerConnectWithFlags(
                conn: *mut *mut c_void, stream: *mut c_void, flags: c_uint,
            );
            fn cuEGLStreamConsumerDisconnect(conn: *mut *mut c_void);
            fn cuEGLStreamConsumerReleaseFrame(
                conn: *mut *mut c_void, pCudaResource: CUgraphicsResource, pStream: *mut CUstream,
            );
            fn cuEGLStreamProducerConnect(
                conn: *mut *mut c_void, stream: *mut c_void, width: c_int, height: c_int,
            );
            fn cuEGLStreamProducerDisconnect(conn: *mut *mut c_void);
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
            fn cuGraphicsEGLRegisterImage(
                pCudaResource: *mut CUgraphicsResource, image: *mut c_void, flags: c_uint,
            );
            fn cuGraphicsGLRegisterBuffer(
                pCudaResource: *mut CUgraphicsResource, buffer: c_uint, Flags: c_uint,
            );
            fn cuGraphicsGLRegisterImage(
                pCudaResource: *mut CUgraphicsResource, image: c_uint, target: c_uint, Flags: c_uint,
            );
            fn cuGraphicsMapResources(count: c_uint, resources: *mut CUgraphicsResource, hStream: CUstream);
            fn cuGraphicsResourceGetMappedMipmappedArray(
                pMipmappedArray: *mut CUmipmappedArray, resource: CUgraphicsResource,
            );
            fn cuGraphicsResourceGetMappedPointer_v2(
                pDevPtr: *mut CUdeviceptr, pSize: *mut usize, resource: CUgraphicsResource,
            );
            fn cuGraphicsResourceSetMapFlags_v2(resource: CUgraphicsResource, flags: c_uint);
            fn cuGraphicsSubResourceGetMappedArray(
                pArray: *mut CUarray, resource: CUgraphicsResource, arrayIndex: c_uint, mipLevel: c_uint,
            );
            fn cuGraphicsUnmapResources(count: c_uint, resources: *mut CUgraphicsResource, hStream: CUstream);
            fn cuGraphicsUnregisterResource(resource: CUgraphicsResource);
            fn cuGraphicsVDPAURegisterOutputSurface(
                pCudaResource: *mut CUgraphicsResource, vdpSurface: c_uint, flags: c_uint,
            );
            fn cuGraphicsVDPAURegisterVideoSurface(
                pCudaResource: *mut CUgraphicsResource, vdpSurface: c_uint, flags: c_uint,
            );
            fn cuVDPAUGetDevice(pDevice: *mut CUdevice, vdpDevice: c_uint, vdpGetProcAddress: *mut c_void);
        }
    };
}
