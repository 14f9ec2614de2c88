// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of the driver API.
//!
//! cudarc provides types and prototypes. Its loader is not used: it takes the first `libcuda*.so` of a list that the
//! dynamic linker finds (never a file given by us). It panics when a symbol is missing, and returns a Rust enum,
//! which would be undefined behaviour for a newer driver's result. So each row of the table below is a method, and of the one
//! in [`super::plain`], which is generated for calls whose row in `protocol/calls` says all of this. The
//! row adds facts that no prototype contains: which arguments are results, and whether the driver follows other ones.
//! The compiler compares a row with the list of prototypes (`cuda_abi::prototypes`) and with cudarc's prototype,
//! which also distinguishes the types of handles and structures.
//!
//! # Invariants
//!
//! A value of a handle type (`CUstream`, …) in this process came from the driver: `resolve` creates no other. Its
//! object is not destroyed during the call: the call holds a reference to it, and for graphs a lock
//! (`objects::Held`). The `safe` rows rely on this.

#![allow(non_snake_case, clippy::too_many_arguments)]

use std::ffi::{CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::path::Path;

use cudarc::driver::sys;
use cudarc::driver::sys::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY_SPARSE_PROPERTIES,
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUDA_RESOURCE_DESC,
    CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUarray, CUarrayMapInfo, CUcontext, CUdevResource,
    CUdevResourceDesc, CUdevResourceType, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent,
    CUexecAffinityParam, CUexecAffinityType, CUexternalMemory, CUfunction, CUfunction_attribute, CUgraph,
    CUgraphEdgeData, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphMem_attribute, CUgraphNode,
    CUgraphNodeParams, CUgraphNodeType, CUgreenCtx, CUhostFn, CUipcEventHandle, CUipcMemHandle, CUjit_option,
    CUjitInputType, CUkernel, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig, CUlibrary,
    CUlibraryOption, CUlimit, CUlinkState, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemPool_attribute, CUmemPoolProps, CUmemPoolPtrExportData,
    CUmemoryPool, CUmipmappedArray, CUmodule, CUpointer_attribute, CUstream, CUstreamBatchMemOpParams,
    CUstreamCallback, CUstreamCaptureMode, CUstreamCaptureStatus, CUsurfObject, CUsurfref, CUtensorMap,
    CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapIm2ColWideMode, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle, CUtexObject, CUtexref, CUuserObject, CUuuid,
};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use super::argument::{
    Argument, Checked, Elements, Mut, NoFunction, One, Opaque, Plain, Rank, Ref, StreamFunction,
    SurfaceObject, TextureObject,
};
use super::error::{CuResult, CudaError};
use super::raw::{
    RawAccess, RawAffinity, RawAllocation, RawArray, RawArrayMap, RawDevResource, RawExternal,
    RawExternalArray, RawExternalBuffer, RawIpcHandle, RawLocation, RawPool, RawRequirements, RawResource,
    RawRows, RawSparse, RawTensorMap, RawTexture, RawView,
};

/// The type in cudarc's prototype: the one after `as`, otherwise the type itself.
macro_rules! checked {
    ($t:ty;) => {
        $t
    };
    ($t:ty; $c:ty) => {
        $c
    };
}

