// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Launches of kernels: the checks during the call, and the later work of a stream or a graph.

mod api;
pub(super) mod config;
mod device_runtime;
mod occupancy;
pub(super) mod old;
pub(super) mod output;
pub(super) mod prepared;
mod updatable;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use super::context::Context;
use super::device::attributes::{MAX_BLOCK, MAX_GRID, MAX_THREADS, REGISTERS};
use super::device::model::Model;
use super::ffi::In;
use super::module::Module;
use super::module::function::{self, CUfunction, Function};
use super::result::{CUresult, CuResult};
use super::trace;
use crate::launch::{FaultKind, Launch, launch};
use crate::symbols::Kernel;
use config::{ATTRIBUTE_CLUSTER_DIMENSION, ATTRIBUTE_COOPERATIVE, ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE};
pub(super) use device_runtime::RunningGraph;
use device_runtime::Runtime;
pub(super) use updatable::{Updatable, Wanted, next_version};

/// CU_LAUNCH_PARAM_END, BUFFER_POINTER, BUFFER_SIZE
const PARAM_END: usize = 0;
const PARAM_BUFFER_POINTER: usize = 1;
const PARAM_BUFFER_SIZE: usize = 2;

/// The size of a launch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(super) shared: u32,
    pub(super) cooperative: bool,
    /// The number of blocks of a cluster, if the launch sets it.
    pub(super) cluster: Option<[u32; 3]>,
}

/// A checked launch: the later work of a stream or a graph.
pub(super) struct KernelWork {
    pub(super) handle: CUfunction,
    pub(super) function: Arc<Function>,
    pub(super) context: Arc<Context>,
    pub(super) shape: Shape,
    module: Arc<Module>,
    params: Vec<u8>,
    /// The address of each parameter in `params`, for cuGraphKernelNodeGetParams.
    pointers: Vec<usize>,
    /// The attributes of a graph node, by CUlaunchAttributeID.
    pub(super) attributes: BTreeMap<u32, [u32; 16]>,
    /// The state that kernels may change, if any.
    pub(super) updatable: Option<Arc<Updatable>>,
}

impl KernelWork {
    /// Checks a launch in a context and copies the parameters.
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
        let updatable = None;
        Ok(KernelWork { handle, function, context, shape, module, params, pointers, attributes, updatable })
    }

    /// Returns the same launch with another shape, parameters or attributes.
    fn copy(&self, shape: Shape, params: Vec<u8>, attributes: BTreeMap<u32, [u32; 16]>) -> KernelWork {
        let first = self.params.as_ptr() as usize;
        let offsets = self.pointers.iter().map(|pointer| pointer - first);
        let start = params.as_ptr() as usize;
        KernelWork {
            handle: self.handle,
            function: Arc::clone(&self.function),
            context: Arc::clone(&self.context),
            shape,
            module: Arc::clone(&self.module),
            pointers: offsets.map(|offset| start + offset).collect(),
            params,
            attributes,
            updatable: self.updatable.clone(),
        }
    }

    /// Returns the same launch with other attributes.
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
        Ok(self.copy(shape, self.params.clone(), attributes))
    }

    /// Returns the same launch as a node that kernels may change.
    pub(super) fn with_updatable(&self, updatable: &Arc<Updatable>) -> KernelWork {
        let mut copy = self.copy(self.shape, self.params.clone(), self.attributes.clone());
        let words = [updatable.handle as u32, (updatable.handle >> 32) as u32];
        let mut value = [0; 16];
        (value[0], value[2], value[3]) = (1, words[0], words[1]);
        copy.attributes.insert(ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, value);
        copy.updatable = Some(Arc::clone(updatable));
        copy
    }

    /// Returns these parameters for a node with the work `old`, of which kernels may change some.
    pub(super) fn in_place_of(&self, old: &KernelWork) -> CuResult<KernelWork> {
        let copy = self.with_attributes(old.attributes.clone())?;
        Ok(match &old.updatable {
            Some(node) => copy.with_updatable(node),
            None => copy,
        })
    }

    /// Returns the same launch with other blocks, or `None` if that is impossible.
    pub(super) fn with_grid(&self, grid: [u32; 3]) -> Option<KernelWork> {
        let shape = Shape { grid, ..self.shape };
        check(&self.context.device.model, &self.function, self.function.kernel().ok()?, &shape).ok()?;
        Some(self.copy(shape, self.params.clone(), self.attributes.clone()))
    }

    /// Returns the same launch with other bytes in the parameter buffer, or `None` if they lie outside.
    pub(super) fn with_parameter(&self, offset: u64, bytes: &[u8]) -> Option<KernelWork> {
        let mut params = self.params.clone();
        let place = params.get_mut(usize::try_from(offset).ok()?..)?.get_mut(..bytes.len())?;
        place.copy_from_slice(bytes);
        Some(self.copy(self.shape, params, self.attributes.clone()))
    }

    /// Returns `kernelParams`, valid as long as this value lives.
    pub(super) fn parameter_pointers(&self) -> *const c_void {
        self.pointers.as_ptr().cast()
    }

    /// Runs the kernel, with or without a graph, on this thread and the workers that it starts.
    pub(super) fn run(&self, graph: Option<&dyn RunningGraph>) -> CuResult<()> {
        let runtime = Runtime { context: &self.context, module: &self.module, graph };
        let kernel = self.function.kernel()?;
        let Shape { grid, block, shared, .. } = self.shape;
        let describe = || {
            let name = Arc::from(kernel.name.as_str());
            (name, [grid, block], [kernel.static_shared, shared], kernel.registers)
        };
        trace::kernel(describe, || execute(&runtime, kernel, &self.shape, &self.params))
    }
}

