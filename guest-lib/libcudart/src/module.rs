// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registered device code, loaded at first use. Its kernels and variables are found by name.
//!
//! A module is loaded as a driver library, once per process. A failure is stored and returned again without another
//! driver call. Libraries belong to no context, so they and their kernels stay valid on every device and after
//! cudaDeviceReset.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::ffi::CString;
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};

use cuda_abi::TraceArguments;

use crate::abi::driver::{CU_LIBRARY_BINARY_IS_PRESERVED, CU_MODULE_EAGER_LOADING};
use crate::abi::{CUdeviceptr, CUfunction, CUkern_st, CUkernel, CUlib_st, CUlibrary};
use crate::driver;
use crate::error::{
    Result, cudaErrorCallRequiresNewerDriver, cudaErrorInvalidDeviceFunction, cudaErrorInvalidSymbol,
};
use crate::registry;

/// One registered image.
pub struct Module {
    /// The program's `__fatBinC_Wrapper_t`. The driver reads it and the image that it points to in place.
    wrapper: *const c_void,
    library: OnceLock<Result<AtomicPtr<CUlib_st>>>,
}

// SAFETY: `wrapper` points into the program's read-only data, which outlives the registration.
unsafe impl Send for Module {}
// SAFETY: nothing writes to the data at `wrapper`; the other members are shared by locks and atomics.
unsafe impl Sync for Module {}

impl Module {
    pub fn new(wrapper: *const c_void) -> Self {
        Self { wrapper, library: OnceLock::new() }
    }

    /// Returns the module as a driver library, loaded at the first call.
    pub fn library(&self) -> Result<CUlibrary> {
        let library = self.library.get_or_init(|| self.load().map(AtomicPtr::new));
        library.as_ref().map(|library| library.load(Ordering::Relaxed)).map_err(|&error| error)
    }

    fn load(&self) -> Result<CUlibrary> {
        let mut library = ptr::null_mut();
        let mut option: c_uint = CU_LIBRARY_BINARY_IS_PRESERVED;
        let mut value = ptr::without_provenance_mut::<c_void>(1);
        let mut no_jit_option: c_uint = 0;
        // SAFETY: `wrapper` is the program's and stays in place (the option says so to the driver); one
        // library option with its value, no JIT option.
        unsafe {
            driver::cuLibraryLoadData(
                &mut library,
                self.wrapper,
                &mut no_jit_option,
                ptr::null_mut(),
                0,
                &mut option,
                &mut value,
                1,
            )
        }?;
        Ok(library)
    }

    /// Unloads the driver library, which ends its kernels and variables.
    pub fn unload(&self) {
        if let Some(Ok(library)) = self.library.get() {
            // SAFETY: a library that the driver returned; nothing finds this module any more. A driver that has already
            // shut down returns an error, which no caller needs.
            let _ = unsafe { driver::cuLibraryUnload(library.load(Ordering::Relaxed)) };
        }
    }
}

/// A registered kernel.
pub struct Function {
    module: Arc<Module>,
    name: CString,
    kernel: OnceLock<Result<AtomicPtr<CUkern_st>>>,
    /// The driver's function of the kernel, null until it is first requested.
    function: AtomicPtr<c_void>,
}

impl Function {
    pub fn new(module: Arc<Module>, name: CString) -> Self {
        Self { module, name, kernel: OnceLock::new(), function: AtomicPtr::new(ptr::null_mut()) }
    }

    pub fn is_in(&self, module: &Arc<Module>) -> bool {
        Arc::ptr_eq(&self.module, module)
    }

    /// Returns the kernel's handle, found at the first call.
    pub fn kernel(&self) -> Result<CUkernel> {
        let kernel = self.kernel.get_or_init(|| self.find().map(AtomicPtr::new));
        kernel.as_ref().map(|kernel| kernel.load(Ordering::Relaxed)).map_err(|&error| error)
    }

    fn find(&self) -> Result<CUkernel> {
        let library = self.module.library()?;
        let mut kernel = ptr::null_mut();
        // SAFETY: a library of the driver's, a string that ends with NUL, a valid place for the answer.
        unsafe { driver::cuLibraryGetKernel(&mut kernel, library, self.name.as_ptr()) }?;
        Ok(kernel)
    }

    /// Returns the kernel as a driver function of the current context.
    fn function(&self) -> Result<CUfunction> {
        let function = function_of_kernel(self.kernel()?)?;
        self.function.store(function.cast(), Ordering::Relaxed);
        Ok(function)
    }

