// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The translated functions of a program, and when a function becomes one of them.

use std::fmt;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::compiled::{Compile, Compiled, Variant};
use super::entry::{self, Code as ExitCode};
use super::shape::Shape;
use super::view::View;
use crate::lower::code::Code;

/// Warps and loops that the interpreter starts in a function before it is translated.
const HOT: u32 = 2000;
/// Bytes of translated code that a program may have: beyond, functions stay with the interpreter.
const MAX_BYTES: usize = 64 << 20;

/// The mode of translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Never,
    WhenHot,
    /// All of them, at once: for tests.
    Always,
}

/// As the environment variable `CUDA_EMULATOR_JIT` says: `0`, `always`, or nothing.
pub(crate) fn mode() -> Mode {
    static MODE: OnceLock<Mode> = OnceLock::new();
    *MODE.get_or_init(|| match std::env::var("CUDA_EMULATOR_JIT").as_deref() {
        Ok("0") => Mode::Never,
        Ok("always") => Mode::Always,
        _ => Mode::WhenHot,
    })
}

/// A way into translated code.
pub(crate) struct Place {
    number: u32,
    entry: entry::Entry,
    compiled: Arc<Compiled>,
    groups: usize,
    partial: bool,
}

/// The result of running translated code.
pub(crate) struct Left<'p> {
    pub(crate) code: ExitCode,
    pub(crate) pc: u32,
    /// The result of the last handler (`view::called`), with [`ExitCode::Handler`].
    pub(crate) result: u32,
    /// With [`ExitCode::Interpret`], lanes that are elsewhere: where, and which word of `View::scratch` says which.
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

    /// Executes the warp from here on; `parked` says that the scratch words are what it left. `None` when its registers are not as the translation expects: nothing has happened then.
    ///
    /// # Safety
    /// `view` is complete: its pointers are valid for the running function, whose lanes in `view.active` (not 0) are at this
    /// place; they are all that live unless the place is one for partial warps. The CPU has AVX2.
    pub(crate) unsafe fn run(&self, view: &mut View, parked: bool) -> Option<Left<'_>> {
        // SAFETY: `view` is complete and its lanes are at this place by this function's contract.
        unsafe { self.run_wide(view, parked) }
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt"))]
    unsafe fn run_wide(&self, view: &mut View, parked: bool) -> Option<Left<'_>> {
        let (frame, active) = (view.frame, view.active);
        // SAFETY: the frame in `view` is that of the translated function (contract of `run`, the only caller).
        unsafe {
            if !parked && !entry::read_items(&self.entry.items, frame, self.groups, active, &mut view.scratch)
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

#[derive(Default)]
struct VariantState {
    table: OnceLock<Box<Table>>,
    /// The execution counts of each function.
    heat: OnceLock<Box<[AtomicU32]>>,
}

/// The translated functions of a program.
#[derive(Default)]
pub(crate) struct Native {
    variants: [VariantState; 2 * Shape::COUNT],
    /// The places that the tables point to.
    places: Mutex<Vec<Box<[Place]>>>,
    bytes: AtomicUsize,
    /// Functions by their end.
    by_end: OnceLock<Vec<(u32, usize)>>,
    /// Without a translator, all functions stay with the interpreter.
    compile: Option<Compile>,
}

impl fmt::Debug for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Native").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Native {
    /// None yet; hot ones are translated by `compile`.
    pub(super) fn new(compile: Compile) -> Native {
        Native { compile: Some(compile), ..Native::default() }
    }

    fn index(shape: Shape, partial: bool) -> usize {
        shape.index() * 2 + usize::from(partial)
    }

    /// The places for a variant; `None` as long as there are none.
    pub(crate) fn table(&self, shape: Shape, partial: bool) -> Option<&Table> {
        self.variants[Native::index(shape, partial)].table.get().map(|table| &**table)
    }

    /// The place at a position.
    pub(crate) fn place(table: &Table, pc: u32) -> Option<&Place> {
        let place = table.get(pc as usize)?.load(Ordering::Acquire);
        // SAFETY: tables hold null or what lies in a box in `places`, which is never removed while the program lives.
        unsafe { place.as_ref() }
    }

    /// The interpreter has started `count` warps or loops at places like `pc`; whether there may be new places now.
    pub(crate) fn warm(&self, code: &Code, pc: u32, count: u32, (shape, partial): (Shape, bool)) -> bool {
        let by_end = self.by_end.get_or_init(|| {
            let functions = code.functions.iter().enumerate();
            let with_body = functions.filter(|(_, function)| function.end_pc > function.entry_pc);
            let mut list: Vec<_> = with_body.map(|(index, function)| (function.end_pc, index)).collect();
            list.sort_unstable();
            list
        });
        let at = by_end.partition_point(|(end, _)| *end <= pc);
        let Some((_, index)) = by_end.get(at) else { return false };
        let state = &self.variants[Native::index(shape, partial)];
        let heat = state.heat.get_or_init(|| code.functions.iter().map(|_| AtomicU32::new(0)).collect());
        let limit = if mode() == Mode::Always { 1 } else { HOT };
        let before = heat[*index].fetch_add(count, Ordering::Relaxed);
        // Once only; the counter is stopped before it could wrap around.
        if before >= limit {
            heat[*index].store(limit, Ordering::Relaxed);
            return false;
        }
        if before + count < limit || self.bytes.load(Ordering::Relaxed) > MAX_BYTES {
            return false;
        }
        let function = &code.functions[*index];
        let compiled = self.compile.and_then(|compile| compile(code, function, Variant { shape, partial }));
        let Some(compiled) = compiled else { return false };
        self.bytes.fetch_add(compiled.bytes, Ordering::Relaxed);
        let compiled = Arc::new(compiled);
        let table = state
            .table
            .get_or_init(|| code.instrs.iter().map(|_| AtomicPtr::new(std::ptr::null_mut())).collect());
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let ways = (0..).zip(&compiled.entries).map(|(number, entry)| Place {
            number,
            entry: entry.clone(),
            compiled: compiled.clone(),
            groups: shape.groups,
            partial,
        });
        let ways: Box<[Place]> = ways.collect();
        for place in &ways {
            table[place.entry.pc as usize].store(std::ptr::from_ref(place).cast_mut(), Ordering::Release);
        }
        places.push(ways);
        true
    }
}
