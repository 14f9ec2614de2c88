// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device runtime for kernels (dynamic parallelism).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{occupancy, updatable};
use crate::driver::context::Context;
use crate::driver::context::limits;
use crate::driver::device;
use crate::driver::device::attributes;
use crate::driver::launch::{self, Shape};
use crate::driver::module::Module;
use crate::driver::module::function::Function;
use crate::driver::result::CUresult;
use crate::nested::error::RuntimeError;
use crate::nested::{DeviceRuntime, NodeChange, Refusal};
use crate::symbols::Kernel;

/// CU_FUNC_ATTRIBUTE_BINARY_VERSION
const BINARY_VERSION: u32 = 6;

/// The module of a kernel, in its context, and the graph of its node.
pub(crate) struct Runtime<'a> {
    pub(crate) context: &'a Context,
    pub(crate) module: &'a Arc<Module>,
    pub(crate) graph: Option<&'a dyn RunningGraph>,
}

/// The graph of a kernel's node, in the kernel's view.
pub(crate) trait RunningGraph: Sync {
    /// cudaGetCurrentGraphExec
    fn current(&self) -> u64;

    /// cudaGraphLaunch
    fn launch(&self, exec: u64, stream: u64) -> Result<(), Refusal>;
}

/// Runtime and driver use the same numbers for the errors that occur here.
fn runtime_error(error: CUresult) -> RuntimeError {
    RuntimeError(error.0)
}

impl Runtime<'_> {
    fn function(&self, kernel: &Kernel) -> Result<Function, RuntimeError> {
        Function::of(Arc::clone(self.module), &kernel.name).map_err(runtime_error)
    }
}

impl DeviceRuntime for Runtime<'_> {
    fn ordinal(&self) -> i32 {
        self.context.device.ordinal
    }

    fn count(&self) -> i32 {
        device::all().len() as i32
    }

    fn attribute(&self, attribute: i32, device: i32) -> Result<i32, RuntimeError> {
        let device = device::device(device).map_err(runtime_error)?;
        attributes::attribute(attribute, device).map_err(runtime_error)
    }

    fn limit(&self, limit: u32) -> Result<u64, RuntimeError> {
        let value = limits::limit_of(self.context, limit).map_err(runtime_error)?;
        Ok(value as u64)
    }

    fn configurations(&self) -> [u32; 2] {
        [&self.context.cache_config, &self.context.shared_config].map(|config| config.load(Ordering::Relaxed))
    }

    fn check(
        &self,
        kernel: &Kernel,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
    ) -> Result<(), RuntimeError> {
        let shape = Shape { grid, block, shared, cooperative: false, cluster: None };
        let function = self.function(kernel)?;
        match launch::check(&self.context.device.model, &function, kernel, &shape) {
            Ok(()) => Ok(()),
            Err(CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES) => Err(RuntimeError::LAUNCH_OUT_OF_RESOURCES),
            Err(_) => Err(RuntimeError::INVALID_CONFIGURATION),
        }
    }

    fn active_blocks(&self, kernel: &Kernel, threads: i32, dynamic: u64) -> Result<i32, RuntimeError> {
        let function = self.function(kernel)?;
        let dynamic = usize::try_from(dynamic).unwrap_or(usize::MAX);
        let limits = self.context.device.model.limits();
        occupancy::active_blocks(&limits, &function, threads, dynamic).map_err(runtime_error)
    }

    fn function_attribute(&self, kernel: &Kernel, attribute: u32) -> Result<i32, RuntimeError> {
        if attribute == BINARY_VERSION {
            // A thread that runs kernels has no current context to query.
            return Ok(self.context.device.model.architecture as i32);
        }
        self.function(kernel)?.attribute(attribute).map_err(runtime_error)
    }

    fn pending_launches(&self) -> usize {
        let limit = self.context.pending_launches.load(Ordering::Relaxed);
        usize::try_from(limit).unwrap_or(usize::MAX)
    }

    fn current_graph(&self) -> u64 {
        self.graph.map_or(0, |graph| graph.current())
    }

    fn launch_graph(&self, exec: u64, stream: u64) -> Result<(), Refusal> {
        self.graph.ok_or(RuntimeError::INVALID_VALUE)?.launch(exec, stream)
    }

    fn change_node(&self, node: u64, change: NodeChange<'_>) -> Result<(), Refusal> {
        updatable::change(node, change)
    }

    fn next_grid_id(&self) -> u64 {
        launch::next_grid_id()
    }
}
