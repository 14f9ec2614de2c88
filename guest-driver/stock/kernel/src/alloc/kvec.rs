// SPDX-License-Identifier: GPL-2.0-only

//! A vector whose growth may fail.

use super::{check_align, AllocError, Allocator, Flags};
use core::{
    marker::PhantomData,
    mem::{size_of, ManuallyDrop},
    ops::{Deref, DerefMut},
    ptr::{self, NonNull},
    slice,
};

/// A vector.
///
/// # Invariants
///
/// `start` has room for `capacity` values, in memory of `A` unless that is no bytes; the first `len` are valid.
pub struct Vec<T, A: Allocator> {
    start: NonNull<T>,
    len: usize,
    capacity: usize,
    _type: PhantomData<(T, A)>,
}

// SAFETY: It owns its values.
unsafe impl<T: Send, A: Allocator> Send for Vec<T, A> {}
// SAFETY: It owns its values.
unsafe impl<T: Sync, A: Allocator> Sync for Vec<T, A> {}

// The values do not move with the vector.
impl<T, A: Allocator> Unpin for Vec<T, A> {}

/// The vector has no room; contains the value.
pub struct PushError<T>(pub T);

/// The index is out of range.
#[derive(Debug)]
pub struct RemoveError;

impl<T, A: Allocator> Vec<T, A> {
    /// Returns an empty vector without memory.
    pub const fn new() -> Self {
        const { check_align::<T>() };
        // INVARIANT: No capacity and no values; values without bytes need no memory.
        Self {
            start: NonNull::dangling(),
            len: 0,
            capacity: if size_of::<T>() == 0 { usize::MAX } else { 0 },
            _type: PhantomData,
        }
    }

    /// Returns an empty vector with room for `capacity` values.
    pub fn with_capacity(capacity: usize, flags: Flags) -> Result<Self, AllocError> {
        let mut this = Self::new();
        this.reserve(capacity, flags)?;
        Ok(this)
    }

    /// Returns a vector of `count` copies of `value`.
    pub fn from_elem(value: T, count: usize, flags: Flags) -> Result<Self, AllocError>
    where
        T: Clone,
    {
        let mut this = Self::new();
        this.resize(count, value, flags)?;
        Ok(this)
    }

    /// Returns the number of values for which there is room.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes room for `more` additional values.
    pub fn reserve(&mut self, more: usize, flags: Flags) -> Result<(), AllocError> {
        let needed = self.len.checked_add(more).ok_or(AllocError)?;
        if needed <= self.capacity {
            return Ok(());
        }
        // Growing by at least half makes repeated pushes cheap.
        let capacity = if self.len == 0 {
            needed
        } else {
            needed.max(self.capacity.saturating_add(self.capacity / 2))
        };
        let bytes = capacity
            .checked_mul(size_of::<T>())
            .filter(|bytes| *bytes <= isize::MAX as usize)
            .ok_or(AllocError)?;
        let memory: NonNull<T> = NonNull::new(A::alloc(bytes, flags).cast()).ok_or(AllocError)?;
        // SAFETY: The new memory has room for the valid values; they are moved.
        unsafe { ptr::copy_nonoverlapping(self.start.as_ptr(), memory.as_ptr(), self.len) };
        self.free();
        // INVARIANT: The new memory has this capacity.
        self.start = memory;
        self.capacity = capacity;
        Ok(())
    }

    /// Frees the memory, not the values.
    fn free(&mut self) {
        if self.capacity != 0 && size_of::<T>() != 0 {
            // SAFETY: By the invariant; the caller sets another start or never uses it again.
            unsafe { A::free(self.start.as_ptr().cast()) };
        }
    }

    /// Appends a value.
    pub fn push(&mut self, value: T, flags: Flags) -> Result<(), AllocError> {
        self.reserve(1, flags)?;
        // There is room.
        let _ = self.push_within_capacity(value);
        Ok(())
    }

