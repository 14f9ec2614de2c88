// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State that the copies of a session share.

use super::staging::Staging;
use super::threads::CopyThreads;

/// State that the copies of a session share.
#[derive(Debug)]
pub struct Engine {
    pub staging: Staging,
    pub threads: CopyThreads,
}

impl Engine {
    /// Creates the state without buffers and threads. They are created on demand, at most `threads` threads.
    pub fn new(threads: usize) -> Self {
        Self { staging: Staging::default(), threads: CopyThreads::new(threads) }
    }

    /// Forgets the buffers of a context that has ended.
    pub fn forget_context(&self, context: u64) {
        self.staging.forget_context(context);
    }
}
