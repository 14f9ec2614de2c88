// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory: classification of addresses, allocation, copies.

pub mod advice;
pub mod ahead;
pub mod alloc;
pub mod attach;
pub mod boxes;
pub mod copy;
pub mod difference;
pub mod freed;
pub mod host;
pub mod managed;
pub mod moving;
pub mod own_copies;
pub mod place;
pub mod pointer;
pub mod residency;
pub mod set;
pub mod shadow;
pub mod table;

use std::sync::Arc;

use virtio_cuda_client::CudaError;
use virtio_cuda_ring::Outstanding;

use crate::driver::Driver;
use crate::entry::Api;
use crate::memory::advice::Advice;
use crate::memory::moving::{Moving, Movings};
use crate::memory::table::cache::Cache;
use crate::memory::table::claims::Claims;
use crate::memory::table::copy_streams::CopyStreams;
use crate::memory::table::freed::FreedList;
use crate::memory::table::pinned::Pinned;
use crate::memory::table::ranges::{DeviceRange, HostKind, HostRange, Ranges};
use crate::memory::table::ready::Ahead;
use crate::memory::table::shadow::Shadows;
use crate::memory::table::slabs::Slabs;
use crate::memory::table::spares::Spares;
use crate::memory::table::speeds::Speeds;
use crate::memory::table::staging::Stagings;
use crate::memory::table::window::{ReservationWindow, Window};
use crate::module::table::Variable;

/// The memory state of the library.
#[derive(Debug, Default)]
pub struct Memory {
    /// The classification of addresses.
    pub ranges: Ranges,
    /// The address window.
    pub window: Window,
    /// Addresses of reservations.
    pub places: ReservationWindow,
    /// Device addresses that are reserved in this process.
    pub claims: Claims,
    /// Pageable buffers that are copied repeatedly.
    pub cache: Cache,
    /// The measured speed of copies of pageable buffers.
    pub speeds: Speeds,
    /// Pinned memory for copies of pageable buffers.
    pub stagings: Stagings,
    /// `__managed__` variables.
    pub shadows: Shadows,
    /// Managed memory that moves to the GPU and back.
    pub moving: Movings,
    /// The streams on which managed memory is copied.
    pub copy_streams: CopyStreams,
    /// Slabs for short managed allocations.
    pub slabs: Slabs<Pinned>,
    /// Freed memory that work may still use.
    pub freed: FreedList<Arc<HostRange>>,
    /// Spare pinned memory.
    pub spares: Spares<Pinned>,
    /// The program's advice on managed memory.
    pub advice: Advice,
    /// The stock of small allocations.
    pub ahead: Ahead,
    /// Outstanding work that may change memory that the program sees.
    pub visible: Outstanding,
}

impl Memory {
    /// Adds device memory of the current context.
    pub fn add_device(&self, api: Api, start: u64, bytes: u64, owner: u64) -> Result<(), CudaError> {
        self.add(api, start, bytes, owner, 0)
    }

    /// Adds memory from a pool.
    pub fn add_pooled(&self, api: Api, start: u64, bytes: u64, pool: u64) -> Result<(), CudaError> {
        self.add(api, start, bytes, 0, pool)
    }

    fn add(&self, api: Api, start: u64, bytes: u64, owner: u64, pool: u64) -> Result<(), CudaError> {
        let context = api.context()?.0;
        let device = api.driver.contexts.device_of(context)?;
        let id = self.ranges.next_id();
        self.ranges.add_device(DeviceRange {
            start,
            bytes,
            context,
            device,
            id,
            owner,
            pool,
            reachable: true,
        });
        self.claims.claim(start, bytes);
        Ok(())
    }

    /// Adds a variable of a module or library.
    pub fn add_variable(&self, api: Api, variable: Variable, owner: u64) {
        // The shadow of a managed variable already classifies its address.
        if self.ranges.host(variable.address).is_none() && self.ranges.alias(variable.address).is_none() {
            // There is a current context: the variable was queried in it.
            let _ = self.add_device(api, variable.address, variable.bytes, owner);
        }
    }

    /// Removes the variables of an unloaded module or library.
    pub fn remove_variables(&self, owner: u64) {
        self.ranges.remove_device_where(|range| range.owner == owner);
        for range in self.ranges.take_host_where(|range| range.owner == owner) {
            self.shadows.remove(range.start);
        }
    }

    /// Returns whether the program may see the GPU's outstanding work in memory that both reach.
    pub fn shows_work(&self) -> bool {
        !self.visible.is_none() && self.ranges.any_host()
    }

    /// Returns whether an address is reserved for the device, so that the program can have no pageable memory there.
    pub fn is_reserved(&self, address: u64) -> bool {
        self.places.contains(address) || self.claims.owns(address, 1)
    }

    /// Notes that managed memory stays in host memory, or moves.
    pub fn set_rests(&self, moving: &Moving, rests: bool) {
        moving.set_rests(rests);
        self.ranges.look_again();
    }

    /// Returns whether an address lies in memory from a pool of the host.
    pub fn is_of_host_pool(&self, address: u64) -> bool {
        self.ranges.host(address).is_some_and(|range| range.kind == HostKind::Pooled)
    }

    /// Returns whether an address lies in managed memory.
    pub fn is_managed(&self, address: u64) -> bool {
        self.ranges.host(address).is_some_and(|range| range.kind.is_managed())
    }
}

impl Driver {
    /// Removes the state of a destroyed context: its memory, streams, modules and their functions.
    pub fn forget_context(&self, context: u64) {
        self.contexts.destroyed(context);
        for module in self.modules.forget_context(context) {
            self.functions.remove_of(crate::module::function_table::Owner::Module(module));
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
        self.host_pools.forget_context(self, context);
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
