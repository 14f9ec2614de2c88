// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The core-dump settings of contexts and of the process.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use cuda_environment::core_dump::CoreDumps;

static CORE_DUMPS: LazyLock<Mutex<CoreDumps>> = LazyLock::new(|| Mutex::new(CoreDumps::of_this_process()));

/// Locks the settings of the process.
pub fn lock() -> MutexGuard<'static, CoreDumps> {
    CORE_DUMPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the environment variables at the initialisation of CUDA.
pub fn initialise() {
    drop(lock());
}

/// Adds a context that was created with these `CU_CTX_*` flags.
pub fn context_created(context: u64, flags: u32) {
    lock().created(context, flags);
}

/// Removes a destroyed context.
pub fn context_destroyed(context: u64) {
    lock().destroyed(context);
}
