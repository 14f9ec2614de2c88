// SPDX-License-Identifier: Apache-2.0 OR MIT

//! All pools of this library, and the current pool of each location of host and managed memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cuda_abi::CUmemLocation;
use virtio_cuda_client::CudaError;

use crate::handles::{Kind, new_handle};
use crate::state::devices::Devices;
use crate::state::local_pools::LocalPool;
use crate::state::local_pools::space::StreamKey;

/// `CU_MEM_LOCATION_TYPE_*`.
const NONE: u32 = 0;
const DEVICE: u32 = 1;
const HOST: u32 = 2;
const NUMA: u32 = 3;
const NUMA_CURRENT: u32 = 4;
/// `CU_MEM_ALLOCATION_TYPE_*`.
const PINNED: u32 = 1;
const MANAGED: u32 = 2;

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
    /// Returns the home of pools. The number of a device is not checked.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for locations without pools.
    pub fn of(devices: &Devices, kind: u32, location: CUmemLocation) -> Result<Self, CudaError> {
        let known = match (kind, location.kind) {
            (PINNED, DEVICE) => true,
            (MANAGED, DEVICE) => devices.check(location.id).is_ok(),
            (PINNED | MANAGED, NUMA) => is_node(location.id),
            (PINNED | MANAGED, HOST) | (MANAGED, NONE | NUMA_CURRENT) => true,
            _ => false,
        };
        if !known {
            return Err(CudaError::INVALID_VALUE);
        }
        let id = if matches!(location.kind, DEVICE | NUMA) { location.id } else { 0 };
        Ok(Self { kind, place: location.kind, id })
    }

    /// Returns the home of a device's own memory.
    pub fn of_device(id: i32) -> Self {
        Self { kind: PINNED, place: DEVICE, id }
    }

    /// Returns whether it is the home of device memory that is not managed.
    pub fn is_device_memory(self) -> bool {
        self.kind == PINNED && self.place == DEVICE
    }

    /// Returns whether it is the home of host memory that is not managed.
    pub fn is_host_memory(self) -> bool {
        self.kind == PINNED && self.place != DEVICE
    }

    /// Returns whether it is the home of managed memory.
    pub fn is_managed(self) -> bool {
        self.kind == MANAGED
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
    pub all: HashMap<u64, Arc<LocalPool>>,
    pub defaults: HashMap<Home, Arc<LocalPool>>,
    /// The pools of host and managed memory that the program has set as current.
    pub current: HashMap<Home, Arc<LocalPool>>,
}

/// The pools of this library.
#[derive(Debug, Default)]
pub struct LocalPools {
    pub tables: Mutex<Tables>,
    /// True once a pool existed: programs without pools have no overhead.
    pub any: AtomicBool,
    /// The number of frees in the order of streams.
    pub frees: AtomicU64,
    /// True if a pool waits for streams.
    pub waiting: AtomicBool,
    /// True if a pool has memory that the GPU cannot access, because there was no context.
    pub orphaned: AtomicBool,
    /// True if the worker sets the devices that may access memory of these pools. Known once a program with several devices uses pools.
    pub has_readers: OnceLock<bool>,
}

impl LocalPools {
    pub fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, tables: &mut Tables, pool: LocalPool) -> Arc<LocalPool> {
        let pool = Arc::new(pool);
        tables.all.insert(pool.handle, pool.clone());
        self.any.store(true, Ordering::Release);
        pool
    }

    /// Returns the pool with this handle, if it is one of these.
    pub fn get(&self, handle: u64) -> Option<Arc<LocalPool>> {
        self.find(handle).filter(|pool| !pool.is_destroyed())
    }

    /// Returns the pool with this handle, also after the program has destroyed it, while it has memory.
    pub fn find(&self, handle: u64) -> Option<Arc<LocalPool>> {
        self.any.load(Ordering::Acquire).then(|| self.lock().all.get(&handle).cloned())?
    }

    /// Returns whether an address lies in memory of any of these pools.
    pub fn contain(&self, address: u64) -> bool {
        let has = |pool: Arc<LocalPool>| {
            let state = pool.lock();
            let before = state.chunks.range(..=address).next_back();
            before.is_some_and(|(&start, chunk)| address - start < chunk.bytes)
        };
        self.any.load(Ordering::Acquire) && self.all().into_iter().any(has)
    }

    /// Creates a pool that may reserve `max_bytes` bytes. Returns its handle.
    pub fn create(&self, home: Home, max_bytes: u64) -> u64 {
        self.add(&mut self.lock(), LocalPool::new(new_handle(Kind::Pool), home, max_bytes, false)).handle
    }

    /// Returns the default pool of a home.
    pub fn default_of(&self, home: Home) -> u64 {
        let mut tables = self.lock();
        if let Some(pool) = tables.defaults.get(&home) {
            return pool.handle;
        }
        let pool = self.add(&mut tables, LocalPool::new(new_handle(Kind::Pool), home, u64::MAX, true));
        tables.defaults.insert(home, pool.clone());
        pool.handle
    }

    /// Returns the current pool of a home.
    pub fn current_of(&self, home: Home) -> u64 {
        let chosen = self.lock().current.get(&home).map(|pool| pool.handle);
        chosen.unwrap_or_else(|| self.default_of(home))
    }

    /// Makes a pool the current one of its home.
    pub fn set_current(&self, home: Home, pool: Arc<LocalPool>) -> Result<(), CudaError> {
        if pool.home != home {
            return Err(CudaError::INVALID_VALUE);
        }
        self.lock().current.insert(home, pool);
        Ok(())
    }

    pub fn all(&self) -> Vec<Arc<LocalPool>> {
        self.lock().all.values().cloned().collect()
    }

    /// Returns the number of frees so far. Must be called before a wait for streams, and [`Self::reached`] after it.
    pub fn frees_so_far(&self) -> u64 {
        self.frees.load(Ordering::Acquire)
    }

    /// Returns the number of a free in the order of a stream that begins.
    pub fn next_free(&self) -> u64 {
        self.frees.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Notes that streams have ended their work before the free with this number.
    pub fn reached(&self, number: u64, is_it: impl Fn(StreamKey) -> bool) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        for pool in self.all() {
            for room in pool.lock().rooms.values_mut() {
                room.space.free_where(|stream, free| free <= number && is_it(stream));
            }
        }
    }

    /// Must be called after memory was freed in the order of a stream.
    pub fn wait_for_streams(&self) {
        self.waiting.store(true, Ordering::Release);
    }
}
