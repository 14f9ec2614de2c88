// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions and kernels. A CUkernel belongs to a library and works in every context; a CUfunction belongs to a
//! module. Both are the same object here, because launches and occupancy accept either. The other calls accept only
//! one kind, as NVIDIA's do.

use std::ffi::{CString, c_char, c_int};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::image::Image;
use super::library::{CUlibrary, Library};
use super::{CUmodule, Module};
use crate::driver::context::{self, Context};
use crate::driver::device::attributes::{MAX_THREADS, REGISTERS, SHARED_DEFAULT, WARP};
use crate::driver::device::{self, CUdevice, device};
use crate::driver::ffi::Out;
use crate::driver::handle::{Handle, Kind, Registry};
use crate::driver::launch::prepared::Prepared;
use crate::driver::result::{CUresult, CuResult};
use crate::symbols::{Kernel, Space};

/// A function's handle. The value of a CUkernel is also one.
pub type CUfunction = Handle<Function>;
/// A kernel's handle.
pub type CUkernel = Handle<KernelTag>;
/// The target of a [`CUkernel`]. It is never read.
pub struct KernelTag;

static FUNCTIONS: Registry<Function> = Registry::new();

impl crate::driver::handle::Object for Function {
    const KIND: Option<crate::driver::handle::Kind> = Some(crate::driver::handle::Kind::Function);
}

/// A kernel that can be launched.
pub struct Function {
    home: Home,
    name: CString,
    /// The settings of the CUDA 3 calls for its next launch.
    pub(crate) prepared: Mutex<Prepared>,
}

/// The settings of cuFuncSetAttribute and cuKernelSetAttribute. A kernel shares them with its functions.
pub(crate) struct KernelSettings {
    /// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    dynamic_shared: AtomicU32,
    /// CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
    carveout: AtomicI32,
    /// CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, CLUSTER_SCHEDULING_POLICY_PREFERENCE: kept, without effect.
    cluster: [AtomicI32; 2],
}

impl KernelSettings {
    pub(crate) fn new(kernel: &Kernel) -> KernelSettings {
        KernelSettings {
            dynamic_shared: AtomicU32::new(SHARED_DEFAULT.saturating_sub(kernel.static_shared)),
            carveout: AtomicI32::new(-1),
            cluster: [AtomicI32::new(0), AtomicI32::new(0)],
        }
    }
}

/// The origin of a function.
pub(crate) enum Home {
    Module(Arc<Module>),
    Library(Arc<Library>),
}

impl Function {
    /// Creates a handle for the kernel `name` of `home`.
    pub(crate) fn publish(home: Home, name: &str) -> CuResult<CUfunction> {
        let kind = match home {
            Home::Module(_) => Kind::Function,
            Home::Library(_) => Kind::Kernel,
        };
        let handle = Handle::unique_of(Some(kind));
        let name = CString::new(name).map_err(|_| CUresult::CUDA_ERROR_NOT_FOUND)?;
        FUNCTIONS.insert(handle, Arc::new(Function { home, name, prepared: Mutex::default() }));
        Ok(handle)
    }

    /// Returns a kernel of a module, without a handle.
    pub(crate) fn of(module: Arc<Module>, name: &str) -> CuResult<Function> {
        let name = CString::new(name).map_err(|_| CUresult::CUDA_ERROR_NOT_FOUND)?;
        Ok(Function { home: Home::Module(module), name, prepared: Mutex::default() })
    }

    fn image(&self) -> &Image {
        match &self.home {
            Home::Module(module) => &module.image,
            Home::Library(library) => &library.image,
        }
    }

    fn name(&self) -> &str {
        self.name.to_str().unwrap_or_default()
    }

