// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Removes all objects of a context from the tables when the program destroys it.

use crate::driver::Driver;
use crate::state::memory::ranges::{HostKind, HostRange};

impl Driver {
    /// Removes the state of a destroyed context: its memory, streams, modules and their functions.
    pub fn forget_context(&self, context: u64) {
        self.contexts.destroyed(context);
        for module in self.modules.forget_context(context) {
            self.functions.remove_of(crate::state::modules::functions::Owner::Module(module));
            self.memory.remove_variables(module);
        }
        self.streams.forget_context(context);
        self.events.forget_context(context);
        self.captures.forget_context(context);
        self.arrays.forget_context(context);
        self.externals.forget_context(context);
        self.textures.forget_context(context);
        self.memory.cache.forget_context(context);
        self.memory.ahead.forget_context(context);
        self.memory.stagings.forget_context(context);
        self.memory.copy_streams.forget_context(context);
        self.memory.ranges.remove_device_where(|range| range.context == context);
        self.local_pools.detach_all(self, context);
        self.orphan_host_maps(context);
        let of_context =
            |range: &HostRange| range.context == context && range.kind != HostKind::ManagedVariable;
        for range in self.memory.ranges.take_host_where(of_context) {
            self.detach(&range);
        }
        for freed in self.memory.freed.forget_context(context) {
            self.detach(&freed.range);
        }
        for spare in self.memory.spares.forget_context(context) {
            self.detach_pages(spare.pages, &spare.pinned);
        }
        for pages in self.memory.slabs.forget_context(context) {
            self.detach_pages(pages.memory, &pages.pinned);
        }
    }
}
