// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The objects that an executor has used lately. It uses them again without a table's lock and without counting
//! references. Both lie in memory that all executors write, and with several executors each write waits for the
//! processor that wrote it last.
//!
//! Each executor has places for objects. A place holds a reference for as long as the name exists. A thread that
//! removes the name then revokes the object in every executor's places. Where no call uses it, its reference is
//! released at once, otherwise at the end of that call.
//!
//! A place is a word that its executor changes from free to used and back by itself. Other threads change it only to
//! revoke. An executor that enters an object races with a thread that removes its name. Two pairs of steps decide the
//! race: enter, then check that the name exists; remove the name, then search the places. At least one of the two
//! sees the other.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use parking_lot::RwLock;
use smallvec::SmallVec;

use super::Object;

/// Places of an executor; the first one is for the current context.
const PLACES: usize = 64;
const CONTEXT: usize = 0;
/// Flags of a place, in the bits of the address that are always zero.
const USED: usize = 1;
const REVOKED: usize = 2;
const FLAGS: usize = USED | REVOKED;
const _: () = assert!(align_of::<Object>() > FLAGS);

/// Identifies an object: the address of the table, and the name in it.
pub type Key = (usize, u64);

/// The places of all executors.
static ALL: RwLock<Vec<Arc<Places>>> = RwLock::new(Vec::new());

/// # Invariants
///
/// A word is zero, or the address of an object (`Arc::into_raw`) with flags; it owns one reference. While it is used, only its
/// executor gives that back.
#[repr(align(64))]
struct Places([AtomicUsize; PLACES]);

/// The places of one executor, which alone enters and uses objects.
pub struct Recent {
    places: Arc<Places>,
    keys: [Cell<Key>; PLACES],
    /// The places that the present call uses.
    used: RefCell<SmallVec<[u8; 8]>>,
    /// Objects that left their places during the call. They are released at its end.
    revoked: RefCell<SmallVec<[Arc<Object>; 2]>>,
}

/// An object that a call uses, until it is done.
pub struct InUse<'a>(ManuallyDrop<Arc<Object>>, std::marker::PhantomData<&'a Recent>);

impl<'a> InUse<'a> {
    /// # Safety
    ///
    /// The address is that of an object whose reference stays until `'a` ends.
    unsafe fn of(address: usize) -> Self {
        // SAFETY: `# Safety` promises an object whose reference stays until `'a` ends. This value does not own that
        // reference, and never releases it.
        Self(ManuallyDrop::new(unsafe { Arc::from_raw(address as *const Object) }), std::marker::PhantomData)
    }

    /// Returns an object whose reference is kept outside of the places.
    ///
    /// # Safety
    ///
    /// The reference stays until `'a` ends.
    pub unsafe fn kept_elsewhere(object: &Arc<Object>) -> Self {
        // SAFETY: `# Safety` promises that the reference stays until `'a` ends.
        unsafe { Self::of(Arc::as_ptr(object).addr()) }
    }
}

impl Deref for InUse<'_> {
    type Target = Arc<Object>;

    fn deref(&self) -> &Arc<Object> {
        &self.0
    }
}

impl Default for Recent {
    fn default() -> Self {
        let places = Arc::new(Places([const { AtomicUsize::new(0) }; PLACES]));
        ALL.write().push(places.clone());
        Self {
            places,
            keys: [const { Cell::new((0, 0)) }; PLACES],
            used: RefCell::default(),
            revoked: RefCell::default(),
        }
    }
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").field("used", &self.used).finish_non_exhaustive()
    }
}

