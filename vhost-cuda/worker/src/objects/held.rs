// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The objects that one call uses: references to them, and locks of those that CUDA does not synchronise.
//!
//! All of them are released in one place when the call is done, and none before. So a handle that a call has looked
//! up is valid throughout its handler. An object that another call has destroyed meanwhile ends where no lock is
//! held.
//!
//! # Order of locks
//!
//! Captures come first, then families of graphs by their addresses, then executable graphs. A call that uses several
//! families takes them at once. A thread that is too late for a lock in this order only tries it, and continues
//! without it if it is taken.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use parking_lot::{ArcMutexGuard, Mutex, RawMutex};
use smallvec::SmallVec;

use super::recent::{InUse, Recent};
use super::{Object, Table};
use crate::gpu::CuResult;

/// A lock that calls hold while they use objects that CUDA allows only one thread at a time to use.
pub type Exclusive = Arc<Mutex<()>>;

/// Returns a lock that is not held.
pub fn exclusive() -> Exclusive {
    Arc::default()
}

type Guard = ArcMutexGuard<RawMutex, ()>;

/// The number of objects that most calls use at most: context, stream, function, and an event of an attribute.
const FEW: usize = 4;

/// The objects and locks of one call (see the module's documentation).
#[derive(Default)]
pub struct Held {
    objects: RefCell<SmallVec<[Arc<Object>; FEW]>>,
    recent: Recent,
    /// True if objects are looked up each time.
    plain: bool,
    captures: RefCell<Option<Guard>>,
    families: RefCell<SmallVec<[Guard; 1]>>,
    exec: RefCell<Option<Guard>>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("objects", &self.objects).finish_non_exhaustive()
    }
}

impl Held {
    /// Chooses whether objects are looked up each time, also those that were used lately.
    pub fn set_plain(&mut self, plain: bool) {
        self.plain = plain;
    }

    /// Keeps an object until the call is done. Returns the driver's handle.
    pub fn keep<T>(&self, object: Arc<Object>) -> *mut T {
        let raw = object.raw();
        self.objects.borrow_mut().push(object);
        raw
    }

