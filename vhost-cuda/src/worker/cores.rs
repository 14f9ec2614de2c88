// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether threads may watch for something instead of sleeping: not where that takes the core of who is to do it.

use std::sync::OnceLock;
use std::thread;

/// Fewer are few.
const FEW: usize = 4;

/// Whether there are few cores for this process.
pub fn are_few() -> bool {
    static FEW_CORES: OnceLock<bool> = OnceLock::new();
    *FEW_CORES.get_or_init(|| thread::available_parallelism().is_ok_and(|cores| cores.get() < FEW))
}