    fn settings(&self) -> CuResult<&KernelSettings> {
        self.image().settings.get(self.name()).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)
    }

    /// Returns its description in the program.
    pub(crate) fn kernel(&self) -> CuResult<&Kernel> {
        self.image().program.kernels.get(self.name()).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)
    }

    /// Returns the module to launch it from in a context.
    pub(crate) fn module(&self, context: &Arc<Context>) -> CuResult<Arc<Module>> {
        match &self.home {
            Home::Library(library) => library.module(context),
            Home::Module(module) if std::ptr::eq(module.context.as_ptr(), Arc::as_ptr(context)) => {
                Ok(Arc::clone(module))
            }
            Home::Module(_) => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// Returns its context, which is the current one for a library's kernel.
    pub(crate) fn home_context(&self) -> CuResult<Arc<Context>> {
        match &self.home {
            Home::Library(_) => context::current(),
            Home::Module(module) => {
                module.context.upgrade().ok_or(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)?.checked()
            }
        }
    }

    /// Returns the maximum dynamic shared memory of a launch in bytes.
    pub(crate) fn dynamic_shared(&self) -> CuResult<u32> {
        Ok(self.settings()?.dynamic_shared.load(Ordering::Relaxed))
    }

    /// Returns the maximum number of threads per block, which the program and the registers limit.
    pub(crate) fn max_threads(&self) -> CuResult<u32> {
        let kernel = self.kernel()?;
        let by_registers = REGISTERS / kernel.registers.clamp(1, 255).next_multiple_of(8) / WARP * WARP;
        Ok(kernel.max_threads.min(by_registers).clamp(1, MAX_THREADS))
    }

    /// Returns the size of the constant memory of the whole program in bytes.
    fn constant_bytes(&self) -> u64 {
        let constants = self.image().program.globals.iter().filter(|global| global.space == Space::Const);
        constants.map(|global| global.bytes).sum()
    }

    pub(crate) fn attribute(&self, attribute: u32) -> CuResult<c_int> {
        let kernel = self.kernel()?;
        let settings = self.settings()?;
        Ok(match attribute {
            0 => self.max_threads()? as c_int,   // MAX_THREADS_PER_BLOCK
            1 => kernel.static_shared as c_int,  // SHARED_SIZE_BYTES
            2 => self.constant_bytes() as c_int, // CONST_SIZE_BYTES
            3 => kernel.local_bytes as c_int,    // LOCAL_SIZE_BYTES
            4 => kernel.registers as c_int,      // NUM_REGS
            // PTX_VERSION: NVIDIA's documents define it as the version of PTX, but its driver and CUB use the
            // architecture.
            5 => kernel.target as c_int,
            6 => device::current_or_first()?.model.architecture as c_int, // BINARY_VERSION
            7 => 0,                                                       // CACHE_MODE_CA
            8 => self.dynamic_shared()? as c_int,                         // MAX_DYNAMIC_SHARED_SIZE_BYTES
            9 => settings.carveout.load(Ordering::Relaxed),               // PREFERRED_SHARED_MEMORY_CARVEOUT
            10..=13 => 0, // CLUSTER_SIZE_MUST_BE_SET, REQUIRED_CLUSTER_*
            14 | 15 => settings.cluster[attribute as usize - 14].load(Ordering::Relaxed),
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        })
    }

    /// Returns whether it may be launched in clusters that some devices refuse.
    pub(crate) fn takes_large_clusters(&self) -> CuResult<bool> {
        Ok(self.settings()?.cluster[0].load(Ordering::Relaxed) != 0)
    }

    fn set_attribute(&self, attribute: u32, value: c_int) -> CuResult<()> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let settings = self.settings()?;
        match attribute {
            8 => {
                let most = device::current_or_first()?.model.limits().shared_optin;
                let most = most.saturating_sub(self.kernel()?.static_shared);
                let value = u32::try_from(value).ok().filter(|value| *value <= most).ok_or(invalid)?;
                settings.dynamic_shared.store(value, Ordering::Relaxed);
            }
            9 if (-1..=100).contains(&value) => settings.carveout.store(value, Ordering::Relaxed),
            // REQUIRED_CLUSTER_*: not stored, because the kernel defines its requirements.
            11..=13 if value >= 0 => {}
            14 => settings.cluster[0].store((value != 0).into(), Ordering::Relaxed),
            15 if (0..=2).contains(&value) => settings.cluster[1].store(value, Ordering::Relaxed),
            _ => return Err(invalid),
        }
        Ok(())
    }
}

