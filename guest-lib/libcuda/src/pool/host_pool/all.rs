// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The calls that concern all pools of host and managed memory, and the one that destroys a pool.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use virtio_cuda_client::CudaError;

use crate::driver::Driver;
use crate::entry::Api;
use crate::state::host_pools::HostPool;
use crate::state::host_pools::table::HostPools;

impl HostPools {
    /// Destroys a pool. Its memory is released as it is freed.
    pub fn destroy_pool(&self, api: Api, pool: &Arc<HostPool>) -> Result<(), CudaError> {
        if pool.is_default {
            return Err(CudaError::INVALID_VALUE);
        }
        pool.set_destroyed();
        self.lock().current.retain(|_, current| current.handle != pool.handle);
        self.waiting.store(true, Ordering::Release);
        self.settle_pools(api);
        Ok(())
    }

    /// Must be called after a wait for work: pools release memory above their threshold.
    pub fn settle_pools(&self, api: Api) {
        if !self.waiting.load(Ordering::Acquire) || !self.waiting.swap(false, Ordering::AcqRel) {
            return;
        }
        for pool in self.all() {
            if pool.settle_pool(api) {
                self.waiting.store(true, Ordering::Release);
            }
            if pool.has_ended() {
                self.lock().all.remove(&pool.handle);
            }
        }
    }

    /// Handles a destroyed context: memory that the GPU accessed through it remains, and must be attached again.
    pub fn detach_all(&self, driver: &Driver, context: u64) {
        for pool in self.all() {
            if pool.detach_context(driver, context) {
                self.orphaned.store(true, Ordering::Release);
            }
        }
    }

    /// Must be called when a context exists: memory without a context is attached to it.
    pub fn adopt_orphans(&self, api: Api, context: u64) {
        if self.orphaned.load(Ordering::Acquire) && self.orphaned.swap(false, Ordering::AcqRel) {
            for pool in self.all() {
                if let Err(error) = pool.attach_orphans(api.internal(), context) {
                    log::warn!("The GPU does not reach memory of pool {:#x} any more: {error}", pool.handle);
                }
            }
        }
    }
}
