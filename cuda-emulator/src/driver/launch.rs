// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cuLaunchKernel and its relatives: what is checked at once, and the work that goes to the stream.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use super::attributes::{MAX_BLOCK, MAX_GRID, MAX_THREADS, REGISTERS};
use super::capture;
use super::context::Context;
use super::device_runtime::Runtime;
use super::ffi::In;
use super::function::{self, CUfunction, Function};
use super::graph::Work;
use super::model::Model;
use super::module::Module;
use super::occupancy;
use super::output;
use super::result::{CUresult, CuResult};
use super::stream::{self, CUstream};
use crate::launch::{FaultKind, Launch, launch};
use crate::program::Kernel;

/// CU_LAUNCH_PARAM_END, BUFFER_POINTER, BUFFER_SIZE
const PARAM_END: usize = 0;
const PARAM_BUFFER_POINTER: usize = 1;
const PARAM_BUFFER_SIZE: usize = 2;
/// CUlaunchAttributeID
pub(super) const ATTRIBUTE_COOPERATIVE: u32 = 2;
/// CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE of an H200.
const MAX_WINDOW: u64 = 128 << 20;
const ATTRIBUTE_CLUSTER_DIMENSION: u32 = 4;
const ATTRIBUTE_PROGRAMMATIC_EVENT: u32 = 7;
const ATTRIBUTE_LAUNCH_COMPLETION_EVENT: u32 = 12;
const ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: u32 = 13;

/// The size of a launch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(super) shared: u32,
    pub(super) cooperative: bool,
    /// Blocks of a cluster, when the launch says so.
    pub(super) cluster: Option<[u32; 3]>,
}

/// A launch that was checked: what a stream or a graph does later.
pub(super) struct KernelWork {
    pub(super) handle: CUfunction,
    pub(super) function: Arc<Function>,
    pub(super) context: Arc<Context>,
    pub(super) shape: Shape,
    module: Arc<Module>,
    params: Vec<u8>,
    /// The address of each parameter in `params`, for cuGraphKernelNodeGetParams.
    pointers: Vec<usize>,
    /// What a graph node's attributes were set to, by CUlaunchAttributeID.
    pub(super) attributes: BTreeMap<u32, [u32; 16]>,
}

impl KernelWork {
    /// Checks a launch in a context and takes the parameters along.
    pub(super) fn new(
        handle: CUfunction,
        shape: Shape,
        context: &Arc<Context>,
        params: In<*const c_void>,
        extra: In<*mut c_void>,
    ) -> CuResult<KernelWork> {
        let function = function::find(handle)?;
        let kernel = function.kernel()?;
        check(&context.device.model, &function, kernel, &shape)?;
        let params = parameters(kernel, params, extra)?;
        let module = function.module(context)?;
        let start = params.as_ptr() as usize;
        let pointers = kernel.params.iter().map(|param| start + param.offset as usize).collect();
        let (context, attributes) = (Arc::clone(context), BTreeMap::new());
        Ok(KernelWork { handle, function, context, shape, module, params, pointers, attributes })
    }

    /// The same launch with other attributes.
    pub(super) fn with_attributes(&self, attributes: BTreeMap<u32, [u32; 16]>) -> CuResult<KernelWork> {
        let cooperative = attributes.get(&ATTRIBUTE_COOPERATIVE).map(|value| value[0] != 0);
        let cluster =
            attributes.get(&ATTRIBUTE_CLUSTER_DIMENSION).map(|value| [value[0], value[1], value[2]]);
        let shape = Shape {
            cooperative: cooperative.unwrap_or(self.shape.cooperative),
            cluster: cluster.or(self.shape.cluster),
            ..self.shape
        };
        check(&self.context.device.model, &self.function, self.function.kernel()?, &shape)?;
        let params = self.params.clone();
        let start = params.as_ptr() as usize;
        let offsets = self.function.kernel()?.params.iter().map(|param| param.offset as usize);
        Ok(KernelWork {
            handle: self.handle,
            function: Arc::clone(&self.function),
            context: Arc::clone(&self.context),
            shape,
            module: Arc::clone(&self.module),
            pointers: offsets.map(|offset| start + offset).collect(),
            params,
            attributes,
        })
    }

    /// `kernelParams`: good as long as this value lives.
    pub(super) fn parameter_pointers(&self) -> *const c_void {
        self.pointers.as_ptr().cast()
    }

    /// Runs the kernel on this thread and the workers that it starts.
    pub(super) fn run(&self) -> CuResult<()> {
        execute(&self.context, &self.module, self.function.kernel()?, &self.shape, &self.params)
    }
}

/// CUlaunchConfig
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUlaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: CUstream,
    attributes: In<CUlaunchAttribute>,
    attribute_count: u32,
}

/// CUlaunchAttribute
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUlaunchAttribute {
    id: u32,
    pad: u32,
    value: [u32; 16],
}

