// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Reuses memory that the program has freed, if no driver call waits for the work that uses it: parts of longer memory,
//! and managed memory that moves.

use std::sync::Arc;

use virtio_cuda_client::CudaError;

use crate::entry::Api;
use crate::state::memory::freed::Freed;
use crate::state::memory::ranges::HostRange;

impl Api {
    /// Reuses an allocation that was removed from the table of addresses: at once, or after a wait if work may still
    /// use it.
    pub fn take_back(&self, range: Arc<HostRange>, is_unused: bool) {
        if !is_unused {
            let used_in = self.context().map_or(0, |context| context.0);
            self.driver.memory.freed.add([Freed { used_in, context: range.context, range }]);
            return;
        }
        match &range.pool {
            Some(pool) => {
                pool.free_now(*self, range.start..range.start + range.bytes, range.context, true);
            }
            None => self.driver.detach(&range),
        }
    }

    /// Must be called before memory is allocated. Reuses memory that was freed during captures that have ended. Returns
    /// whether there could be any.
    pub fn take_back_freed(&self) -> bool {
        // The program gets an error of the work from its own next wait.
        !self.driver.memory.freed.is_empty() && self.internal().wait_for_work().unwrap_or(false)
    }

    /// Like [`Self::wait_for_work`], but does not ask the worker if there is nothing to wait for.
    pub fn wait_unless_idle(&self) -> Result<bool, CudaError> {
        let is_idle = self.driver.memory.freed.is_empty() && self.may_post(0) && self.is_idle();
        if is_idle { Ok(true) } else { self.wait_for_work() }
    }

    /// Waits for the current context's work before host memory that it may use is freed. Returns false if waiting would
    /// end a capture. The driver then waits when it unregisters the memory; other memory is passed to
    /// [`Self::take_back`].
    ///
    /// Errors: those of the work.
    pub fn wait_for_work(&self) -> Result<bool, CudaError> {
        let (Ok(mut call), Ok(context)) = (self.in_context(), self.context()) else { return Ok(true) };
        let list = &self.driver.memory.freed;
        let freed = list.take(context.0);
        let waited = self.wait_unless_capturing(&mut call);
        if waited != Ok(true) {
            list.add(freed);
            return waited;
        }
        self.synchronized();
        for Freed { range, .. } in freed {
            self.take_back(range, true);
        }
        waited
    }
}
