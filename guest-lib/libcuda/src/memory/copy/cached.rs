// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Pageable buffers that are copied repeatedly. The device keeps their pages, registered with the GPU, and later copies
//! reach the full speed of the link. The transport reports when the program has unmapped or replaced such pages; the
//! copy then uses another plan.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use cuda_environment::speed;
use virtio_cuda_client::protocol::DevicePtr;
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{CudaError, calls};

use crate::driver::Driver;
use crate::entry::Api;
use crate::memory::attach::attach_tracked;
use crate::memory::copy::plan::LinearCopy;
use crate::memory::copy::transfer::Transfer;
use crate::state::memory::cache::{Cache, Entry, MAX_PATIENCE, Pages, USES};

/// The number of copies before a buffer is kept, instead of [`USES`]; 0 turns the cache off.
const CACHE_VARIABLE: &str = "VIRTIO_CUDA_CACHE";

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(driver) = Driver::get() {
            driver.unpin(&self.attached.pinned);
            driver.memory.window.give_back(self.window, self.pages.bytes());
        }
    }
}

impl Entry {
    fn is_fresh(&self, api: Api) -> bool {
        let transport = api.driver.session.transport();
        self.attached.pinned.iter().all(|piece| transport.is_fresh(piece.tag))
    }
}

impl Cache {
    /// Returns the entry that a copy of `bytes` bytes at `address` can use.
    fn look_up(&self, api: Api, address: u64, bytes: usize, most: u64) -> Option<Arc<Entry>> {
        let pages = Pages::of(address, bytes)?;
        let mut state = self.state();
        state.uses = uses();
        if let Some(entry) = state.find(pages) {
            if entry.is_fresh(api) {
                entry.copies.fetch_add(1, Ordering::Relaxed);
                state.learn(&entry, false);
                return Some(entry);
            }
            state.learn(&entry, true);
            log::debug!("The pages at {address:#x} are others now");
            state.entries.pop_back();
            state.shun(entry.pages, entry.patience);
            // Entries are unpinned without the lock.
            drop(state);
            return None;
        }
        if pages.bytes() > most {
            return None;
        }
        let patience = state.count(pages)?;
        if state.busy {
            return None;
        }
        let evicted = state.make_room(pages, most);
        state.busy = true;
        drop(state);
        drop(evicted);
        let made = register(api, pages, patience);
        let mut state = self.state();
        state.busy = false;
        match made {
            Ok(entry) => {
                log::debug!("{} bytes at {address:#x} are kept", pages.bytes());
                let entry = Arc::new(entry);
                state.entries.push_back(entry.clone());
                state.seen.retain(|seen| seen.pages != pages);
                Some(entry)
            }
            Err(error) => {
                log::debug!("{} bytes at {address:#x} are not kept: {error}", pages.bytes());
                state.shun(pages, patience);
                None
            }
        }
    }
}

fn register(api: Api, pages: Pages, patience: i32) -> Result<Entry, CudaError> {
    let context = api.context()?.0;
    let memory = UserMemory { address: pages.start as usize, bytes: pages.bytes() as usize };
    let window = api.driver.memory.window.take(pages.bytes())?;
    match attach_tracked(api, memory, window) {
        Ok(attached) => Ok(Entry { pages, window, context, attached, copies: AtomicI32::new(0), patience }),
        Err(error) => {
            api.driver.memory.window.give_back(window, pages.bytes());
            Err(error)
        }
    }
}

/// Returns the number of copies before a buffer is kept.
fn uses() -> i32 {
    static USES_WANTED: OnceLock<i32> = OnceLock::new();
    *USES_WANTED.get_or_init(|| {
        let wanted = std::env::var(CACHE_VARIABLE).ok().and_then(|value| value.parse().ok());
        wanted.unwrap_or(if speed::is_on() { USES } else { 0 }).clamp(0, MAX_PATIENCE)
    })
}

/// Returns the maximum number of bytes that are kept; 0 turns the cache off.
fn limit(api: Api) -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(|| if uses() == 0 { 0 } else { api.driver.session.transport().cache_bytes() })
}

impl Api {
    /// Runs `body`, which needs pinned pages. If there is no room for them, frees the cache and the spare pinned
    /// memory, and runs `body` again.
    pub fn with_room<T>(&self, body: impl Fn() -> Result<T, CudaError>) -> Result<T, CudaError> {
        match body() {
            Err(CudaError::OUT_OF_MEMORY) if self.make_room() => body(),
            outcome => outcome,
        }
    }

    /// Releases pinned pages that the program has not requested. Returns whether there were any.
    fn make_room(&self) -> bool {
        let cached = self.driver.memory.cache.clear();
        let spares = self.driver.memory.spares.take_all();
        for spare in &spares {
            self.driver.detach_pages(spare.pages, &spare.pinned);
        }
        let parked =
            self.driver.vmm.try_lock().is_some_and(|mut state| self.driver.unpin_parked(&mut state.parked));
        cached || !spares.is_empty() || parked
    }
}

/// Returns whether the device can keep the pages of pageable memory.
pub fn can_keep(api: Api, host: UserMemory) -> bool {
    limit(api) != 0 && api.driver.session.transport().can_track(host)
}

/// Copies between device memory and a buffer of the cache, and waits for it. Returns false without an effect if the
/// buffer is not kept, or if the driver has released its pages meanwhile (the kernel moved them, or another thread
/// changed the mapping).
pub fn run(api: Api, copy: &LinearCopy, transfer: Transfer) -> Result<bool, CudaError> {
    let host = transfer.host();
    let cache = &api.driver.memory.cache;
    // If the pages cannot be kept, the copy is done in another way.
    let Some(entry) = cache.look_up(api.internal(), host.address as u64, host.bytes, limit(api)) else {
        return Ok(false);
    };
    let on_gpu = DevicePtr(entry.attached.device_address + (host.address as u64 - entry.pages.start));
    let (dst, src) = transfer.on_gpu(on_gpu);
    match calls::memcpy_wait(&mut api.in_context()?, dst, src, host.bytes as u64, copy.stream) {
        Err(CudaError::INVALID_VALUE) if !entry.is_fresh(api) => Ok(false),
        outcome => outcome.map(|()| true),
    }
}
