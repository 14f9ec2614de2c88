// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Driver, devices and contexts, initialised at the first call that needs them.
//!
//! There are two levels. [`runtime`] opens the driver and counts its devices. It creates no context, and its failure is
//! final for the process. [`context`] in addition makes the primary context of the thread's device current, unless
//! another context already is.

use core::cell::Cell;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, Once, OnceLock, PoisonError, RwLock};

use crate::abi::version::{MINIMUM_DRIVER_VERSION, cudaDeviceProp};
use crate::abi::{CUcontext, CUdevice};
use crate::driver;
use crate::error::{
    Result, cudaError_t, cudaErrorInitializationError, cudaErrorInsufficientDriver, cudaErrorInvalidDevice,
    cudaErrorNoDevice,
};
use crate::module;

/// The state that exists once the driver has started.
pub struct Runtime {
    devices: Vec<Device>,
}

pub struct Device {
    /// The driver's device handle.
    pub handle: CUdevice,
    /// Null until this library has retained the device's primary context, and again after cudaDeviceReset.
    primary: Mutex<Context>,
    pub properties: OnceLock<Box<cudaDeviceProp>>,
}

struct Context(CUcontext);

// SAFETY: the driver lets every thread use every context.
unsafe impl Send for Context {}

/// Counts cudaDeviceReset calls: a thread that bound a primary context before one must bind it again.
static RESETS: AtomicU32 = AtomicU32::new(0);
/// Set when the program's code is unregistered at exit, and by this library's destructor. Every call returns
/// cudaErrorCudartUnloading after that.
static UNLOADING: AtomicBool = AtomicBool::new(false);
/// The devices of cudaSetValidDevices; empty means every device.
static VALID_DEVICES: RwLock<Vec<usize>> = RwLock::new(Vec::new());

/// The device and the context of a thread.
struct Thread {
    /// The ordinal that cudaSetDevice set; -1 before.
    device: Cell<c_int>,
    /// The primary context that this library last made current here.
    context: Cell<CUcontext>,
    /// The value of [`RESETS`] at that time.
    resets: Cell<u32>,
}

thread_local! {
    static THREAD: Thread =
        const { Thread { device: Cell::new(-1), context: Cell::new(ptr::null_mut()), resets: Cell::new(0) } };
}

extern "C" fn unload() {
    UNLOADING.store(true, Ordering::Relaxed);
}

// A destructor of this library, not an atexit handler: calls keep working in handlers that programs registered before
// their first call.
#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;

/// Called before code is registered. exit(3) runs handlers in reverse order. The program installs its handler, which
/// unregisters the code, right after this one, so this one runs right after it. Static objects that were created even
/// earlier are destroyed later, and their calls are refused.
pub fn expect_exit() {
    static ONCE: Once = Once::new();
    // SAFETY: the handler only stores to an atomic. If there is no room for it, the destructor is left.
    ONCE.call_once(|| unsafe {
        libc::atexit(unload);
    });
}

/// Returns whether calls are refused because the process exits.
#[inline]
pub fn is_unloading() -> bool {
    UNLOADING.load(Ordering::Relaxed)
}

static RUNTIME: OnceLock<Result<Runtime>> = OnceLock::new();

/// Returns the driver and its devices, starting them at the first call.
#[inline]
pub fn runtime() -> Result<&'static Runtime> {
    let runtime = RUNTIME.get_or_init(initialize).as_ref().map_err(|&error| error)?;
    module::materialize_managed_variables(false);
    Ok(runtime)
}

/// Returns the error with which the driver failed to start, if it did.
pub fn initialization_error() -> Option<cudaError_t> {
    runtime().err()
}

/// Returns whether the driver was started, without starting it.
pub fn is_initialized() -> bool {
    matches!(RUNTIME.get(), Some(Ok(_)))
}

#[cold]
fn initialize() -> Result<Runtime> {
    if driver_version() < MINIMUM_DRIVER_VERSION {
        return Err(cudaErrorInsufficientDriver);
    }
    let mut count = 0;
    // SAFETY: no pointer.
    unsafe { driver::cuInit(0) }?;
    // SAFETY: `count` is valid for the write.
    unsafe { driver::cuDeviceGetCount(&mut count) }.map_err(|_| cudaErrorInitializationError)?;
    let devices = (0..count).map(|ordinal| {
        let mut handle = 0;
        // SAFETY: `handle` is valid for the write.
        unsafe { driver::cuDeviceGet(&mut handle, ordinal) }?;
        Ok(Device { handle, primary: Mutex::new(Context(ptr::null_mut())), properties: OnceLock::new() })
    });
    let devices = devices.collect::<Result<Vec<_>>>()?;
    if devices.is_empty() { Err(cudaErrorNoDevice) } else { Ok(Runtime { devices }) }
}

/// Returns the driver's version, 0 without a driver.
pub fn driver_version() -> c_int {
    let mut version = 0;
    // SAFETY: `version` is valid for the write.
    if driver::is_present() && unsafe { driver::cuDriverGetVersion(&mut version) }.is_ok() {
        version
    } else {
        0
    }
}

impl Runtime {
    pub fn device_count(&self) -> usize {
        self.devices.len()
    }

    /// Returns the device with this ordinal, as programs count devices.
    pub fn device(&self, ordinal: c_int) -> Result<&Device> {
        usize::try_from(ordinal)
            .ok()
            .and_then(|ordinal| self.devices.get(ordinal))
            .ok_or(cudaErrorInvalidDevice)
    }

    /// Returns the ordinal of a driver's device handle.
    pub fn ordinal(&self, handle: CUdevice) -> Result<c_int> {
        let ordinal =
            self.devices.iter().position(|device| device.handle == handle).ok_or(cudaErrorInvalidDevice)?;
        Ok(ordinal as c_int)
    }

