// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Calls that need not wait. A function that only queues work returns before the work is done, but reports its own
//! errors at once. A call therefore waits the first time that its numbers are used: sizes, types, layouts, what its handles
//! describe, and for addresses what a library checks of them. That is whether they are null, their alignment, and which are equal
//! (work in place). Afterwards it is posted: the library has accepted all that its answer depends on.

use std::sync::{PoisonError, RwLock};

use cuda_library_rows::Call;
use cuda_library_rows::attributes::alignment;
use rustc_hash::FxHashSet;

/// Maximum number of stored combinations. Limits the process's memory; beyond it all are forgotten.
const MAX_KNOWN: usize = 1 << 14;

/// Combinations of numbers that a library has accepted.
#[derive(Debug)]
pub struct Proven(RwLock<Option<FxHashSet<u64>>>);

impl Proven {
    /// Returns an empty set.
    pub const fn new() -> Self {
        Self(RwLock::new(None))
    }

    /// Returns whether the library has accepted the combination with this key.
    pub fn contains(&self, key: u64) -> bool {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .is_some_and(|known| known.contains(&key))
    }

    /// Adds a combination that the library has accepted.
    pub fn add(&self, key: u64) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(key);
    }
}

/// The key of a call: its function, the slots of numbers, which arguments are null, the alignments of addresses, and the host memory
/// that the library reads, except scalars. Beside it the scalars, on which the choice of kernels may depend, but no error.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    call: u64,
    scalars: u64,
}

impl Key {
    /// Returns the key of a call without the memory that it reads.
    pub fn new(function: usize, call: &Call, slots: &[u64]) -> Self {
        let mut key = Self { call: function as u64, scalars: 0 };
        call.roles.values.iter().filter_map(|index| slots.get(*index)).for_each(|value| key.add(*value));
        key.add_presence(slots);
        let addresses = call.roles.addresses.iter().filter_map(|index| slots.get(*index));
        key.add_addresses(addresses.copied());
        key
    }

    /// Adds what is known of a handle.
    pub fn add_handle(&mut self, known: u64) {
        self.add(known);
    }

    /// Adds, for each slot, whether it is null.
    fn add_presence(&mut self, slots: &[u64]) {
        let presence =
            |slots: &[u64]| slots.iter().fold(0, |present, slot| present << 1 | u64::from(*slot != 0));
        slots.chunks(u64::BITS as usize).for_each(|slots| self.add(presence(slots)));
    }

    /// Adds, for each address, its alignment and the first one that is equal.
    pub fn add_addresses(&mut self, addresses: impl Iterator<Item = u64> + Clone) {
        for (index, address) in addresses.clone().enumerate() {
            let first = addresses.clone().take(index).position(|other| other == address).unwrap_or(index);
            self.add(alignment(address) << 32 | first as u64);
        }
    }

    /// Adds memory that the library reads.
    pub fn add_words(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.add(*word));
    }

    /// Adds scalars in host memory.
    pub fn add_scalars(&mut self, words: &[u64]) {
        self.scalars = words.iter().fold(self.scalars, |mixed, word| mix(mixed, *word));
    }

    fn add(&mut self, part: u64) {
        self.call = mix(self.call, part);
    }

    /// Returns the key as a number.
    pub fn get(self) -> u64 {
        self.call ^ self.call >> 29
    }

    /// Returns a number for the scalars.
    pub fn scalars(self) -> u64 {
        self.scalars
    }
}

/// A multiplicative hash that mixes all bits in each step (as in FxHash, with a rotation).
pub fn mix(mixed: u64, part: u64) -> u64 {
    (mixed.rotate_left(23) ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use cuda_api_description::libraries::library;
    use cuda_library_rows::Body;

    use super::*;

    #[test]
    fn numbers_and_nulls_make_the_key() {
        let rows = "handle H\n0 forward f(h: H, n: i32, p: ptr) [writes];\n";
        let library = library(rows, "").expect("valid").library;
        let Body::Forward(call) = &library.functions[0].body else { panic!("{library:?}") };
        let of = |slots: [u64; 3]| Key::new(0, call, &slots).get();
        assert_eq!(of([1, 5, 0x1000]), of([2, 5, 0x2000]));
        assert_ne!(of([1, 5, 0x1000]), of([1, 6, 0x1000]));
        assert_ne!(of([1, 5, 0x1000]), of([1, 5, 0]));
        assert_ne!(of([1, 5, 0x1000]), of([1, 5, 0x1004]), "another alignment");
        assert_eq!(of([1, 5, 0x1004]), of([1, 5, 0x200c]));
        assert_ne!(Key::new(0, call, &[1, 5, 1]).get(), Key::new(1, call, &[1, 5, 1]).get());
        let mut longer = Key::new(0, call, &[1, 5, 1]);
        longer.add_words(&[1, 2]);
        assert_ne!(longer.get(), of([1, 5, 1]));
        let mut scaled = Key::new(0, call, &[1, 5, 1]);
        scaled.add_scalars(&[1, 2]);
        assert_eq!(scaled.get(), of([1, 5, 1]), "no error depends on a scalar");
        assert_ne!(scaled.scalars(), Key::new(0, call, &[1, 5, 1]).scalars());
        let mut born = Key::new(0, call, &[1, 5, 1]);
        born.add_handle(16);
        assert_ne!(born.get(), of([1, 5, 1]));
    }

    #[test]
    fn equal_addresses_make_the_key() {
        let of = |addresses: &[u64]| {
            let mut key = Key { call: 0, scalars: 0 };
            key.add_addresses(addresses.iter().copied());
            key.get()
        };
        assert_eq!(of(&[0x1000, 0x2000, 0x1000]), of(&[0x3000, 0x4000, 0x3000]));
        assert_ne!(of(&[0x1000, 0x2000, 0x1000]), of(&[0x1000, 0x2000, 0x2000]));
        assert_ne!(of(&[0x1000, 0x2000, 0x1000]), of(&[0x1000, 0x2000, 0x3000]));
    }
}
