// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The libraries that report calls and work: this project's libcuda, and each loaded version of its libcudart.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cuda_abi::prototypes::functions::{cuCtxGetCurrent, cuInit};
use cuda_abi::{PROVIDER_NAMES, RUNTIME_NAME, TRACE_VERSION, TraceHooks, TraceProvider};
use cuda_program::Library;

use crate::result::{NOT_INITIALIZED, NOT_SUPPORTED, Result};

/// `CUDA_SUCCESS`
const SUCCESS: c_int = 0;
/// `CUDA_ERROR_NOT_FOUND`: the host has no CUPTI. `CUDA_ERROR_NOT_SUPPORTED`: the daemon is too old.
const NOT_SERVED: [c_int; 2] = [500, 801];

/// Runtimes that report calls.
const RUNTIMES: [&str; 3] = ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"];

/// Functions of libcuda.
struct Driver {
    provider: &'static TraceProvider,
    init: cuInit,
    current: cuCtxGetCurrent,
}

/// Set once the work of GPUs was measured: some records may remain.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Returns the address of a function; 0: the library has none of that name.
fn address(library: &Library, name: &CStr) -> usize {
    library.symbol(name).map_or(0, |found| found.as_ptr() as usize)
}

fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    let find = || {
        // SAFETY: the constructors of libcuda run wherever a program loads it.
        let library = unsafe { Library::open("libcuda.so.1", true) }?;
        let start = PROVIDER_NAMES.iter().map(|name| address(&library, name)).find(|found| *found != 0)?;
        let [init, current] = [c"cuInit", c"cuCtxGetCurrent"].map(|name| address(&library, name));
        if init == 0 || current == 0 {
            return None;
        }
        // SAFETY: the names belong to this project's libraries, where this function has this signature, and returns the
        // address of a constant.
        let provider =
            unsafe { transmute::<usize, extern "C" fn() -> *const TraceProvider>(start)().as_ref() };
        let provider = provider.filter(|provider| provider.version == TRACE_VERSION)?;
        // SAFETY: functions of the driver API, with their prototypes.
        unsafe {
            Some(Driver {
                provider,
                init: transmute::<usize, cuInit>(init),
                current: transmute::<usize, cuCtxGetCurrent>(current),
            })
        }
    };
    DRIVER.get_or_init(find).as_ref()
}

/// Returns the functions of libcuda that report work.
pub fn provider() -> Option<&'static TraceProvider> {
    driver().map(|driver| driver.provider)
}

/// Returns whether there may be work to fetch.
pub fn has_started() -> bool {
    STARTED.load(Ordering::Relaxed)
}

/// Returns the time of the provider's clock.
pub fn now(provider: &TraceProvider) -> Option<u64> {
    let mut ns = 0;
    ((provider.now)(&mut ns) == SUCCESS).then_some(ns)
}

/// Returns the calling thread's current context.
pub fn current_context() -> *mut c_void {
    let mut context = 0;
    if let Some(driver) = driver() {
        // SAFETY: `context` is a local.
        let result = unsafe { (driver.current)(&raw mut context) };
        if result != SUCCESS {
            return null_mut();
        }
    }
    context as *mut c_void
}

/// `cudaFuncGetName`
type NameOf = unsafe extern "C" fn(*mut *const c_char, *const c_void) -> c_int;

/// The addresses of `cudaFuncGetName` of the runtimes that report calls, or 0.
static NAMES_OF: [AtomicUsize; RUNTIMES.len()] = [const { AtomicUsize::new(0) }; RUNTIMES.len()];

/// Returns the name of the kernel that the program knows by the address of a function; NULL if no runtime knows it. The caller is in a
/// call of one of them.
pub fn runtime_name_of(function: *const c_void) -> *const c_char {
    for address in
        NAMES_OF.iter().map(|name_of| name_of.load(Ordering::Relaxed)).filter(|address| *address != 0)
    {
        // SAFETY: not 0, so `hook_runtimes` found it in this project's libcudart, where it has this signature.
        let name_of = unsafe { transmute::<usize, NameOf>(address) };
        let mut text = null();
        // SAFETY: `text` is a local; the runtime refuses what is no function of the program.
        if unsafe { name_of(&raw mut text, function) } == SUCCESS {
            return text;
        }
    }
    null()
}

/// Sets the functions that receive calls of the loaded runtimes. NULL removes them.
pub fn hook_runtimes(hooks: *const TraceHooks) {
    for (name, name_of) in RUNTIMES.iter().zip(&NAMES_OF) {
        let Some(library) = Library::loaded(name) else { continue };
        let found = address(&library, RUNTIME_NAME);
        if found != 0 {
            name_of.store(address(&library, c"cudaFuncGetName"), Ordering::Relaxed);
            // SAFETY: the name belongs to this project's libcudart, where this function has this signature.
            unsafe { transmute::<usize, extern "C" fn(*const TraceHooks)>(found)(hooks) };
        }
        // SAFETY: the program's own handle keeps the library loaded.
        unsafe { library.close() };
    }
}

/// Starts CUDA, as `cuInit`. Returns whether it has started.
fn init() -> bool {
    // SAFETY: a plain call.
    driver().is_some_and(|driver| unsafe { (driver.init)(0) } == SUCCESS)
}

/// Starts measuring the work of GPUs.
///
/// Errors: `CUPTI_ERROR_NOT_SUPPORTED` without CUPTI on the host; `CUPTI_ERROR_NOT_INITIALIZED` if CUDA does not start.
pub fn start(provider: &TraceProvider) -> Result {
    if !init() {
        return Err(NOT_INITIALIZED);
    }
    match (provider.start)() {
        SUCCESS => Ok(()),
        error if NOT_SERVED.contains(&error) => Err(NOT_SUPPORTED),
        _ => Err(NOT_INITIALIZED),
    }
}

/// Notes that there may be work to fetch, once the clocks were read.
pub fn set_started() {
    STARTED.store(true, Ordering::Relaxed);
}
