// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every error code of the 13.0 runtime with its name and its text.

use core::ffi::CStr;

use super::cudaError_t;

/// Defines error codes with their names and texts.
macro_rules! errors {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        $( #[allow(dead_code)] pub const $name: cudaError_t = cudaError_t($code); )*

        /// Returns the name and the text of an error code, `None` for a code that the runtime does not know.
        pub fn describe(error: cudaError_t) -> Option<(&'static CStr, &'static CStr)> {
            match error.0 {
                $( $code => Some((
                    const { match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!(),
                    } },
                    $text,
                )), )*
                _ => None,
            }
        }

        #[cfg(test)]
        pub const ALL: &[u32] = &[$($code),*];
    };
}

errors! {
    cudaSuccess = 0, c"no error";
    cudaErrorInvalidValue = 1, c"invalid argument";
    cudaErrorMemoryAllocation = 2, c"out of memory";
    cudaErrorInitializationError = 3, c"initialization error";
    cudaErrorCudartUnloading = 4, c"driver shutting down";
    cudaErrorProfilerDisabled = 5, c"profiler disabled while using external profiling tool";
    cudaErrorProfilerNotInitialized = 6, c"profiler not initialized: call cudaProfilerInitialize()";
    cudaErrorProfilerAlreadyStarted = 7, c"profiler already started";
    cudaErrorProfilerAlreadyStopped = 8, c"profiler already stopped";
    cudaErrorInvalidConfiguration = 9, c"invalid configuration argument";
    cudaErrorInvalidPitchValue = 12, c"invalid pitch argument";
    cudaErrorInvalidSymbol = 13, c"invalid device symbol";
    cudaErrorInvalidHostPointer = 16, c"invalid host pointer";
    cudaErrorInvalidDevicePointer = 17, c"invalid device pointer";
    cudaErrorInvalidTexture = 18, c"invalid texture reference";
    cudaErrorInvalidTextureBinding = 19, c"texture is not bound to a pointer";
    cudaErrorInvalidChannelDescriptor = 20, c"invalid channel descriptor";
    cudaErrorInvalidMemcpyDirection = 21, c"invalid copy direction for memcpy";
    cudaErrorAddressOfConstant = 22, c"invalid address of constant";
    cudaErrorTextureFetchFailed = 23, c"fetch from texture failed";
    cudaErrorTextureNotBound = 24, c"cannot fetch from a texture that is not bound";
    cudaErrorSynchronizationError = 25, c"incorrect use of __syncthreads()";
    cudaErrorInvalidFilterSetting = 26, c"linear filtering not supported for non-float type";
    cudaErrorInvalidNormSetting = 27, c"read as normalized float not supported for data type";
    cudaErrorMixedDeviceExecution = 28, c"device emulation mode and device execution mode cannot be mixed";
    cudaErrorNotYetImplemented = 31, c"feature not yet implemented";
    cudaErrorMemoryValueTooLarge = 32, c"memory size or pointer value too large to fit in 32 bit";
    cudaErrorStubLibrary = 34, c"CUDA driver is a stub library";
    cudaErrorInsufficientDriver = 35, c"CUDA driver version is insufficient for CUDA runtime version";
    cudaErrorCallRequiresNewerDriver = 36, c"API call is not supported in the installed CUDA driver";
    cudaErrorInvalidSurface = 37, c"invalid surface reference";
    cudaErrorDuplicateVariableName = 43, c"duplicate global variable looked up by string name";
    cudaErrorDuplicateTextureName = 44, c"duplicate texture looked up by string name";
    cudaErrorDuplicateSurfaceName = 45, c"duplicate surface looked up by string name";
    cudaErrorDevicesUnavailable = 46, c"CUDA-capable device(s) is/are busy or unavailable";
    cudaErrorIncompatibleDriverContext = 49, c"incompatible driver context";
    cudaErrorMissingConfiguration = 52, c"__global__ function call is not configured";
    cudaErrorPriorLaunchFailure = 53, c"unspecified launch failure in prior launch";
    cudaErrorLaunchMaxDepthExceeded = 65, c"launch would exceed maximum depth of nested launches";
    cudaErrorLaunchFileScopedTex = 66, c"launch failed because kernel uses unsupported, file-scoped textures (texture objects are supported)";
    cudaErrorLaunchFileScopedSurf = 67, c"launch failed because kernel uses unsupported, file-scoped surfaces (surface objects are supported)";
    cudaErrorSyncDepthExceeded = 68, c"cudaDeviceSynchronize failed because caller's grid depth exceeds cudaLimitDevRuntimeSyncDepth";
    cudaErrorLaunchPendingCountExceeded = 69, c"launch failed because launch would exceed cudaLimitDevRuntimePendingLaunchCount";
    cudaErrorInvalidDeviceFunction = 98, c"invalid device function";
    cudaErrorNoDevice = 100, c"no CUDA-capable device is detected";
    cudaErrorInvalidDevice = 101, c"invalid device ordinal";
    cudaErrorDeviceNotLicensed = 102, c"device doesn't have valid Grid license";
    cudaErrorSoftwareValidityNotEstablished = 103, c"integrity checks failed";
    cudaErrorStartupFailure = 127, c"startup failure in cuda runtime";
    cudaErrorInvalidKernelImage = 200, c"device kernel image is invalid";
    cudaErrorDeviceUninitialized = 201, c"invalid device context";
    cudaErrorMapBufferObjectFailed = 205, c"mapping of buffer object failed";
    cudaErrorUnmapBufferObjectFailed = 206, c"unmapping of buffer object failed";
    cudaErrorArrayIsMapped = 207, c"array is mapped";
    cudaErrorAlreadyMapped = 208, c"resource already mapped";
    cudaErrorNoKernelImageForDevice = 209, c"no kernel image is available for execution on the device";
    cudaErrorAlreadyAcquired = 210, c"resource already acquired";
    cudaErrorNotMapped = 211, c"resource not mapped";
    cudaErrorNotMappedAsArray = 212, c"resource not mapped as array";
    cudaErrorNotMappedAsPointer = 213, c"resource not mapped as pointer";
    cudaErrorECCUncorrectable = 214, c"uncorrectable ECC error encountered";
    cudaErrorUnsupportedLimit = 215, c"limit is not supported on this architecture";
    cudaErrorDeviceAlreadyInUse = 216, c"exclusive-thread device already in use by a different thread";
    cudaErrorPeerAccessUnsupported = 217, c"peer access is not supported between these two devices";
    cudaErrorInvalidPtx = 218, c"a PTX JIT compilation failed";
    cudaErrorInvalidGraphicsContext = 219, c"invalid OpenGL or DirectX context";
    cudaErrorNvlinkUncorrectable = 220, c"uncorrectable NVLink error detected during the execution";
    cudaErrorJitCompilerNotFound = 221, c"PTX JIT compiler library not found";
    cudaErrorUnsupportedPtxVersion = 222, c"the provided PTX was compiled with an unsupported toolchain.";
    cudaErrorJitCompilationDisabled = 223, c"PTX JIT compilation was disabled";
    cudaErrorUnsupportedExecAffinity = 224, c"the provided execution affinity is not supported";
    cudaErrorUnsupportedDevSideSync = 225, c"the provided PTX contains unsupported call to cudaDeviceSynchronize";
    cudaErrorContained = 226, c"Invalid access of peer GPU memory over nvlink or a hardware error";
    cudaErrorInvalidSource = 300, c"device kernel image is invalid";
    cudaErrorFileNotFound = 301, c"file not found";
    cudaErrorSharedObjectSymbolNotFound = 302, c"shared object symbol not found";
    cudaErrorSharedObjectInitFailed = 303, c"shared object initialization failed";
    cudaErrorOperatingSystem = 304, c"OS call failed or operation not supported on this OS";
    cudaErrorInvalidResourceHandle = 400, c"invalid resource handle";
    cudaErrorIllegalState = 401, c"the operation cannot be performed in the present state";
    cudaErrorLossyQuery = 402, c"attempted introspection would be semantically lossy";
    cudaErrorSymbolNotFound = 500, c"named symbol not found";
    cudaErrorNotReady = 600, c"device not ready";
    cudaErrorIllegalAddress = 700, c"an illegal memory access was encountered";
    cudaErrorLaunchOutOfResources = 701, c"too many resources requested for launch";
    cudaErrorLaunchTimeout = 702, c"the launch timed out and was terminated";
    cudaErrorLaunchIncompatibleTexturing = 703, c"launch uses incompatible texturing mode";
    cudaErrorPeerAccessAlreadyEnabled = 704, c"peer access is already enabled";
    cudaErrorPeerAccessNotEnabled = 705, c"peer access has not been enabled";
    cudaErrorSetOnActiveProcess = 708, c"cannot set while device is active in this process";
    cudaErrorContextIsDestroyed = 709, c"context is destroyed";
    cudaErrorAssert = 710, c"device-side assert triggered";
    cudaErrorTooManyPeers = 711, c"peer mapping resources exhausted";
    cudaErrorHostMemoryAlreadyRegistered = 712, c"part or all of the requested memory range is already mapped";
    cudaErrorHostMemoryNotRegistered = 713, c"pointer does not correspond to a registered memory region";
    cudaErrorHardwareStackError = 714, c"hardware stack error";
    cudaErrorIllegalInstruction = 715, c"an illegal instruction was encountered";
    cudaErrorMisalignedAddress = 716, c"misaligned address";
    cudaErrorInvalidAddressSpace = 717, c"operation not supported on global/shared address space";
    cudaErrorInvalidPc = 718, c"invalid program counter";
    cudaErrorLaunchFailure = 719, c"unspecified launch failure";
    cudaErrorCooperativeLaunchTooLarge = 720, c"too many blocks in cooperative launch";
    cudaErrorTensorMemoryLeak = 721, c"tensor memory not completely freed";
    cudaErrorNotPermitted = 800, c"operation not permitted";
    cudaErrorNotSupported = 801, c"operation not supported";
    cudaErrorSystemNotReady = 802, c"system not yet initialized";
    cudaErrorSystemDriverMismatch = 803, c"system has unsupported display driver / cuda driver combination";
    cudaErrorCompatNotSupportedOnDevice = 804, c"forward compatibility was attempted on non supported HW";
    cudaErrorMpsConnectionFailed = 805, c"MPS client failed to connect to the MPS control daemon or the MPS server";
    cudaErrorMpsRpcFailure = 806, c"the remote procedural call between the MPS server and the MPS client failed";
    cudaErrorMpsServerNotReady = 807, c"MPS server is not ready to accept new MPS client requests";
    cudaErrorMpsMaxClientsReached = 808, c"the hardware resources required to create MPS client have been exhausted";
    cudaErrorMpsMaxConnectionsReached = 809, c"the hardware resources required to support device connections have been exhausted";
    cudaErrorMpsClientTerminated = 810, c"the MPS client has been terminated by the server";
    cudaErrorCdpNotSupported = 811, c"is using CUDA Dynamic Parallelism, but the current configuration, like MPS, does not support it";
    cudaErrorCdpVersionMismatch = 812, c"unsupported interaction between different versions of CUDA Dynamic Parallelism";
    cudaErrorStreamCaptureUnsupported = 900, c"operation not permitted when stream is capturing";
    cudaErrorStreamCaptureInvalidated = 901, c"operation failed due to a previous error during capture";
    cudaErrorStreamCaptureMerge = 902, c"operation would result in a merge of separate capture sequences";
    cudaErrorStreamCaptureUnmatched = 903, c"capture was not ended in the same stream as it began";
    cudaErrorStreamCaptureUnjoined = 904, c"capturing stream has unjoined work";
    cudaErrorStreamCaptureIsolation = 905, c"dependency created on uncaptured work in another stream";
    cudaErrorStreamCaptureImplicit = 906, c"operation would make the legacy stream depend on a capturing blocking stream";
    cudaErrorCapturedEvent = 907, c"operation not permitted on an event last recorded in a capturing stream";
    cudaErrorStreamCaptureWrongThread = 908, c"attempt to terminate a thread-local capture sequence from another thread";
    cudaErrorTimeout = 909, c"wait operation timed out";
    cudaErrorGraphExecUpdateFailure = 910, c"the graph update was not performed because it included changes which violated constraints specific to instantiated graph update";
    cudaErrorExternalDevice = 911, c"an async error has occured in external entity outside of CUDA";
    cudaErrorInvalidClusterSize = 912, c"a kernel launch error has occurred due to cluster misconfiguration";
    cudaErrorFunctionNotLoaded = 913, c"the function handle is not loaded when calling an API that requires a loaded function";
    cudaErrorInvalidResourceType = 914, c"one or more resources passed in are not valid resource types for the operation";
    cudaErrorInvalidResourceConfiguration = 915, c"one or more resources are insufficient or non-applicable for the operation";
    cudaErrorUnknown = 999, c"unknown error";
    cudaErrorApiFailureBase = 10000, c"api failure base";
}