/// Returns the buffer of parameters, from either form in which C passes them.
fn parameters(kernel: &Kernel, params: In<*const c_void>, extra: In<*mut c_void>) -> CuResult<Vec<u8>> {
    let bytes = kernel.param_bytes as usize;
    let mut buffer = vec![0u8; bytes];
    if !extra.is_null() {
        if !params.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // NVIDIA's driver also accepts a shorter buffer.
        let (source, given) = packed(extra)?;
        for (index, byte) in buffer.iter_mut().enumerate().take(given) {
            *byte = source.at(index)?;
        }
        return Ok(buffer);
    }
    for (index, param) in kernel.params.iter().enumerate() {
        // SAFETY: the program's list has a pointer for each parameter of the kernel, to as many bytes as that has.
        let source = unsafe { In::new(params.at(index)?.cast::<u8>()) };
        let place =
            buffer.get_mut(param.offset as usize..).and_then(|rest| rest.get_mut(..param.size as usize));
        for (index, byte) in place.ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?.iter_mut().enumerate() {
            *byte = source.at(index)?;
        }
    }
    Ok(buffer)
}

/// Parses the `extra` form: a list of keys and values with the address and length of a packed buffer.
fn packed(extra: In<*mut c_void>) -> CuResult<(In<u8>, usize)> {
    let (mut pointer, mut size) = (std::ptr::null(), 0);
    // Two keys and the end: a longer list is invalid.
    for index in 0..3 {
        let value = || extra.at(index * 2 + 1);
        match extra.at(index * 2)? as usize {
            PARAM_END => break,
            PARAM_BUFFER_POINTER => pointer = value()?.cast_const().cast::<u8>(),
            PARAM_BUFFER_SIZE => {
                // SAFETY: the value that cuda.h demands behind this key is a pointer to a size.
                size = unsafe { In::new(value()?.cast_const().cast::<usize>()) }.get()?;
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }
    // SAFETY: NULL, or what the program's list has behind the key of the buffer, which has as many bytes as the list says.
    Ok((unsafe { In::new(pointer) }, size))
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
    // A size of the launch replaces the kernel's own.
    if let Some(cluster) = shape.cluster.or(kernel.cluster) {
        let divides = |(size, grid): (&u32, &u32)| *size != 0 && grid.is_multiple_of(*size);
        let blocks = cluster.into_iter().fold(1, u32::saturating_mul);
        if !cluster.iter().zip(&shape.grid).all(divides) || blocks > occupancy::largest_cluster(function)? {
            return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
        }
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
        // Not even one block of it is resident.
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

/// Returns a number for `%gridid`.
pub(super) fn next_grid_id() -> u64 {
    static GRID_ID: AtomicU64 = AtomicU64::new(1);
    GRID_ID.fetch_add(1, Ordering::Relaxed)
}

fn execute(runtime: &Runtime<'_>, kernel: &Kernel, shape: &Shape, params: &[u8]) -> CuResult<()> {
    static WORKERS: OnceLock<usize> = OnceLock::new();
    /// The driver never ends a kernel early; only the process's end does.
    static NEVER: AtomicBool = AtomicBool::new(false);
    let Runtime { context, module, .. } = *runtime;
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
        device: runtime,
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
