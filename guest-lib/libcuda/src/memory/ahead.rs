// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A stock of short allocations: a program that makes many of one size gets most of them without a call to the device.
//!
//! The allocations are the driver's, like all others, made in the context that will use them. Freed allocations of such
//! sizes return to the stock, if the device permits that. The stock is freed when memory runs out, and before
//! cuMemGetInfo if its result would show it.

use std::sync::atomic::Ordering;

use cuda_environment::speed;
use virtio_cuda_client::protocol::DevicePtr;
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::state::contexts::current;
use crate::state::memory::ready::MAX_BYTES;

/// Maximum number of sizes with a stock.
const MAX_SIZES: usize = 16;

impl Api {
    /// Allocates `bytes` bytes in the current context.
    pub fn allocate(&self, bytes: u64) -> Result<u64, CudaError> {
        let outcome = self.allocate_once(bytes);
        match outcome {
            Err(CudaError::OUT_OF_MEMORY) if self.give_back_ready(true) => self.allocate_once(bytes),
            outcome => outcome,
        }
    }

    fn allocate_once(&self, bytes: u64) -> Result<u64, CudaError> {
        // The stock must not be used if the call may have to fail: while a stream captures, or in a broken context.
        let may = speed::is_on() && bytes <= MAX_BYTES && self.may_post(0) && !self.is_broken();
        let count = if may { self.take_or_count(bytes) } else { Err(1) };
        match count {
            Ok(address) => Ok(address),
            Err(0 | 1) => Ok(calls::cuMemAlloc_v2(&mut self.in_context()?, bytes)?.0),
            Err(count) => self.allocate_many(bytes, count as usize),
        }
    }

    /// Takes an address from the stock, or returns the number of allocations to request.
    fn take_or_count(&self, bytes: u64) -> Result<u64, u64> {
        let mut stocks = self.driver.memory.ahead.stocks();
        if stocks.len() >= MAX_SIZES && !stocks.contains_key(&(current(), bytes)) {
            // Sizes with an empty stock are removed.
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
        // Addresses are used in the order of the driver.
        let (addresses, _) = room.as_chunks();
        let addresses = addresses.iter().take(made as usize).rev().map(|bytes| u64::from_le_bytes(*bytes));
        let mut addresses: Vec<u64> = addresses.collect();
        let first = addresses.pop().ok_or(CudaError::OUT_OF_MEMORY)?;
        let mut stocks = self.driver.memory.ahead.stocks();
        stocks.entry((current(), bytes)).or_default().ready.splice(0..0, addresses);
        Ok(first)
    }

    /// Frees an allocation of `bytes` bytes that was made in `context`, or adds it to the stock.
    pub fn free_or_keep(&self, address: u64, bytes: u64, context: u64) -> Result<(), CudaError> {
        let ahead = &self.driver.memory.ahead;
        let may = speed::is_on() && bytes <= MAX_BYTES && context == current() && self.may_post(0);
        if !may || self.is_broken() || !ahead.wants(context, bytes) {
            return calls::cuMemFree_v2(&mut self.call(), DevicePtr(address));
        }
        // The driver's free would wait for the context's work. This library must not wait instead: a wait for a context
        // ends captures that another thread has begun meanwhile, but freeing memory does not.
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

    /// Frees the stock, all of it with what pools keep unused, or what cuMemGetInfo would show. Returns whether anything was freed.
    pub fn give_back_ready(&self, all: bool) -> bool {
        let pooled = all && self.driver.local_pools.release_unused(*self);
        let ready = self.driver.memory.ahead.take_ready(all);
        for &address in &ready {
            // A destroyed context has already freed its memory.
            let _ = calls::cuMemFree_v2(&mut self.internal().call(), DevicePtr(address));
        }
        pooled || !ready.is_empty()
    }
}
