// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions before registers and labels have places.

use std::collections::HashMap;

use crate::code::{CONSTANT, Handler, Line};
use crate::ptx::types::Type;

/// The width of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Width {
    Predicate,
    B16,
    B32,
    B64,
    B128,
}

impl Width {
    /// The register that a type needs.
    pub(super) fn of(kind: Type) -> Width {
        match kind.bytes() {
            0 => Width::Predicate,
            1 | 2 => Width::B16,
            4 => Width::B32,
            8 => Width::B64,
            _ => Width::B128,
        }
    }

    /// Bytes of one lane; 0 for predicates.
    pub(super) fn bytes(self) -> u32 {
        match self {
            Width::Predicate => 0,
            Width::B16 => 2,
            Width::B32 => 4,
            Width::B64 => 8,
            Width::B128 => 16,
        }
    }

    /// Bytes of all lanes.
    pub(super) fn slot_bytes(self) -> u32 {
        if self == Width::Predicate { 4 } else { self.bytes() * 32 }
    }
}

/// A virtual register of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Register(pub(super) u32);

/// A label of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(pub(super) usize);

/// An operand of a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arg {
    None,
    Def(Register),
    Use(Register),
    /// An offset in the constant pool, [`CONSTANT`] set.
    Constant(u32),
}

/// The successor of a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum After {
    Next,
    Jump(Label),
    Table(Vec<Label>),
    /// Nowhere in this function.
    End,
}

/// An instruction before assembly.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) run: Handler,
    pub(super) imm: u64,
    pub(super) ops: [Arg; 8],
    /// Operands beyond those: `ops[7]` becomes the place of the first in [`crate::code::Code::operands`].
    pub(super) more: Vec<Arg>,
    /// The guard predicate, and whether it is negated.
    pub(super) guard: Option<(Register, bool)>,
    pub(super) line: u32,
    pub(super) aux: u32,
    /// It accesses memory and wants a range cache.
    pub(super) cached: bool,
    pub(super) after: After,
    /// See [`crate::code::Shape::stays`].
    pub(super) stays: bool,
}

/// The constants of a program, each once.
#[derive(Debug, Default)]
pub(super) struct Pool {
    offsets: HashMap<(Width, u64), u32>,
    lines: Vec<Line>,
}

impl Pool {
    /// A constant in all lanes; for a predicate, `bits` other than 0 is true.
    pub(super) fn constant(&mut self, width: Width, bits: u64) -> Arg {
        let lines = &mut self.lines;
        let offset = *self.offsets.entry((width, bits)).or_insert_with(|| {
            let offset = lines.len() * size_of::<Line>();
            let element: Vec<u8> = match width {
                Width::Predicate => vec![if bits != 0 { 0xff } else { 0 }; 4],
                _ => u128::from(bits).to_ne_bytes()[..width.bytes() as usize].to_vec(),
            };
            let count = width.slot_bytes().max(64) as usize / size_of::<Line>();
            for _ in 0..count {
                let mut line = Line([0; 64]);
                for chunk in line.0.chunks_mut(element.len()) {
                    chunk.copy_from_slice(&element);
                }
                lines.push(line);
            }
            offset as u32
        });
        Arg::Constant(offset | CONSTANT)
    }

    pub(super) fn into_lines(self) -> Vec<Line> {
        self.lines
    }

    /// Bytes so far.
    pub(super) fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }
}
