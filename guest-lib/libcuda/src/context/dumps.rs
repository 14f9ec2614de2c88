// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The settings with which contexts and the process would write core dumps.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use cuda_environment::core_dump::CoreDumps;

static CORE_DUMPS: LazyLock<Mutex<CoreDumps>> = LazyLock::new(|| Mutex::new(CoreDumps::of_this_process()));

/// All of them.
pub fn lock() -> MutexGuard<'static, CoreDumps> {
    CORE_DUMPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the environment, which counts as it is when CUDA is initialised.
pub fn initialise() {
    drop(lock());
}

/// A context was made with these `CU_CTX_*` flags.
pub fn context_created(context: u64, flags: u32) {
    lock().created(context, flags);
}

/// A context has been destroyed.
pub fn context_destroyed(context: u64) {
    lock().destroyed(context);
}
