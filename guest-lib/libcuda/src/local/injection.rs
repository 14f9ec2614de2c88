// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `CUDA_INJECTION64_PATH`: the library of a profiler that the first `cuInit` loads, as NVIDIA's driver does.

use std::env;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use cuda_program::Library;

/// The path of the library.
const VARIABLE: &str = "CUDA_INJECTION64_PATH";
/// `int InitializeInjection(void)`, whose result NVIDIA's driver does not look at either.
type Initialize = extern "C" fn() -> c_int;

/// Loads the library and calls its function, once. The library may make calls of CUDA meanwhile. A library that cannot be loaded
/// is ignored.
pub fn load() {
    static DONE: AtomicBool = AtomicBool::new(false);
    let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) else { return };
    if DONE.swap(true, Ordering::Relaxed) || is_privileged() {
        return;
    }
    // SAFETY: the program's user has chosen the library, to run in the program.
    let Some(library) = (unsafe { Library::open(&path, false) }) else {
        log::warn!("{VARIABLE}: cannot load {}", path.display());
        return;
    };
    match library.symbol(c"InitializeInjection") {
        // SAFETY: the function of that name has this prototype (CUPTI's documentation), and the library stays loaded.
        Some(function) => unsafe {
            std::mem::transmute::<*mut std::ffi::c_void, Initialize>(function.as_ptr())()
        },
        None => {
            log::warn!("{VARIABLE}: {} has no InitializeInjection", path.display());
            0
        }
    };
}

/// Returns whether the program has more rights than the user who started it, as the dynamic linker decides it.
fn is_privileged() -> bool {
    // SAFETY: a plain call.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
