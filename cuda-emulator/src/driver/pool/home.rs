// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The locations of pools: devices, the host and its NUMA nodes, which are one location here; and the pools in use
//! there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuda_abi::CUmemLocation;

use super::Pool;
use crate::driver::device::{self, device};
use crate::driver::result::{CUresult, CuResult};
use crate::memory::RangeKind;

/// CU_MEM_LOCATION_TYPE_*
const NONE: u32 = 0;
/// CU_MEM_LOCATION_TYPE_DEVICE
pub(crate) const DEVICE: u32 = 1;
const HOST: u32 = 2;
const NUMA: u32 = 3;
const NUMA_CURRENT: u32 = 4;
/// CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_ALLOCATION_TYPE_MANAGED
pub(crate) const PINNED: u32 = 1;
const MANAGED: u32 = 2;

/// The kind and location of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Home {
    /// CUmemAllocationType
    pub(crate) kind: u32,
    /// CUmemLocationType
    pub(crate) place: u32,
    /// The device, or 0.
    pub(crate) id: i32,
}

impl Home {
    /// Memory of a device.
    pub(crate) fn of_device(ordinal: i32) -> Home {
        Home { kind: PINNED, place: DEVICE, id: ordinal }
    }

    /// Managed memory with a device as its preferred location.
    pub(crate) fn managed_of_device(ordinal: i32) -> Home {
        Home { kind: MANAGED, place: DEVICE, id: ordinal }
    }

    /// Returns the home of a program's description, or CUDA_ERROR_INVALID_VALUE for an invalid one.
    pub(crate) fn new(kind: u32, location: CUmemLocation) -> CuResult<Home> {
        let known = match (kind, location.kind) {
            (PINNED | MANAGED, DEVICE) => device(location.id).is_ok(),
            (PINNED | MANAGED, NUMA) => location.id == 0,
            (PINNED | MANAGED, HOST) | (MANAGED, NONE | NUMA_CURRENT) => true,
            _ => false,
        };
        if !known {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let id = if location.kind == DEVICE { location.id } else { 0 };
        Ok(Home { kind, place: location.kind, id })
    }

    /// Returns the home of default and current pools.
    pub(crate) fn of_pools(kind: u32, location: CUmemLocation) -> CuResult<Home> {
        if location.kind > NUMA {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        Home::new(kind, location)
    }

    /// Returns whether it is memory of one device.
    pub(crate) fn is_of_device(self) -> bool {
        self.kind == PINNED && self.place == DEVICE
    }

    /// Returns whether it is memory of a NUMA node, which processes can share.
    pub(crate) fn is_of_node(self) -> bool {
        self.kind == PINNED && self.place == NUMA
    }

    /// Returns whether it is managed memory.
    pub(crate) fn is_managed(self) -> bool {
        self.kind == MANAGED
    }

    /// Returns the kind of its memory.
    pub(crate) fn range_kind(self) -> RangeKind {
        match (self.kind, self.place) {
            (MANAGED, _) => RangeKind::Managed,
            (_, DEVICE) => RangeKind::Device,
            _ => RangeKind::HostPooled,
        }
    }

    /// Refuses a captured allocation of memory other than a device's, which graphs do not support.
    pub(crate) fn check_captured(self) -> CuResult<()> {
        match self.place {
            DEVICE => Ok(()),
            NONE => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            _ => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        }
    }

    /// Returns the preferred location of managed memory.
    pub(crate) fn preferred(self) -> Option<CUmemLocation> {
        let kind = if self.place == NUMA_CURRENT { NUMA } else { self.place };
        (kind != NONE).then_some(CUmemLocation { kind, id: self.id })
    }
}

/// Returns whether a location is the host or a part of it.
pub(crate) fn is_host(location: CUmemLocation) -> bool {
    matches!(location.kind, HOST | NUMA)
}

#[derive(Default)]
struct Pools {
    defaults: HashMap<Home, Arc<Pool>>,
    current: HashMap<Home, Arc<Pool>>,
}

/// The pools of all locations except devices, which have their own.
static POOLS: Mutex<Option<Pools>> = Mutex::new(None);

fn with_pools<T>(body: impl FnOnce(&mut Pools) -> T) -> T {
    let mut pools: MutexGuard<'_, Option<Pools>> = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    body(pools.get_or_insert_default())
}

/// Returns the default pool of a home.
pub(crate) fn default_pool(home: Home) -> CuResult<Arc<Pool>> {
    if home.is_of_device() {
        return Ok(Arc::clone(&device(home.id)?.pool));
    }
    Ok(with_pools(|pools| {
        Arc::clone(pools.defaults.entry(home).or_insert_with(|| Arc::new(Pool::new(home))))
    }))
}

/// Returns the current pool of a home.
pub(crate) fn current_pool(home: Home) -> CuResult<Arc<Pool>> {
    if home.is_of_device() {
        let current = device(home.id)?.current_pool.lock().unwrap_or_else(PoisonError::into_inner);
        return Ok(Arc::clone(&current));
    }
    match with_pools(|pools| pools.current.get(&home).cloned()) {
        Some(pool) => Ok(pool),
        None => default_pool(home),
    }
}

/// Sets the current pool of its home.
pub(crate) fn set_current_pool(home: Home, pool: Arc<Pool>) -> CuResult<()> {
    if pool.home != home {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if home.is_of_device() {
        *device(home.id)?.current_pool.lock().unwrap_or_else(PoisonError::into_inner) = pool;
    } else {
        with_pools(|pools| pools.current.insert(home, pool));
    }
    Ok(())
}

/// Ends a pool: its home uses the default one again.
pub(crate) fn forget(pool: &Pool) -> CuResult<()> {
    if !pool.home.is_of_device() {
        with_pools(|pools| pools.current.retain(|_, current| !std::ptr::eq(&**current, pool)));
        return Ok(());
    }
    let device = device(pool.home.id)?;
    let mut current = device.current_pool.lock().unwrap_or_else(PoisonError::into_inner);
    if std::ptr::eq(&**current, pool) {
        *current = Arc::clone(&device.pool);
    }
    Ok(())
}

/// Returns the pool of an allocation on any device.
pub(crate) fn pool_of(ptr: u64) -> Option<Arc<Pool>> {
    let (device, range) = device::range_of(ptr)?;
    device.owner(range.base)?.pool
}
