// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles that a call creates, and their end.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use cuda_library_rows::{HandleKind, Kind};
use smallvec::SmallVec;

use super::attempt::{Answers, Attempt, Named};
use super::memory::Memory;
use crate::gpu::{CuResult, CudaError};
use crate::objects::{Object, Reserved};
use crate::vendor::handles::Locked;
use crate::vendor::invoke::call_with_integers;
use crate::vendor::objects::Block;
use crate::vendor::refusal::Refusal;

/// A handle that a call creates.
pub(super) struct New<'a> {
    /// Its parameter.
    pub(super) index: usize,
    pub(super) kind: usize,
    pub(super) reserved: Reserved<'a>,
    pub(super) place: Place,
}

/// The place into which the library writes a new handle.
pub(super) enum Place {
    /// Memory of the call.
    Call,
    /// Memory that lives as long as the handle.
    Late(Late),
    /// Memory for the structure of the handle.
    Structure(Block),
}

impl Place {
    pub(super) fn of(kind: &HandleKind) -> CuResult<Self> {
        Ok(match kind.structure {
            0 if kind.is_late => Self::Late(Late::default()),
            0 => Self::Call,
            bytes => Self::Structure(Block::of(bytes)?),
        })
    }
}

/// Memory for a handle that the library may fill in after the call that creates it, from one of its own threads.
#[derive(Default)]
pub(super) struct Late(Box<AtomicU64>);

impl Late {
    pub(super) fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// Returns the handle at the address of such a place, or 0 if the library has not filled it in yet.
    pub(super) fn read(place: *mut u8) -> u64 {
        // SAFETY: `keep_late` creates the objects of late kinds, and each has the address of a place that lives until
        // the object is destroyed, which does not happen while the caller uses it.
        unsafe { AtomicU64::from_ptr(place.cast()) }.load(Ordering::Acquire)
    }
}

