// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that the driver keeps or gives back by itself: that of pools, of graphs, and memory that is freed in stream order.
//!
//! The charge is the number of bytes that the driver reports to keep. It is queried after each allocation and free, and again
//! before a session is refused memory: the driver gives unused memory back only then. Nothing here happens in a session
//! without a limit.

use std::collections::BTreeSet;

use parking_lot::{Mutex, MutexGuard};

use super::allocations::{Allocations, Origin, Range};
use super::quota::Holder;
use crate::gpu::{
    CUevent, CUmemoryPool, CUstream, CuResult, CudaError, Driver, EVENT_DISABLE_TIMING, with_capture_relaxed,
};

/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT` and `CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT`.
const POOL_RESERVED: i32 = 5;
const GRAPH_RESERVED: i32 = 2;
/// Frees in stream order that are looked at before another one is begun.
const MANY_FREES: usize = 1024;

/// The pools whose memory has to be queried.
#[derive(Debug, Default)]
pub struct Pools(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Pools with allocations.
    known: BTreeSet<usize>,
    /// The pools that the guest has destroyed. The driver's pool lives until its memory has been given back, since
    /// it could not be queried any more.
    destroyed: BTreeSet<usize>,
    /// Devices on which graphs had memory.
    graphs: BTreeSet<i32>,
    /// Events behind frees in stream order, and the contexts that these are in.
    freed: Vec<(usize, u64)>,
}

impl Pools {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Stops querying a context's events. Must be called before it is destroyed.
    pub fn forget_context(&self, context: u64) {
        self.lock().freed.retain(|&(_, of)| of != context);
    }
}

/// The parts of a session that its charges concern.
#[derive(Clone, Copy, Debug)]
pub struct Charged<'s> {
    /// The driver.
    pub gpu: &'s Driver,
    /// The pools whose memory has to be queried.
    pub pools: &'s Pools,
    /// The charges, with the memory that they are for.
    pub allocations: &'s Mutex<Allocations>,
    /// The number of its devices.
    pub devices: u32,
}

impl<'s> Charged<'s> {
    fn allocations(self) -> MutexGuard<'s, Allocations> {
        self.allocations.lock()
    }

    fn is_limited(self) -> bool {
        self.allocations().quota.is_limited()
    }
}

/// Calls `charge`; if it is refused, once more after the driver has given unused memory back.
///
/// Errors: `charge`'s.
pub fn charge<'s, T>(
    session: impl Into<Charged<'s>>,
    mut charge: impl FnMut(&mut Allocations) -> CuResult<T>,
) -> CuResult<T> {
    let session = session.into();
    let charged = charge(&mut session.allocations());
    if charged.is_ok() || !session.is_limited() {
        return charged;
    }
    refresh(session);
    charge(&mut session.allocations())
}

/// Makes the driver give unused memory back, and charges the memory that it keeps.
pub fn refresh<'s>(session: impl Into<Charged<'s>>) {
    let session = session.into();
    let (gpu, mut state) = (session.gpu, session.pools.lock());
    if state.known.is_empty() && state.graphs.is_empty() && state.freed.is_empty() {
        return;
    }
    with_capture_relaxed(gpu, || {
        for pool in state.known.clone() {
            let raw = pool as CUmemoryPool;
            let _ = gpu.cuMemPoolTrimTo(raw, 0);
            let kept = settle(session, pool, |_| ());
            if kept == Ok(0) && state.destroyed.contains(&pool) {
                state.destroyed.remove(&pool);
                state.known.remove(&pool);
                let _ = gpu.cuMemPoolDestroy(raw);
            }
        }
        for &device in &state.graphs {
            trim_graphs(session, device);
        }
        let mut over = Vec::new();
        state.freed.retain(|&(event, _)| {
            let goes_on = is_waiting(gpu, event);
            over.extend((!goes_on).then_some(event));
            goes_on
        });
        for event in over {
            let _ = gpu.cuEventDestroy_v2(event as CUevent);
            session.allocations().quota.let_go(Holder::Freed(event));
        }
    });
}

/// Returns whether the stream has not passed the event. After any other error it never will.
fn is_waiting(gpu: &Driver, event: usize) -> bool {
    gpu.cuEventQuery(event as CUevent) == Err(CudaError::NOT_READY)
}

/// Queries the bytes that a pool keeps, and charges them, together with `change`. Returns the bytes.
fn settle(session: Charged<'_>, pool: usize, change: impl FnOnce(&mut Allocations)) -> CuResult<u64> {
    let mut kept = 0u64;
    let raw = pool as CUmemoryPool;
    // SAFETY: this attribute is a `cuuint64_t`; the pool is one of the driver's, which lives while it is known.
    let asked = unsafe { session.gpu.cuMemPoolGetAttribute(raw, POOL_RESERVED, (&raw mut kept).cast()) };
    let mut allocations = session.allocations();
    change(&mut allocations);
    asked?;
    let live = allocations.live_in(pool);
    allocations.quota.force(Holder::Pool(pool), kept.saturating_sub(live));
    Ok(kept)
}

/// Returns the pool from which `cuMemAllocAsync` takes memory of `device`; 0 in a session without a limit.
///
/// Errors: the driver's.
pub fn current<'s>(session: impl Into<Charged<'s>>, device: i32) -> CuResult<usize> {
    let session = session.into();
    if !session.is_limited() {
        return Ok(0);
    }
    Ok(session.gpu.cuDeviceGetMemPool(device)?.0 as usize)
}

/// Notes an allocation from `pool`.
pub fn grown<'s>(session: impl Into<Charged<'s>>, pool: usize) {
    let session = session.into();
    if pool != 0 && session.is_limited() {
        session.pools.lock().known.insert(pool);
        let _ = settle(session, pool, |_| ());
    }
}

/// Notes that the program has freed `range`. The driver frees it now, or in the order of `stream`.
pub fn freed<'s>(session: impl Into<Charged<'s>>, range: &Range, stream: Option<CUstream>) {
    let session = session.into();
    match (range.origin, stream) {
        (Origin::AllocatedAsync(pool), _) if pool != 0 => {
            let _ = settle(session, pool, |allocations| allocations.freed(range));
        }
        (Origin::Allocated | Origin::Imported, Some(stream)) if session.is_limited() => {
            freed_later(session, range, stream)
        }
        _ => session.allocations().freed(range),
    }
}

/// Charges freed memory until the stream has reached the free.
fn freed_later(session: Charged<'_>, range: &Range, stream: CUstream) {
    if session.pools.lock().freed.len() >= MANY_FREES {
        refresh(session);
    }
    let gpu = session.gpu;
    let behind = gpu.cuEventCreate(EVENT_DISABLE_TIMING).and_then(|(event,)| {
        let recorded = gpu.cuEventRecordWithFlags(event, stream, 0);
        recorded.map(|()| event as usize).inspect_err(|_| {
            let _ = gpu.cuEventDestroy_v2(event);
        })
    });
    // Without an event it counts as long as the context lives.
    let holder = Holder::Freed(behind.unwrap_or_default());
    let mut allocations = session.allocations();
    let before = allocations.quota.used();
    allocations.freed(range);
    let bytes = before.saturating_sub(allocations.quota.used());
    let earlier = allocations.quota.held(holder);
    allocations.quota.force(holder, earlier.saturating_add(bytes));
    drop(allocations);
    if let Ok(event) = behind {
        session.pools.lock().freed.push((event, range.context));
    }
}

/// Destroys a pool, now or when all its memory has been given back.
///
/// Errors: the driver's.
pub fn destroy<'s>(session: impl Into<Charged<'s>>, raw: CUmemoryPool) -> CuResult<()> {
    let session = session.into();
    let pool = raw as usize;
    let mut state = session.pools.lock();
    if !state.known.contains(&pool) {
        return session.gpu.cuMemPoolDestroy(raw);
    }
    // The driver would do the same: nothing is taken from it any more.
    for ordinal in 0..session.devices {
        let (device,) = session.gpu.cuDeviceGet(ordinal as i32)?;
        if session.gpu.cuDeviceGetMemPool(device)?.0 == raw {
            session.gpu.cuDeviceSetMemPool(device, session.gpu.cuDeviceGetDefaultMemPool(device)?.0)?;
        }
    }
    state.destroyed.insert(pool);
    drop(state);
    refresh(session);
    Ok(())
}

/// Notes that graphs have freed memory. The driver keeps it for other graphs, until it has to give it back.
pub fn graphs_shrunk<'s>(session: impl Into<Charged<'s>>, device: i32) {
    let session = session.into();
    if session.is_limited() {
        session.pools.lock().graphs.insert(device);
        trim_graphs(session, device);
    }
}

fn trim_graphs(session: Charged<'_>, device: i32) {
    let _ = session.gpu.cuDeviceGraphMemTrim(device);
    if let Ok((kept,)) = session.gpu.cuDeviceGetGraphMemAttribute(device, GRAPH_RESERVED) {
        let mut allocations = session.allocations();
        let live = allocations.of_graphs(device);
        allocations.quota.force(Holder::Graphs(device), kept.saturating_sub(live));
    }
}
