// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The calls that concern all pools of this library, and the one that destroys a pool.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use virtio_cuda_client::CudaError;

use crate::driver::Driver;
use crate::entry::Api;
use crate::state::local_pools::LocalPool;
use crate::state::local_pools::space::StreamKey;
use crate::state::local_pools::table::LocalPools;

impl LocalPools {
    /// Destroys a pool. Its memory is released as it is freed.
    pub fn destroy_pool(&self, api: Api, pool: &Arc<LocalPool>) -> Result<(), CudaError> {
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

    /// Must be called before a stream is destroyed: later, no mark can come behind what was freed in it.
    pub fn mark_frees_of(&self, api: Api, stream: StreamKey) {
        if self.any.load(Ordering::Acquire) {
            self.all().into_iter().for_each(|pool| pool.lock().mark_frees(api, |other| other == stream));
        }
    }

    /// Releases memory of pools that nobody uses, but for pools that other calls are using. Returns whether there was any.
    pub fn release_unused(&self, api: Api) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut any = false;
        for pool in self.all() {
            if let Ok(mut state) = pool.state.try_lock() {
                state.free_reached(api);
                any |= state.shrink(api, 0);
            }
        }
        any
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
