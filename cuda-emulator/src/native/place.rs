// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The entries of translated code, and the state that it leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::compiled::Compiled;
use super::entry::{self, Code as ExitCode};
use super::view::View;

/// A way into translated code.
pub(crate) struct Place {
    pub(super) number: u32,
    pub(super) entry: entry::Entry,
    pub(super) compiled: Arc<Compiled>,
    pub(super) groups: usize,
    pub(super) partial: bool,
}

/// The result of running translated code.
pub(crate) struct Left<'p> {
    pub(crate) code: ExitCode,
    pub(crate) pc: u32,
    /// The result of the last handler (`view::called`), with [`ExitCode::Handler`].
    pub(crate) result: u32,
    /// With [`ExitCode::Interpret`], the lanes at other positions: each position, and the word of `View::scratch`
    /// with its lanes.
    pub(crate) parts: &'p [(u32, usize)],
    items: &'p [entry::Item],
}

impl Place {
    /// Writes what [`Self::run`] left in `words` at a barrier before this place to the frame.
    ///
    /// # Safety
    /// `frame` is that of the translated function; the words are those of the exit.
    pub(crate) unsafe fn unpark(&self, frame: *mut u8, lanes: u32, words: &[u64]) {
        // SAFETY: the frame is that of the translated function and the words are those of its exit, by this
        // function's contract.
        unsafe { entry::write_items(&self.entry.items, frame, self.groups, lanes, words) };
    }

    /// Writes what [`Self::run`] left in the scratch words at a barrier to the frame.
    ///
    /// # Safety
    /// The frame in `view` is that of the translated function.
    pub(crate) unsafe fn restore(&self, left: &Left<'_>, view: &View) {
        // SAFETY: the frame in `view` is that of the translated function by this function's contract; `left` is its
        // exit.
        unsafe { entry::write_items(left.items, view.frame, self.groups, view.active, &view.scratch) };
    }

    /// Returns whether translated code needs nothing of the frame here, as at the start of a kernel.
    pub(crate) fn is_start(&self) -> bool {
        self.entry.items.is_empty() && !self.partial
    }

    /// As [`Self::run`], from the start of a kernel; `None` when all lanes have exited.
    ///
    /// # Safety
    /// As [`Self::run`]; [`Self::is_start`] holds.
    #[inline(always)]
    pub(crate) unsafe fn run_start(&self, view: *mut View) -> Option<Left<'_>> {
        // SAFETY: `view` is complete by this function's contract, and the place is a start.
        unsafe {
            let value = (self.compiled.code)(view, self.number);
            let exit = &self.compiled.exits[value as u32 as usize];
            if exit.code == ExitCode::Ended { None } else { Some(self.left(&mut *view, value)) }
        }
    }

    /// Interprets the number that translated code returned. Scalars go to the frame.
    unsafe fn left(&self, view: &mut View, value: u64) -> Left<'_> {
        let (frame, active) = (view.frame, view.active);
        let exit = &self.compiled.exits[value as u32 as usize];
        if exit.code != ExitCode::Barrier {
            // Lanes that have exited may get anything.
            let lanes = if self.partial { active } else { u32::MAX };
            // SAFETY: the frame is that of the translated function (callers).
            unsafe { entry::write_items(&exit.items, frame, self.groups, lanes, &view.scratch) };
        }
        Left {
            code: exit.code,
            pc: exit.pc,
            result: (value >> 32) as u32,
            parts: &exit.parts,
            items: &exit.items,
        }
    }

    /// The number of words that [`Self::unpark`] takes.
    pub(crate) fn words(&self) -> usize {
        self.entry.items.last().map_or(0, |item| item.word + item.count(self.groups))
    }

    /// Executes the warp from this place on. `resumes`: its scalars are still in the scratch words. Returns `None`, and does
    /// nothing, if its registers are not as the translation expects.
    ///
    /// # Safety
    /// `view` is complete: its pointers are valid for the running function, whose lanes in `view.active` (not 0) are at this
    /// place; they are all that live unless the place is one for partial warps. The CPU has AVX2.
    pub(crate) unsafe fn run(&self, view: &mut View, resumes: bool) -> Option<Left<'_>> {
        // SAFETY: `view` is complete and its lanes are at this place by this function's contract.
        unsafe { self.run_wide(view, resumes) }
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt"))]
    unsafe fn run_wide(&self, view: &mut View, resumes: bool) -> Option<Left<'_>> {
        let (frame, active) = (view.frame, view.active);
        // SAFETY: the frame in `view` is that of the translated function (contract of `run`, the only caller).
        unsafe {
            if !resumes
                && !entry::read_items(&self.entry.items, frame, self.groups, active, &mut view.scratch)
            {
                return None;
            }
            let value = (self.compiled.code)(view, self.number);
            Some(self.left(view, value))
        }
    }
}

/// The places of a program by position, for one variant.
pub(crate) type Table = [AtomicPtr<Place>];

/// The place at a position of the code.
pub(crate) fn place_at(table: &Table, pc: u32) -> Option<&Place> {
    let place = table.get(pc as usize)?.load(Ordering::Acquire);
    // SAFETY: tables hold null or what lies in a box in `Native::places`, which is never removed while the program lives.
    unsafe { place.as_ref() }
}
