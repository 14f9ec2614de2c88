// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel launches. The driver validates configurations: nothing is checked here.

use core::cell::Cell;
use core::ffi::{c_uint, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::abi::driver::CUlaunchConfig;
use crate::abi::shared::{cudaLaunchConfig_t, dim3};
use crate::abi::{CUfunction, CUkernel, cudaKernel_t, cudaStream_t};
use crate::driver;
use crate::error::{Result, cudaError_t, cudaErrorInvalidDeviceFunction, cudaErrorMissingConfiguration};
use crate::pointers::{In, Out};
use crate::{module, registry, state};

/// The arguments between `<<<` and `>>>`.
#[derive(Clone, Copy)]
struct Configuration {
    grid: dim3,
    block: dim3,
    shared_memory: usize,
    stream: cudaStream_t,
}

/// The thread's launch configurations. They form a stack because evaluating a kernel's arguments may launch kernels. It
/// has no destructor: static destructors of programs launch kernels after the thread's variables were destroyed.
struct Configurations {
    top: Cell<Option<Configuration>>,
    below: Cell<Option<NonNull<Below>>>,
}

/// The configuration below another one on the stack. Made by `Box`, owned by the stack.
struct Below {
    configuration: Configuration,
    below: Option<NonNull<Below>>,
}

impl Configurations {
    fn push(&self, configuration: Configuration) {
        if let Some(configuration) = self.top.replace(Some(configuration)) {
            let below = Box::new(Below { configuration, below: self.below.get() });
            self.below.set(Some(NonNull::from(Box::leak(below))));
        }
    }

    fn pop(&self) -> Option<Configuration> {
        let popped = self.top.take();
        if let Some(below) = self.below.get() {
            // SAFETY: made by `push` from a box, and taken out of the stack right here.
            let below = unsafe { Box::from_raw(below.as_ptr()) };
            self.top.set(Some(below.configuration));
            self.below.set(below.below);
        }
        popped
    }
}

thread_local! {
    static CONFIGURATIONS: Configurations = const { Configurations { top: Cell::new(None), below: Cell::new(None) } };
}

/// The last failure to find a kernel for a stub. The stub stores no kernel then, and every later launch through it must
/// fail the same way.
static MISSING_KERNEL: AtomicU32 = AtomicU32::new(cudaErrorInvalidDeviceFunction.0);

/// Returns 0, with which the program calls the kernel's stub.
#[unsafe(no_mangle)]
extern "C" fn __cudaPushCallConfiguration(
    grid: dim3,
    block: dim3,
    shared_memory: usize,
    stream: cudaStream_t,
) -> c_uint {
    CONFIGURATIONS.with(|stack| stack.push(Configuration { grid, block, shared_memory, stream }));
    0
}

api! {
    fn __cudaPopCallConfiguration(
        grid: Out<dim3>, block: Out<dim3>, shared_memory: Out<usize>, stream: Out<cudaStream_t>,
    ) {
        let configuration = CONFIGURATIONS.with(Configurations::pop).ok_or(cudaErrorMissingConfiguration)?;
        grid.set(configuration.grid)?;
        block.set(configuration.block)?;
        shared_memory.set(configuration.shared_memory)?;
        stream.set(configuration.stream)
    }

    /// Called once per stub, which caches the kernel.
    fn __cudaGetKernel(kernel: Out<cudaKernel_t>, stub: *const c_void) {
        state::runtime()?;
        let found = module::kernel_of(stub).inspect_err(|error| MISSING_KERNEL.store(error.0, Ordering::Relaxed))?;
        kernel.set(found)
    }

    fn __cudaLaunchKernel, __cudaLaunchKernel_ptsz(
        kernel: cudaKernel_t, grid: dim3, block: dim3, args: *mut *mut c_void, shared_memory: usize,
        stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
        if kernel.is_null() {
            return Err(cudaError_t(MISSING_KERNEL.load(Ordering::Relaxed)));
        }
    } => launch(kernel, grid, block, args, shared_memory, stream);

    fn cudaLaunchKernel, cudaLaunchKernel_ptsz(
        function: *const c_void, grid: dim3, block: dim3, args: *mut *mut c_void, shared_memory: usize,
        stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
    } => launch(launchable(function)?, grid, block, args, shared_memory, stream);

    fn cudaLaunchCooperativeKernel, cudaLaunchCooperativeKernel_ptsz(
        function: *const c_void, grid: dim3, block: dim3, args: *mut *mut c_void, shared_memory: usize,
        stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
        let function = launchable(function)?.cast();
        let shared_memory = driver_size(shared_memory);
    } => driver::cuLaunchCooperativeKernel(
        function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_memory, stream, args,
    );

    fn cudaLaunchKernelExC(
        config: In<cudaLaunchConfig_t>, function: *const c_void, args: *mut *mut c_void,
    ) {} => launch_with(config.get()?, function, args);

    fn cudaLaunchKernelExC_ptsz(
        config: In<cudaLaunchConfig_t>, function: *const c_void, args: *mut *mut c_void,
    ) {
        let config = config.get()?;
    } => launch_with(cudaLaunchConfig_t { stream: crate::abi::shared::or_per_thread(config.stream), ..config }, function, args);

    fn cudaGetKernel(kernel: Out<cudaKernel_t>, stub: *const c_void) {
        state::runtime()?;
        kernel.check()?;
        let function = registry::function(stub).ok_or(cudaErrorInvalidDeviceFunction)?;
        kernel.set(function.kernel()?)
    }
}

/// # Safety
/// `args` points to as many pointers as the kernel has parameters, each to a value of the parameter's type.
#[inline]
unsafe fn launch(
    kernel: CUkernel,
    grid: dim3,
    block: dim3,
    args: *mut *mut c_void,
    shared_memory: usize,
    stream: cudaStream_t,
) -> Result {
    // A launch accepts a kernel as a function.
    let function: CUfunction = kernel.cast();
    let size = driver_size(shared_memory);
    let extra = core::ptr::null_mut();
    // SAFETY: `args` leads to the kernel's parameters by this function's contract; the driver judges the handles.
    let launched = unsafe {
        driver::cuLaunchKernel(
            function, grid.x, grid.y, grid.z, block.x, block.y, block.z, size, stream, args, extra,
        )
    };
    #[cfg(not(cuda_major = "13"))]
    let launched = launched.map_err(|error| of_shape(error, grid, block));
    launched
}

/// The runtimes of CUDA 12 and 11 return a specific error for dimensions that no device supports (CUDA C++ Programming Guide,
/// "Technical Specifications per Compute Capability"). The runtime of 13 passes on the driver's error.
#[cfg(not(cuda_major = "13"))]
fn of_shape(error: cudaError_t, grid: dim3, block: dim3) -> cudaError_t {
    let fits = |value: dim3, most: [u32; 3]| {
        [value.x, value.y, value.z].into_iter().zip(most).all(|(value, most)| (1..=most).contains(&value))
    };
    let threads = u64::from(block.x) * u64::from(block.y) * u64::from(block.z);
    let good =
        fits(grid, [i32::MAX as u32, 65535, 65535]) && fits(block, [1024, 1024, 64]) && threads <= 1024;
    if error == crate::error::cudaErrorInvalidValue && !good {
        crate::error::cudaErrorInvalidConfiguration
    } else {
        error
    }
}

/// # Safety
/// `args` satisfies the contract of [`launch`], and `config.attrs` points to `config.numAttrs` attributes.
unsafe fn launch_with(config: cudaLaunchConfig_t, function: *const c_void, args: *mut *mut c_void) -> Result {
    state::context()?;
    let function = launchable(function)?.cast();
    let config = driver_config(&config)?;
    // SAFETY: `args` leads to the kernel's parameters and `config` to its attributes by this function's contract; the
    // driver judges the handles.
    unsafe { driver::cuLaunchKernelEx(&config, function, args, core::ptr::null_mut()) }
}

/// Returns the kernel to launch: that of a stub, or a handle that is passed to the driver unchanged.
fn launchable(function: *const c_void) -> Result<CUkernel> {
    if function.is_null() { Err(cudaErrorInvalidDeviceFunction) } else { module::kernel_of(function) }
}

/// Truncates the size, as NVIDIA's runtime does.
fn driver_size(shared_memory: usize) -> c_uint {
    shared_memory as c_uint
}

/// Converts a launch configuration to the driver's layout; attributes are the same in both.
pub fn driver_config(config: &cudaLaunchConfig_t) -> Result<CUlaunchConfig> {
    Ok(CUlaunchConfig {
        grid: [config.gridDim.x, config.gridDim.y, config.gridDim.z],
        block: [config.blockDim.x, config.blockDim.y, config.blockDim.z],
        shared_bytes: driver_size(config.dynamicSmemBytes),
        stream: config.stream as u64,
        attributes: config.attrs as usize,
        attribute_count: config.numAttrs,
        ..CUlaunchConfig::ZERO
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_nest() {
        let stack = Configurations { top: Cell::new(None), below: Cell::new(None) };
        let configuration = |shared_memory| Configuration {
            grid: dim3 { x: 1, y: 2, z: 3 },
            block: dim3::default(),
            shared_memory,
            stream: core::ptr::null_mut(),
        };
        for _ in 0..2 {
            for size in 0..4 {
                stack.push(configuration(size));
            }
            for size in (0..4).rev() {
                assert_eq!(stack.pop().map(|configuration| configuration.shared_memory), Some(size));
            }
            assert!(stack.pop().is_none());
        }
    }
}
