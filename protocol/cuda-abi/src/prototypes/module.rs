// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Modules, libraries, kernels, launches and occupancy.

/// Passes the prototypes of this area to a macro.
#[macro_export]
macro_rules! module_prototypes {
    ($callback:ident) => {
        $callback! {
            fn cuFuncGetAttribute(pi: *mut c_int, attrib: c_uint, hfunc: CUfunction);
            fn cuFuncGetModule(hmod: *mut CUmodule, hfunc: CUfunction);
            fn cuFuncGetName(name: *mut *const c_char, hfunc: CUfunction);
            fn cuFuncGetParamInfo(
                func: CUfunction, paramIndex: usize, paramOffset: *mut usize, paramSize: *mut usize,
            );
            fn cuFuncIsLoaded(state: *mut c_uint, function: CUfunction);
            fn cuFuncLoad(function: CUfunction);
            fn cuFuncSetAttribute(hfunc: CUfunction, attrib: c_uint, value: c_int);
            fn cuFuncSetBlockShape(hfunc: CUfunction, x: c_int, y: c_int, z: c_int);
            fn cuFuncSetCacheConfig(hfunc: CUfunction, config: c_uint);
            fn cuFuncSetSharedMemConfig(hfunc: CUfunction, config: c_uint);
            fn cuFuncSetSharedSize(hfunc: CUfunction, bytes: c_uint);
            fn cuKernelGetAttribute(pi: *mut c_int, attrib: c_uint, kernel: CUkernel, dev: CUdevice);
            fn cuKernelGetFunction(pFunc: *mut CUfunction, kernel: CUkernel);
            fn cuKernelGetLibrary(pLib: *mut CUlibrary, kernel: CUkernel);
            fn cuKernelGetName(name: *mut *const c_char, hfunc: CUkernel);
            fn cuKernelGetParamCount(kernel: CUkernel, paramCount: *mut usize);
            fn cuKernelGetParamInfo(
                kernel: CUkernel, paramIndex: usize, paramOffset: *mut usize, paramSize: *mut usize,
            );
            fn cuKernelSetAttribute(attrib: c_uint, val: c_int, kernel: CUkernel, dev: CUdevice);
            fn cuKernelSetCacheConfig(kernel: CUkernel, config: c_uint, dev: CUdevice);
            fn cuLaunch(f: CUfunction);
            fn cuLaunchCooperativeKernel(
                f: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint,
                blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream,
                kernelParams: *mut *mut c_void,
            );
            fn cuLaunchCooperativeKernelMultiDevice(
                launchParamsList: *mut CUDA_LAUNCH_PARAMS, numDevices: c_uint, flags: c_uint,
            );
            fn cuLaunchGrid(f: CUfunction, grid_width: c_int, grid_height: c_int);
            fn cuLaunchGridAsync(f: CUfunction, grid_width: c_int, grid_height: c_int, hStream: CUstream);
            fn cuLaunchKernel(
                f: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint,
                blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream,
                kernelParams: *mut *mut c_void, extra: *mut *mut c_void,
            );
            fn cuLaunchKernelEx(
                config: *const CUlaunchConfig, f: CUfunction, kernelParams: *mut *mut c_void,
                extra: *mut *mut c_void,
            );
            fn cuLibraryEnumerateKernels(kernels: *mut CUkernel, numKernels: c_uint, lib: CUlibrary);
            fn cuLibraryGetGlobal(
                dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char,
            );
            fn cuLibraryGetKernel(pKernel: *mut CUkernel, library: CUlibrary, name: *const c_char);
            fn cuLibraryGetKernelCount(count: *mut c_uint, lib: CUlibrary);
            fn cuLibraryGetManaged(
                dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char,
            );
            fn cuLibraryGetModule(pMod: *mut CUmodule, library: CUlibrary);
            fn cuLibraryGetUnifiedFunction(fptr: *mut *mut c_void, library: CUlibrary, symbol: *const c_char);
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
            fn cuLinkAddData(
                state: CUlinkState, type_: c_uint, data: *mut c_void, size: usize, name: *const c_char,
                numOptions: c_uint, options: *mut c_uint, optionValues: *mut *mut c_void,
            );
            fn cuLinkAddData_v2(
                state: CUlinkState, type_: c_uint, data: *mut c_void, size: usize, name: *const c_char,
                numOptions: c_uint, options: *mut c_uint, optionValues: *mut *mut c_void,
            );
            fn cuLinkAddFile(
                state: CUlinkState, type_: c_uint, path: *const c_char, numOptions: c_uint,
                options: *mut c_uint, optionValues: *mut *mut c_void,
            );
            fn cuLinkAddFile_v2(
                state: CUlinkState, type_: c_uint, path: *const c_char, numOptions: c_uint,
                options: *mut c_uint, optionValues: *mut *mut c_void,
            );
            fn cuLinkComplete(state: CUlinkState, cubinOut: *mut *mut c_void, sizeOut: *mut usize);
            fn cuLinkCreate(
                numOptions: c_uint, options: *mut c_uint, optionValues: *mut *mut c_void,
                stateOut: *mut CUlinkState,
            );
            fn cuLinkCreate_v2(
                numOptions: c_uint, options: *mut c_uint, optionValues: *mut *mut c_void,
                stateOut: *mut CUlinkState,
            );
            fn cuLinkDestroy(state: CUlinkState);
            fn cuModuleEnumerateFunctions(functions: *mut CUfunction, numFunctions: c_uint, mod_: CUmodule);
            fn cuModuleGetFunction(hfunc: *mut CUfunction, hmod: CUmodule, name: *const c_char);
            fn cuModuleGetFunctionCount(count: *mut c_uint, mod_: CUmodule);
            fn cuModuleGetGlobal_v2(
                dptr: *mut CUdeviceptr, bytes: *mut usize, hmod: CUmodule, name: *const c_char,
            );
            fn cuModuleGetLoadingMode(mode: *mut c_uint);
            fn cuModuleGetSurfRef(pSurfRef: *mut CUsurfref, hmod: CUmodule, name: *const c_char);
            fn cuModuleGetTexRef(pTexRef: *mut CUtexref, hmod: CUmodule, name: *const c_char);
            fn cuModuleLoad(module: *mut CUmodule, fname: *const c_char);
            fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
            fn cuModuleLoadDataEx(
                module: *mut CUmodule, image: *const c_void, numOptions: c_uint, options: *mut c_uint,
                optionValues: *mut *mut c_void,
            );
            fn cuModuleLoadFatBinary(module: *mut CUmodule, fatCubin: *const c_void);
            fn cuModuleUnload(hmod: CUmodule);
            fn cuOccupancyAvailableDynamicSMemPerBlock(
                dynamicSmemSize: *mut usize, func: CUfunction, numBlocks: c_int, blockSize: c_int,
            );
            fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
                numBlocks: *mut c_int, func: CUfunction, blockSize: c_int, dynamicSMemSize: usize,
            );
            fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                numBlocks: *mut c_int, func: CUfunction, blockSize: c_int, dynamicSMemSize: usize,
                flags: c_uint,
            );
            fn cuOccupancyMaxActiveClusters(
                numClusters: *mut c_int, func: CUfunction, config: *const CUlaunchConfig,
            );
            fn cuOccupancyMaxPotentialBlockSize(
                minGridSize: *mut c_int, blockSize: *mut c_int, func: CUfunction,
                blockSizeToDynamicSMemSize: CUoccupancyB2DSize, dynamicSMemSize: usize,
                blockSizeLimit: c_int,
            );
            fn cuOccupancyMaxPotentialBlockSizeWithFlags(
                minGridSize: *mut c_int, blockSize: *mut c_int, func: CUfunction,
                blockSizeToDynamicSMemSize: CUoccupancyB2DSize, dynamicSMemSize: usize,
                blockSizeLimit: c_int, flags: c_uint,
            );
            fn cuOccupancyMaxPotentialClusterSize(
                clusterSize: *mut c_int, func: CUfunction, config: *const CUlaunchConfig,
            );
            fn cuParamSetSize(hfunc: CUfunction, numbytes: c_uint);
            fn cuParamSetTexRef(hfunc: CUfunction, texunit: c_int, hTexRef: CUtexref);
            fn cuParamSetf(hfunc: CUfunction, offset: c_int, value: f32);
            fn cuParamSeti(hfunc: CUfunction, offset: c_int, value: c_uint);
            fn cuParamSetv(hfunc: CUfunction, offset: c_int, ptr: *mut c_void, numbytes: c_uint);
        }
    };
}