    /// Looks an object up in a table, and keeps it until the call is done.
    ///
    /// Errors: `CUDA_ERROR_INVALID_HANDLE`.
    pub fn named(&self, table: &Table, id: u64) -> CuResult<InUse<'_>> {
        if self.plain {
            return Ok(self.keep_object(table.get(id)?));
        }
        let key = table.key(id);
        match self.recent.find(key) {
            Some(object) => Ok(object),
            None => {
                Ok(self.recent.enter(key, table.get(id)?).unwrap_or_else(|object| self.keep_object(object)))
            }
        }
    }

    /// Keeps the context with that name and number of changes, if it was current in the call before.
    pub fn context(&self, name: u64, epoch: u64) -> bool {
        self.recent.find_context((epoch as usize, name)).is_some()
    }

    /// Keeps the context with that name and number of changes. `stands` returns whether there was no change since.
    pub fn keep_context(
        &self,
        name: u64,
        epoch: u64,
        object: Arc<Object>,
        stands: impl FnOnce() -> bool,
    ) -> InUse<'_> {
        if self.plain {
            return self.keep_object(object);
        }
        let entered = self.recent.enter_context((epoch as usize, name), object, |_| stands());
        entered.unwrap_or_else(|object| self.keep_object(object))
    }

    fn keep_object(&self, object: Arc<Object>) -> InUse<'_> {
        // SAFETY: the reference stays until `release`, for which nothing may borrow this value.
        let in_use = unsafe { InUse::kept_elsewhere(&object) };
        self.keep::<u8>(object);
        in_use
    }

    /// Returns whether the call holds this lock.
    pub fn has(&self, wanted: &Exclusive) -> bool {
        let families = self.families.borrow();
        families.iter().any(|guard| Arc::ptr_eq(ArcMutexGuard::mutex(guard), wanted))
    }

    /// Returns whether the call holds the lock of a family of graphs.
    pub fn has_family(&self) -> bool {
        !self.families.borrow().is_empty()
    }

    /// Returns whether the call holds the lock of an executable graph.
    pub fn has_exec(&self) -> bool {
        self.exec.borrow().is_some()
    }

    /// Returns whether the call holds the lock of captures.
    pub fn has_captures(&self) -> bool {
        self.captures.borrow().is_some()
    }

    /// Locks captures for the rest of the call, unless that is out of order and another call holds them.
    pub fn lock_captures(&self, captures: &Exclusive) {
        let mut held = self.captures.borrow_mut();
        if held.is_none() {
            let late = self.has_family() || self.has_exec();
            *held = if late { captures.try_lock_arc() } else { Some(captures.lock_arc()) };
        }
    }

    /// Unlocks captures that the call does not need.
    pub fn unlock_captures(&self) {
        *self.captures.borrow_mut() = None;
    }

    /// Locks families of graphs for the rest of the call, which does not hold any yet.
    pub fn lock_families(&self, mut families: SmallVec<[Exclusive; 2]>) {
        families.sort_unstable_by_key(Arc::as_ptr);
        families.dedup_by(|one, other| Arc::ptr_eq(one, other));
        debug_assert!(!self.has_family() && !self.has_exec(), "out of order");
        for family in families {
            let guard = family.lock_arc();
            self.families.borrow_mut().push(guard);
        }
    }

    /// Locks a new family of graphs, which no other call knows.
    pub fn adopt_family(&self, family: &Exclusive) {
        self.families.borrow_mut().extend(family.try_lock_arc());
    }

    /// Locks an executable graph for the rest of the call. Returns `false` if the call has locked another one
    /// already.
    pub fn lock_exec(&self, exec: &Exclusive) -> bool {
        let mut held = self.exec.borrow_mut();
        match &*held {
            Some(guard) => Arc::ptr_eq(ArcMutexGuard::mutex(guard), exec),
            None => {
                *held = Some(exec.lock_arc());
                true
            }
        }
    }

    /// Ends the call. Objects that only this call still used are destroyed.
    pub fn release(&mut self) {
        *self.exec.get_mut() = None;
        self.families.get_mut().clear();
        *self.captures.get_mut() = None;
        self.objects.get_mut().clear();
        self.recent.done();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn objects_stay_until_the_call_is_done() {
        let ended = Arc::new(AtomicBool::new(false));
        let flag = ended.clone();
        let object = Object::new(std::ptr::without_provenance_mut::<u8>(8)).ends_by(move |_| {
            flag.store(true, Ordering::Relaxed);
            Ok(())
        });
        let mut held = Held::default();
        let raw: *mut u8 = held.keep(Arc::new(object));
        assert_eq!((raw as usize, ended.load(Ordering::Relaxed)), (8, false));
        held.release();
        assert!(ended.load(Ordering::Relaxed));
    }

    /// Calls on the same two families in either order, each with both locks.
    #[test]
    fn calls_on_the_same_graphs_exclude_each_other() {
        let (first, second) = (exclusive(), exclusive());
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (first, second, inside) = (&first, &second, &inside);
                scope.spawn(move || {
                    let mut held = Held::default();
                    for round in 0..500 {
                        let mut both = [first.clone(), second.clone()];
                        if (thread + round) % 2 == 0 {
                            both.reverse();
                        }
                        held.lock_families(both.into_iter().collect());
                        assert!(held.has(first) && held.has(second));
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        inside.fetch_sub(1, Ordering::Relaxed);
                        held.release();
                        assert!(!held.has_family());
                    }
                });
            }
        });
    }

    #[test]
    fn a_lock_out_of_order_is_only_tried() {
        let (captures, family) = (exclusive(), exclusive());
        let other = captures.lock_arc();
        let mut held = Held::default();
        held.lock_families(SmallVec::from_iter([family]));
        held.lock_captures(&captures);
        assert!(held.captures.borrow().is_none(), "else two calls could wait for each other");
        drop(other);
        held.release();
        held.lock_captures(&captures);
        assert!(captures.try_lock().is_none() && held.has_captures());
        held.unlock_captures();
        assert!(captures.try_lock().is_some() && !held.has_captures());
    }

    #[test]
    fn one_executable_graph_a_call() {
        let (one, other) = (exclusive(), exclusive());
        let held = Held::default();
        assert!(held.lock_exec(&one) && held.lock_exec(&one) && !held.lock_exec(&other));
    }
}