/// Returns the place of an object, which is the same in every executor.
fn place_of((table, name): Key) -> usize {
    // Names are numbers that a guest counts up in steps of its choice.
    let mixed = (name ^ table as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    1 + (mixed >> 32) as usize % (PLACES - 1)
}

impl Recent {
    /// Uses an object that was entered under this key, until the call is done.
    pub fn find(&self, key: Key) -> Option<InUse<'_>> {
        self.find_at(place_of(key), key)
    }

    /// Enters an object under its key, and uses it until the call is done. Returns it where it cannot be entered.
    ///
    /// Errors: the object, if its name was removed, or the call uses its place for another one.
    pub fn enter(&self, key: Key, object: Arc<Object>) -> Result<InUse<'_>, Arc<Object>> {
        let place = place_of(key);
        self.enter_at(place, key, object, Object::is_open)
    }

    /// Returns the current context, if it was entered under this name and number.
    pub fn find_context(&self, key: Key) -> Option<InUse<'_>> {
        self.find_at(CONTEXT, key)
    }

    /// Enters the current context. `stands` returns whether it can still be found under its name.
    ///
    /// Errors: as [`Self::enter`].
    pub fn enter_context(
        &self,
        key: Key,
        object: Arc<Object>,
        stands: impl FnOnce(&Object) -> bool,
    ) -> Result<InUse<'_>, Arc<Object>> {
        self.enter_at(CONTEXT, key, object, stands)
    }

    fn find_at(&self, place: usize, key: Key) -> Option<InUse<'_>> {
        if self.keys[place].get() != key {
            return None;
        }
        let word = &self.places.0[place];
        // Other threads only revoke, which the exchange below notices. The type of the object was read by this
        // thread.
        let address = word.load(Ordering::Relaxed);
        match address & FLAGS {
            _ if address == 0 => return None,
            0 => {
                let used =
                    word.compare_exchange(address, address | USED, Ordering::Acquire, Ordering::Relaxed);
                used.ok()?;
                self.used.borrow_mut().push(place as u8);
            }
            USED => {}
            _ => return None,
        }
        // SAFETY: the place is used, so its reference stays until `done`, for which nothing may borrow this value.
        Some(unsafe { InUse::of(address & !FLAGS) })
    }

    fn enter_at(
        &self,
        place: usize,
        key: Key,
        object: Arc<Object>,
        stands: impl FnOnce(&Object) -> bool,
    ) -> Result<InUse<'_>, Arc<Object>> {
        let word = &self.places.0[place];
        if word.load(Ordering::Relaxed) & USED != 0 {
            return Err(object);
        }
        self.keys[place].set(key);
        let address = Arc::into_raw(object).addr();
        // Not used: a thread that revokes the old one meanwhile has taken its reference.
        self.revoked.borrow_mut().extend(owned(word.swap(address | USED, Ordering::AcqRel)));
        // Pairs with the fence of `revoke`: either `revoke` sees the place, or this thread sees that the name was
        // removed.
        fence(Ordering::SeqCst);
        // SAFETY: the swap has marked the place as used, so only this executor releases its reference: in `done`, for
        // which nothing may borrow this value, or below, after the last use.
        let entered = unsafe { InUse::of(address) };
        if stands(&entered) {
            self.used.borrow_mut().push(place as u8);
            return Ok(entered);
        }
        word.swap(0, Ordering::AcqRel);
        // SAFETY: the word owned this reference, and no other thread releases that of a used place.
        Err(unsafe { Arc::from_raw(address as *const Object) })
    }

    /// Ends the call: objects that were revoked meanwhile are released, and destroyed if nothing else uses them.
    pub fn done(&mut self) {
        for place in self.used.get_mut().drain(..) {
            let word = &self.places.0[usize::from(place)];
            let now = word.load(Ordering::Relaxed);
            let free = now & !FLAGS;
            // Release: the call's uses of the object come before its end.
            if word.compare_exchange(free | USED, free, Ordering::Release, Ordering::Relaxed).is_err() {
                drop(owned(word.swap(0, Ordering::AcqRel) & !FLAGS));
            }
        }
        self.revoked.get_mut().clear();
    }
}

impl Drop for Recent {
    fn drop(&mut self) {
        self.done();
        ALL.write().retain(|places| !Arc::ptr_eq(places, &self.places));
        for word in &self.places.0 {
            drop(owned(word.swap(0, Ordering::AcqRel)));
        }
    }
}

/// Returns the reference that a place owned, given its word, which has no flags and was removed from the place.
fn owned(word: usize) -> Option<Arc<Object>> {
    // SAFETY: the word owned this reference (invariant), and the thread that took it out of its place calls this
    // once.
    (word != 0).then(|| unsafe { Arc::from_raw(word as *const Object) })
}

/// Removes an object, whose name was removed, from all executors' places. The caller has a reference, so this never
/// destroys the object.
pub fn revoke(key: Key, object: &Arc<Object>) {
    fence(Ordering::SeqCst);
    let (place, address) = (place_of(key), Arc::as_ptr(object).addr());
    for places in ALL.read().iter() {
        revoke_at(&places.0[place], |held| held == address);
    }
}

/// Removes the current contexts from all executors' places, when names of contexts have changed. The caller has a
/// reference to each context that lost its name, so this never destroys one.
pub fn revoke_contexts() {
    fence(Ordering::SeqCst);
    for places in ALL.read().iter() {
        revoke_at(&places.0[CONTEXT], |held| held != 0);
    }
}

fn revoke_at(word: &AtomicUsize, is_meant: impl Fn(usize) -> bool) {
    let change = |now: usize| match now & FLAGS {
        _ if !is_meant(now & !FLAGS) => None,
        0 => Some(0),
        USED => Some(now | REVOKED),
        _ => None,
    };
    if let Ok(before) = word.try_update(Ordering::AcqRel, Ordering::Acquire, change)
        && before & USED == 0
    {
        drop(owned(before));
    }
}

#[cfg(test)]
#[path = "recent_test.rs"]
mod tests;
