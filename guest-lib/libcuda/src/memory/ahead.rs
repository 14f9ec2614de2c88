// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Short allocations ahead of need: who allocates many of one size gets most of them without asking the device.
//!
//! They are allocations of the driver like all others, made in the context that they are for. What is freed of such
//! sizes lies ready, too, if the device leaves it to us. What lies ready is given back when memory runs out, and where
//! cuMemGetInfo would see it.

use std::sync::atomic::Ordering;

use virtio_cuda_client::protocol::DevicePtr;
use virtio_cuda_client::{CudaError, calls};

use crate::context::table::current;
use crate::entry::Api;
use crate::memory::table::ready::MAX_BYTES;

/// Sizes that are remembered.
const MAX_SIZES: usize = 16;

impl Api {
    /// An allocation of `bytes` bytes in the current context.
    pub fn allocate(&self, bytes: u64) -> Result<u64, CudaError> {
        let outcome = self.allocate_once(bytes);
        match outcome {
            Err(CudaError::OUT_OF_MEMORY) if self.give_back_ready(true) => self.allocate_once(bytes),
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

    /// Takes an address that is ready, or returns the number to request.
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
        let made = calls::memory_alloc_many(&mut self.in_context()?.output(&mut room), bytes)?;
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
        // The driver would wait for the context's work, which this library must not do in its place: a wait for a context ends
        // captures that another thread has begun meanwhile, and freeing memory does not.
        if !self.is_idle() {
            return calls::cuMemFree_v2(&mut self.call(), DevicePtr(address));
        }
        let keeps = ahead.ours.load(Ordering::Relaxed)
            || calls::memory_free_or_keep(&mut self.in_context()?, DevicePtr(address))? != 0;
        if keeps {
            ahead.ours.store(true, Ordering::Relaxed);
            ahead.stocks().entry((context, bytes)).or_default().ready.push(address);
        }
        Ok(())
    }

    /// Frees what lies ready, all of it or what cuMemGetInfo would see. Returns whether there was anything.
    pub fn give_back_ready(&self, all: bool) -> bool {
        let ready = self.driver.memory.ahead.take_ready(all);
        for &address in &ready {
            // A destroyed context took its memory with it.
            let _ = calls::cuMemFree_v2(&mut self.call(), DevicePtr(address));
        }
        !ready.is_empty()
    }
}
