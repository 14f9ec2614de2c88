// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory that a session is charged for, in the units in which the driver takes device memory, and its limits.
//!
//! * `cuMemAlloc` above 1 MiB takes whole blocks of 2 MiB. Smaller allocations share such blocks: the first one in a
//!   block is charged all of it, the last one that ends gives it back. (512 allocations of 1 MiB + 1 byte take 1024 MiB
//!   of an H200.)
//! * Everything else has a [`Holder`], whose charge is replaced as a whole.
//!
//! Each charge counts for the session and, if the virtual machine has a limit of its own, for the machine.

use std::collections::{BTreeSet, HashMap};

use vhost_cuda_common::account::{CONTEXT_BYTES, Share};
use vhost_cuda_common::statistics;

use crate::gpu::{CuResult, CudaError};

/// The driver's unit of device memory.
pub const BLOCK: u64 = 2 << 20;
/// Allocations up to this share blocks.
const SHARED: u64 = 1 << 20;
/// The driver's unit inside of blocks and pools.
const PIECE: u64 = 512;

/// A holder of device memory, besides ranges that the guest can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// An array or mipmapped array.
    Array(u64),
    /// Code and variables of a module.
    Module(u64),
    /// Code and variables of a library.
    Library(u64),
    /// A context.
    Context(u64),
    /// A limit (`CUlimit`) of a context that was raised.
    Limit(u64, i32),
    /// Local memory of a context's threads.
    Local(u64),
    /// The memory that a pool keeps beyond its allocations.
    Pool(usize),
    /// The memory that a device keeps for graphs beyond their allocations.
    Graphs(i32),
    /// Memory that is freed when an event has completed.
    Freed(usize),
}

/// What the machine's counter of the session has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Counter {
    /// The charges of this worker.
    #[default]
    Own,
    /// Those of the worker that the session is leaving for this one. This one changes nothing.
    OfTheOther,
    /// The same, but that worker has ended when this one charges next.
    Left,
}

/// The charges of a session.
#[derive(Debug, Default)]
pub struct Quota {
    limit: Option<u64>,
    machine: Option<Share>,
    used: u64,
    /// Allocations in each block that is shared.
    blocks: HashMap<u64, u32>,
    /// Devices whose primary contexts count for the machine.
    primaries: BTreeSet<i32>,
    /// True if a charge was refused since [`Quota::take_refusal`].
    refused: bool,
    counter: Counter,
    /// Bytes, and the context with which they end (0: none).
    holders: HashMap<Holder, (u64, u64)>,
}

/// Returns the bytes that an allocation takes by itself: 0 for one that shares a block.
pub fn alone(bytes: u64) -> u64 {
    if bytes <= SHARED { 0 } else { bytes.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX) }
}

/// Returns the bytes that a holder takes if it is unknown with what it shares blocks.
pub fn rounded(bytes: u64) -> u64 {
    match alone(bytes) {
        0 => in_pool(bytes),
        bytes => bytes,
    }
}

/// Returns the bytes that memory of another process takes: whole blocks, which stay as long as it is open, whatever their owner frees.
pub fn opened(bytes: u64) -> u64 {
    bytes.max(1).checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX)
}

/// Returns the bytes that an allocation takes in a pool.
pub fn in_pool(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(PIECE).unwrap_or(u64::MAX)
}