impl Attempt<'_> {
    /// Registers the handles that a call has created, by the guest's numbers.
    pub(super) fn keep_made(
        &self,
        made: SmallVec<[New<'_>; 1]>,
        slots: &[u64],
        memory: &mut Memory,
        maker: Option<&Arc<Object>>,
    ) -> CuResult<()> {
        for New { index, kind, reserved, place } in made {
            let (id, raw) = (slots[index], memory.piece(index).as_array().copied());
            let end = self.handles().made(kind, id, maker);
            let object = match place {
                Place::Late(late) => self.keep_late(kind, end, late),
                Place::Structure(block) => self.keep_structure(kind, block),
                Place::Call => self.keep(kind, u64::from_le_bytes(raw.unwrap_or_default()) as *mut u8),
            };
            self.cx.fill(reserved, object)?;
        }
        Ok(())
    }

    /// Returns the first handle of a call that creates a handle which only a function with both can end, or ends one. The
    /// states of the call's handles are locked.
    pub(super) fn maker(&self, slots: &[u64]) -> Option<Arc<Object>> {
        let roles = &self.call.roles;
        let makes = roles.new.is_some_and(|(_, kind)| self.handles().end(kind).is_none());
        let &first = roles.handles.first().filter(|_| makes || !roles.ends.is_empty())?;
        let Kind::Handle { kind, .. } = self.call.parameters[first].kind else { return None };
        self.handles().kind(kind).ok()?.get(slots[first]).ok()
    }

    /// Checks that the handles that the call ends were created with its first handle. The library follows what is behind them,
    /// which ends with that handle.
    ///
    /// Errors: the library's statuses for a wrong argument, and for a handle that does not exist.
    pub(super) fn check_maker(
        &self,
        slots: &[u64],
        locked: &[((usize, u64), Locked)],
        maker: Option<&Arc<Object>>,
    ) -> Result<(), Refusal> {
        for &(kind, id) in &self.ends(slots) {
            let (_, state) =
                locked.iter().find(|(key, _)| *key == (kind, id)).ok_or(self.not_initialized())?;
            let is_of = |maker: &Arc<Object>| {
                state.maker.as_ref().is_some_and(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(maker)))
            };
            if !maker.is_some_and(is_of) {
                return Err(Refusal::Status(self.loaded.rows.statuses.invalid_value));
            }
        }
        Ok(())
    }

    /// Removes the handles that the call is about to end, so that no other call ends them, too. The call keeps them until it is
    /// done.
    ///
    /// Errors: the library's status for a handle that does not exist.
    pub(super) fn take_ends(&self, slots: &[u64]) -> Result<(), Refusal> {
        for (kind, id) in self.ends(slots) {
            let object = self.handles().kind(kind)?.remove(id).map_err(|_| self.not_initialized())?;
            self.handles().ended(kind, id, 0);
            Object::destroy(object)?;
        }
        Ok(())
    }

    /// Returns the handles that the call ends, but for null.
    pub(super) fn ends(&self, slots: &[u64]) -> Named {
        let name = |&index: &usize| match self.call.parameters[index].kind {
            Kind::End(kind) if slots[index] != 0 => Some((kind, slots[index])),
            _ => None,
        };
        self.call.roles.ends.iter().filter_map(name).collect()
    }

    /// Returns the object of a handle that is one of the library's pointers.
    fn keep(&self, kind: usize, raw: *mut u8) -> Object {
        match self.handles().end(kind) {
            Some(end) => self.cx.made_in(self.cx.home_of(), raw, move |_, raw| {
                // SAFETY: the library's function that destroys a handle of this kind, which nothing uses any more.
                let status = unsafe { call_with_integers(end, &[raw as u64]) };
                if status == Some(0) { Ok(()) } else { Err(CudaError::UNKNOWN) }
            }),
            None => Object::new(raw).in_context(self.cx.home_of()),
        }
    }

    /// Returns the object of a handle that is a structure in the worker's memory.
    fn keep_structure(&self, kind: usize, mut block: Block) -> Object {
        let place = block.address() as *mut u8;
        let end = self.handles().end(kind);
        let statuses = self.loaded.rows.statuses;
        // If the call below is never made, the library may still use the memory, so it is leaked then.
        let block = ManuallyDrop::new(block);
        self.cx.made_in(self.cx.home_of(), place, move |_, place| {
            let status = match end {
                None => Some(statuses.success),
                // SAFETY: the library's function that destroys a handle of this kind, which nothing uses any more.
                Some(end) => unsafe { call_with_integers(end, &[place as u64]) },
            };
            drop(ManuallyDrop::into_inner(block));
            if status.is_some_and(|status| statuses.is_good(status)) {
                Ok(())
            } else {
                Err(CudaError::UNKNOWN)
            }
        })
    }

    /// Returns the object of a handle that the library may fill in later. `by` is the place for the function that destroys it.
    fn keep_late(&self, kind: usize, by: Arc<AtomicUsize>, late: Late) -> Object {
        let default = self.handles().end(kind).unwrap_or(0);
        let statuses = self.loaded.rows.statuses;
        let place = late.address() as *mut u8;
        // If the call below is never made, the library may fill in the place at any time, so it is leaked then.
        let late = ManuallyDrop::new(late);
        self.cx.made_in(self.cx.home_of(), place, move |_, place| {
            let raw = Late::read(place);
            if raw == 0 {
                // The library may still write to the place, at the end of a group.
                return Ok(());
            }
            let end = match by.load(Ordering::Relaxed) {
                0 => default,
                chosen => chosen,
            };
            let status = match end {
                0 => Some(statuses.success),
                // SAFETY: a function of the library that destroys a handle of this kind, which nothing uses any more.
                _ => unsafe { call_with_integers(end, &[raw]) },
            };
            // The library no longer writes to the place.
            drop(ManuallyDrop::into_inner(late));
            if status.is_some_and(|status| statuses.is_good(status)) {
                Ok(())
            } else {
                Err(CudaError::UNKNOWN)
            }
        })
    }

    pub(super) fn end(&self, kind: usize, id: u64) -> Result<Answers, Refusal> {
        let statuses = &self.loaded.rows.statuses;
        let object = self.handles().kind(kind)?.remove(id);
        let object = object.map_err(|_| Refusal::Status(statuses.not_initialized))?;
        // A kind may have several functions that destroy its handles. The program has called this one.
        let state = self.handles().ended(kind, id, self.address);
        let status = match Object::destroy(object) {
            Ok(()) => statuses.success,
            Err(_) => statuses.internal_error,
        };
        drop(state);
        Ok(Answers::from_slice(&u64::from(status as u32).to_le_bytes()))
    }
}

#[cfg(test)]
#[path = "made_test.rs"]
mod tests;
