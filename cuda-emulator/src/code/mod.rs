// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lowered code, used by both sides: `lower` creates it, and `execute` runs it.
//!
//! A warp's registers are adjacent, with 32 lanes each: a 32-bit register is `[u32; 32]`, a predicate one bit mask.
//! An operand is the byte offset of a register in the frame of the running function. With [`CONSTANT`] set it is the
//! offset of 32 equal lanes in [`Code::constants`].

pub(crate) mod fragment;
mod lanes;
mod layout;
pub mod program;

use std::collections::HashMap;

use crate::execute::{Flow, Machine};
use crate::native::Native;
use fragment::Matrices;
pub(crate) use lanes::{FULL, LANES, lanes_of};
pub(crate) use layout::{DYNAMIC_ALIGNMENT, Line, dynamic_start, frame, function_at, window};

/// Set in an operand that lies in the constant pool.
pub(crate) const CONSTANT: u32 = 1 << 31;
/// [`Instr::guard`] of an unconditional instruction.
pub(crate) const NO_GUARD: u32 = u32::MAX;
/// Set in [`Instr::guard`] for `@!p`; register offsets are multiples of 4.
pub(crate) const GUARD_NOT: u32 = 1;

/// Executes one instruction for the lanes in `machine.mask`.
///
/// # Safety
/// The operands must be those that the function which returned this handler documents, with the documented widths,
/// all inside the frame and the constant pool of the running warp. The CPU must have the features that the handler
/// was compiled for.
pub(crate) type Handler = for<'m, 'l, 'i> unsafe fn(&'m mut Machine<'l>, &'i Instr) -> Flow;

/// One instruction, one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Instr {
    pub(crate) run: Handler,
    /// A branch target, an address offset or a table index, depending on the handler.
    pub(crate) imm: u64,
    /// Operands, the destination first.
    pub(crate) ops: [u32; 8],
    /// The offset of the guard predicate, or [`NO_GUARD`].
    pub(crate) guard: u32,
    /// The line of the PTX text.
    pub(crate) line: u32,
    /// The index of the worker's range cache that a memory access uses.
    pub(crate) slot: u32,
    /// Small parameters, depending on the handler.
    pub(crate) aux: u32,
}

/// The code of a whole program.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) instrs: Vec<Instr>,
    /// Constants, each repeated for 32 lanes (predicates: one mask).
    pub(crate) constants: Vec<Line>,
    pub(crate) functions: Vec<Function>,
    pub(crate) calls: Vec<Call>,
    /// The operands of instructions that have more than [`Instr::ops`] holds: register offsets, or constants.
    pub(crate) operands: Vec<u32>,
    /// The matrices of matrix instructions.
    pub(crate) matrices: Vec<Matrices>,
    /// The targets of `brx.idx`.
    pub(crate) tables: Vec<Vec<u32>>,
    /// The operands of the handlers, for the translator: entry `n` is the start of those of instruction `n` in
    /// [`Code::mentions`]; one more entry ends the list.
    pub(crate) shapes: Vec<Shape>,
    pub(crate) mentions: Vec<Mention>,
    /// The code of hot functions as instructions of this machine.
    pub(crate) native: Native,
    /// The number of range caches that a worker needs.
    pub(crate) slots: u32,
    /// True if a kernel queries the position of the reserved shared memory.
    pub(crate) uses_reserved_shared: bool,
    /// Kernels by name, in parallel to `Program::kernels`.
    pub(crate) entries: HashMap<String, Entry>,
}

/// The operands of an instruction, and its successor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Its first entry in [`Code::mentions`].
    pub(crate) first: u32,
    pub(crate) next: Next,
    /// True if its handler returns only [`Flow::Next`] and [`Flow::Fault`] and does not change the active lanes.
    pub(crate) stays: bool,
}

/// The successor of an instruction; with a guard, the following instruction is one as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Following,
    /// To [`Instr::imm`].
    Jump,
    /// To one of table [`Instr::imm`].
    Table,
    /// No successor in this function.
    Nowhere,
}

/// A register that an instruction mentions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mention {
    /// Its offset in the frame.
    pub(crate) place: u32,
    /// Bytes of a lane; 0 for predicates.
    pub(crate) bytes: u8,
    /// True if it is written, in all lanes that execute the instruction; otherwise it is read.
    pub(crate) written: bool,
}

/// The properties of a kernel that the executor needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entry {
    /// Index in [`Code::functions`].
    pub(crate) function: usize,
    /// The offset in shared memory of each shared variable of the program; `u32::MAX` for those it does not use.
    pub(crate) shared_offsets: Vec<u32>,
}

/// A function.
#[derive(Debug, Clone, Default)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// True if it has a body and is not a kernel.
    pub(crate) callable: bool,
    pub(crate) entry_pc: u32,
    /// The end of its last instruction.
    pub(crate) end_pc: u32,
    /// The size of its register frame in bytes, including [`FRAME_HEADER`].
    pub(crate) frame_bytes: u32,
    /// The size of its local memory in bytes: parameters, return values, `.local` variables and the parameters of its
    /// calls.
    pub(crate) local_bytes: u32,
    pub(crate) params: Vec<Piece>,
    pub(crate) returns: Vec<Piece>,
}

/// A piece of a function's local memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

/// A call instruction; [`Instr::imm`] is its index.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// Index of the calling function.
    pub(crate) caller: usize,
    /// Index of the called function; `None` when it is the address in operand 0.
    pub(crate) callee: Option<usize>,
    /// Arguments and return values in the caller's local memory.
    pub(crate) args: Vec<Piece>,
    pub(crate) returns: Vec<Piece>,
}