/// `pub fn`, or `pub unsafe fn` with the reason.
macro_rules! method {
    (safe $(#[$doc:meta])* fn $($rest:tt)*) => { $(#[$doc])* pub fn $($rest)* };
    (unsafe $(#[$doc:meta])* fn $($rest:tt)*) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// Pointers must be valid for the driver function's use of them (host memory that is long enough; device
        /// ranges that belong to the session).
        pub unsafe fn $($rest)*
    };
}

/// Compares a function with cudarc's prototype, unless it was generated from that.
macro_rules! compare {
    (generated $name:ident $t:ty) => {};
    (compared $name:ident $t:ty) => {
        const _: $t = sys::$name;
    };
}

/// `kind name [results that come first] (arguments) [results that come last] (later arguments);` in C order, so that
/// it can be compared with the C prototype. `int as Enum`: the C function takes that enum. `name / older`: the
/// function's name in drivers that do not have the first one. Before the rows: the structure of the functions' addresses, and the
/// field of [`Driver`] that has it.
macro_rules! driver_functions {
    ($from:ident $Functions:ident in $field:ident; $($kind:ident $name:ident $(/ $older:ident)?
        [$($first:ident: $ft:ty $(as $fc:ty)?),*]
        ($($arg:ident: $t:ty $(as $c:ty)?),*)
        [$($last:ident: $lt:ty $(as $lc:ty)?),*]
        $(($($late:ident: $at:ty $(as $ac:ty)?),*))?;)*) => {
        /// Functions of the driver. Each is `None` if this libcuda does not have it.
        #[derive(Debug)]
        pub(super) struct $Functions {
            $($name: Option<unsafe extern "C" fn(
                $(*mut $ft,)* $(<$t as Argument>::C,)* $(*mut $lt,)* $($(<$at as Argument>::C),*)?
            ) -> c_int>,)*
        }

        $(compare!($from $name unsafe fn(
            $(*mut checked!($ft; $($fc)?),)* $(checked!(<$t as Argument>::C; $($c)?),)*
            $(*mut checked!($lt; $($lc)?),)* $($(checked!(<$at as Argument>::C; $($ac)?)),*)?
        ) -> sys::CUresult);)*
        $(cuda_abi::check_prototype!($name(
            $(*mut $ft,)* $(<$t as Argument>::C,)* $(*mut $lt,)* $($(<$at as Argument>::C),*)?
        ));)*

        impl $Functions {
            /// Finds the functions in a library that stays loaded.
            pub(super) fn from_library(library: &libloading::os::unix::Library) -> Self {
                // SAFETY: the types are those of cudarc's prototypes (checked above, or generated from them) with C enums as
                // `int`, which is how C passes them; the library is never unloaded (see `Driver::load`).
                unsafe {
                    Self {
                        $($name: library.get(concat!(stringify!($name), "\0").as_bytes())
                            $(.or_else(|_| library.get(concat!(stringify!($older), "\0").as_bytes())))?
                            .ok().map(|f| *f),)*
                    }
                }
            }

            /// Returns functions of a driver without a device (see [`super::null`]).
            #[cfg(any(test, fuzzing))]
            pub(super) fn null() -> Self {
                use super::null;
                $(
                    unsafe extern "C" fn $name(
                        $($first: *mut $ft,)* $($arg: <$t as Argument>::C,)* $($last: *mut $lt,)*
                        $($($late: <$at as Argument>::C),*)?
                    ) -> c_int {
                        let words = [$(null::word(&$arg),)* $($(null::word(&$late)),*)?];
                        // SAFETY: the arguments are those of the driver's function of that name, and the out pointers
                        // are the caller's.
                        unsafe {
                            let code = null::answer(stringify!($name), &words);
                            if code == 0 {
                                $(null::fill(stringify!($name), $first, stringify!($ft));)*
                                $(null::fill(stringify!($name), $last, stringify!($lt));)*
                            }
                            code
                        }
                    }
                )*
                Self { $($name: Some($name),)* }
            }
        }

        impl Driver {
            $(method! { $kind
                #[doc = concat!("`", stringify!($name), "`.")]
                fn $name(&self, $(mut $arg: $t,)* $($(mut $late: $at),*)?) -> CuResult<($($ft,)* $($lt,)*)> {
                    let function = self.$field.$name.ok_or(CudaError::NOT_SUPPORTED)?;
                    $(let mut $first = <$ft as Plain>::ZERO;)*
                    $(let mut $last = <$lt as Plain>::ZERO;)*
                    // SAFETY: the out pointers are to locals, handles are the driver's own (see the head of this
                    // file), and pointer arguments exist in `unsafe` methods only, whose callers vouch for them.
                    let code = unsafe {
                        function(
                            $(&raw mut $first,)* $($arg.pass(),)* $(&raw mut $last,)* $($($late.pass()),*)?
                        )
                    };
                    if code == 0 { Ok(($($first,)* $($last,)*)) } else { Err(CudaError(code)) }
                }
            })*
        }
    };
}

pub(super) use {compare, driver_functions, method};

/// The driver's functions.
#[derive(Debug)]
pub struct Driver {
    own: Own,
    pub(super) generated: super::plain::Generated,
    pub(super) later: super::later::Later,
}

driver_functions! {
    compared Own in own;
    safe cuInit [] (flags: c_uint) [];
    safe cuDriverGetVersion [version: c_int] () [];
    safe cuDeviceGetCount [count: c_int] () [];
    safe cuDeviceGet [device: CUdevice] (ordinal: c_int) [];
    safe cuDeviceTotalMem_v2 [bytes: usize] (device: CUdevice) [];
    safe cuDeviceGetUuid_v2 [uuid: CUuuid] (device: CUdevice) [];
    safe cuDeviceGetAttribute [value: c_int] (attrib: c_int as CUdevice_attribute, device: CUdevice) [];
    unsafe cuDeviceGetName [] (name: *mut c_char, len: c_int, device: CUdevice) [];
    unsafe cuDeviceGetPCIBusId [] (id: *mut c_char, len: c_int, device: CUdevice) [];

    safe cuDevicePrimaryCtxRetain [context: CUcontext] (device: CUdevice) [];
    safe cuDevicePrimaryCtxRelease_v2 [] (device: CUdevice) [];
    safe cuDevicePrimaryCtxReset_v2 [] (device: CUdevice) [];
    safe cuDevicePrimaryCtxSetFlags_v2 [] (device: CUdevice, flags: c_uint) [];
    safe cuDevicePrimaryCtxGetState [] (device: CUdevice) [flags: c_uint, active: c_int];
    safe cuCtxCreate_v2 [context: CUcontext] (flags: c_uint, device: CUdevice) [];
    safe cuCtxDestroy_v2 [] (context: CUcontext) [];
    safe cuCtxSetCurrent [] (context: CUcontext) [];
    safe cuCtxGetCurrent [context: CUcontext] () [];
    safe cuCtxPushCurrent_v2 [] (context: CUcontext) [];
    safe cuCtxPopCurrent_v2 [context: CUcontext] () [];
    safe cuCtxSetLimit [] (limit: c_int as CUlimit, value: usize) [];
    safe cuCtxGetFlags [flags: c_uint] () [];
    safe cuCtxSetFlags [] (flags: c_uint) [];
    safe cuCtxEnablePeerAccess [] (peer: CUcontext, flags: c_uint) [];
    safe cuCtxDisablePeerAccess [] (peer: CUcontext) [];
    safe cuCtxGetExecAffinity [affinity: RawAffinity as CUexecAffinityParam] (kind: c_int as CUexecAffinityType) [];
    safe cuDeviceGetDevResource [] (device: CUdevice) [resource: RawDevResource as CUdevResource] (kind: c_uint as CUdevResourceType);
    safe cuCtxGetDevResource [] (context: CUcontext) [resource: RawDevResource as CUdevResource] (kind: c_uint as CUdevResourceType);
    unsafe cuDevSmResourceSplitByCount [] (result: *mut RawDevResource as *mut CUdevResource, groups: *mut c_uint,
        input: *const RawDevResource as *const CUdevResource, remaining: *mut RawDevResource as *mut CUdevResource, flags: c_uint, min_count: c_uint) [];
    unsafe cuDevResourceGenerateDesc [description: CUdevResourceDesc] (resources: *mut RawDevResource as *mut CUdevResource, count: c_uint) [];
    safe cuGreenCtxCreate [green: CUgreenCtx] (description: CUdevResourceDesc, device: CUdevice, flags: c_uint) [];
    safe cuGreenCtxDestroy [] (green: CUgreenCtx) [];
    safe cuCtxFromGreenCtx [context: CUcontext] (green: CUgreenCtx) [];

    safe cuMemAlloc_v2 [dptr: CUdeviceptr] (bytesize: usize) [];
    safe cuMemAllocPitch_v2 [dptr: CUdeviceptr, pitch: usize] (width: usize, height: usize, element: c_uint) [];
    safe cuMemAllocAsync [dptr: CUdeviceptr] (bytesize: usize, stream: CUstream) [];
    safe cuMemGetInfo_v2 [free: usize, total: usize] () [];
    unsafe cuMemFree_v2 [] (dptr: CUdeviceptr) [];
    unsafe cuMemFreeAsync [] (dptr: CUdeviceptr, stream: CUstream) [];
    unsafe cuMemHostRegister_v2 [] (address: *mut c_void, bytesize: usize, flags: c_uint) [];
    unsafe cuMemHostUnregister [] (address: *mut c_void) [];
    unsafe cuMemHostGetDevicePointer_v2 [dptr: CUdeviceptr] (address: *mut c_void, flags: c_uint) [];
    unsafe cuMemcpy [] (dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) [];
    unsafe cuMemcpyDtoH_v2 [] (dst: *mut c_void, src: CUdeviceptr, bytes: usize) [];
    unsafe cuMemcpyDtoD_v2 [] (dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) [];
    unsafe cuMemcpyPeer [] (dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, bytes: usize) [];
    unsafe cuMemcpyPeerAsync [] (dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, bytes: usize, stream: CUstream) [];
    unsafe cuMemcpyHtoD_v2 [] (dst: CUdeviceptr, src: *const c_void, bytes: usize) [];
    unsafe cuMemcpyHtoDAsync_v2 [] (dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream) [];
    unsafe cuMemcpyDtoHAsync_v2 [] (dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream) [];
    unsafe cuMemcpyAsync [] (dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream) [];
    unsafe cuMemcpy3DAsync_v2 [] (copy: *const CUDA_MEMCPY3D, stream: CUstream) [];
    unsafe cuMemsetD8Async [] (dst: CUdeviceptr, value: u8, n: usize, stream: CUstream) [];
    unsafe cuMemsetD16Async [] (dst: CUdeviceptr, value: u16, n: usize, stream: CUstream) [];
    unsafe cuMemsetD32Async [] (dst: CUdeviceptr, value: c_uint, n: usize, stream: CUstream) [];
    unsafe cuMemsetD2D8Async [] (dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream) [];
    unsafe cuMemsetD2D16Async [] (dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream) [];
    unsafe cuMemsetD2D32Async [] (dst: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream) [];

    unsafe cuPointerGetAttribute [] (data: *mut c_void, attribute: c_int as CUpointer_attribute, ptr: CUdeviceptr) [];

    unsafe cuModuleLoadData [module: CUmodule] (image: *const c_void) [];
    safe cuModuleUnload [] (module: CUmodule) [];
    safe cuModuleGetFunction [function: CUfunction] (module: CUmodule, name: CString) [];
    safe cuModuleGetGlobal_v2 [dptr: CUdeviceptr, bytes: usize] (module: CUmodule, name: CString) [];
    unsafe cuLibraryLoadData [library: CUlibrary] (code: *const c_void,
        jit_options: *mut CUjit_option, jit_values: *mut *mut c_void, jit_count: c_uint,
        options: *mut CUlibraryOption, values: *mut *mut c_void, count: c_uint) [];
    safe cuLibraryUnload [] (library: CUlibrary) [];
    safe cuLibraryGetKernel [kernel: CUkernel] (library: CUlibrary, name: CString) [];
    safe cuLibraryGetGlobal [dptr: CUdeviceptr, bytes: usize] (library: CUlibrary, name: CString) [];
    safe cuLibraryGetManaged [dptr: CUdeviceptr, bytes: usize] (library: CUlibrary, name: CString) [];
    safe cuLibraryGetModule [module: CUmodule] (library: CUlibrary) [];
    unsafe cuLibraryEnumerateKernels [] (kernels: *mut CUkernel, count: c_uint, library: CUlibrary) [];
    unsafe cuModuleEnumerateFunctions [] (functions: *mut CUfunction, count: c_uint, module: CUmodule) [];
    safe cuModuleGetFunctionCount [count: c_uint] (module: CUmodule) [];
    safe cuFuncGetName [name: *const c_char] (function: CUfunction) [];
    safe cuKernelGetName [name: *const c_char] (kernel: CUkernel) [];
    safe cuKernelGetFunction [function: CUfunction] (kernel: CUkernel) [];
    safe cuKernelGetParamInfo [] (kernel: CUkernel, index: usize) [offset: usize, bytes: usize];
    safe cuFuncGetParamInfo [] (function: CUfunction, index: usize) [offset: usize, bytes: usize];
    safe cuFuncSetAttribute [] (function: CUfunction, attrib: c_int as CUfunction_attribute, value: c_int) [];
    safe cuKernelSetAttribute [] (attrib: c_int as CUfunction_attribute, value: c_int, kernel: CUkernel, device: CUdevice) [];
    safe cuOccupancyMaxPotentialBlockSizeWithFlags [min_grid: c_int, block: c_int] (function: CUfunction, callback: NoFunction, dynamic_shared: usize, block_limit: c_int, flags: c_uint) [];
    unsafe cuOccupancyMaxActiveClusters [clusters: c_int] (function: CUfunction, config: *const CUlaunchConfig) [];
    unsafe cuOccupancyMaxPotentialClusterSize [blocks: c_int] (function: CUfunction, config: *const CUlaunchConfig) [];

    unsafe cuLaunchKernel [] (function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void) [];
    unsafe cuLaunchKernelEx [] (config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void) [];

    safe cuStreamDestroy_v2 [] (stream: CUstream) [];
    safe cuStreamSynchronize [] (stream: CUstream) [];
    safe cuStreamGetCtx [] (stream: CUstream) [context: CUcontext];

    safe cuStreamBeginCapture_v2 [] (stream: CUstream, mode: c_uint as CUstreamCaptureMode) [];
    safe cuStreamEndCapture [] (stream: CUstream) [graph: CUgraph];
    unsafe cuStreamGetCaptureInfo_v3 [] (stream: CUstream, status: *mut c_int as *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, nodes: *mut *const CUgraphNode, edges: *mut *const CUgraphEdgeData, count: *mut usize) [];
    unsafe cuStreamUpdateCaptureDependencies_v2 [] (stream: CUstream, nodes: *mut CUgraphNode, edges: *const CUgraphEdgeData, count: usize, flags: c_uint) [];
    unsafe cuStreamBeginCaptureToGraph [] (stream: CUstream, graph: CUgraph, nodes: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, mode: c_uint as CUstreamCaptureMode) [];
    unsafe cuThreadExchangeStreamCaptureMode [] (mode: *mut c_int as *mut CUstreamCaptureMode) [];
    unsafe cuLaunchHostFunc [] (stream: CUstream, function: CUhostFn, data: *mut c_void) [];
    unsafe cuStreamAddCallback [] (stream: CUstream, function: Option<StreamFunction> as CUstreamCallback, data: *mut c_void, flags: c_uint) [];
    unsafe cuStreamSetAttribute [] (stream: CUstream, attribute: c_int as CUlaunchAttributeID, value: *const CUlaunchAttributeValue) [];
    unsafe cuStreamGetAttribute [] (stream: CUstream, attribute: c_int as CUlaunchAttributeID, value: *mut CUlaunchAttributeValue) [];
    unsafe cuStreamWriteValue32_v2 [] (stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) [];
    unsafe cuStreamBatchMemOp_v2 [] (stream: CUstream, count: c_uint, operations: *mut CUstreamBatchMemOpParams, flags: c_uint) [];

    safe cuGraphDestroy [] (graph: CUgraph) [];
    safe cuGraphClone [clone: CUgraph] (original: CUgraph) [];
    unsafe cuGraphGetNodes [] (graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) [];
    unsafe cuGraphGetRootNodes [] (graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) [];
    unsafe cuGraphGetEdges_v2 [] (graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize) [];
    unsafe cuGraphAddDependencies_v2 [] (graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize) [];
    unsafe cuGraphRemoveDependencies_v2 [] (graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize) [];
    unsafe cuGraphNodeGetDependencies_v2 [] (node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize) [];
    unsafe cuGraphNodeGetDependentNodes_v2 [] (node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize) [];
    safe cuGraphDestroyNode [] (node: CUgraphNode) [];
    safe cuGraphNodeGetType [] (node: CUgraphNode) [kind: c_uint as CUgraphNodeType];
    safe cuGraphNodeSetEnabled [] (exec: CUgraphExec, node: CUgraphNode, enabled: c_uint) [];
    safe cuGraphNodeFindInClone [node: CUgraphNode] (original: CUgraphNode, clone: CUgraph) [];
    safe cuGraphChildGraphNodeGetGraph [] (node: CUgraphNode) [graph: CUgraph];
    unsafe cuGraphAddNode_v2 [node: CUgraphNode] (graph: CUgraph, nodes: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, parameters: *mut CUgraphNodeParams) [];
    unsafe cuGraphNodeSetParams [] (node: CUgraphNode, parameters: *mut CUgraphNodeParams) [];
    unsafe cuGraphExecNodeSetParams [] (exec: CUgraphExec, node: CUgraphNode, parameters: *mut CUgraphNodeParams) [];
    unsafe cuGraphAddKernelNode_v2 [node: CUgraphNode] (graph: CUgraph, nodes: *const CUgraphNode, count: usize, parameters: *const CUDA_KERNEL_NODE_PARAMS) [];
    unsafe cuGraphExecKernelNodeSetParams_v2 [] (exec: CUgraphExec, node: CUgraphNode, parameters: *const CUDA_KERNEL_NODE_PARAMS) [];
    unsafe cuGraphKernelNodeGetParams_v2 [] (node: CUgraphNode, parameters: *mut CUDA_KERNEL_NODE_PARAMS) [];
    unsafe cuGraphMemcpyNodeGetParams [] (node: CUgraphNode, parameters: *mut CUDA_MEMCPY3D) [];
    unsafe cuGraphMemsetNodeGetParams [] (node: CUgraphNode, parameters: *mut CUDA_MEMSET_NODE_PARAMS) [];
    unsafe cuGraphHostNodeGetParams [] (node: CUgraphNode, parameters: *mut CUDA_HOST_NODE_PARAMS) [];
    unsafe cuGraphBatchMemOpNodeGetParams [] (node: CUgraphNode, parameters: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS) [];
    unsafe cuGraphMemAllocNodeGetParams [] (node: CUgraphNode, parameters: *mut CUDA_MEM_ALLOC_NODE_PARAMS) [];
    safe cuGraphMemFreeNodeGetParams [] (node: CUgraphNode) [dptr: CUdeviceptr];
    safe cuGraphEventRecordNodeGetEvent [] (node: CUgraphNode) [event: CUevent];
    safe cuGraphEventWaitNodeGetEvent [] (node: CUgraphNode) [event: CUevent];
    unsafe cuGraphKernelNodeSetAttribute [] (node: CUgraphNode, attribute: c_int as CUlaunchAttributeID, value: *const CUlaunchAttributeValue) [];
    unsafe cuGraphKernelNodeGetAttribute [] (node: CUgraphNode, attribute: c_int as CUlaunchAttributeID, value: *mut CUlaunchAttributeValue) [];
    unsafe cuGraphInstantiateWithParams [exec: CUgraphExec] (graph: CUgraph, parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) [];
    safe cuGraphExecDestroy [] (exec: CUgraphExec) [];
    safe cuGraphInstantiateWithFlags [exec: CUgraphExec] (graph: CUgraph, flags: c_ulonglong) [];
    safe cuGraphLaunch [] (exec: CUgraphExec, stream: CUstream) [];
    unsafe cuGraphExecUpdate_v2 [] (exec: CUgraphExec, graph: CUgraph, info: *mut CUgraphExecUpdateResultInfo) [];
    safe cuGraphConditionalHandleCreate [handle: u64] (graph: CUgraph, context: CUcontext, default_value: c_uint, flags: c_uint) [];
    // Every attribute is a `cuuint64_t`.
    safe cuDeviceGetGraphMemAttribute [] (device: CUdevice, attribute: c_int as CUgraphMem_attribute) [value: u64 as c_void];
    safe cuDeviceSetGraphMemAttribute [] (device: CUdevice, attribute: c_int as CUgraphMem_attribute, value: Mut<u64> as *mut c_void) [];
    unsafe cuUserObjectCreate [object: CUuserObject] (data: *mut c_void, destroy: CUhostFn, count: c_uint, flags: c_uint) [];
    safe cuUserObjectRetain [] (object: CUuserObject, count: c_uint) [];
    safe cuUserObjectRelease [] (object: CUuserObject, count: c_uint) [];
    safe cuGraphRetainUserObject [] (graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint) [];
    safe cuGraphReleaseUserObject [] (graph: CUgraph, object: CUuserObject, count: c_uint) [];

    safe cuEventDestroy_v2 [] (event: CUevent) [];
    // Drivers before 12.8 have only the older one.
    safe cuEventElapsedTime_v2 / cuEventElapsedTime [milliseconds: f32] (start: CUevent, end: CUevent) [];

    unsafe cuArray3DCreate_v2 [array: CUarray] (descriptor: *const RawArray as *const CUDA_ARRAY3D_DESCRIPTOR) [];
    safe cuArray3DGetDescriptor_v2 [descriptor: RawArray as CUDA_ARRAY3D_DESCRIPTOR] (array: CUarray) [];
    safe cuArrayDestroy [] (array: CUarray) [];
    safe cuArrayGetMemoryRequirements [requirements: RawRequirements as CUDA_ARRAY_MEMORY_REQUIREMENTS] (array: CUarray, device: CUdevice) [];
    safe cuArrayGetSparseProperties [properties: RawSparse as CUDA_ARRAY_SPARSE_PROPERTIES] (array: CUarray) [];
    safe cuArrayGetPlane [plane: CUarray] (array: CUarray, index: c_uint) [];
    unsafe cuMipmappedArrayCreate [mipmap: CUmipmappedArray] (descriptor: *const RawArray as *const CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint) [];
    safe cuMipmappedArrayDestroy [] (mipmap: CUmipmappedArray) [];
    safe cuMipmappedArrayGetLevel [array: CUarray] (mipmap: CUmipmappedArray, level: c_uint) [];
    safe cuMipmappedArrayGetMemoryRequirements [requirements: RawRequirements as CUDA_ARRAY_MEMORY_REQUIREMENTS] (mipmap: CUmipmappedArray, device: CUdevice) [];
    safe cuMipmappedArrayGetSparseProperties [properties: RawSparse as CUDA_ARRAY_SPARSE_PROPERTIES] (mipmap: CUmipmappedArray) [];
    unsafe cuMemMapArrayAsync [] (maps: *mut RawArrayMap as *mut CUarrayMapInfo, count: c_uint, stream: CUstream) [];
    safe cuTexObjectCreate [object: TextureObject as CUtexObject] (resource: Ref<RawResource> as *const CUDA_RESOURCE_DESC,
        texture: Ref<RawTexture> as *const CUDA_TEXTURE_DESC, view: Option<Ref<RawView>> as *const CUDA_RESOURCE_VIEW_DESC) [];
    safe cuTexObjectDestroy [] (object: CUtexObject) [];
    safe cuSurfObjectCreate [object: SurfaceObject as CUsurfObject] (resource: Ref<RawResource> as *const CUDA_RESOURCE_DESC) [];
    safe cuSurfObjectDestroy [] (object: CUsurfObject) [];

    safe cuModuleGetTexRef [reference: CUtexref] (module: CUmodule, name: CString) [];
    safe cuModuleGetSurfRef [reference: CUsurfref] (module: CUmodule, name: CString) [];
    safe cuTexRefDestroy [] (reference: CUtexref) [];
    unsafe cuTexRefSetAddress_v2 [] (offset: *mut usize, reference: CUtexref, dptr: CUdeviceptr, bytes: usize) [];
    safe cuTexRefSetAddress2D_v3 [] (reference: CUtexref, rows: Ref<RawRows> as *const CUDA_ARRAY_DESCRIPTOR, dptr: Checked, pitch: usize) [];
    safe cuTexRefSetBorderColor [] (reference: CUtexref, color: Mut<[f32; 4]> as *mut f32) [];
    safe cuTexRefGetBorderColor [color: [f32; 4] as f32] (reference: CUtexref) [];

    safe cuTensorMapEncodeTiled [map: RawTensorMap as CUtensorMap] (data_type: c_int as CUtensorMapDataType, rank: Rank,
        address: Opaque, dims: Elements<u64, 5>, strides: Elements<u64, 4>, box_dim: Elements<c_uint, 5>, element_strides: Elements<c_uint, 5>,
        interleave: c_int as CUtensorMapInterleave, swizzle: c_int as CUtensorMapSwizzle, l2_promotion: c_int as CUtensorMapL2promotion,
        oob_fill: c_int as CUtensorMapFloatOOBfill) [];
    safe cuTensorMapEncodeIm2col [map: RawTensorMap as CUtensorMap] (data_type: c_int as CUtensorMapDataType, rank: Rank,
        address: Opaque, dims: Elements<u64, 5>, strides: Elements<u64, 4>, lower: Elements<c_int, 3>, upper: Elements<c_int, 3>,
        channels_per_pixel: c_uint, pixels_per_column: c_uint, element_strides: Elements<c_uint, 5>,
        interleave: c_int as CUtensorMapInterleave, swizzle: c_int as CUtensorMapSwizzle, l2_promotion: c_int as CUtensorMapL2promotion,
        oob_fill: c_int as CUtensorMapFloatOOBfill) [];
    safe cuTensorMapEncodeIm2colWide [map: RawTensorMap as CUtensorMap] (data_type: c_int as CUtensorMapDataType, rank: Rank,
        address: Opaque, dims: Elements<u64, 5>, strides: Elements<u64, 4>, lower: c_int, upper: c_int,
        channels_per_pixel: c_uint, pixels_per_column: c_uint, element_strides: Elements<c_uint, 5>,
        interleave: c_int as CUtensorMapInterleave, mode: c_int as CUtensorMapIm2ColWideMode, swizzle: c_int as CUtensorMapSwizzle,
        l2_promotion: c_int as CUtensorMapL2promotion, oob_fill: c_int as CUtensorMapFloatOOBfill) [];
    unsafe cuTensorMapReplaceAddress [] (map: *mut RawTensorMap as *mut CUtensorMap, address: *mut c_void) [];

    safe cuMemPoolCreate [pool: CUmemoryPool] (properties: Ref<RawPool> as *const CUmemPoolProps) [];
    safe cuMemPoolDestroy [] (pool: CUmemoryPool) [];
    safe cuDeviceGetDefaultMemPool [pool: CUmemoryPool] (device: CUdevice) [];
    safe cuDeviceGetMemPool [pool: CUmemoryPool] (device: CUdevice) [];
    unsafe cuMemPoolGetAttribute [] (pool: CUmemoryPool, attribute: c_int as CUmemPool_attribute, value: *mut c_void) [];
    unsafe cuMemPoolSetAttribute [] (pool: CUmemoryPool, attribute: c_int as CUmemPool_attribute, value: *mut c_void) [];
    safe cuMemPoolGetAccess [access: c_uint as CUmemAccess_flags] (pool: CUmemoryPool, location: Mut<RawLocation> as *mut CUmemLocation) [];
    safe cuMemPoolSetAccess [] (pool: CUmemoryPool, map: Ref<RawAccess> as *const CUmemAccessDesc, count: One) [];
    unsafe cuMemPoolExportToShareableHandle [] (shareable: *mut c_void, pool: CUmemoryPool, kind: c_int as CUmemAllocationHandleType, flags: c_ulonglong) [];
    unsafe cuMemPoolImportFromShareableHandle [pool: CUmemoryPool] (shareable: *mut c_void, kind: c_int as CUmemAllocationHandleType, flags: c_ulonglong) [];
    safe cuMemPoolExportPointer [data: RawIpcHandle as CUmemPoolPtrExportData] (dptr: CUdeviceptr) [];
    unsafe cuMemPoolImportPointer [dptr: CUdeviceptr] (pool: CUmemoryPool, data: *mut RawIpcHandle as *mut CUmemPoolPtrExportData) [];
    safe cuMemAllocFromPoolAsync [dptr: CUdeviceptr] (bytesize: usize, pool: CUmemoryPool, stream: CUstream) [];

    safe cuMemAddressReserve [dptr: CUdeviceptr] (bytesize: usize, alignment: usize, addr: CUdeviceptr, flags: c_ulonglong) [];
    unsafe cuMemAddressFree [] (dptr: CUdeviceptr, bytesize: usize) [];
    unsafe cuMemCreate [handle: CUmemGenericAllocationHandle] (bytesize: usize, properties: *const RawAllocation as *const CUmemAllocationProp, flags: c_ulonglong) [];
    safe cuMemRelease [] (handle: CUmemGenericAllocationHandle) [];
    safe cuMemGetAllocationPropertiesFromHandle [properties: RawAllocation as CUmemAllocationProp] (handle: CUmemGenericAllocationHandle) [];
    unsafe cuMemMap [] (dptr: CUdeviceptr, bytesize: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong) [];
    unsafe cuMemUnmap [] (dptr: CUdeviceptr, bytesize: usize) [];
    unsafe cuMemSetAccess [] (dptr: CUdeviceptr, bytesize: usize, map: *const RawAccess as *const CUmemAccessDesc, count: usize) [];
    unsafe cuMemGetAccess [access: c_ulonglong] (location: *const RawLocation as *const CUmemLocation, dptr: CUdeviceptr) [];
    safe cuMemGetAllocationGranularity [bytes: usize] (properties: Ref<RawAllocation> as *const CUmemAllocationProp, option: c_int as CUmemAllocationGranularity_flags) [];
    unsafe cuMemRetainAllocationHandle [handle: CUmemGenericAllocationHandle] (address: *mut c_void) [];

    unsafe cuModuleLoadDataEx [module: CUmodule] (image: *const c_void, count: c_uint, options: *mut c_uint as *mut CUjit_option, values: *mut *mut c_void) [];
    unsafe cuLinkCreate_v2 [] (count: c_uint, options: *mut c_uint as *mut CUjit_option, values: *mut *mut c_void) [state: CUlinkState];
    unsafe cuLinkAddData_v2 [] (state: CUlinkState, kind: c_int as CUjitInputType, data: *mut c_void, bytes: usize, name: *const c_char,
        count: c_uint, options: *mut c_uint as *mut CUjit_option, values: *mut *mut c_void) [];
    unsafe cuLinkComplete [] (state: CUlinkState) [image: *mut c_void, bytes: usize];
    safe cuLinkDestroy [] (state: CUlinkState) [];

    safe cuIpcGetMemHandle [handle: RawIpcHandle as CUipcMemHandle] (dptr: CUdeviceptr) [];
    safe cuIpcOpenMemHandle_v2 [dptr: CUdeviceptr] (handle: RawIpcHandle as CUipcMemHandle, flags: c_uint) [];
    unsafe cuIpcCloseMemHandle [] (dptr: CUdeviceptr) [];
    safe cuIpcGetEventHandle [handle: RawIpcHandle as CUipcEventHandle] (event: CUevent) [];
    safe cuIpcOpenEventHandle [event: CUevent] (handle: RawIpcHandle as CUipcEventHandle) [];
    unsafe cuMemExportToShareableHandle [] (shareable: *mut c_void, handle: CUmemGenericAllocationHandle, kind: c_int as CUmemAllocationHandleType, flags: c_ulonglong) [];
    unsafe cuMemImportFromShareableHandle [handle: CUmemGenericAllocationHandle] (shareable: *mut c_void, kind: c_int as CUmemAllocationHandleType) [];

    unsafe cuImportExternalMemory [memory: CUexternalMemory] (from: *const RawExternal as *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC) [];
    unsafe cuExternalMemoryGetMappedBuffer [dptr: CUdeviceptr] (memory: CUexternalMemory, part: *const RawExternalBuffer as *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC) [];
    unsafe cuExternalMemoryGetMappedMipmappedArray [mipmap: CUmipmappedArray] (memory: CUexternalMemory, part: *const RawExternalArray as *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC) [];
    safe cuDestroyExternalMemory [] (memory: CUexternalMemory) [];

}

impl Driver {
    /// Returns a driver without a device (see [`super::null`]).
    #[cfg(any(test, fuzzing))]
    pub fn null() -> Self {
        Self {
            own: Own::null(),
            generated: super::plain::Generated::null(),
            later: super::later::Later::none(),
        }
    }

    /// Loads exactly the library `path` (a file, or a name for the dynamic linker) and never unloads it.
    ///
    /// Errors: those of the dynamic linker.
    pub fn load(path: &Path) -> Result<Self, libloading::Error> {
        // SAFETY: the library's constructors run here. Whoever runs the daemon chose the file (`--device`).
        let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL)? };
        let driver = Self {
            own: Own::from_library(&library),
            generated: super::plain::Generated::from_library(&library),
            later: super::later::Later::from_library(&library),
        };
        // Its functions are used until the process ends, also by its own threads.
        std::mem::forget(library);
        Ok(driver)
    }
}

/// The maximum number of parts in one split, and in one description: more than any device has multiprocessors.
pub const MAX_GROUPS: u32 = 1024;

/// A resource of a device that was split.
#[derive(Debug)]
pub struct SplitResource {
    /// The number of groups.
    pub count: u32,
    /// The groups, and the rest.
    pub parts: Vec<RawDevResource>,
}

impl Driver {
    /// `cuDevResourceGenerateDesc`.
    pub fn resource_description(&self, mut resources: Vec<RawDevResource>) -> CuResult<(CUdevResourceDesc,)> {
        // SAFETY: there are as many resources as said.
        unsafe { self.cuDevResourceGenerateDesc(resources.as_mut_ptr(), resources.len() as c_uint) }
    }

    /// Splits the multiprocessors of a resource into at most `groups` groups. Returns their number, the groups, and the
    /// rest; none of these if `groups` is 0.
    pub fn split_multiprocessors(
        &self,
        input: RawDevResource,
        groups: u32,
        flags: u32,
        min_count: u32,
    ) -> CuResult<(SplitResource,)> {
        let room = groups.min(MAX_GROUPS);
        let mut parts = vec![RawDevResource::ZERO; room as usize];
        let (mut rest, mut count) = (RawDevResource::ZERO, room);
        let result = if room == 0 { std::ptr::null_mut() } else { parts.as_mut_ptr() };
        // SAFETY: there is room for as many parts as said; the other pointers are to locals.
        unsafe {
            self.cuDevSmResourceSplitByCount(
                result,
                &raw mut count,
                &raw const input,
                &raw mut rest,
                flags,
                min_count,
            )
        }?;
        if room > 0 {
            parts.truncate(count as usize);
            parts.push(rest);
        }
        Ok((SplitResource { count, parts },))
    }

    /// `cuTexRefSetAddress_v2`. Returns the offset, or 0 if the program does not request it: then the driver refuses
    /// addresses that are not aligned.
    pub fn texture_address(
        &self,
        reference: CUtexref,
        dptr: Checked,
        bytes: usize,
        wants_offset: bool,
    ) -> CuResult<(usize,)> {
        let mut offset = 0;
        let to = if wants_offset { &raw mut offset } else { std::ptr::null_mut() };
        // SAFETY: the offset is a local or not wanted; the memory is the session's.
        unsafe { self.cuTexRefSetAddress_v2(to, reference, dptr.address(), bytes) }?;
        Ok((offset,))
    }
}