/// Returns the function or kernel of a handle.
pub(crate) fn find(handle: CUfunction) -> CuResult<Arc<Function>> {
    FUNCTIONS.get(handle).ok_or_else(|| handle.refusal())
}

/// Returns the function of a handle that must not be a kernel's.
fn find_function(handle: CUfunction) -> CuResult<Arc<Function>> {
    find(handle).and_then(|found| match found.home {
        Home::Module(_) => Ok(found),
        Home::Library(_) => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
    })
}

/// Returns the kernel of a handle that must not be a function's.
fn find_kernel(handle: CUkernel) -> CuResult<Arc<Function>> {
    find(handle.cast()).and_then(|found| match found.home {
        Home::Library(_) => Ok(found),
        Home::Module(_) => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
    })
}

/// Removes a handle.
pub(crate) fn forget(handle: CUfunction) {
    FUNCTIONS.remove(handle);
}

fn get_name(name: Out<*const c_char>, function: &Function) -> CuResult<()> {
    name.check()?;
    // Valid until the module or library is unloaded, as the API says: the registry keeps the function.
    name.set_if_wanted(function.name.as_ptr());
    Ok(())
}

fn get_param_info(function: &Function, index: usize, offset: Out<usize>, size: Out<usize>) -> CuResult<()> {
    offset.check()?;
    let param = function.kernel()?.params.get(index).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    offset.set_if_wanted(param.offset as usize);
    size.set_if_wanted(param.size as usize);
    Ok(())
}

