// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The program's arrays and their constant properties.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::ArrayDescriptor;

use crate::handles::{Kind, refusal};

/// An array, a level of a mipmapped array, or a plane of an array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Array {
    /// The description.
    pub descriptor: ArrayDescriptor,
    /// The context in which it was created.
    pub context: u64,
    /// The mipmapped array of a level, the array of a plane; else 0.
    pub owner: u64,
}

#[derive(Debug, Default)]
struct Tables {
    arrays: HashMap<u64, Array>,
    /// The context and the flags of each mipmapped array.
    mipmaps: HashMap<u64, (u64, u32)>,
    /// Handles of levels and planes that were requested before, by owner and number.
    parts: HashMap<(u64, u32), u64>,
}

/// All arrays and mipmapped arrays by handle.
#[derive(Debug, Default)]
pub struct Arrays(Mutex<Tables>);

impl Arrays {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a new array.
    pub fn add(&self, handle: u64, array: Array) {
        self.lock().arrays.insert(handle, array);
    }

    /// Adds a new mipmapped array.
    pub fn add_mipmap(&self, handle: u64, context: u64, flags: u32) {
        self.lock().mipmaps.insert(handle, (context, flags));
    }

    /// Adds a part of `array.owner`. Returns its handle, which is an earlier one if another thread has added the part
    /// before.
    pub fn add_part(&self, number: u32, handle: u64, array: Array) -> u64 {
        let mut tables = self.lock();
        let first = *tables.parts.entry((array.owner, number)).or_insert(handle);
        tables.arrays.insert(handle, array);
        first
    }

    /// Returns the handle of a part, if it was requested before.
    pub fn part(&self, owner: u64, number: u32) -> Option<u64> {
        self.lock().parts.get(&(owner, number)).copied()
    }

    /// Returns an array.
    pub fn get(&self, handle: u64) -> Result<Array, CudaError> {
        self.lock().arrays.get(&handle).copied().ok_or_else(|| refusal(Kind::Array, handle))
    }

    /// Checks that there is such an array.
    pub fn check(&self, handle: u64) -> Result<(), CudaError> {
        self.get(handle).map(|_| ())
    }

    /// Checks that there is such a mipmapped array.
    pub fn check_mipmap(&self, handle: u64) -> Result<(), CudaError> {
        self.flags_of_mipmap(handle).map(|_| ())
    }

    /// Returns the flags with which a mipmapped array was created.
    pub fn flags_of_mipmap(&self, handle: u64) -> Result<u32, CudaError> {
        let flags = self.lock().mipmaps.get(&handle).map(|&(_, flags)| flags);
        flags.ok_or_else(|| refusal(Kind::Levels, handle))
    }

    /// Removes an array or mipmapped array and its parts.
    pub fn remove(&self, handle: u64) {
        let mut tables = self.lock();
        tables.arrays.remove(&handle);
        tables.mipmaps.remove(&handle);
        tables.arrays.retain(|_, array| array.owner != handle);
        tables.parts.retain(|(owner, _), _| *owner != handle);
    }

    /// Removes the arrays of a destroyed context.
    pub fn forget_context(&self, context: u64) {
        let mut tables = self.lock();
        tables.arrays.retain(|_, array| array.context != context);
        tables.mipmaps.retain(|_, (of, _)| *of != context);
        let Tables { arrays, mipmaps, parts } = &mut *tables;
        parts.retain(|(owner, _), _| arrays.contains_key(owner) || mipmaps.contains_key(owner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_with_their_owner() {
        let arrays = Arrays::default();
        let level = |context| Array { descriptor: ArrayDescriptor::default(), context, owner: 16 };
        arrays.add_mipmap(16, 7, 0);
        assert_eq!(arrays.add_part(2, 32, level(7)), 32);
        assert_eq!(arrays.add_part(2, 48, level(7)), 32, "another thread was slower");
        assert_eq!(arrays.part(16, 2), Some(32));
        arrays.remove(16);
        assert!(arrays.check(32).is_err() && arrays.check(48).is_err() && arrays.part(16, 2).is_none());
        arrays.add_mipmap(64, 7, 0);
        arrays.add_part(0, 80, Array { owner: 64, ..level(7) });
        arrays.forget_context(7);
        assert!(arrays.check_mipmap(64).is_err() && arrays.part(64, 0).is_none());
    }
}
