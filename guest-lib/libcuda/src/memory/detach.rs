// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The end of host memory that the GPU could access.

use crate::driver::Driver;
use crate::state::memory::ranges::{HostKind, HostRange};

impl Driver {
    /// Detaches host memory from the device. The caller has removed it from the table.
    pub fn detach(&self, range: &HostRange) {
        match range.kind {
            HostKind::Managed if let Some(moving) = &range.moving => self.free_moving(moving),
            // The memory is part of a slab.
            HostKind::Managed if range.pinned.is_empty() => {
                if let Some(pages) = self.memory.slabs.give_back(range.start, range.bytes) {
                    self.detach_pages(pages.memory, &pages.pinned);
                }
            }
            HostKind::Allocated | HostKind::Managed => self.detach_pages(range.pages, &range.pinned),
            HostKind::Registered => {
                self.unpin(&range.pinned);
                self.session.transport().release(range.pages);
                self.memory.window.give_back(range.window, range.pages.bytes as u64);
            }
            HostKind::ManagedVariable => self.unpin(&range.pinned),
            // The pages belong to a pool or an allocation.
            HostKind::Pooled | HostKind::ManagedPooled | HostKind::Mapped => {}
        }
    }
}
