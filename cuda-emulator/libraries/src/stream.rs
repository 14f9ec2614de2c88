// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Work in a stream of the emulated GPU.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// A `CUstream`.
pub type Stream = usize;

/// `cuLaunchHostFunc`.
type Launch = unsafe extern "C" fn(Stream, extern "C" fn(*mut c_void), *mut c_void) -> c_int;
/// `cuStreamSynchronize`.
type Synchronize = unsafe extern "C" fn(Stream) -> c_int;

struct Driver {
    launch: Launch,
    synchronize: Synchronize,
}

fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    let find = || {
        // SAFETY: the name is a C string; the library is the one that this process has loaded already.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return None;
        }
        // SAFETY: the library stays loaded, and the names are C strings.
        let [launch, synchronize] = [c"cuLaunchHostFunc", c"cuStreamSynchronize"]
            .map(|name| unsafe { libc::dlsym(library, name.as_ptr()) });
        if launch.is_null() || synchronize.is_null() {
            return None;
        }
        // SAFETY: functions of these names have these types (cuda.h).
        unsafe {
            Some(Driver {
                launch: std::mem::transmute::<*mut c_void, Launch>(launch),
                synchronize: std::mem::transmute::<*mut c_void, Synchronize>(synchronize),
            })
        }
    };
    DRIVER.get_or_init(find).as_ref()
}

/// Work, as the driver keeps it. It may run many times: a graph that has captured it owns it as long as it lives.
type Work = Box<dyn Fn() + Send + Sync>;

extern "C" fn run(work: *mut c_void) {
    // SAFETY: `queue` made it of a box that is never freed.
    let work = unsafe { &*work.cast::<Work>() };
    work();
}

/// Queues work. Nothing tells when a graph that has captured it ends, so it stays for ever: it is small.
///
/// Errors: the driver's, as a `CUresult`.
pub fn queue(stream: Stream, work: impl Fn() + Send + Sync + 'static) -> Result<(), c_int> {
    let driver = driver().ok_or(3)?;
    let work: *mut Work = Box::into_raw(Box::new(Box::new(work)));
    // SAFETY: `run` takes what `work` is, which stays.
    match unsafe { (driver.launch)(stream, run, work.cast()) } {
        0 => Ok(()),
        error => {
            // SAFETY: the driver has not taken it.
            drop(unsafe { Box::from_raw(work) });
            Err(error)
        }
    }
}

/// Waits for all work of a stream.
///
/// Errors: the driver's, as a `CUresult`.
pub fn wait(stream: Stream) -> Result<(), c_int> {
    let driver = driver().ok_or(3)?;
    // SAFETY: a stream of the driver's.
    match unsafe { (driver.synchronize)(stream) } {
        0 => Ok(()),
        error => Err(error),
    }
}
