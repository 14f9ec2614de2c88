// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Libraries, kernels, launches, occupancy.

use core::ffi::{c_char, c_int, c_uint, c_void};

use super::{Result, Slot, cudaError_t, driver};
use crate::abi::driver::CUlaunchConfig;
use crate::abi::{CUdevice, CUdeviceptr, CUfunction, CUkernel, CUlibrary, CUstream};

driver! {
    fn cuLibraryLoadData(
        library: *mut CUlibrary, code: *const c_void, jitOptions: *mut c_uint,
        jitOptionsValues: *mut *mut c_void, numJitOptions: c_uint, libraryOptions: *mut c_uint,
        libraryOptionValues: *mut *mut c_void, numLibraryOptions: c_uint,
    );
    fn cuLibraryLoadFromFile(
        library: *mut CUlibrary, fileName: *const c_char, jitOptions: *mut c_uint,
        jitOptionsValues: *mut *mut c_void, numJitOptions: c_uint, libraryOptions: *mut c_uint,
        libraryOptionValues: *mut *mut c_void, numLibraryOptions: c_uint,
    );
    fn cuLibraryUnload(library: CUlibrary);
    fn cuLibraryGetKernel(pKernel: *mut CUkernel, library: CUlibrary, name: *const c_char);
    fn cuLibraryGetGlobal(dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char);
    fn cuLibraryGetManaged(
        dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char,
    );
    fn cuLibraryGetUnifiedFunction(fptr: *mut *mut c_void, library: CUlibrary, symbol: *const c_char);
    fn cuLibraryGetKernelCount(count: *mut c_uint, lib: CUlibrary);
    fn cuLibraryEnumerateKernels(kernels: *mut CUkernel, numKernels: c_uint, lib: CUlibrary);

    fn cuKernelGetFunction(pFunc: *mut CUfunction, kernel: CUkernel);
    fn cuKernelGetAttribute(pi: *mut c_int, attrib: c_uint, kernel: CUkernel, dev: CUdevice);
    fn cuKernelSetAttribute(attrib: c_uint, val: c_int, kernel: CUkernel, dev: CUdevice);
    fn cuKernelSetCacheConfig(kernel: CUkernel, config: c_uint, dev: CUdevice);
    fn cuKernelGetName(name: *mut *const c_char, hfunc: CUkernel);
    fn cuKernelGetParamInfo(
        kernel: CUkernel, paramIndex: usize, paramOffset: *mut usize, paramSize: *mut usize,
    );
    fn cuFuncSetSharedMemConfig(hfunc: CUfunction, config: c_uint);

    fn cuLaunchKernel(
        f: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint,
        blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream,
        kernelParams: *mut *mut c_void, extra: *mut *mut c_void,
    );
    fn cuLaunchKernelEx(
        config: *const CUlaunchConfig, f: CUfunction, kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
    #[cfg(cuda_major = "12")]
    fn cuLaunchCooperativeKernelMultiDevice(
        launchParamsList: *mut crate::abi::driver::CUDA_LAUNCH_PARAMS, numDevices: c_uint, flags: c_uint,
    );
    fn cuLaunchCooperativeKernel(
        f: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint,
        blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream,
        kernelParams: *mut *mut c_void,
    );

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        numBlocks: *mut c_int, func: CUfunction, blockSize: c_int, dynamicSMemSize: usize, flags: c_uint,
    );
    fn cuOccupancyAvailableDynamicSMemPerBlock(
        dynamicSmemSize: *mut usize, func: CUfunction, numBlocks: c_int, blockSize: c_int,
    );
    fn cuOccupancyMaxPotentialClusterSize(
        clusterSize: *mut c_int, func: CUfunction, config: *const CUlaunchConfig,
    );
    fn cuOccupancyMaxActiveClusters(numClusters: *mut c_int, func: CUfunction, config: *const CUlaunchConfig);
}
