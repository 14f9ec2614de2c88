// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Copies and fills.

/// Passes the prototypes of this area to a macro.
#[macro_export]
macro_rules! copy_prototypes {
    ($callback:ident) => {
        $callback! {
            fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize);
            fn cuMemcpy2DAsync_v2(pCopy: *const CUDA_MEMCPY2D, hStream: CUstream);
            fn cuMemcpy2DUnaligned_v2(pCopy: *const CUDA_MEMCPY2D);
            fn cuMemcpy2D_v2(pCopy: *const CUDA_MEMCPY2D);
            fn cuMemcpy3DAsync_v2(pCopy: *const CUDA_MEMCPY3D, hStream: CUstream);
            fn cuMemcpy3DBatchAsync(
                numOps: usize, opList: *mut CUDA_MEMCPY3D_BATCH_OP, failIdx: *mut usize, flags: u64,
                hStream: CUstream,
            );
            fn cuMemcpy3DBatchAsync_v2(
                numOps: usize, opList: *mut CUDA_MEMCPY3D_BATCH_OP, flags: u64, hStream: CUstream,
            );
            fn cuMemcpy3DPeer(pCopy: *const CUDA_MEMCPY3D_PEER);
            fn cuMemcpy3DPeerAsync(pCopy: *const CUDA_MEMCPY3D_PEER, hStream: CUstream);
            fn cuMemcpy3DWithAttributesAsync(op: *mut CUDA_MEMCPY3D_BATCH_OP, flags: u64, hStream: CUstream);
            fn cuMemcpy3D_v2(pCopy: *const CUDA_MEMCPY3D);
            fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream);
            fn cuMemcpyAtoA_v2(
                dstArray: CUarray, dstOffset: usize, srcArray: CUarray, srcOffset: usize, ByteCount: usize,
            );
            fn cuMemcpyAtoD_v2(dstDevice: CUdeviceptr, srcArray: CUarray, srcOffset: usize, ByteCount: usize);
            fn cuMemcpyAtoHAsync_v2(
                dstHost: *mut c_void, srcArray: CUarray, srcOffset: usize, ByteCount: usize,
                hStream: CUstream,
            );
            fn cuMemcpyAtoH_v2(dstHost: *mut c_void, srcArray: CUarray, srcOffset: usize, ByteCount: usize);
            fn cuMemcpyBatchAsync(
                dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize,
                attrs: *mut CUmemcpyAttributes, attrsIdxs: *mut usize, numAttrs: usize, failIdx: *mut usize,
                hStream: CUstream,
            );
            fn cuMemcpyBatchAsync_v2(
                dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize,
                attrs: *mut CUmemcpyAttributes, attrsIdxs: *mut usize, numAttrs: usize, hStream: CUstream,
            );
            fn cuMemcpyDtoA_v2(dstArray: CUarray, dstOffset: usize, srcDevice: CUdeviceptr, ByteCount: usize);
            fn cuMemcpyDtoDAsync_v2(
                dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream,
            );
            fn cuMemcpyDtoD_v2(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize);
            fn cuMemcpyDtoHAsync_v2(
                dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream,
            );
            fn cuMemcpyDtoH_v2(dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize);
            fn cuMemcpyHtoAAsync_v2(
                dstArray: CUarray, dstOffset: usize, srcHost: *const c_void, ByteCount: usize,
                hStream: CUstream,
            );
            fn cuMemcpyHtoA_v2(dstArray: CUarray, dstOffset: usize, srcHost: *const c_void, ByteCount: usize);
            fn cuMemcpyHtoDAsync_v2(
                dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize, hStream: CUstream,
            );
            fn cuMemcpyHtoD_v2(dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize);
            fn cuMemcpyPeer(
                dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext,
                ByteCount: usize,
            );
            fn cuMemcpyPeerAsync(
                dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext,
                ByteCount: usize, hStream: CUstream,
            );
            fn cuMemcpyWithAttributesAsync(
                dst: CUdeviceptr, src: CUdeviceptr, size: usize, attr: *mut CUmemcpyAttributes,
                hStream: CUstream,
            );
            fn cuMemsetD16Async(dstDevice: CUdeviceptr, us: u16, N: usize, hStream: CUstream);
            fn cuMemsetD16_v2(dstDevice: CUdeviceptr, us: u16, N: usize);
            fn cuMemsetD2D16Async(
                dstDevice: CUdeviceptr, dstPitch: usize, us: u16, Width: usize, Height: usize,
                hStream: CUstream,
            );
            fn cuMemsetD2D16_v2(
                dstDevice: CUdeviceptr, dstPitch: usize, us: u16, Width: usize, Height: usize,
            );
            fn cuMemsetD2D32Async(
                dstDevice: CUdeviceptr, dstPitch: usize, ui: c_uint, Width: usize, Height: usize,
                hStream: CUstream,
            );
            fn cuMemsetD2D32_v2(
                dstDevice: CUdeviceptr, dstPitch: usize, ui: c_uint, Width: usize, Height: usize,
            );
            fn cuMemsetD2D8Async(
                dstDevice: CUdeviceptr, dstPitch: usize, uc: u8, Width: usize, Height: usize,
                hStream: CUstream,
            );
            fn cuMemsetD2D8_v2(dstDevice: CUdeviceptr, dstPitch: usize, uc: u8, Width: usize, Height: usize);
            fn cuMemsetD32Async(dstDevice: CUdeviceptr, ui: c_uint, N: usize, hStream: CUstream);
            fn cuMemsetD32_v2(dstDevice: CUdeviceptr, ui: c_uint, N: usize);
            fn cuMemsetD8Async(dstDevice: CUdeviceptr, uc: u8, N: usize, hStream: CUstream);
            fn cuMemsetD8_v2(dstDevice: CUdeviceptr, uc: u8, N: usize);
        }
    };
}