impl Quota {
    /// Allows at most `limit` bytes.
    pub fn new(limit: Option<u64>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Counts all charges for the machine, too, from now on.
    pub fn join(&mut self, machine: Share) {
        self.machine = Some(machine);
    }

    /// Charges only the session from now on, because the machine is charged by the worker that it comes from. Both have one counter: if this
    /// worker ends before it has the session, nothing has changed.
    pub fn enter(&mut self) {
        self.counter = Counter::OfTheOther;
    }

    /// Charges the machine again from the next charge on: the other worker has ended then.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY` if the machine may not have so much.
    pub fn entered(&mut self) -> CuResult<()> {
        let bytes = self.charged_to_machine();
        if !self.machine.as_ref().is_none_or(|machine| machine.allows(bytes)) {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        self.counter = Counter::Left;
        Ok(())
    }

    fn charged_to_machine(&self) -> u64 {
        (self.primaries.len() as u64 * CONTEXT_BYTES).saturating_add(self.used)
    }

    /// Returns the machine, whose counter has what this worker has charged so far. `None` while another worker charges it.
    fn machine(&mut self) -> Option<&Share> {
        let machine = self.machine.as_ref().filter(|_| self.counter != Counter::OfTheOther)?;
        if self.counter == Counter::Left {
            machine.settle(self.charged_to_machine());
            self.counter = Counter::Own;
        }
        Some(machine)
    }

    /// Returns whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some() || self.machine.is_some()
    }

    /// Bytes that are charged.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Returns the memory that the session may use and the free part of it, if there is a limit.
    pub fn memory(&self) -> Option<(u64, u64)> {
        let own = self.limit.map(|limit| (limit, limit.saturating_sub(self.used)));
        let machine = self.machine.as_ref().map(Share::memory);
        match (own, machine) {
            (Some((total, free)), Some((all, rest))) => Some((total.min(all), free.min(rest))),
            (own, machine) => own.or(machine),
        }
    }

    /// Takes `bytes`, before the driver is asked for them.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn charge(&mut self, bytes: u64) -> CuResult<()> {
        let sum = self.used.checked_add(bytes).ok_or(CudaError::OUT_OF_MEMORY)?;
        if bytes > 0 {
            let fits = self.limit.is_none_or(|limit| sum <= limit);
            if !fits || !self.machine().is_none_or(|machine| machine.charge(bytes)) {
                self.refused = true;
                return Err(CudaError::OUT_OF_MEMORY);
            }
        }
        self.set_used(sum);
        Ok(())
    }

    /// Returns whether a limit has refused memory since the last question: then the device may have some.
    pub fn take_refusal(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    /// Gives back what [`Self::charge`] took.
    pub fn discharge(&mut self, bytes: u64) {
        let bytes = bytes.min(self.used);
        if let Some(machine) = self.machine() {
            machine.discharge(bytes);
        }
        self.set_used(self.used - bytes);
    }

    /// Takes the blocks of an allocation that shares them.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn share(&mut self, base: u64, bytes: u64) -> CuResult<()> {
        if !self.is_limited() {
            // The exact figure does not matter.
            return self.charge(in_pool(bytes));
        }
        let new = blocks(base, bytes).filter(|block| !self.blocks.contains_key(block)).count() as u64;
        self.charge(new * BLOCK)?;
        for block in blocks(base, bytes) {
            *self.blocks.entry(block).or_default() += 1;
        }
        Ok(())
    }

    /// Gives back what [`Self::share`] took.
    pub fn unshare(&mut self, base: u64, bytes: u64) {
        if !self.is_limited() {
            return self.discharge(in_pool(bytes));
        }
        for block in blocks(base, bytes) {
            let Some(count) = self.blocks.get_mut(&block) else { continue };
            *count -= 1;
            if *count == 0 {
                self.blocks.remove(&block);
                self.discharge(BLOCK);
            }
        }
    }

    /// Sets a holder's charge.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`; the charge is as before then.
    pub fn hold(&mut self, holder: Holder, bytes: u64, context: u64) -> CuResult<()> {
        let before = self.held(holder);
        self.charge(bytes.saturating_sub(before))?;
        self.discharge(before.saturating_sub(bytes));
        self.note(holder, bytes, context);
        Ok(())
    }

    /// Sets a holder's charge to the bytes that the driver has taken already, regardless of the limit.
    pub fn force(&mut self, holder: Holder, bytes: u64) {
        let before = self.held(holder);
        let more = bytes.saturating_sub(before);
        if more > 0
            && let Some(machine) = self.machine()
        {
            machine.force(more);
        }
        self.set_used(self.used.saturating_add(more));
        self.discharge(before.saturating_sub(bytes));
        self.note(holder, bytes, 0);
    }

