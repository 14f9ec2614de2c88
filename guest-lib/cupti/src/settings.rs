// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tells libcuda and the runtimes which calls and work they have to report: those of which the program has enabled the records or
//! callbacks.

use std::ptr::null;
use std::sync::{Mutex, PoisonError};

use cuda_abi::TraceHooks;

use crate::quiet::unrecorded;
use crate::result::{NOT_SUPPORTED, Result};
use crate::{callbacks, calls, clock, driver, kinds};

/// The last settings that were sent to libcuda.
#[derive(Default)]
struct Told {
    hooked: bool,
    measuring: bool,
}

static TOLD: Mutex<Told> = Mutex::new(Told { hooked: false, measuring: false });

/// Makes the libraries report what is enabled, and nothing else.
///
/// Errors: `CUPTI_ERROR_NOT_SUPPORTED` with a libcuda that reports nothing, or without CUPTI on the host;
/// `CUPTI_ERROR_NOT_INITIALIZED` if CUDA does not start.
pub fn update() -> Result {
    unrecorded(update_quietly)
}

fn update_quietly() -> Result {
    let (hooked, measuring) = (kinds::any() || callbacks::any(), kinds::any_work());
    let Some(provider) = driver::provider() else {
        return if hooked { Err(NOT_SUPPORTED) } else { Ok(()) };
    };
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if hooked || told.hooked {
        // Repeated at each update, because runtimes may be loaded at different times.
        let hooks: *const TraceHooks = if hooked { &raw const calls::HOOKS } else { null() };
        (provider.hooks)(hooks);
        driver::hook_runtimes(hooks);
        told.hooked = hooked;
    }
    if measuring && !told.measuring {
        driver::start(provider)?;
        clock::begin(|| driver::now(provider));
        driver::set_started();
        told.measuring = true;
    } else if !measuring && told.measuring {
        (provider.stop)();
        told.measuring = false;
    }
    Ok(())
}