    fn is_loaded(&self) -> bool {
        matches!(self.kernel.get(), Some(Ok(_)))
    }

    /// Returns whether this is the kernel of a driver handle, a `CUkernel` or a `CUfunction`.
    pub fn is(&self, handle: *const c_void) -> bool {
        let kernel = self.kernel.get().and_then(|kernel| kernel.as_ref().ok());
        kernel.is_some_and(|kernel| kernel.load(Ordering::Relaxed).cast_const().cast() == handle)
            || self.function.load(Ordering::Relaxed).cast_const() == handle
    }
}

/// Returns the kernel of the stub at this address. An address that is not a registered stub is treated as a kernel
/// handle, which the driver validates.
pub fn kernel_of(symbol: *const c_void) -> Result<CUkernel> {
    match registry::function(symbol) {
        Some(function) => function.kernel(),
        None => Ok(symbol.cast_mut().cast()),
    }
}

/// Like [`kernel_of`], but returns the driver function of the current context. Needs a context.
pub fn function_of(symbol: *const c_void) -> Result<CUfunction> {
    match registry::function(symbol) {
        Some(registered) => registered.function(),
        None => function_of_kernel(symbol.cast_mut().cast()),
    }
}

/// Returns the driver function of a registered stub. Needs a context.
pub fn registered_function_of(stub: *const c_void) -> Result<CUfunction> {
    registry::function(stub).ok_or(cudaErrorInvalidDeviceFunction)?.function()
}

/// Like [`function_of`], for a graph node, which may also refer to a driver function directly.
pub fn function_for_node(symbol: *const c_void) -> Result<CUfunction> {
    match registry::function(symbol) {
        Some(registered) => registered.function(),
        None => Ok(function_of_kernel(symbol.cast_mut().cast()).unwrap_or(symbol.cast_mut().cast())),
    }
}

fn function_of_kernel(kernel: CUkernel) -> Result<CUfunction> {
    let mut function: CUfunction = ptr::null_mut();
    // SAFETY: a kernel of the driver, or a handle that the program passed as one.
    unsafe { driver::cuKernelGetFunction(&mut function, kernel) }?;
    Ok(function)
}

/// Returns the stub of the registered kernel that `handle` refers to, a kernel or a function of the current context.
pub fn stub_of(handle: *const c_void) -> Option<*const c_void> {
    let functions = registry::functions();
    let known = functions.iter().find(|(_, function)| function.is(handle));
    // A captured launch has a function that was not requested before.
    let found = known.or_else(|| {
        let mut loaded = functions.iter().filter(|(_, function)| function.is_loaded());
        loaded.find(|(_, function)| {
            function.function().is_ok_and(|function| function.cast_const().cast() == handle)
        })
    });
    found.map(|(stub, _)| ptr::with_exposed_provenance(*stub))
}

/// A registered `__device__`, `__constant__` or `__managed__` variable.
pub struct Variable {
    module: Arc<Module>,
    name: CString,
    /// Where the program keeps the address of a managed variable; null for other variables.
    pointer: *mut *mut c_void,
    /// The address of a managed variable, null until it has one.
    managed: AtomicPtr<c_void>,
}

// SAFETY: `pointer` lies in the program's data, outlives the registration, and is written once, before the
// variable's address is known to anybody.
unsafe impl Send for Variable {}
// SAFETY: the one write to `pointer` happens before the variable's address is known to anybody, so no read races with
// it.
unsafe impl Sync for Variable {}

impl Variable {
    pub fn new(module: Arc<Module>, name: CString) -> Self {
        Self::managed(module, name, ptr::null_mut())
    }

    pub fn managed(module: Arc<Module>, name: CString, pointer: *mut *mut c_void) -> Self {
        Self { module, name, pointer, managed: AtomicPtr::new(ptr::null_mut()) }
    }

    pub fn is_in(&self, module: &Arc<Module>) -> bool {
        Arc::ptr_eq(&self.module, module)
    }

    pub fn is_managed_at(&self, address: *const c_void) -> bool {
        !address.is_null() && self.managed.load(Ordering::Relaxed).cast_const() == address
    }

    /// Records that a managed variable has no address yet.
    pub fn announce(&self) {
        MANAGED.store(UNTRIED, Ordering::Release);
    }