    fn set_used(&mut self, bytes: u64) {
        self.used = bytes;
        statistics::set_device_memory(bytes);
    }

    fn note(&mut self, holder: Holder, bytes: u64, context: u64) {
        if bytes > 0 {
            self.holders.insert(holder, (bytes, context));
        } else {
            self.holders.remove(&holder);
        }
    }

    /// A holder's charge.
    pub fn held(&self, holder: Holder) -> u64 {
        self.holders.get(&holder).map_or(0, |&(bytes, _)| bytes)
    }

    /// The charges of all libraries, which every context has.
    pub fn libraries(&self) -> u64 {
        let libraries = self.holders.iter().filter(|(holder, _)| matches!(holder, Holder::Library(_)));
        libraries.map(|(_, &(bytes, _))| bytes).sum()
    }

    /// Returns the number of contexts, including the one that every session has.
    pub fn contexts(&self) -> u64 {
        let created = self.holders.keys().filter(|holder| matches!(holder, Holder::Context(_))).count();
        (1 + created + self.primaries.len()) as u64
    }

    /// Charges a context that the guest creates, with the charges of all libraries in it.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn create_context(&mut self, context: u64) -> CuResult<()> {
        let libraries = self.libraries() / self.contexts();
        self.hold(Holder::Context(context), CONTEXT_BYTES.saturating_add(libraries), context)
    }

    /// Charges the primary context of a device other than the first. A session may have one of each device; they count for
    /// the machine alone.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn retain_primary(&mut self, device: i32) -> CuResult<()> {
        let new = !self.primaries.contains(&device);
        if new && !self.machine().is_none_or(|machine| machine.charge(CONTEXT_BYTES)) {
            self.refused = true;
            return Err(CudaError::OUT_OF_MEMORY);
        }
        self.primaries.insert(device);
        Ok(())
    }

    /// Gives back what [`Self::retain_primary`] took.
    pub fn release_primary(&mut self, device: i32) {
        if self.primaries.contains(&device)
            && let Some(machine) = self.machine()
        {
            machine.discharge(CONTEXT_BYTES);
        }
        self.primaries.remove(&device);
    }

    /// Gives back a holder's charge.
    pub fn let_go(&mut self, holder: Holder) {
        if let Some((bytes, _)) = self.holders.remove(&holder) {
            self.discharge(bytes);
        }
    }

    /// Gives back the charges of holders that ended with a context.
    pub fn forget_context(&mut self, context: u64) {
        let of_it = self.holders.iter().filter(|(_, (_, of))| *of == context && context != 0);
        for holder in of_it.map(|(&holder, _)| holder).collect::<Vec<_>>() {
            self.let_go(holder);
        }
    }
}

fn blocks(base: u64, bytes: u64) -> impl Iterator<Item = u64> {
    base / BLOCK..=base.saturating_add(bytes.max(1) - 1) / BLOCK
}

#[cfg(test)]
mod tests {
    use vhost_cuda::limits::account::Account;

    use super::*;

    #[test]
    fn sizes_are_the_drivers() {
        assert_eq!([1, 1 << 20].map(alone), [0, 0]);
        assert_eq!([(1 << 20) + 1, BLOCK, BLOCK + 1].map(alone), [BLOCK, BLOCK, 2 * BLOCK]);
        assert_eq!([1, 512, 513, (1 << 20) + 1].map(rounded), [512, 512, 1024, BLOCK]);
        assert_eq!(
            [0, 1, BLOCK, BLOCK + 1, u64::MAX].map(opened),
            [BLOCK, BLOCK, BLOCK, 2 * BLOCK, u64::MAX]
        );
        assert_eq!([u64::MAX, u64::MAX - 1].map(rounded), [u64::MAX; 2]);
    }

