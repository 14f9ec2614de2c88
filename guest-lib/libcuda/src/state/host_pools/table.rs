// SPDX-License-Identifier: Apache-2.0 OR MIT

//! All pools of host and managed memory, and the current pool of each location.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuda_abi::CUmemLocation;
use virtio_cuda_client::CudaError;

use crate::handles::{Kind, new_handle};
use crate::state::devices::Devices;
use crate::state::host_pools::HostPool;

/// `CU_MEM_LOCATION_TYPE_*`.
const NONE: u32 = 0;
const DEVICE: u32 = 1;
const HOST: u32 = 2;
const NUMA: u32 = 3;
const NUMA_CURRENT: u32 = 4;
/// `CU_MEM_ALLOCATION_TYPE_*`.
const PINNED: u32 = 1;
const MANAGED: u32 = 2;

/// Returns whether a `CU_MEM_ALLOCATION_TYPE_*` stands for managed memory.
pub fn is_managed(kind: u32) -> bool {
    kind == MANAGED
}

/// The kind and location of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    /// `CU_MEM_ALLOCATION_TYPE_*`.
    pub kind: u32,
    /// `CU_MEM_LOCATION_TYPE_*`.
    pub place: u32,
    /// Number of the device or node; 0 if there is only one.
    pub id: i32,
}

/// Returns whether the guest has a NUMA node with this number. A guest without NUMA has node 0.
fn is_node(id: i32) -> bool {
    id == 0 || id > 0 && std::path::Path::new(&format!("/sys/devices/system/node/node{id}")).exists()
}

impl Home {
    /// Returns the home of pools of this library; `None` for device pools.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for locations without pools.
    pub fn of(devices: &Devices, kind: u32, location: CUmemLocation) -> Result<Option<Self>, CudaError> {
        let known = match (kind, location.kind) {
            (PINNED, DEVICE) => return Ok(None),
            (MANAGED, DEVICE) => devices.check(location.id).is_ok(),
            (PINNED | MANAGED, NUMA) => is_node(location.id),
            (PINNED | MANAGED, HOST) | (MANAGED, NONE | NUMA_CURRENT) => true,
            _ => false,
        };
        if !known {
            return Err(CudaError::INVALID_VALUE);
        }
        let id = if matches!(location.kind, DEVICE | NUMA) { location.id } else { 0 };
        Ok(Some(Self { kind, place: location.kind, id }))
    }

    /// Returns the preferred location of managed memory.
    pub fn preferred(self) -> Option<CUmemLocation> {
        let kind = if self.place == NUMA_CURRENT { NUMA } else { self.place };
        (kind != NONE).then_some(CUmemLocation { kind, id: self.id })
    }
}

#[derive(Debug, Default)]
pub struct Tables {
    /// All pools by handle, until all their memory is released.
    pub all: HashMap<u64, Arc<HostPool>>,
    pub defaults: HashMap<Home, Arc<HostPool>>,
    /// The pools that the program has set as current.
    pub current: HashMap<Home, Arc<HostPool>>,
}

/// The pools of this library.
#[derive(Debug, Default)]
pub struct HostPools {
    pub tables: Mutex<Tables>,
    /// True once a pool existed: programs without pools have no overhead.
    pub any: AtomicBool,
    /// True if a pool waits for streams.
    pub waiting: AtomicBool,
    /// True if a pool has memory that the GPU cannot access, because there was no context.
    pub orphaned: AtomicBool,
}

impl HostPools {
    pub fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, tables: &mut Tables, pool: HostPool) -> Arc<HostPool> {
        let pool = Arc::new(pool);
        tables.all.insert(pool.handle, pool.clone());
        self.any.store(true, Ordering::Release);
        pool
    }

    /// Returns the pool with this handle, if it is one of these.
    pub fn get(&self, handle: u64) -> Option<Arc<HostPool>> {
        let any = self.any.load(Ordering::Acquire);
        any.then(|| self.lock().all.get(&handle).cloned())?.filter(|pool| !pool.is_destroyed())
    }

    /// Creates a pool that may reserve `max_bytes` bytes. Returns its handle.
    pub fn create(&self, home: Home, max_bytes: u64) -> u64 {
        self.add(&mut self.lock(), HostPool::new(new_handle(Kind::Pool), home, max_bytes, false)).handle
    }

    /// Returns the default pool of a home.
    pub fn default_of(&self, home: Home) -> u64 {
        let mut tables = self.lock();
        if let Some(pool) = tables.defaults.get(&home) {
            return pool.handle;
        }
        let pool = self.add(&mut tables, HostPool::new(new_handle(Kind::Pool), home, u64::MAX, true));
        tables.defaults.insert(home, pool.clone());
        pool.handle
    }

    /// Returns the current pool of a home.
    pub fn current_of(&self, home: Home) -> u64 {
        let chosen = self.lock().current.get(&home).map(|pool| pool.handle);
        chosen.unwrap_or_else(|| self.default_of(home))
    }

    /// Makes a pool the current one of its home.
    pub fn set_current(&self, home: Home, pool: Arc<HostPool>) -> Result<(), CudaError> {
        if pool.home != home {
            return Err(CudaError::INVALID_VALUE);
        }
        self.lock().current.insert(home, pool);
        Ok(())
    }

    pub fn all(&self) -> Vec<Arc<HostPool>> {
        self.lock().all.values().cloned().collect()
    }

    /// Must be called after memory was freed in the order of a stream.
    pub fn wait_for_streams(&self) {
        self.waiting.store(true, Ordering::Release);
    }
}