    /// Appends a value if there is room.
    pub fn push_within_capacity(&mut self, value: T) -> Result<(), PushError<T>> {
        if self.len >= self.capacity {
            return Err(PushError(value));
        }
        // SAFETY: There is room after the last value.
        unsafe { self.start.as_ptr().add(self.len).write(value) };
        // INVARIANT: The value is valid now.
        self.len += 1;
        Ok(())
    }

    /// Removes and returns the last value.
    pub fn pop(&mut self) -> Option<T> {
        // INVARIANT: The value is no longer counted.
        self.len = self.len.checked_sub(1)?;
        // SAFETY: It was valid, and is not used again.
        Some(unsafe { self.start.as_ptr().add(self.len).read() })
    }

    /// Removes and returns the value at `place`; the values after it move up.
    pub fn remove(&mut self, place: usize) -> Result<T, RemoveError> {
        if place >= self.len {
            return Err(RemoveError);
        }
        // INVARIANT: One value fewer.
        self.len -= 1;
        // SAFETY: The place is inside.
        unsafe {
            let at = self.start.as_ptr().add(place);
            let value = at.read();
            ptr::copy(at.add(1), at, self.len - place);
            Ok(value)
        }
    }

    /// Drops the values from `len` on.
    pub fn truncate(&mut self, len: usize) {
        while self.len > len {
            drop(self.pop());
        }
    }

    /// Changes the length to `len`; new values are copies of `value`.
    pub fn resize(&mut self, len: usize, value: T, flags: Flags) -> Result<(), AllocError>
    where
        T: Clone,
    {
        self.reserve(len.saturating_sub(self.len), flags)?;
        self.truncate(len);
        while self.len < len {
            // There is room.
            let _ = self.push_within_capacity(value.clone());
        }
        Ok(())
    }

    /// Appends copies of `values`.
    pub fn extend_from_slice(&mut self, values: &[T], flags: Flags) -> Result<(), AllocError>
    where
        T: Clone,
    {
        self.reserve(values.len(), flags)?;
        for value in values {
            // There is room.
            let _ = self.push_within_capacity(value.clone());
        }
        Ok(())
    }
}

impl<T, A: Allocator> Default for Vec<T, A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, A: Allocator> Drop for Vec<T, A> {
    fn drop(&mut self) {
        self.truncate(0);
        self.free();
    }
}

impl<T, A: Allocator> Deref for Vec<T, A> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: The first `len` values are valid (invariant).
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T, A: Allocator> DerefMut for Vec<T, A> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: The first `len` values are valid (invariant).
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<'a, T, A: Allocator> IntoIterator for &'a Vec<T, A> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    fn into_iter(self) -> slice::Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T, A: Allocator> IntoIterator for &'a mut Vec<T, A> {
    type Item = &'a mut T;
    type IntoIter = slice::IterMut<'a, T>;

    fn into_iter(self) -> slice::IterMut<'a, T> {
        self.iter_mut()
    }
}

/// An iterator over the values of a vector.
///
/// # Invariants
///
/// The values of `vec` from `next` on are valid; the length of `vec` is 0.
pub struct IntoIter<T, A: Allocator> {
    vec: ManuallyDrop<Vec<T, A>>,
    next: usize,
    end: usize,
}

impl<T, A: Allocator> IntoIterator for Vec<T, A> {
    type Item = T;
    type IntoIter = IntoIter<T, A>;

    fn into_iter(mut self) -> IntoIter<T, A> {
        let end = core::mem::replace(&mut self.len, 0);
        IntoIter {
            vec: ManuallyDrop::new(self),
            next: 0,
            end,
        }
    }
}

impl<T, A: Allocator> Iterator for IntoIter<T, A> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.next == self.end {
            return None;
        }
        self.next += 1;
        // SAFETY: Valid by the invariant, and before `next` from now on.
        Some(unsafe { self.vec.start.as_ptr().add(self.next - 1).read() })
    }
}

impl<T, A: Allocator> Drop for IntoIter<T, A> {
    fn drop(&mut self) {
        while self.next().is_some() {}
        // SAFETY: Once; it has no values any more.
        unsafe { ManuallyDrop::drop(&mut self.vec) };
    }
}
