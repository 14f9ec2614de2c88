// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attributes of core dumps. They are stored for queries only; no dump is written.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use cuda_environment::core_dump::{CoreDumps, Refusal};

use crate::driver::result::CUresult;

static CORE_DUMPS: LazyLock<Mutex<CoreDumps>> = LazyLock::new(|| Mutex::new(CoreDumps::of_this_process()));

impl From<Refusal> for CUresult {
    fn from(refusal: Refusal) -> CUresult {
        match refusal {
            Refusal::InvalidValue => CUresult::CUDA_ERROR_INVALID_VALUE,
            Refusal::NotPermitted => CUresult::CUDA_ERROR_NOT_PERMITTED,
        }
    }
}

/// Locks the attributes of all contexts and of the process.
pub(super) fn lock() -> MutexGuard<'static, CoreDumps> {
    CORE_DUMPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records that a context with this handle was created with these CU_CTX_* flags.
pub(super) fn context_created(context: usize, flags: u32) {
    lock().created(context as u64, flags);
}

/// Removes the attributes of a destroyed context.
pub(super) fn context_destroyed(context: usize) {
    lock().destroyed(context as u64);
}
