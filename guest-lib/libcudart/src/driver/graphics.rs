// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OpenGL, EGL and VDPAU. Their own handles are numbers, or pointers that are handed on.

use core::ffi::{c_int, c_uint, c_void};

use super::{Result, Slot, cudaError_t, driver};
use crate::abi::{CUdevice, CUdeviceptr, CUgraphicsResource, CUstream};

driver! {
    fn cuGLInit();
    fn cuGLGetDevices_v2(
        pCudaDeviceCount: *mut c_uint, pCudaDevices: *mut CUdevice, cudaDeviceCount: c_uint, deviceList: c_uint,
    );
    fn cuGLRegisterBufferObject(buffer: c_uint);
    fn cuGLUnregisterBufferObject(buffer: c_uint);
    fn cuGLMapBufferObject_v2(dptr: *mut CUdeviceptr, size: *mut usize, buffer: c_uint);
    fn cuGLMapBufferObjectAsync_v2(
        dptr: *mut CUdeviceptr, size: *mut usize, buffer: c_uint, hStream: CUstream,
    );
    fn cuGLUnmapBufferObject(buffer: c_uint);
    fn cuGLUnmapBufferObjectAsync(buffer: c_uint, hStream: CUstream);
    fn cuGLSetBufferObjectMapFlags(buffer: c_uint, Flags: c_uint);
    fn cuGraphicsGLRegisterBuffer(pCudaResource: *mut CUgraphicsResource, buffer: c_uint, Flags: c_uint);
    fn cuGraphicsGLRegisterImage(
        pCudaResource: *mut CUgraphicsResource, image: c_uint, target: c_uint, Flags: c_uint,
    );

    fn cuGraphicsEGLRegisterImage(pCudaResource: *mut CUgraphicsResource, image: *mut c_void, flags: c_uint);
    fn cuEGLStreamConsumerConnect(conn: *mut *mut c_void, stream: *mut c_void);
    fn cuEGLStreamConsumerConnectWithFlags(conn: *mut *mut c_void, stream: *mut c_void, flags: c_uint);
    fn cuEGLStreamConsumerDisconnect(conn: *mut *mut c_void);
    fn cuEGLStreamConsumerAcquireFrame(
        conn: *mut *mut c_void, pCudaResource: *mut CUgraphicsResource, pStream: *mut CUstream, timeout: c_uint,
    );
    fn cuEGLStreamConsumerReleaseFrame(
        conn: *mut *mut c_void, pCudaResource: CUgraphicsResource, pStream: *mut CUstream,
    );
    fn cuEGLStreamProducerConnect(conn: *mut *mut c_void, stream: *mut c_void, width: c_int, height: c_int);
    fn cuEGLStreamProducerDisconnect(conn: *mut *mut c_void);

    fn cuVDPAUGetDevice(pDevice: *mut CUdevice, vdpDevice: c_uint, vdpGetProcAddress: *mut c_void);
    fn cuGraphicsVDPAURegisterVideoSurface(
        pCudaResource: *mut CUgraphicsResource, vdpSurface: c_uint, flags: c_uint,
    );
    fn cuGraphicsVDPAURegisterOutputSurface(
        pCudaResource: *mut CUgraphicsResource, vdpSurface: c_uint, flags: c_uint,
    );
}