/// Checks a CUfunc_cache. It is not stored, because there is no cache to divide.
fn check_cache_config(config: u32) -> CuResult<()> {
    if config > 3 { Err(CUresult::CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

/// Queries report a null handle as an invalid value.
fn not_null<T>(handle: Handle<T>) -> CuResult<()> {
    if handle == Handle::NULL { Err(CUresult::CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

fn func_get_name(name: Out<*const c_char>, handle: CUfunction) -> CuResult<()> {
    not_null(handle)?;
    get_name(name, &*find_function(handle)?)
}

fn func_get_param_info(
    handle: CUfunction,
    index: usize,
    offset: Out<usize>,
    size: Out<usize>,
) -> CuResult<()> {
    not_null(handle)?;
    get_param_info(&*find_function(handle)?, index, offset, size)
}

fn func_get_attribute(value: Out<c_int>, attribute: u32, handle: CUfunction) -> CuResult<()> {
    value.check()?;
    value.set_if_wanted(find_function(handle)?.attribute(attribute)?);
    Ok(())
}

fn func_set_attribute(handle: CUfunction, attribute: u32, value: c_int) -> CuResult<()> {
    context::current()?;
    find_function(handle)?.set_attribute(attribute, value)
}

fn func_set_cache_config(handle: CUfunction, config: u32) -> CuResult<()> {
    find_function(handle)?;
    check_cache_config(config)
}

fn func_set_shared_mem_config(handle: CUfunction, config: u32) -> CuResult<()> {
    find_function(handle)?;
    if config > 2 { Err(CUresult::CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

fn func_get_module(out: Out<CUmodule>, handle: CUfunction) -> CuResult<()> {
    out.check()?;
    not_null(handle)?;
    out.set_if_wanted(find_function(handle)?.module(&context::current()?)?.handle);
    Ok(())
}

fn func_is_loaded(state: Out<u32>, handle: CUfunction) -> CuResult<()> {
    state.check()?;
    find_function(handle)?;
    state.set_if_wanted(1);
    Ok(())
}

fn func_load(handle: CUfunction) -> CuResult<()> {
    find_function(handle).map(|_| ())
}

fn kernel_get_name(name: Out<*const c_char>, handle: CUkernel) -> CuResult<()> {
    not_null(handle)?;
    get_name(name, &*find_kernel(handle)?)
}

fn kernel_get_function(out: Out<CUfunction>, handle: CUkernel) -> CuResult<()> {
    out.check()?;
    let kernel = find_kernel(handle)?;
    let module = kernel.module(&context::current()?)?;
    out.set_if_wanted(module.function(kernel.name())?);
    Ok(())
}

fn kernel_get_library(out: Out<CUlibrary>, handle: CUkernel) -> CuResult<()> {
    out.check()?;
    match &find_kernel(handle)?.home {
        Home::Library(library) => out.set_if_wanted(library.handle),
        Home::Module(_) => return Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
    }
    Ok(())
}

fn kernel_get_param_info(
    handle: CUkernel,
    index: usize,
    offset: Out<usize>,
    size: Out<usize>,
) -> CuResult<()> {
    not_null(handle)?;
    get_param_info(&*find_kernel(handle)?, index, offset, size)
}

fn kernel_get_attribute(
    value: Out<c_int>,
    attribute: u32,
    handle: CUkernel,
    ordinal: CUdevice,
) -> CuResult<()> {
    value.check()?;
    device(ordinal)?;
    value.set_if_wanted(find_kernel(handle)?.attribute(attribute)?);
    Ok(())
}

fn kernel_set_attribute(attribute: u32, value: c_int, handle: CUkernel, ordinal: CUdevice) -> CuResult<()> {
    device(ordinal)?;
    find_kernel(handle)?.set_attribute(attribute, value)
}

fn kernel_set_cache_config(handle: CUkernel, config: u32, ordinal: CUdevice) -> CuResult<()> {
    device(ordinal)?;
    find_kernel(handle)?;
    check_cache_config(config)
}

crate::driver::ffi::entries! { after_init
    cuFuncGetName => func_get_name(name: Out<*const c_char>, function: CUfunction);
    cuFuncGetParamInfo => func_get_param_info(
        function: CUfunction, index: usize, offset: Out<usize>, size: Out<usize>);
    cuFuncGetAttribute => func_get_attribute(value: Out<c_int>, attribute: u32, function: CUfunction);
    cuFuncSetAttribute => func_set_attribute(function: CUfunction, attribute: u32, value: c_int);
    cuFuncSetCacheConfig => func_set_cache_config(function: CUfunction, config: u32);
    cuFuncSetSharedMemConfig => func_set_shared_mem_config(function: CUfunction, config: u32);
    cuFuncGetModule => func_get_module(out: Out<CUmodule>, function: CUfunction);
    cuFuncIsLoaded => func_is_loaded(state: Out<u32>, function: CUfunction);
    cuFuncLoad => func_load(function: CUfunction);
    cuKernelGetName => kernel_get_name(name: Out<*const c_char>, kernel: CUkernel);
    cuKernelGetFunction => kernel_get_function(out: Out<CUfunction>, kernel: CUkernel);
    cuKernelGetLibrary => kernel_get_library(out: Out<CUlibrary>, kernel: CUkernel);
    cuKernelGetParamInfo => kernel_get_param_info(
        kernel: CUkernel, index: usize, offset: Out<usize>, size: Out<usize>);
    cuKernelGetAttribute => kernel_get_attribute(
        value: Out<c_int>, attribute: u32, kernel: CUkernel, device: CUdevice);
    cuKernelSetAttribute => kernel_set_attribute(attribute: u32, value: c_int, kernel: CUkernel, device: CUdevice);
    cuKernelSetCacheConfig => kernel_set_cache_config(kernel: CUkernel, config: u32, device: CUdevice);
}
