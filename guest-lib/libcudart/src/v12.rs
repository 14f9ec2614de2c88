// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names that only `libcudart.so.12` and `libcudart.so.11.0` export: those that 13 dropped, and those that refer to an older
//! function.
//!
//! Functions that 13 exports under the plain name are called `_v2` or `_v3` in 12. They are beside the others, as
//! `fn name / name_in_12`.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;

use crate::abi::driver::{CU_POINTER_ATTRIBUTE_IS_MANAGED, CUDA_LAUNCH_PARAMS};
use crate::abi::shared::{cudaGraphNodeParams, cudaLaunchParams, cudaMemLocation};
use crate::abi::version::{PROPERTIES_OF_11, cudaDeviceProp};
use crate::abi::{
    CUdeviceptr, CUgraph, CUstream, cudaEvent_t, cudaGraph_t, cudaGraphNode_t, cudaMemcpy3DBatchOp,
    cudaMemcpyAttributes, cudaStream_t,
};
use crate::device::properties;
use crate::error::{Result, cudaErrorInvalidDevice, cudaErrorInvalidValue};
use crate::memory::address;
use crate::pointers::{Out, not_null, store_start};
use crate::{driver, graph, module, state};

mod semaphore;

const LOCATION_DEVICE: c_uint = 1;
const LOCATION_HOST: c_uint = 2;
const CPU_DEVICE: c_int = -1;
/// The index that means no single copy: the copies of a batch do not fail one by one.
const NO_SINGLE_COPY: usize = usize::MAX;

api! {
    /// Fills the struct of CUDA 11.
    fn cudaGetDeviceProperties(properties: *mut cudaDeviceProp, device: c_int) {
        not_null(properties)?;
    } => store_start(properties, properties::of(state::runtime()?.device(device)?)?, PROPERTIES_OF_11);

    fn cudaThreadExit() {
        state::runtime()?.reset_current_device()
    }

    fn cudaThreadSynchronize() {
        state::context()?;
    } => driver::cuCtxSynchronize();

    fn cudaThreadGetLimit(value: *mut usize, limit: c_uint) {
        not_null(value)?;
        state::context()?;
    } => driver::cuCtxGetLimit(value, limit);

    fn cudaThreadSetLimit(limit: c_uint, value: usize) {
        state::context()?;
    } => driver::cuCtxSetLimit(limit, value);

    fn cudaThreadGetCacheConfig(config: *mut c_uint) {
        not_null(config)?;
        state::context()?;
    } => driver::cuCtxGetCacheConfig(config);

    fn cudaThreadSetCacheConfig(config: c_uint) {
        state::context()?;
    } => driver::cuCtxSetCacheConfig(config);

    /// Does nothing: it converted doubles for devices that had none.
    fn cudaSetDoubleForDevice(_value: *mut f64) {
        Ok(())
    }

    fn cudaSetDoubleForHost(_value: *mut f64) {
        Ok(())
    }

    fn cudaEventElapsedTime(milliseconds: *mut f32, start: cudaEvent_t, end: cudaEvent_t) {
        not_null(milliseconds)?;
        state::context()?;
    } => driver::cuEventElapsedTime_v2(milliseconds, start, end);

    fn cudaMemAdvise(memory: *const c_void, size: usize, advice: c_uint, device: c_int) {
        state::context()?;
        let location = match location(device) {
            // An error in the memory argument takes precedence.
            Err(_) if !is_managed(memory) => return Err(cudaErrorInvalidValue),
            location => location?,
        };
    } => driver::cuMemAdvise_v2(address(memory), size, advice, location);

    fn cudaMemPrefetchAsync, cudaMemPrefetchAsync_ptsz(
        memory: *const c_void, size: usize, device: c_int, stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
    } => driver::cuMemPrefetchAsync_v2(address(memory), size, location(device)?, 0, stream);

    fn cudaMemcpyBatchAsync, cudaMemcpyBatchAsync_ptsz(
        targets: *mut *mut c_void, sources: *mut *mut c_void, sizes: *mut usize, count: usize,
        attributes: *mut cudaMemcpyAttributes, first_indices: *mut usize, attribute_count: usize,
        failed: Out<usize>, stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
        let (targets, sources) = (targets.cast::<CUdeviceptr>(), sources.cast::<CUdeviceptr>());
        // SAFETY: the driver's function has this function's contract for these parameters.
        let copied = unsafe {
            driver::cuMemcpyBatchAsync_v2(
                targets, sources, sizes, count, attributes, first_indices, attribute_count, stream,
            )
        };
        copied.inspect_err(|_| tell(failed))
    }

    fn cudaMemcpy3DBatchAsync, cudaMemcpy3DBatchAsync_ptsz(
        count: usize, operations: *mut cudaMemcpy3DBatchOp, failed: Out<usize>, flags: u64,
        stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
        // SAFETY: the driver's function has this function's contract for these parameters.
        let copied = unsafe { driver::cuMemcpy3DBatchAsync_v2(count, operations, flags, stream) };
        copied.inspect_err(|_| tell(failed))
    }

    fn cudaStreamGetCaptureInfo, cudaStreamGetCaptureInfo_ptsz(
        stream: cudaStream_t, status: *mut c_uint, id: *mut u64,
    ) per_thread stream {} => capture_info(stream, status, id, ptr::null_mut(), ptr::null_mut(), ptr::null_mut());

    fn cudaStreamGetCaptureInfo_v2, cudaStreamGetCaptureInfo_v2_ptsz(
        stream: cudaStream_t, status: *mut c_uint, id: *mut u64, graph: *mut cudaGraph_t,
        dependencies: *mut *const cudaGraphNode_t, count: *mut usize,
    ) per_thread stream {} => capture_info(stream, status, id, graph, dependencies, count);

    fn cudaStreamUpdateCaptureDependencies, cudaStreamUpdateCaptureDependencies_ptsz(
        stream: cudaStream_t, dependencies: *mut cudaGraphNode_t, count: usize, flags: c_uint,
    ) per_thread stream {
        state::context()?;
    } => driver::cuStreamUpdateCaptureDependencies_v2(stream, dependencies, ptr::null(), count, flags);

    fn cudaGraphGetEdges(
        graph: cudaGraph_t, from: *mut cudaGraphNode_t, to: *mut cudaGraphNode_t, count: *mut usize,
    ) {
        state::context()?;
    } => driver::cuGraphGetEdges_v2(graph, from, to, ptr::null_mut(), count);

    fn cudaGraphNodeGetDependencies(
        node: cudaGraphNode_t, nodes: *mut cudaGraphNode_t, count: *mut usize,
    ) {
        state::context()?;
    } => driver::cuGraphNodeGetDependencies_v2(node, nodes, ptr::null_mut(), count);

    fn cudaGraphNodeGetDependentNodes(
        node: cudaGraphNode_t, nodes: *mut cudaGraphNode_t, count: *mut usize,
    ) {
        state::context()?;
    } => driver::cuGraphNodeGetDependentNodes_v2(node, nodes, ptr::null_mut(), count);

    fn cudaGraphAddDependencies(
        graph: cudaGraph_t, from: *const cudaGraphNode_t, to: *const cudaGraphNode_t, count: usize,
    ) {
        state::context()?;
    } => driver::cuGraphAddDependencies_v2(graph, from, to, ptr::null(), count);

    fn cudaGraphRemoveDependencies(
        graph: cudaGraph_t, from: *const cudaGraphNode_t, to: *const cudaGraphNode_t, count: usize,
    ) {
        state::context()?;
    } => driver::cuGraphRemoveDependencies_v2(graph, from, to, ptr::null(), count);

    fn cudaGraphAddNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        parameters: Out<cudaGraphNodeParams>,
    ) {
        // SAFETY: the function without edges has the contract of the one with them.
        unsafe { graph::general::cudaGraphAddNode_v2(node, graph, dependencies, ptr::null(), count, parameters) }
            .check()
    }

    fn cudaLaunchCooperativeKernelMultiDevice(
        launches: *mut cudaLaunchParams, count: c_uint, flags: c_uint,
    ) {
        not_null(launches)?;
        state::context()?;
        // SAFETY: not null, so the program promises `count` launches there.
        let launch = |index| unsafe { launches.add(index).read() };
        let launches = (0..count as usize).map(|index| driver_launch(&launch(index)));
        let mut launches = launches.collect::<Result<Vec<_>>>()?;
    } => driver::cuLaunchCooperativeKernelMultiDevice(launches.as_mut_ptr(), count, flags);
}