    #[test]
    fn a_block_counts_as_long_as_something_is_in_it() {
        let mut quota = Quota::new(Some(2 * BLOCK));
        quota.share(0, 512).unwrap();
        quota.share(512, 512).unwrap();
        assert_eq!(quota.used(), BLOCK);
        // Into the second block.
        quota.share(BLOCK - 512, 1024).unwrap();
        assert_eq!(quota.used(), 2 * BLOCK);
        assert_eq!(quota.share(2 * BLOCK, 1), Err(CudaError::OUT_OF_MEMORY));
        quota.unshare(0, 512);
        quota.unshare(BLOCK - 512, 1024);
        assert_eq!(quota.used(), BLOCK);
        quota.unshare(512, 512);
        quota.unshare(512, 512);
        assert_eq!(quota.used(), 0);
    }

    #[test]
    fn charges_are_replaced_and_go_with_their_context() {
        let mut quota = Quota::new(Some(100));
        quota.hold(Holder::Array(1), 60, 9).unwrap();
        assert_eq!(quota.hold(Holder::Module(1), 41, 9), Err(CudaError::OUT_OF_MEMORY));
        quota.hold(Holder::Array(1), 50, 9).unwrap();
        quota.hold(Holder::Module(1), 41, 8).unwrap();
        assert_eq!(quota.memory(), Some((100, 9)));
        assert_eq!(quota.hold(Holder::Array(1), 60, 9), Err(CudaError::OUT_OF_MEMORY));
        assert_eq!(quota.held(Holder::Array(1)), 50);
        quota.forget_context(9);
        assert_eq!(quota.used(), 41);
        quota.force(Holder::Pool(3), 200);
        assert_eq!(quota.memory(), Some((100, 0)));
        quota.let_go(Holder::Pool(3));
        quota.let_go(Holder::Module(1));
        assert_eq!(quota.used(), 0);
    }

    #[test]
    fn the_machine_is_asked_as_well() {
        let account = Account::open(100, 1).unwrap();
        let slot = account.join().unwrap().unwrap();
        let (terms, file) = slot.terms();
        let mut quota = Quota::new(Some(1000));
        quota.join(Share::map(terms, file).unwrap());
        assert!(!quota.take_refusal());
        assert_eq!(quota.charge(101), Err(CudaError::OUT_OF_MEMORY));
        quota.charge(70).unwrap();
        assert!(quota.take_refusal() && !quota.take_refusal());
        assert_eq!(quota.memory(), Some((100, 30)));
        quota.discharge(1000);
        assert_eq!(quota.memory(), Some((100, 100)), "no more than was taken");
    }

    #[test]
    fn two_workers_of_a_session_charge_its_machine_once() {
        let account = Account::open(100, 1).unwrap();
        let slot = account.join().unwrap().unwrap();
        let joined = || {
            let (terms, file) = slot.terms();
            let mut quota = Quota::new(None);
            quota.join(Share::map(terms, file).unwrap());
            quota
        };
        let mut old = joined();
        old.charge(70).unwrap();
        let free = |quota: &Quota| quota.memory().map(|(_, free)| free);
        // One that ends on its way leaves nothing.
        let mut fails = joined();
        fails.enter();
        fails.charge(101).unwrap();
        assert_eq!((fails.entered(), free(&old)), (Err(CudaError::OUT_OF_MEMORY), Some(30)));
        drop(fails);
        old.discharge(10);
        old.charge(10).unwrap();
        let mut fresh = joined();
        fresh.enter();
        fresh.charge(60).unwrap();
        fresh.retain_primary(1).unwrap();
        fresh.release_primary(1);
        assert_eq!((fresh.entered(), free(&fresh)), (Ok(()), Some(30)), "the other one is charged");
        drop(old);
        fresh.discharge(5);
        assert_eq!((free(&fresh), fresh.used()), (Some(45), 55));
        assert!(fresh.charge(46).is_err() && fresh.charge(45).is_ok());
    }
}
