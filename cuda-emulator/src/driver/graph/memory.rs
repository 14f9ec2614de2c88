// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that graphs allocate and free. Its address is fixed when the node is made, and so is its place here: it belongs to
//! the graph until graph and executables are gone. A launch only changes whether it counts as allocated.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::params::AllocParams;
use crate::driver::device::{CUdevice, CUdeviceptr, Device};
use crate::driver::result::{CUresult, CuResult};
use crate::memory::RangeKind;

/// By address.
static MEMORY: Mutex<BTreeMap<CUdeviceptr, Weak<GraphMemory>>> = Mutex::new(BTreeMap::new());

/// What an allocation node allocates.
pub(in super::super) struct GraphMemory {
    device: &'static Device,
    pub(super) ptr: CUdeviceptr,
    bytes: u64,
    live: AtomicBool,
    /// As given, with the address.
    pub(super) params: AllocParams,
}

// SAFETY: the pointers in `params` are shown to C and never followed; all else is Send and Sync.
unsafe impl Send for GraphMemory {}
// SAFETY: as above.
unsafe impl Sync for GraphMemory {}

impl GraphMemory {
    pub(super) fn new(device: &'static Device, mut params: AllocParams) -> CuResult<Arc<GraphMemory>> {
        let bytes = params.bytes as u64;
        let ptr = device.memory.allocate_as(bytes, 1, RangeKind::Device);
        let ptr = ptr.map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        params.ptr = ptr;
        let memory = GraphMemory { device, ptr, bytes, live: AtomicBool::new(false), params };
        let memory = Arc::new(memory);
        usage(device).reserve(bytes);
        MEMORY.lock().unwrap_or_else(PoisonError::into_inner).insert(ptr, Arc::downgrade(&memory));
        Ok(memory)
    }

    pub(super) fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    /// Counts as allocated from now on; false when it did already.
    pub(super) fn allocate(&self) -> bool {
        let changed = !self.live.swap(true, Ordering::AcqRel);
        if changed {
            usage(self.device).used.add(self.bytes);
        }
        changed
    }

    /// Counts as freed from now on; false when it did already.
    pub(super) fn free(&self) -> bool {
        let changed = self.live.swap(false, Ordering::AcqRel);
        if changed {
            usage(self.device).used.remove(self.bytes);
        }
        changed
    }
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        self.free();
        MEMORY.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.ptr);
        self.device.memory.free(self.ptr);
        usage(self.device).reserved.remove(self.bytes);
    }
}

/// The memory of a node that begins at an address.
pub(super) fn find(ptr: CUdeviceptr) -> Option<Arc<GraphMemory>> {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner).get(&ptr).and_then(Weak::upgrade)
}

/// cuMemFree and cuMemFreeAsync of memory that a graph allocated and left; false when it is not such memory.
pub(in super::super) fn free_outside(ptr: CUdeviceptr) -> bool {
    find(ptr).is_some_and(|memory| memory.free())
}

#[derive(Default)]
struct Counter {
    now: AtomicU64,
    high: AtomicU64,
}

impl Counter {
    fn add(&self, bytes: u64) {
        let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.high.fetch_max(now, Ordering::Relaxed);
    }

    fn remove(&self, bytes: u64) {
        self.now.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Usage {
    used: Counter,
    reserved: Counter,
}

impl Usage {
    fn reserve(&self, bytes: u64) {
        self.reserved.add(bytes);
    }
}

fn usage(device: &Device) -> Arc<Usage> {
    static USAGE: Mutex<BTreeMap<CUdevice, Arc<Usage>>> = Mutex::new(BTreeMap::new());
    let mut usage = USAGE.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(usage.entry(device.ordinal).or_default())
}

/// cuDeviceGetGraphMemAttribute
pub(super) fn attribute(device: &Device, attribute: u32) -> CuResult<u64> {
    let usage = usage(device);
    let value = match attribute {
        0 => &usage.used.now,
        1 => &usage.used.high,
        2 => &usage.reserved.now,
        3 => &usage.reserved.high,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    Ok(value.load(Ordering::Relaxed))
}

/// cuDeviceSetGraphMemAttribute: the high water marks can be reset.
pub(super) fn reset(device: &Device, attribute: u32, value: u64) -> CuResult<()> {
    let usage = usage(device);
    let counter = match attribute {
        1 => &usage.used,
        3 => &usage.reserved,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    if value != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    counter.high.store(counter.now.load(Ordering::Relaxed), Ordering::Relaxed);
    Ok(())
}
