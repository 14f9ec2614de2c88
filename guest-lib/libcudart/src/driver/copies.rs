// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies and fills.

use core::ffi::{c_uchar, c_void};

use super::{Result, Slot, cudaError_t, driver};
use crate::abi::driver::{CUDA_MEMCPY2D, CUDA_MEMCPY3D};
use crate::abi::{CUcontext, CUdeviceptr, CUstream, cudaMemcpy3DBatchOp, cudaMemcpyAttributes};

driver! {
    fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize);
    fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream);
    fn cuMemcpyHtoD_v2(dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize);
    fn cuMemcpyDtoH_v2(dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize);
    fn cuMemcpyDtoD_v2(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize);
    fn cuMemcpyHtoDAsync_v2(
        dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize, hStream: CUstream,
    );
    fn cuMemcpyDtoHAsync_v2(
        dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream,
    );
    fn cuMemcpyDtoDAsync_v2(
        dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream,
    );
    fn cuMemcpyPeer(
        dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext,
        ByteCount: usize,
    );
    fn cuMemcpyPeerAsync(
        dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext,
        ByteCount: usize, hStream: CUstream,
    );
    fn cuMemcpy2DUnaligned_v2(pCopy: *const CUDA_MEMCPY2D);
    fn cuMemcpy2DAsync_v2(pCopy: *const CUDA_MEMCPY2D, hStream: CUstream);
    fn cuMemcpy3D_v2(pCopy: *const CUDA_MEMCPY3D);
    fn cuMemcpy3DAsync_v2(pCopy: *const CUDA_MEMCPY3D, hStream: CUstream);
    fn cuMemcpy3DPeer(pCopy: *const CUDA_MEMCPY3D);
    fn cuMemcpy3DPeerAsync(pCopy: *const CUDA_MEMCPY3D, hStream: CUstream);
    fn cuMemcpyBatchAsync_v2(
        dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize,
        attrs: *mut cudaMemcpyAttributes, attrsIdxs: *mut usize, numAttrs: usize, hStream: CUstream,
    );
    fn cuMemcpy3DBatchAsync_v2(
        numOps: usize, opList: *mut cudaMemcpy3DBatchOp, flags: u64, hStream: CUstream,
    );

    fn cuMemsetD8_v2(dstDevice: CUdeviceptr, uc: c_uchar, N: usize);
    fn cuMemsetD8Async(dstDevice: CUdeviceptr, uc: c_uchar, N: usize, hStream: CUstream);
    fn cuMemsetD2D8_v2(dstDevice: CUdeviceptr, dstPitch: usize, uc: c_uchar, Width: usize, Height: usize);
    fn cuMemsetD2D8Async(
        dstDevice: CUdeviceptr, dstPitch: usize, uc: c_uchar, Width: usize, Height: usize, hStream: CUstream,
    );
}