    /// Returns the device that calls of this thread use.
    pub fn current_device(&self) -> Result<&Device> {
        self.device(self.current_ordinal()?)
    }

    pub fn current_ordinal(&self) -> Result<c_int> {
        let current = current_context()?;
        if current.is_null() || current == THREAD.with(|thread| thread.context.get()) {
            return Ok(chosen_ordinal());
        }
        // The program made this context current through the driver API.
        let mut handle = 0;
        // SAFETY: `handle` is valid for the write.
        unsafe { driver::cuCtxGetDevice(&mut handle) }?;
        self.ordinal(handle)
    }

    /// Makes the primary context of a device current in this thread.
    pub fn bind(&self, ordinal: c_int) -> Result {
        let device = self.device(ordinal)?;
        let resets = RESETS.load(Ordering::Acquire);
        let bound = THREAD.with(|thread| {
            thread.device.get() == ordinal && thread.resets.get() == resets && !thread.context.get().is_null()
        });
        if !(bound && current_context()? == THREAD.with(|thread| thread.context.get())) {
            let context = device.primary_context()?;
            // SAFETY: a context that the driver gave out and that is retained.
            unsafe { driver::cuCtxSetCurrent(context) }?;
            THREAD.with(|thread| {
                thread.context.set(context);
                thread.resets.set(resets);
                thread.device.set(ordinal);
            });
        }
        module::load_eagerly();
        module::materialize_managed_variables(true);
        Ok(())
    }

    /// cudaDeviceReset: ends the primary context of the thread's device if it is current. As in NVIDIA's runtime, a
    /// thread that has not used CUDA resets nothing. Libraries are not bound to a context; the driver reloads them into
    /// the next one.
    pub fn reset_current_device(&self) -> Result {
        let device = self.current_device()?;
        let current = current_context()?;
        let mut primary = device.primary.lock().unwrap_or_else(PoisonError::into_inner);
        let is_primary = match primary.0 {
            _ if current.is_null() => false,
            // The program may have retained the primary context through the driver API.
            context if context.is_null() => current == device.retained_by_program()?,
            context => current == context,
        };
        if !is_primary {
            return Ok(());
        }
        // SAFETY: no pointer.
        unsafe { driver::cuDevicePrimaryCtxReset_v2(device.handle) }?;
        primary.0 = ptr::null_mut();
        RESETS.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

impl Device {
    /// Returns the device's primary context, which is retained once per process and again after each reset.
    pub fn primary_context(&self) -> Result<CUcontext> {
        let mut primary = self.primary.lock().unwrap_or_else(PoisonError::into_inner);
        if primary.0.is_null() {
            // SAFETY: `primary.0` is valid for the write.
            unsafe { driver::cuDevicePrimaryCtxRetain(&mut primary.0, self.handle) }?;
        }
        Ok(primary.0)
    }

    /// Returns the device's primary context if the program retained it without this library, else null.
    fn retained_by_program(&self) -> Result<CUcontext> {
        let (mut flags, mut active, mut context) = (0, 0, ptr::null_mut());
        // SAFETY: `flags` and `active` are valid for the writes.
        unsafe { driver::cuDevicePrimaryCtxGetState(self.handle, &mut flags, &mut active) }?;
        if active != 0 {
            // Only cuDevicePrimaryCtxRetain returns the context.
            // SAFETY: `context` is valid for the write.
            unsafe { driver::cuDevicePrimaryCtxRetain(&mut context, self.handle) }?;
            // SAFETY: no pointer. The hold was taken just above.
            unsafe { driver::cuDevicePrimaryCtxRelease_v2(self.handle) }?;
        }
        Ok(context)
    }
}

/// Returns the driver after making a context current in this thread.
#[inline]
pub fn context() -> Result<&'static Runtime> {
    let runtime = runtime()?;
    let current = current_context()?;
    let usable = THREAD.with(|thread| {
        !current.is_null()
            && (current != thread.context.get() || thread.resets.get() == RESETS.load(Ordering::Acquire))
    });
    if !usable {
        runtime.bind(chosen_ordinal())?;
    }
    Ok(runtime)
}

/// Like [`context`], for functions that must query the driver to find out whether an error has broken the context.
pub fn whole_context() -> Result<&'static Runtime> {
    let runtime = context()?;
    let mut config = 0;
    // SAFETY: `config` is valid for the write.
    unsafe { driver::cuCtxGetSharedMemConfig(&mut config) }?;
    Ok(runtime)
}

/// Returns the context that is current in this thread, null if there is none.
pub fn current_context() -> Result<CUcontext> {
    let mut current = ptr::null_mut();
    // SAFETY: `current` is valid for the write.
    unsafe { driver::cuCtxGetCurrent(&mut current) }?;
    Ok(current)
}

/// Returns whether this thread has a context that calls can use unchanged.
pub fn has_context() -> Result<bool> {
    let current = current_context()?;
    Ok(THREAD.with(|thread| {
        !current.is_null()
            && (current != thread.context.get() || thread.resets.get() == RESETS.load(Ordering::Acquire))
    }))
}

fn chosen_ordinal() -> c_int {
    match THREAD.with(|thread| thread.device.get()) {
        -1 => VALID_DEVICES
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .first()
            .map_or(0, |&first| first as c_int),
        chosen => chosen,
    }
}

/// cudaSetValidDevices: the first of `ordinals` is the device of threads that choose none. An empty list allows every
/// device again.
pub fn set_valid_devices(ordinals: Vec<usize>) {
    *VALID_DEVICES.write().unwrap_or_else(PoisonError::into_inner) = ordinals;
}