/// Converts a device of 12's managed memory calls, an ordinal or the CPU, to a location.
fn location(device: c_int) -> Result<cudaMemLocation> {
    if device == CPU_DEVICE {
        return Ok(cudaMemLocation { kind: LOCATION_HOST, id: 0 });
    }
    let id = state::runtime()?.device(device).map_err(|_| cudaErrorInvalidDevice)?.handle;
    Ok(cudaMemLocation { kind: LOCATION_DEVICE, id })
}

/// Returns whether `pointer` is managed memory.
fn is_managed(pointer: *const c_void) -> bool {
    let mut managed: c_uint = 0;
    let (mut question, mut answer) = (CU_POINTER_ATTRIBUTE_IS_MANAGED, (&raw mut managed).cast());
    // SAFETY: one question, and a local for its answer.
    let asked = unsafe { driver::cuPointerGetAttributes(1, &mut question, &mut answer, address(pointer)) };
    asked.is_ok() && managed != 0
}

/// Stores that no single copy failed, unless the program passed null.
fn tell(failed: Out<usize>) {
    let _ = failed.set(NO_SINGLE_COPY);
}

/// # Safety
/// Every pointer is null or valid for a write.
unsafe fn capture_info(
    stream: CUstream,
    status: *mut c_uint,
    id: *mut u64,
    graph: *mut CUgraph,
    dependencies: *mut *const cudaGraphNode_t,
    count: *mut usize,
) -> Result {
    state::context()?;
    // SAFETY: each place is null or valid for a write by this function's contract.
    unsafe {
        driver::cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, ptr::null_mut(), count)
    }
}

fn driver_launch(launch: &cudaLaunchParams) -> Result<CUDA_LAUNCH_PARAMS> {
    Ok(CUDA_LAUNCH_PARAMS {
        function: module::function_of(launch.func)? as u64,
        grid: [launch.gridDim.x, launch.gridDim.y, launch.gridDim.z],
        block: [launch.blockDim.x, launch.blockDim.y, launch.blockDim.z],
        shared_bytes: c_uint::try_from(launch.sharedMem).map_err(|_| cudaErrorInvalidValue)?,
        pad: 0,
        stream: launch.stream as u64,
        params: launch.args as usize,
    })
}
