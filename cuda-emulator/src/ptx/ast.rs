// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The syntax tree. It borrows every name from the text.

pub(crate) use cuda_fatbin::tokens::Immediate;

use super::types::{StateSpace, Type};
use crate::symbols::Reference;

/// A module.
#[derive(Debug, Default)]
pub(crate) struct Module<'a> {
    /// `.version` times ten.
    pub(crate) version: u32,
    /// The number in `.target sm_NN`.
    pub(crate) target: u32,
    pub(crate) variables: Vec<Variable<'a>>,
    pub(crate) functions: Vec<Function<'a>>,
    pub(crate) aliases: Vec<Alias<'a>>,
}

/// `.alias name, target;`: another name of a function that is defined in the module.
#[derive(Debug)]
pub(crate) struct Alias<'a> {
    pub(crate) name: &'a str,
    pub(crate) target: &'a str,
    pub(crate) line: u32,
}

/// `.visible`, `.weak`, `.extern`, `.common`, or none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Linkage {
    #[default]
    Local,
    Visible,
    Weak,
    Extern,
    Common,
}

/// A variable in memory: of a module, a function, or a parameter.
#[derive(Debug, Clone)]
pub(crate) struct Variable<'a> {
    pub(crate) linkage: Linkage,
    pub(crate) space: StateSpace,
    pub(crate) name: &'a str,
    pub(crate) kind: Type,
    /// Explicit, or that of the type.
    pub(crate) align: u64,
    /// Bytes of one element (a vector is one).
    pub(crate) element_bytes: u64,
    /// Array dimensions, outermost first; empty for a scalar. `None` for `[]`.
    pub(crate) dimensions: Vec<Option<u64>>,
    pub(crate) initializer: Option<Initializer<'a>>,
    pub(crate) managed: bool,
    /// `.texref` or `.surfref`.
    pub(crate) reference: Option<Reference>,
    /// `.reg` in a signature: the function has it in a register of this name.
    pub(crate) in_register: bool,
    pub(crate) line: u32,
}

impl Variable<'_> {
    /// Returns the size in bytes; the initialiser sets that of `[]`, or it is 0. Returns `None` when it does not fit
    /// 64 bits.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let mut bytes = self.element_bytes;
        for dimension in &self.dimensions {
            let count = dimension.unwrap_or(match &self.initializer {
                Some(Initializer::List(list)) => list.len() as u64,
                _ => 0,
            });
            bytes = bytes.checked_mul(count)?;
        }
        Some(bytes)
    }
}

/// The initial value of a variable, after `=`.
#[derive(Debug, Clone)]
pub(crate) enum Initializer<'a> {
    List(Vec<Initializer<'a>>),
    Number(Immediate),
    /// `name + addend`, limited to the bits in `mask` (all when there is no mask).
    Address {
        name: &'a str,
        addend: i64,
        mask: Option<u64>,
    },
}

/// `.entry` or `.func`.
#[derive(Debug)]
pub(crate) struct Function<'a> {
    pub(crate) linkage: Linkage,
    pub(crate) is_entry: bool,
    pub(crate) name: &'a str,
    pub(crate) signature: Signature<'a>,
    /// `.maxntid` or `.reqntid`: threads a block.
    pub(crate) max_threads: Option<u64>,
    /// `.reqnctapercluster`: blocks of a cluster in each dimension.
    pub(crate) cluster: Option<[u32; 3]>,
    /// Absent for a declaration.
    pub(crate) body: Option<Vec<Statement<'a>>>,
    pub(crate) line: u32,
}

/// Return values and parameters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signature<'a> {
    pub(crate) returns: Vec<Variable<'a>>,
    pub(crate) params: Vec<Variable<'a>>,
}

/// A part of a function body.
#[derive(Debug)]
pub(crate) enum Statement<'a> {
    Label {
        name: &'a str,
        line: u32,
    },
    Variable(Variable<'a>),
    Registers {
        kind: Type,
        names: Vec<RegisterNames<'a>>,
        line: u32,
    },
    Block(Vec<Statement<'a>>),
    /// `.callprototype`, whose signature is read and dropped.
    Prototype {
        name: &'a str,
    },
    Targets {
        name: &'a str,
        labels: Vec<&'a str>,
    },
    Instruction(Instruction<'a>),
}

/// `%r<10>` declares `%r0` to `%r9`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegisterNames<'a> {
    pub(crate) name: &'a str,
    pub(crate) count: Option<u32>,
}

/// One instruction.
#[derive(Debug)]
pub(crate) struct Instruction<'a> {
    pub(crate) guard: Option<Guard<'a>>,
    /// With all its dotted parts.
    pub(crate) opcode: &'a str,
    pub(crate) operands: Vec<Operand<'a>>,
    pub(crate) line: u32,
}

/// `@p` or `@!p`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guard<'a> {
    pub(crate) name: &'a str,
    pub(crate) negated: bool,
}

/// An operand as written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand<'a> {
    /// A register, variable, function, label or special register.
    Name(&'a str),
    /// `name+8`
    Offset(&'a str, i64),
    /// `name[2]`: the address of an element of an array, or what is there.
    Element(&'a str, i64),
    Immediate(Immediate),
    /// `!p`
    Not(&'a str),
    /// `-r`
    Minus(&'a str),
    /// `p|q`
    Pair(&'a str, &'a str),
    /// `{a, b}`
    Vector(Vec<Operand<'a>>),
    /// `(a, b)`
    List(Vec<Operand<'a>>),
    /// `[base+offset]`
    Address {
        base: Base<'a>,
        offset: i64,
    },
    /// `[a, {x, y}]`: a texture or surface and coordinates; with a sampler, `[a, s, {x, y}]`.
    Sampled {
        base: Base<'a>,
        coordinates: Vec<Operand<'a>>,
    },
    /// `{a, b, c, d}|p`
    VectorPair(Vec<Operand<'a>>, &'a str),
}

/// The base of an address.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Base<'a> {
    Name(&'a str),
    Absolute,
}