const _: () = assert!(size_of::<CUlaunchConfig>() == 56 && size_of::<CUlaunchAttribute>() == 72);

/// The buffer of parameters, from either form in which C passes them.
fn parameters(kernel: &Kernel, params: In<*const c_void>, extra: In<*mut c_void>) -> CuResult<Vec<u8>> {
    let bytes = kernel.param_bytes as usize;
    let mut buffer = vec![0u8; bytes];
    if !extra.is_null() {
        if !params.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // A shorter buffer is not an error for NVIDIA's driver either.
        let (source, given) = packed(extra)?;
        for (index, byte) in buffer.iter_mut().enumerate().take(given) {
            *byte = source.at(index)?;
        }
        return Ok(buffer);
    }
    for (index, param) in kernel.params.iter().enumerate() {
        let source = In::from_raw(params.at(index)?.cast::<u8>());
        let place =
            buffer.get_mut(param.offset as usize..).and_then(|rest| rest.get_mut(..param.size as usize));
        for (index, byte) in place.ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?.iter_mut().enumerate() {
            *byte = source.at(index)?;
        }
    }
    Ok(buffer)
}

/// The `extra` form: a list of keys and values that says where a packed buffer is and how long.
fn packed(extra: In<*mut c_void>) -> CuResult<(In<u8>, usize)> {
    let (mut pointer, mut size) = (std::ptr::null(), 0);
    // Two keys and the end: a longer list is not one.
    for index in 0..3 {
        let value = || extra.at(index * 2 + 1);
        match extra.at(index * 2)? as usize {
            PARAM_END => break,
            PARAM_BUFFER_POINTER => pointer = value()?.cast_const().cast::<u8>(),
            PARAM_BUFFER_SIZE => size = In::from_raw(value()?.cast_const().cast::<usize>()).get()?,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }
    Ok((In::from_raw(pointer), size))
}

pub(super) fn check(model: &Model, function: &Function, kernel: &Kernel, shape: &Shape) -> CuResult<()> {
    let limits = model.limits();
    let invalid = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    let outside = |size: &[u32; 3], most: &[u32; 3]| {
        size.iter().zip(most).any(|(size, most)| *size == 0 || size > most)
    };
    if outside(&shape.grid, &MAX_GRID) || outside(&shape.block, &MAX_BLOCK) {
        return invalid;
    }
    let threads = shape.block.iter().product::<u32>();
    if threads > MAX_THREADS || threads > kernel.max_threads {
        return invalid;
    }
    if threads * kernel.registers.clamp(1, 255) > REGISTERS {
        return Err(CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    }
    let total = u64::from(kernel.static_shared) + u64::from(shape.shared);
    if shape.shared > function.dynamic_shared()? || total > limits.shared_optin.into() {
        // Not one block of it is resident.
        let countable = i32::try_from(shape.shared).is_ok();
        return if shape.cooperative && countable {
            Err(CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)
        } else {
            invalid
        };
    }
    if shape.cooperative {
        let blocks = shape.grid.iter().map(|size| u64::from(*size)).product::<u64>();
        let resident = occupancy::blocks_per_multiprocessor(&limits, kernel, threads, shape.shared);
        let resident = resident * model.multiprocessors;
        if blocks > resident.into() {
            return Err(CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
        }
    }
    Ok(())
}

pub(super) fn submit(
    handle: CUfunction,
    shape: Shape,
    stream: CUstream,
    params: In<*const c_void>,
    extra: In<*mut c_void>,
) -> CuResult<()> {
    function::find(handle)?;
    let (context, stream) = stream::place_work(stream)?;
    let work = KernelWork::new(handle, shape, &context, params, extra);
    // A capture ends in an error of a launch.
    let work = Arc::new(work.or_else(|error| capture::fail(&stream, error).and(Err(error)))?);
    if capture::add(&stream, || Ok(Work::Kernel(Arc::clone(&work))))? {
        return Ok(());
    }
    context.flush_printf();
    context.submit_work(&stream, move |_| work.run());
    Ok(())
}

/// A number for `%gridid`.
pub(super) fn next_grid_id() -> u64 {
    static GRID_ID: AtomicU64 = AtomicU64::new(1);
    GRID_ID.fetch_add(1, Ordering::Relaxed)
}

fn execute(
    context: &Context,
    module: &Arc<Module>,
    kernel: &Kernel,
    shape: &Shape,
    params: &[u8],
) -> CuResult<()> {
    static WORKERS: OnceLock<usize> = OnceLock::new();
    /// The driver never ends a kernel early; the process's end does.
    static NEVER: AtomicBool = AtomicBool::new(false);
    let result = launch(&Launch {
        program: &module.image.program,
        kernel,
        global_addresses: &module.addresses,
        grid: shape.grid,
        block: shape.block,
        dynamic_shared: shape.shared,
        params,
        memory: &context.device.memory,
        printf: &context.printf,
        cooperative: shape.cooperative,
        cluster: shape.cluster,
        cancel: &NEVER,
        workers: *WORKERS.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get)),
        multiprocessors: context.device.model.multiprocessors,
        stack_bytes: context.stack_limit.load(Ordering::Relaxed) as u32,
        grid_id: next_grid_id(),
        device: &Runtime { context, module },
    });
    result.map_err(|fault| {
        if fault.kind == FaultKind::Assert {
            output::write_error(&fault.message);
        } else {
            log::error!("{fault}");
        }
        CUresult(fault.kind.code())
    })
}

#[allow(clippy::too_many_arguments, reason = "the C function's")]
fn launch_kernel(
    function: CUfunction,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: CUstream,
    params: In<*const c_void>,
    extra: In<*mut c_void>,
) -> CuResult<()> {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    submit(function, Shape { grid, block, shared, cooperative: false, cluster: None }, stream, params, extra)
}

#[allow(clippy::too_many_arguments, reason = "the C function's")]
fn launch_cooperative_kernel(
    function: CUfunction,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: CUstream,
    params: In<*const c_void>,
) -> CuResult<()> {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let extra = In::from_raw(std::ptr::null());
    submit(function, Shape { grid, block, shared, cooperative: true, cluster: None }, stream, params, extra)
}

fn launch_kernel_ex(
    config: In<CUlaunchConfig>,
    function: CUfunction,
    params: In<*const c_void>,
    extra: In<*mut c_void>,
) -> CuResult<()> {
    let config = config.get()?;
    submit(function, config.shape()?, config.stream, params, extra)
}

impl CUlaunchConfig {
    /// The size of the launch.
    pub(super) fn shape(&self) -> CuResult<Shape> {
        let (grid, block, shared) = (self.grid, self.block, self.shared);
        let mut shape = Shape { grid, block, shared, cooperative: false, cluster: None };
        for index in 0..self.attribute_count as usize {
            let attribute = self.attributes.at(index)?;
            match attribute.id {
                ATTRIBUTE_COOPERATIVE => shape.cooperative = attribute.value[0] != 0,
                ATTRIBUTE_CLUSTER_DIMENSION => {
                    let cluster = [attribute.value[0], attribute.value[1], attribute.value[2]];
                    let divides = |(size, grid): (&u32, &u32)| *size != 0 && grid.is_multiple_of(*size);
                    if !cluster.iter().zip(&grid).all(divides) {
                        return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
                    }
                    shape.cluster = Some(cluster);
                }
                ATTRIBUTE_PROGRAMMATIC_EVENT
                | ATTRIBUTE_LAUNCH_COMPLETION_EVENT
                | ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
                // The others are hints: priority, cache windows, memory domains, overlap with the previous kernel.
                _ => check_hint(attribute.id, &attribute.value)?,
            }
        }
        Ok(shape)
    }
}

/// Refuses values that such an attribute does not have, and attributes that launches do not have.
pub(super) fn check_hint(id: u32, value: &[u32; 16]) -> CuResult<()> {
    let good = match id {
        // IGNORE, PROGRAMMATIC_STREAM_SERIALIZATION, PRIORITY, PREFERRED_CLUSTER_DIMENSION.
        0 | 6 | 8 | 11 => true,
        // ACCESS_POLICY_WINDOW: an address, bytes, a ratio, what hits and misses are. All that is looked at of these is that
        // misses do not persist (2).
        1 => {
            let bytes = u64::from(value[2]) | u64::from(value[3]) << 32;
            let ratio = f32::from_bits(value[4]);
            bytes <= MAX_WINDOW && (0.0..=1.0).contains(&ratio) && value[6] != 2
        }
        // CLUSTER_SCHEDULING_POLICY_PREFERENCE: default, spread, load balancing.
        5 => value[0] <= 2,
        // MEM_SYNC_DOMAIN_MAP: of four domains.
        9 => value[0].to_le_bytes()[..2].iter().all(|domain| *domain < 4),
        // MEM_SYNC_DOMAIN: default, remote.
        10 => value[0] <= 1,
        // PREFERRED_SHARED_MEMORY_CARVEOUT, a percentage.
        14 => value[0] <= 100,
        _ => false,
    };
    if good { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

super::ffi::entries! { after_init
    cuLaunchKernel + cuLaunchKernel_ptsz => launch_kernel(
        function: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: CUstream, params: In<*const c_void>, extra: In<*mut c_void>);
    cuLaunchCooperativeKernel + cuLaunchCooperativeKernel_ptsz => launch_cooperative_kernel(
        function: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: CUstream, params: In<*const c_void>);
    cuLaunchKernelEx + cuLaunchKernelEx_ptsz => launch_kernel_ex(
        config: In<CUlaunchConfig>, function: CUfunction, params: In<*const c_void>, extra: In<*mut c_void>);
}
