// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The memory pools of devices.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::MemoryPoolId;

#[derive(Debug, Default)]
pub struct Tables {
    /// The pools that the program created.
    pub made: HashSet<u64>,
    /// The default pools by device.
    pub defaults: HashMap<u32, u64>,
    /// The current pools by device, if the program has set one.
    pub current: HashMap<u32, u64>,
    /// The devices that may access the driver's default pools, by device, where graphs use these in place of pools of this library.
    pub granted: HashMap<u32, BTreeSet<i32>>,
}

/// All pools by handle.
#[derive(Debug, Default)]
pub struct Pools(Mutex<Tables>);

impl Pools {
    pub fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that the pool exists.
    pub fn check(&self, pool: u64) -> Result<MemoryPoolId, CudaError> {
        let tables = self.lock();
        let known = tables.made.contains(&pool) || tables.defaults.values().any(|&default| default == pool);
        if known { Ok(MemoryPoolId(pool)) } else { Err(CudaError::INVALID_VALUE) }
    }
}
