// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Small allocations ahead of need: who allocates many of one size gets most of them without asking the device.
//!
//! They are allocations of the driver like all others, made in the context that they are for. What is freed of such
//! sizes lies ready, too, if the device leaves it to us. What lies ready is given back when memory runs out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_client::protocol::DevicePtr;
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{CudaError, calls};

use crate::context::table::current;
use crate::entry::Api;

/// Longer allocations are rarely many.
const MAX_BYTES: u64 = 64 << 10;
/// Most bytes of one size that lie ready.
const MAX_READY_BYTES: u64 = 1 << 20;
/// Allocations of a size that are made one by one before more are made at once: twice as many each time, …
const ONE_BY_ONE: u32 = 4;
/// … up to this.
const MOST_AT_ONCE: u64 = 64;
/// Sizes that are remembered.
const MAX_SIZES: usize = 16;

/// What lies ready.
#[derive(Debug, Default)]
pub struct Ahead {
    /// By context and size.
    stocks: Mutex<HashMap<(u64, u64), Stock>>,
    /// Other processes may have some of what is allocated: nothing is kept.
    shared: AtomicBool,
}

#[derive(Debug, Default)]
struct Stock {
    ready: Vec<u64>,
    /// Times that the device was asked.
    asked: u32,
}

impl Stock {
    /// How many to ask for now.
    fn count(&self, bytes: u64) -> u64 {
        let doubled = 1_u64 << self.asked.saturating_sub(ONE_BY_ONE - 1).min(10);
        doubled.min(MOST_AT_ONCE).min(MAX_READY_BYTES / bytes).max(1)
    }
}

impl Ahead {
    fn stocks(&self) -> MutexGuard<'_, HashMap<(u64, u64), Stock>> {
        self.stocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Some allocation is offered to other processes.
    pub fn share(&self) {
        self.shared.store(true, Ordering::Relaxed);
    }

    /// Whether an allocation of that size is worth keeping.
    fn wants(&self, context: u64, bytes: u64) -> bool {
        let stocks = self.stocks();
        let stock = stocks.get(&(context, bytes));
        let room = |stock: &Stock| (stock.ready.len() as u64) < MAX_READY_BYTES / bytes;
        !self.shared.load(Ordering::Relaxed)
            && stock.is_some_and(|stock| stock.asked >= ONE_BY_ONE && room(stock))
    }

    /// Forgets what was made in a context that is gone.
    pub fn forget_context(&self, context: u64) {
        self.stocks().retain(|(of, _), _| *of != context);
    }
}

impl Api {
    /// An allocation of `bytes` bytes in the current context.
    pub fn allocate(&self, bytes: u64) -> Result<u64, CudaError> {
        let outcome = self.allocate_once(bytes);
        match outcome {
            Err(CudaError::OUT_OF_MEMORY) if self.give_back_ready() => self.allocate_once(bytes),
            outcome => outcome,
        }
    }

    fn allocate_once(&self, bytes: u64) -> Result<u64, CudaError> {
        // Not what may have to be refused: while a stream captures, or in a context that is broken.
        let may = bytes <= MAX_BYTES && self.may_post(0) && !virtio_cuda_client::call::is_broken();
        let count = if may { self.take_or_count(bytes) } else { Err(1) };
        match count {
            Ok(address) => Ok(address),
            Err(0 | 1) => Ok(calls::cuMemAlloc_v2(&mut self.in_context()?, bytes)?.0),
            Err(count) => self.allocate_many(bytes, count as usize),
        }
    }

    /// What is ready, or how many to ask for.
    fn take_or_count(&self, bytes: u64) -> Result<u64, u64> {
        let mut stocks = self.driver.memory.ahead.stocks();
        if stocks.len() >= MAX_SIZES && !stocks.contains_key(&(current(), bytes)) {
            // Sizes of which nothing lies ready are forgotten.
            stocks.retain(|_, stock| !stock.ready.is_empty());
            if stocks.len() >= MAX_SIZES {
                return Err(1);
            }
        }
        let stock = stocks.entry((current(), bytes)).or_default();
        stock.ready.pop().ok_or_else(|| {
            stock.asked = stock.asked.saturating_add(1);
            stock.count(bytes)
        })
    }

    fn allocate_many(&self, bytes: u64, count: usize) -> Result<u64, CudaError> {
        let mut room = vec![0; count * size_of::<u64>()];
        let made =
            calls::memory_alloc_many(&mut self.in_context()?.output(UserMemory::of_mut(&mut room)), bytes)?;
        // The first one made is given out first, and the next ones in the driver's order, too.
        let (addresses, _) = room.as_chunks();
        let addresses = addresses.iter().take(made as usize).rev().map(|bytes| u64::from_le_bytes(*bytes));
        let mut addresses: Vec<u64> = addresses.collect();
        let first = addresses.pop().ok_or(CudaError::OUT_OF_MEMORY)?;
        let mut stocks = self.driver.memory.ahead.stocks();
        stocks.entry((current(), bytes)).or_default().ready.splice(0..0, addresses);
        Ok(first)
    }

    /// Frees an allocation of `bytes` bytes that was made in `context`, or keeps it.
    pub fn free_or_keep(&self, address: u64, bytes: u64, context: u64) -> Result<(), CudaError> {
        let ahead = &self.driver.memory.ahead;
        let may = bytes <= MAX_BYTES && context == current() && self.may_post(0);
        if !may || virtio_cuda_client::call::is_broken() || !ahead.wants(context, bytes) {
            return calls::cuMemFree_v2(&mut self.call(), DevicePtr(address));
        }
        if calls::memory_free_or_keep(&mut self.in_context()?, DevicePtr(address))? != 0 {
            ahead.stocks().entry((context, bytes)).or_default().ready.push(address);
        }
        Ok(())
    }

    /// Frees what lies ready; whether there was anything.
    fn give_back_ready(&self) -> bool {
        let stocks = std::mem::take(&mut *self.driver.memory.ahead.stocks());
        let ready: Vec<u64> = stocks.into_values().flat_map(|stock| stock.ready).collect();
        for &address in &ready {
            // A context that is gone took its memory with it.
            let _ = calls::cuMemFree_v2(&mut self.call(), DevicePtr(address));
        }
        !ready.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_often_is_kept_up_to_a_limit() {
        let ahead = Ahead::default();
        assert!(!ahead.wants(1, 4096));
        let stock = |asked, count| Stock { ready: vec![0; count], asked };
        ahead.stocks().insert((1, 4096), stock(ONE_BY_ONE - 1, 0));
        assert!(!ahead.wants(1, 4096), "a few only");
        ahead.stocks().insert((1, 4096), stock(ONE_BY_ONE, 255));
        assert!(ahead.wants(1, 4096) && !ahead.wants(2, 4096) && !ahead.wants(1, 8192));
        ahead.stocks().insert((1, 4096), stock(ONE_BY_ONE, 256));
        assert!(!ahead.wants(1, 4096), "a mebibyte lies ready");
        ahead.stocks().insert((1, 4096), stock(ONE_BY_ONE, 0));
        ahead.share();
        assert!(!ahead.wants(1, 4096));
    }

    #[test]
    fn more_are_made_at_once_the_more_are_asked_for() {
        let counts = |bytes| -> Vec<u64> {
            (1..13).map(|asked| Stock { asked, ..Stock::default() }.count(bytes)).collect()
        };
        assert_eq!(counts(4096), [1, 1, 1, 2, 4, 8, 16, 32, 64, 64, 64, 64]);
        assert_eq!(counts(MAX_BYTES), [1, 1, 1, 2, 4, 8, 16, 16, 16, 16, 16, 16]);
    }
}
