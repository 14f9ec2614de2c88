// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Slabs of pinned memory for short managed allocations. Pinning and registering pages takes as long as a hundred
//! calls, and programs make lists of such allocations.

use std::sync::{Mutex, MutexGuard, PoisonError};

use range_alloc::RangeAllocator;
use virtio_cuda_client::CudaError;
use virtio_cuda_client::transport::UserMemory;

/// Bytes of a slab.
pub const SLAB_BYTES: u64 = 4 << 20;
/// Longer allocations have separate pages.
pub const MAX_BYTES: u64 = SLAB_BYTES / 2;
/// Alignment of allocations, and the unit of their lengths, in bytes.
const UNIT: u64 = 512;

/// Pages that have the same address on the GPU.
#[derive(Debug)]
pub struct Pages<N> {
    /// The memory.
    pub memory: UserMemory,
    /// Tags of the kept pages.
    pub pinned: Vec<N>,
    /// The context in which they were registered.
    pub context: u64,
}

#[derive(Debug)]
struct Slab<N> {
    pages: Pages<N>,
    /// Free ranges, in units from the first byte on.
    free: RangeAllocator<u64>,
}

/// The slabs of a process. `N` is the type of the tags of kept pages.
#[derive(Debug)]
pub struct Slabs<N>(Mutex<Vec<Slab<N>>>);

fn units(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT).max(1)
}

impl<N> Slab<N> {
    fn start(&self) -> u64 {
        self.pages.memory.address as u64
    }

    fn take(&mut self, bytes: u64) -> Option<u64> {
        let range = self.free.allocate_range(units(bytes)).ok()?;
        Some(self.start() + range.start * UNIT)
    }
}

impl<N> Default for Slabs<N> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<N> Slabs<N> {
    fn lock(&self) -> MutexGuard<'_, Vec<Slab<N>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates `bytes` bytes, at most [`MAX_BYTES`], from a slab of a context. `make` provides the pages for a new
    /// slab: [`SLAB_BYTES`] bytes of zeros.
    ///
    /// Errors: those of `make`.
    pub fn take(
        &self,
        context: u64,
        bytes: u64,
        make: impl FnOnce() -> Result<Pages<N>, CudaError>,
    ) -> Result<u64, CudaError> {
        let of_context = |slab: &&mut Slab<N>| slab.pages.context == context;
        if let Some(address) = self.lock().iter_mut().filter(of_context).find_map(|slab| slab.take(bytes)) {
            return Ok(address);
        }
        // Done without the lock, because it makes calls.
        let mut slab = Slab { pages: make()?, free: RangeAllocator::new(0..SLAB_BYTES / UNIT) };
        let address = slab.take(bytes).ok_or(CudaError::OUT_OF_MEMORY)?;
        self.lock().push(slab);
        Ok(address)
    }

    /// Frees an allocation that is no longer used. Returns the pages of a slab that is no longer needed.
    pub fn give_back(&self, address: u64, bytes: u64) -> Option<Pages<N>> {
        let mut slabs = self.lock();
        let holds = |slab: &Slab<N>| (slab.start()..slab.start() + SLAB_BYTES).contains(&address);
        let index = slabs.iter().position(holds)?;
        let (first, count) = ((address - slabs[index].start()) / UNIT, units(bytes));
        // New allocations are zeros.
        // SAFETY: a part of the slab's pages, which its user has given back.
        unsafe { std::ptr::write_bytes(address as *mut u8, 0, (count * UNIT) as usize) };
        slabs[index].free.free_range(first..first + count);
        let context = slabs[index].pages.context;
        let others = slabs.iter().filter(|slab| slab.pages.context == context).count() > 1;
        (others && slabs[index].free.is_empty()).then(|| slabs.swap_remove(index).pages)
    }

    /// Removes and returns the pages that were registered in a destroyed context.
    pub fn forget_context(&self, context: u64) -> Vec<Pages<N>> {
        self.lock().extract_if(.., |slab| slab.pages.context == context).map(|slab| slab.pages).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(context: u64) -> Pages<u64> {
        let memory = Box::leak(vec![0_u8; SLAB_BYTES as usize].into_boxed_slice());
        Pages { memory: UserMemory::of_mut(memory), pinned: Vec::new(), context }
    }

    #[test]
    fn allocations_share_a_slab_and_are_zeros_again() {
        let slabs = Slabs::default();
        let first = slabs.take(1, 4, || Ok(pages(1))).unwrap();
        let second = slabs.take(1, 513, || panic!("there is room")).unwrap();
        assert_eq!(second - first, UNIT);
        // SAFETY: memory of the slab.
        unsafe { *(second as *mut u8) = 7 };
        assert!(slabs.give_back(second, 513).is_none());
        let third = slabs.take(1, 1024, || panic!("there is room")).unwrap();
        // SAFETY: memory of the slab, which gave it out again.
        assert_eq!((third, unsafe { *(third as *const u8) }), (second, 0));
    }

    #[test]
    fn contexts_have_their_own_and_the_last_slab_stays() {
        let slabs = Slabs::default();
        let all: Vec<u64> = (0..3).map(|_| slabs.take(1, MAX_BYTES, || Ok(pages(1))).unwrap()).collect();
        slabs.take(2, 1, || Ok(pages(2))).unwrap();
        assert!(slabs.give_back(all[0], MAX_BYTES).is_none());
        let removed = slabs.give_back(all[1], MAX_BYTES).expect("the second slab has room for what comes");
        assert_eq!(removed.context, 1);
        assert!(slabs.give_back(all[2], MAX_BYTES).is_none(), "the last one");
        assert!(slabs.give_back(64, 1).is_none(), "not ours");
        assert_eq!((slabs.forget_context(2).len(), slabs.forget_context(2).len()), (1, 0));
    }
}
