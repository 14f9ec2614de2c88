// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory pools: accounts of stream-ordered allocations. Memory itself always comes from the device, also host
//! memory, because the host can access all of it.

pub(super) mod allocate;
pub(super) mod api;
pub(super) mod home;
mod share_api;
pub(super) mod shared;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuda_abi::{CUmemLocation, CUmemPoolProps};

use super::device::CUdevice;
use super::handle::{Handle, Registry};
use super::result::{CUresult, CuResult};
use home::{DEVICE as LOCATION_DEVICE, Home, PINNED};
use shared::SharedPool;

/// A pool's handle.
pub type CUmemoryPool = Handle<Pool>;

/// Maximum sizes of pools are multiples of this number of bytes.
const CHUNK: u64 = 32 << 20;
/// An upper bound for the memory of a process, in bytes.
const MAX_BYTES: u64 = 1 << 46;
/// CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
const BY_FILE: u32 = 1;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// Created by cuMemPoolCreate, and the default ones once they were queried.
static POOLS: Registry<Pool> = Registry::new();

impl crate::driver::handle::Object for Pool {
    const KIND: Option<crate::driver::handle::Kind> = Some(crate::driver::handle::Kind::Pool);
}

/// A memory pool.
pub struct Pool {
    handle: CUmemoryPool,
    pub(super) home: Home,
    /// The maximum bytes at once.
    most: u64,
    usage: Mutex<Usage>,
    threshold: AtomicU64,
    /// The three reuse policies, stored without effect.
    policies: [AtomicU32; 3],
    default: bool,
    /// The source of its memory if that is shareable. `None`: the device.
    pub(super) shared: Option<SharedPool>,
    /// Devices besides its own that may access its memory.
    peers: Mutex<BTreeSet<CUdevice>>,
    /// True if the host has access, according to calls.
    host: AtomicBool,
}

/// The bytes that are allocated from a pool.
#[derive(Clone, Copy, Default)]
struct Usage {
    /// The present bytes.
    used: u64,
    /// The maximum bytes at once, since the mark was last reset.
    high: u64,
}

/// The memory that pool properties request.
pub(super) trait PoolProperties {
    /// Memory of a device, without more.
    fn of_device(ordinal: CUdevice) -> CUmemPoolProps;
    /// Returns whether the memory can be shared with other processes.
    fn is_shareable(&self) -> bool;
    /// Returns the kind and location of the requested memory.
    fn home(&self) -> CuResult<Home>;
    /// Returns the device.
    fn device_ordinal(&self) -> CuResult<CUdevice>;
    /// Returns the maximum bytes of the pool.
    fn most(&self) -> CuResult<u64>;
    /// Creates a pool of host or managed memory.
    fn of_host(&self, home: Home) -> CuResult<Pool>;
}

impl PoolProperties for CUmemPoolProps {
    fn of_device(ordinal: CUdevice) -> CUmemPoolProps {
        CUmemPoolProps {
            kind: PINNED,
            handle_types: 0,
            location: CUmemLocation { kind: LOCATION_DEVICE, id: ordinal },
            win32_security: 0,
            max_bytes: 0,
            usage: 0,
            reserved: [0; 54],
        }
    }

    fn is_shareable(&self) -> bool {
        self.handle_types != 0
    }

    fn home(&self) -> CuResult<Home> {
        Home::new(self.kind, self.location)
    }

    fn device_ordinal(&self) -> CuResult<CUdevice> {
        let home = self.home().map_err(|_| INVALID)?;
        if home.place != LOCATION_DEVICE || self.handle_types & !BY_FILE != 0 {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        Ok(home.id)
    }

    fn of_host(&self, home: Home) -> CuResult<Pool> {
        let limited = home.is_managed() && (self.max_bytes != 0 || self.usage != 0);
        if limited || self.is_shareable() && !home.is_of_node() {
            return Err(INVALID);
        }
        if self.is_shareable() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        Ok(Pool { default: false, most: self.most()?, ..Pool::new(home) })
    }

    fn most(&self) -> CuResult<u64> {
        match (self.max_bytes as u64).checked_next_multiple_of(CHUNK) {
            None | Some(0) => Ok(u64::MAX),
            Some(MAX_BYTES..) => Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY),
            Some(most) => Ok(most),
        }
    }
}

impl Pool {
    /// Creates the default pool of a home.
    pub(super) fn new(home: Home) -> Pool {
        Pool {
            handle: Handle::unique(),
            home,
            most: u64::MAX,
            usage: Mutex::default(),
            threshold: AtomicU64::new(0),
            policies: [1, 1, 1].map(AtomicU32::new),
            default: true,
            shared: None,
            peers: Mutex::default(),
            host: AtomicBool::new(!home.is_of_device() && !home.is_managed()),
        }
    }

    /// Returns whether a device may access its memory, according to calls. Access to host memory must be set.
    pub(super) fn is_reached_by(&self, ordinal: CUdevice) -> bool {
        let given = || self.peers.lock().unwrap_or_else(PoisonError::into_inner).contains(&ordinal);
        self.home.is_managed() || self.home == Home::of_device(ordinal) || given()
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an allocation, unless that exceeds the maximum of the pool.
    pub(super) fn add(&self, bytes: u64) -> CuResult<()> {
        let mut usage = self.usage();
        let used = usage.used.checked_add(bytes).filter(|used| *used <= self.most);
        usage.used = used.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        usage.high = usage.high.max(usage.used);
        Ok(())
    }

    /// Returns whether the pool may have `bytes` more bytes at once.
    fn has_room(&self, bytes: u64) -> bool {
        bytes <= self.most.saturating_sub(self.usage().used)
    }

    /// Counts a free.
    pub(super) fn remove(&self, bytes: u64) {
        self.usage().used -= bytes;
    }

    /// Resets the high water mark.
    fn reset_high(&self) {
        let mut usage = self.usage();
        usage.high = usage.used;
    }

    /// Registers and returns the pool's handle.
    pub(super) fn publish(self: &Arc<Self>) -> CUmemoryPool {
        POOLS.insert(self.handle, Arc::clone(self));
        self.handle
    }
}

fn find(handle: CUmemoryPool) -> CuResult<Arc<Pool>> {
    POOLS.get(handle).ok_or_else(|| handle.refusal())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    /// Runs two functions at the same time on two threads, many times, and checks the result each time.
    fn race(one: impl Fn() + Sync, two: impl Fn() + Sync, check: impl Fn()) {
        let barrier = Barrier::new(3);
        let run = |during: &dyn Fn(), after: &dyn Fn()| {
            for _ in 0..2000 {
                barrier.wait();
                during();
                barrier.wait();
                after();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| run(&one, &|| ()));
            scope.spawn(|| run(&two, &|| ()));
            run(&|| (), &check);
        });
    }

    #[test]
    fn two_threads_do_not_get_more_than_there_is() {
        let pool = Pool { most: 100, ..Pool::new(Home::of_device(0)) };
        let take = || {
            if pool.add(60).is_ok() {
                thread::yield_now();
                pool.remove(60);
            }
        };
        race(take, take, || assert_eq!(pool.usage().high, 60));
    }

    #[test]
    fn the_high_water_mark_is_never_below_the_level() {
        let pool = Pool::new(Home::of_device(0));
        let check = || {
            let Usage { used, high } = *pool.usage();
            assert!(high >= used, "{high} of {used}");
        };
        race(|| pool.add(1).unwrap(), || pool.reset_high(), check);
    }
}
