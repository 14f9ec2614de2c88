// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The translated functions of a program, and when a function becomes one of them.

use std::fmt;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::compiled::{Compiled, Variant};
use super::place::{Place, Table};
use super::shape::Shape;
use crate::code::{Code, Function};
use crate::requests::is_requested;

/// The number of warps and loops that the interpreter starts in a function before the function is translated.
const HOT: u32 = 2000;
/// The maximum number of bytes of a program's translated code. Further functions stay with the interpreter.
const MAX_BYTES: usize = 64 << 20;

/// When the functions of a program are translated to the host's machine code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Never: all is interpreted.
    Never,
    /// When they have been executed often.
    WhenHot,
    /// All of them, immediately: for tests.
    Always,
}

/// The mode that `CUDA_EMULATOR_JIT` selects: `0`, `always`, or neither.
pub(crate) fn mode() -> Mode {
    static MODE: OnceLock<Mode> = OnceLock::new();
    *MODE.get_or_init(|| match () {
        () if is_requested("0") => Mode::Never,
        () if is_requested("always") => Mode::Always,
        () => Mode::WhenHot,
    })
}

/// Translates a function; `None` when it stays with the interpreter.
pub(crate) type Compile = fn(&Code, &Function, Variant) -> Option<Compiled>;

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
    /// Instead of the mode that the environment selects.
    mode: Option<Mode>,
}

impl fmt::Debug for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Native").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Native {
    /// No functions yet. `compile` translates those that become hot.
    pub(crate) fn new(compile: Compile) -> Native {
        Native { compile: Some(compile), ..Native::default() }
    }

    /// Replaces the mode that the environment selects.
    pub(crate) fn set_mode(&mut self, mode: Mode) {
        self.mode = Some(mode);
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode.unwrap_or_else(mode)
    }

    fn index(shape: Shape, partial: bool) -> usize {
        shape.index() * 2 + usize::from(partial)
    }

    /// Returns the entries of a variant, or `None` before they are made.
    pub(crate) fn table(&self, shape: Shape, partial: bool) -> Option<&Table> {
        self.variants[Native::index(shape, partial)].table.get().map(|table| &**table)
    }

    /// Counts `count` warps or loops that the interpreter has started in the function of `pc`. Returns whether there may be
    /// new places.
    pub(crate) fn warm(&self, code: &Code, pc: u32, count: u32, variant: Variant) -> bool {
        let Variant { shape, partial } = variant;
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
        let limit = if self.mode() == Mode::Always { 1 } else { HOT };
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
        let compiled = self.compile.and_then(|compile| compile(code, function, variant));
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