    /// Returns address and size in bytes in the current context. Needs a context.
    pub fn locate(&self) -> Result<(CUdeviceptr, usize)> {
        let library = self.module.library()?;
        let (mut address, mut size) = (0, 0);
        // SAFETY: a library of the driver's, a string that ends with NUL, valid places for the answers.
        unsafe {
            if self.pointer.is_null() {
                driver::cuLibraryGetGlobal(&mut address, &mut size, library, self.name.as_ptr())
            } else {
                driver::cuLibraryGetManaged(&mut address, &mut size, library, self.name.as_ptr())
            }
        }?;
        Ok((address, size))
    }

    /// As [`Self::locate`], for copies: the address is not the program's, so that it may be another one after the session has moved.
    pub fn locate_for_copies(&self) -> Result<(CUdeviceptr, usize)> {
        if !self.pointer.is_null() {
            return self.locate();
        }
        let library = self.module.library()?;
        let (mut address, mut size) = (0, 0);
        // SAFETY: a library of the driver's, a string that ends with NUL, valid places for the answers.
        let found = unsafe {
            driver::virtio_cuda_library_variable(&mut address, &mut size, library, self.name.as_ptr())
        };
        match found {
            Ok(()) => Ok((address, size)),
            // NVIDIA's libcuda.
            Err(cudaErrorCallRequiresNewerDriver) => self.locate(),
            Err(error) => Err(error),
        }
    }

    /// Allocates a managed variable's address. Does nothing for other variables or if it has one.
    fn materialize(&self) -> Result {
        if self.pointer.is_null() || !self.managed.load(Ordering::Relaxed).is_null() {
            return Ok(());
        }
        let (address, _) = self.locate()?;
        let address = ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: `pointer` is the program's variable for this address, see the type's invariant.
        unsafe { self.pointer.write(address) };
        self.managed.store(address, Ordering::Relaxed);
        Ok(())
    }
}

/// Returns the variable whose shadow is at this address.
pub fn variable_of(symbol: *const c_void) -> Result<Arc<Variable>> {
    registry::variable(symbol).ok_or(cudaErrorInvalidSymbol)
}

/// The state of the allocation of managed variables.
static MANAGED: AtomicU8 = AtomicU8::new(DONE);
const DONE: u8 = 0;
const UNTRIED: u8 = 1;
/// The driver refused without a context; the next attempt follows when a context exists.
const NEEDS_CONTEXT: u8 = 2;

/// Allocates managed variables, which programs may use right after their first runtime call. If the driver needs a
/// context for that, it happens when the first context is made.
#[inline]
pub fn materialize_managed_variables(have_context: bool) {
    match MANAGED.load(Ordering::Acquire) {
        DONE => {}
        NEEDS_CONTEXT if !have_context => {}
        _ => materialize(have_context),
    }
}

#[cold]
fn materialize(have_context: bool) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if MANAGED.load(Ordering::Acquire) == DONE {
        return;
    }
    let failures = registry::variables().iter().filter(|variable| variable.materialize().is_err()).count();
    // With a context the failure is the module's, which every use of the module reports.
    MANAGED.store(if failures > 0 && !have_context { NEEDS_CONTEXT } else { DONE }, Ordering::Release);
}

/// With `CUDA_MODULE_LOADING=EAGER` all registered code is loaded when the process gets its first context.
pub fn load_eagerly() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut mode = 0;
        // SAFETY: `mode` is valid for the write.
        let known = unsafe { driver::cuModuleGetLoadingMode(&mut mode) }.is_ok();
        if known && mode == CU_MODULE_EAGER_LOADING {
            for module in registry::modules() {
                // The module stores a failure and reports it at its first use.
                let _ = module.library();
            }
        }
    });
}

/// Called by programs before they touch a managed variable. Returns non-zero when the module's managed variables have
/// addresses.
#[unsafe(no_mangle)]
extern "C" fn __cudaInitModule(handle: *mut *mut c_void) -> core::ffi::c_char {
    let ready = crate::api::enter("", TraceArguments::new, || {
        crate::state::context()?;
        registry::module(handle).map_or(Ok(()), |module| module.library().map(|_| ()))
    });
    core::ffi::c_char::from(ready == crate::error::cudaSuccess)
}

/// Returns the driver handle of the device for which this thread queries kernel attributes.
pub fn attribute_device() -> Result<c_int> {
    Ok(crate::state::context()?.current_device()?.handle)
}
