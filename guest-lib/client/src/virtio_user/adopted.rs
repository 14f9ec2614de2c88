// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The stretches of memory of which a forked child needs its own copy. The child cannot take a lock, since another thread may have had
//! it at the fork.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::transport::UserMemory;

/// The number of entries of the first block; each block is twice as long as the one before.
const FIRST_BLOCK: usize = 64;
const BLOCKS: usize = 32;

/// A stretch of memory of which a forked child needs its own copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The addresses, whole pages.
    pub memory: UserMemory,
    /// True if the program may write there.
    pub writable: bool,
    /// The address of the mapping that the program has made, if it lives; else 0.
    pub original: usize,
}

/// An entry. A child may find it at any moment of its change.
#[derive(Debug, Default)]
struct Entry {
    address: AtomicUsize,
    original: AtomicUsize,
    /// Bytes, with 1 added if the program may write; 0: there is no stretch.
    bytes: AtomicUsize,
}

/// The number of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(usize);

/// The list. One thread at a time changes it.
///
/// # Invariants
///
/// Each block is null, or a boxed slice of `FIRST_BLOCK << index` entries that is never freed.
#[derive(Debug, Default)]
pub struct AdoptedList {
    blocks: [AtomicPtr<Entry>; BLOCKS],
}

/// The numbers of entries that are free. It is changed with the list.
#[derive(Debug, Default)]
pub struct FreeNumbers {
    free: Vec<usize>,
    made: usize,
}

impl AdoptedList {
    fn block(&self, index: usize) -> &[Entry] {
        let entries = self.blocks[index].load(Ordering::Acquire);
        if entries.is_null() {
            return &[];
        }
        // SAFETY: by the invariant.
        unsafe { std::slice::from_raw_parts(entries, FIRST_BLOCK << index) }
    }

    fn entry(&self, number: usize) -> Option<&Entry> {
        let index = (number / FIRST_BLOCK + 1).ilog2() as usize;
        let before = FIRST_BLOCK * ((1 << index) - 1);
        self.block(index).get(number - before)
    }

    /// Adds a stretch. `None`: there is no room.
    pub fn add(&self, free: &mut FreeNumbers, adopted: Adopted) -> Option<Number> {
        let number = free.free.pop().unwrap_or(free.made);
        let index = (number / FIRST_BLOCK + 1).ilog2() as usize;
        let block = self.blocks.get(index)?;
        if block.load(Ordering::Relaxed).is_null() {
            let entries: Box<[Entry]> = (0..FIRST_BLOCK << index).map(|_| Entry::default()).collect();
            block.store(Box::into_raw(entries).cast(), Ordering::Release);
        }
        free.made = free.made.max(number + 1);
        self.set(Number(number), adopted);
        Some(Number(number))
    }

    /// Changes a stretch.
    pub fn set(&self, Number(number): Number, Adopted { memory, writable, original }: Adopted) {
        let Some(entry) = self.entry(number) else { return };
        if entry.address.load(Ordering::Relaxed) != memory.address {
            entry.bytes.store(0, Ordering::Release);
        }
        entry.address.store(memory.address, Ordering::Release);
        entry.original.store(original, Ordering::Release);
        entry.bytes.store(memory.bytes + usize::from(writable), Ordering::Release);
    }

    /// Removes a stretch.
    pub fn remove(&self, free: &mut FreeNumbers, Number(number): Number) {
        if let Some(entry) = self.entry(number) {
            entry.bytes.store(0, Ordering::Release);
            free.free.push(number);
        }
    }

    /// Returns all stretches. Takes no lock and allocates nothing.
    pub fn all(&self) -> impl Iterator<Item = Adopted> {
        (0..BLOCKS).flat_map(|index| self.block(index)).filter_map(|entry| {
            let bytes = entry.bytes.load(Ordering::Acquire);
            let (address, original) =
                (entry.address.load(Ordering::Acquire), entry.original.load(Ordering::Acquire));
            let memory = UserMemory { address, bytes: bytes & !1 };
            (bytes > 0).then_some(Adopted { memory, writable: bytes & 1 != 0, original })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_and_used_again() {
        let (list, mut free) = (AdoptedList::default(), FreeNumbers::default());
        let of = |page: usize| Adopted {
            memory: UserMemory { address: page << 12, bytes: 4096 },
            writable: page.is_multiple_of(2),
            original: page,
        };
        let numbers: Vec<_> = (0..1000).map(|page| list.add(&mut free, of(page)).expect("room")).collect();
        assert!(list.all().eq((0..1000).map(of)));
        for number in &numbers[..999] {
            list.remove(&mut free, *number);
        }
        assert!(list.all().eq([of(999)]));
        for page in 0..999 {
            list.add(&mut free, of(page)).expect("room");
        }
        assert_eq!((list.all().count(), free.made), (1000, 1000));
        list.set(numbers[999], of(7));
        assert_eq!(list.all().filter(|adopted| *adopted == of(7)).count(), 2);
    }
}
