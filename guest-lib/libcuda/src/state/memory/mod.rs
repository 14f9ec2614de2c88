// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The tables of memory: which addresses are device memory, pinned or managed memory, and the memory that this library keeps for
//! later calls.

pub mod cache;
pub mod claims;
pub mod copy_streams;
pub mod freed;
pub mod pinned;
pub mod ranges;
pub mod ready;
pub mod shadow;
pub mod slabs;
pub mod spares;
pub mod staging;
pub mod window;

use std::sync::Arc;

use virtio_cuda_ring::Outstanding;

use crate::state::advice::Advice;
use crate::state::memory::cache::Cache;
use crate::state::memory::claims::Claims;
use crate::state::memory::copy_streams::CopyStreams;
use crate::state::memory::freed::FreedList;
use crate::state::memory::pinned::Pinned;
use crate::state::memory::ranges::{HostKind, HostRange, Ranges};
use crate::state::memory::ready::Ahead;
use crate::state::memory::shadow::Shadows;
use crate::state::memory::slabs::Slabs;
use crate::state::memory::spares::Spares;
use crate::state::memory::staging::Stagings;
use crate::state::memory::window::{ReservationWindow, Window};
use crate::state::moving::{Moving, Movings};

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
    pub fn is_of_local_pool(&self, address: u64) -> bool {
        self.ranges.host(address).is_some_and(|range| range.kind == HostKind::Pooled)
    }

    /// Returns whether an address lies in managed memory.
    pub fn is_managed(&self, address: u64) -> bool {
        self.ranges.host(address).is_some_and(|range| range.kind.is_managed())
    }
}
